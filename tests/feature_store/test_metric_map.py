"""Metric maps: the default covers the schema, unusable ones are refused with a reason."""

from pathlib import Path

import pytest

from feature_store.errors import InputError
from feature_store.schema import METRICS
from feature_store.sources.metric_map import parse_metric_map, read_metric_map

METRIC = {"expression": 'rate(a{instance=~"{instance}"}[{window}])'}


def test_the_default_map_names_every_metric_of_the_schema_in_its_unit() -> None:
    default = read_metric_map()
    assert default.metrics.keys() == METRICS.keys()
    assert {name: metric.unit for name, metric in default.metrics.items()} == {
        name: column.unit for name, column in METRICS.items()
    }


def test_placeholders_are_replaced_and_the_range_spans_the_window() -> None:
    content = {"scrape_interval_s": 15, "instance": "node1:.*", "metrics": {"m": METRIC}}
    mapped = parse_metric_map(content, where="test")
    assert mapped.expression("m", 60) == 'rate(a{instance=~"node1:.*"}[75s])'
    assert mapped.expression("m", 0.5) == 'rate(a{instance=~"node1:.*"}[15500ms])'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "metric map must be a mapping, got list"),
        ({"metric": {}}, "did you mean 'metrics'"),
        ({"metrics": {}}, "at least one metric"),
        ({"metrics": {"m": {"expression": ""}}}, r"expression must be PromQL text, got '' \(test, m\)"),
        ({"metrics": {"m": {**METRIC, "scal": 1}}}, "did you mean 'scale'"),
        ({"metrics": {"m": {**METRIC, "scale": 0}}}, "scale must be a positive number, got 0"),
        ({"metrics": {"m": {**METRIC, "scale": "1"}}}, "scale must be a positive number"),
        ({"metrics": {"m": METRIC}, "scrape_interval_s": True}, "scrape_interval_s must be a positive number"),
    ],
)
def test_unusable_maps_are_refused(content: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_metric_map(content, where="test")


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="metric map must be a readable file"):
        read_metric_map(tmp_path / "none.yaml")
    (tmp_path / "bad.yaml").write_text("a: [")
    with pytest.raises(InputError, match="metric map must be YAML"):
        read_metric_map(tmp_path / "bad.yaml")
