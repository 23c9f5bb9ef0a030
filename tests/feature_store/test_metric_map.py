"""Metric maps: the default covers the schema, unusable ones are refused with a reason."""

from pathlib import Path

import pytest

from feature_store.errors import InputError
from feature_store.schema import METRICS
from feature_store.sources.metric_map import MetricMap, read_metric_map
from feature_store.written.model import check_written

METRIC = {"expression": 'rate(a{instance=~"{instance}"}[{window}])'}


def test_the_default_map_names_every_metric_of_the_schema_in_its_unit() -> None:
    default = read_metric_map()
    assert default.metrics.keys() == METRICS.keys()
    assert {name: metric.unit for name, metric in default.metrics.items()} == {
        name: column.unit for name, column in METRICS.items()
    }


def test_placeholders_are_replaced_and_the_range_spans_the_window() -> None:
    content = {"scrape_interval_s": 15, "instance": "node1:.*", "metrics": {"m": METRIC}}
    mapped = check_written(MetricMap, content, "metric map", "test")
    assert mapped.expression("m", 60) == 'rate(a{instance=~"node1:.*"}[75s])'
    assert mapped.expression("m", 0.5) == 'rate(a{instance=~"node1:.*"}[15500ms])'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], r"metric map: expected a mapping, got \[\] \(test\)"),
        ({"metric": {}}, "metric: unknown field; did you mean 'metrics'"),
        ({"metrics": {}}, r"metrics: expected a mapping that is not empty, got \{\}"),
        ({"metrics": {"m": {"expression": ""}}},
         r"metrics.m.expression: expected a text that is not empty, got '' \(test\)"),
        ({"metrics": {"m": {"expression": " "}}}, "metrics.m.expression: expected PromQL, got ' '"),
        ({"metrics": {"m": {**METRIC, "scal": 1}}}, "metrics.m.scal: unknown field; did you mean 'scale'"),
        ({"metrics": {"m": {**METRIC, "scale": 0}}}, "metrics.m.scale: expected a number above 0, got 0"),
        ({"metrics": {"m": {**METRIC, "scale": "1"}}}, "metrics.m.scale: expected a number above 0, got '1'; write it"),
        ({"metrics": {"m": METRIC}, "scrape_interval_s": True}, "scrape_interval_s: expected a number above 0, got t"),
    ],
)
def test_unusable_maps_are_refused(content: object, message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}"):
        check_written(MetricMap, content, "metric map", "test")


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="metric map must be a readable file"):
        read_metric_map(tmp_path / "none.yaml")
    (tmp_path / "bad.yaml").write_text("a: [")
    with pytest.raises(InputError, match="metric map must be YAML"):
        read_metric_map(tmp_path / "bad.yaml")
