"""A metric map: which PromQL expression gives which metric, read from YAML.

Pointing Assay at another Prometheus needs its URL and such a file, no code
(default: feature_store/sources/node_exporter.yaml).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from feature_store.errors import InputError, nearest
from feature_store.strict_yaml import read_yaml

DEFAULT_PATH = Path(__file__).with_name("node_exporter.yaml")

_TOP_KEYS = ("scrape_interval_s", "instance", "metrics")
_METRIC_KEYS = ("expression", "unit", "scale")


@dataclass(frozen=True)
class MappedMetric:
    """One metric of a map.

    Attributes:
        expression: PromQL with the placeholders `{window}` and `{instance}`; must give one series.
        unit: unit of the metric after scaling.
        scale: factor from the expression's value to `unit`.
    """

    expression: str
    unit: str
    scale: float


@dataclass(frozen=True)
class MetricMap:
    """Metrics by name and how to ask for them.

    Attributes:
        metrics: the metrics by column name.
        scrape_interval_s: how often the server scrapes its targets, s.
        instance: regular expression for the `instance` label of the machine.
    """

    metrics: Mapping[str, MappedMetric]
    scrape_interval_s: float
    instance: str

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
    return parse_metric_map(read_yaml(path, "metric map"), where=str(path))


def parse_metric_map(content: Any, *, where: str) -> MetricMap:
    """Builds a metric map from parsed YAML; `where` names the source in messages."""
    top = _mapping(content, "metric map", where)
    _check_keys(top, _TOP_KEYS, where)
    metrics = {}
    for name, entry in _mapping(top.get("metrics"), "metrics", where).items():
        place = f"{where}, {name}"
        entry = _mapping(entry, "metric", place)
        _check_keys(entry, _METRIC_KEYS, place)
        expression = entry.get("expression")
        if not isinstance(expression, str) or not expression.strip():
            raise InputError(f"expression must be PromQL text, got {expression!r} ({place})")
        scale = _positive(entry.get("scale", 1), "scale", place)
        metrics[str(name)] = MappedMetric(expression, str(entry.get("unit", "")), scale)
    if not metrics:
        raise InputError(f"metric map must name at least one metric, got none ({where})")
    interval_s = _positive(top.get("scrape_interval_s", 15), "scrape_interval_s", where)
    return MetricMap(metrics, interval_s, str(top.get("instance", ".*")))


def _mapping(value: Any, thing: str, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{thing} must be a mapping, got {type(value).__name__} ({where})")
    return value


def _check_keys(value: dict[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in value:
        if key not in known:
            raise InputError(f"key must be known, got {key!r} ({where}): {nearest(str(key), known)}")


def _positive(value: Any, thing: str, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise InputError(f"{thing} must be a positive number, got {value!r} ({where})")
    return float(value)
