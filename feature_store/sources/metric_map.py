"""A metric map: which PromQL expression gives which metric, read from YAML.

Pointing Assay at another Prometheus needs its URL and such a file, no code
(default: feature_store/sources/node_exporter.yaml). production_map.py adds what makes a training set of it.
"""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from feature_store.written.fields import ColumnName, PositiveNumber, Text, Unit
from feature_store.written.model import Written, read_written

DEFAULT_PATH = Path(__file__).with_name("node_exporter.yaml")


def _promql(expression: str) -> str:
    if not expression.strip():
        raise ValueError(f"expected PromQL, got {expression!r}")
    return expression


PromQL = Annotated[Text, AfterValidator(_promql)]


class MappedMetric(Written):
    """One metric of a map."""

    expression: PromQL = Field(
        description="PromQL with the placeholders `{window}` and `{instance}`; must give one series")
    unit: Unit = Field(default="", description="Unit of the metric after scaling")
    scale: PositiveNumber = Field(default=1.0, description="Factor from the expression's value to `unit`")


class MetricMap(Written):
    """Metrics by name and how to ask for them."""

    metrics: dict[ColumnName, MappedMetric] = Field(min_length=1, description="The metrics by column name")
    scrape_interval_s: PositiveNumber = Field(
        default=15.0, json_schema_extra={"unit": "s"}, description="How often the server scrapes its targets")
    instance: str = Field(
        default=".*", description="Regular expression for the `instance` label of the machine, `{instance}`")

    def expression(self, name: str, window_s: float) -> str:
        """The PromQL of metric `name` for a window of `window_s` seconds.

        The range is one scrape interval longer than the window: only then do the samples in it,
        at both of its ends, lie a whole window apart.
        """
        milliseconds = round((window_s + self.scrape_interval_s) * 1000)
        window = f"{milliseconds // 1000}s" if milliseconds % 1000 == 0 else f"{milliseconds}ms"
        template = self.metrics[name].expression
        return template.replace("{window}", window).replace("{instance}", self.instance)


def read_metric_map(path: Path = DEFAULT_PATH) -> MetricMap:
    """Reads and checks a metric map.

    Raises:
        InputError: where the file is missing, no YAML, or has unknown, missing or unusable keys.
    """
    return read_written(MetricMap, path, "metric map")
