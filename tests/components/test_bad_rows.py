"""A mapping that lets a few bad rows be dropped: the steps, from a user's file to the evidence of a bundle."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from feature_store.errors import RefusedError
from feature_store.origin import Origin
from tests.components.steps import IGNORED_WARNING, Steps, prepare, project
from tests.e2e import tiny

pytestmark = pytest.mark.filterwarnings(IGNORED_WARNING)
BAD = [3, 41, 77]
MAPPING = {
    "workload": {"constant": "redis"}, "time": {"column": "window_start", "window_s": 60},
    "columns": {**{name: {"column": name} for name in ("psi_cpu_some", "psi_io_some", "connections")},
                "latency_ms": {"column": "took", "unit": "us"}}}


def file(good_only: bool = False) -> pd.DataFrame:
    """Three rows of 300 are bad: no latency, a negative one, a window for the second time."""
    table = tiny.telemetry(("redis",)).assign(took=lambda rows: 1000 * rows["latency_ms"]).drop(columns="latency_ms")
    if good_only:
        return table.drop(index=BAD)
    table.loc[3, "took"], table.loc[41, "took"] = np.nan, -5.0
    table.loc[77, "window_start"] = table.loc[76, "window_start"]
    return table


def steps_of(folder: Path, table: pd.DataFrame, **policy: Any) -> Steps:
    """As far as the features, where the data gate lets it."""
    folder.mkdir()
    steps = prepare(folder, table, tiny.task(("redis",)))
    steps.ingest(yaml.safe_dump({**MAPPING, **({"bad_rows": policy} if policy else {})}))
    steps.validate()
    steps.featurize()
    return steps


def read(steps: Steps, *names: str) -> Any:
    return json.loads(steps.folder.joinpath(*names).read_text())


def test_the_run_goes_on_as_with_a_file_without_these_rows(tmp_path: Path) -> None:
    with project(tmp_path):
        dropped = steps_of(tmp_path / "all", file(), drop=True, at_most="1 %")
        without = steps_of(tmp_path / "good", file(good_only=True))
        notes = [event["message"] for event in dropped.events() if event["event"] == "note"]
    assert notes == ["redis: 3 of 300 rows are dropped (1 not_null, 1 range, 1 unique_windows; up to 3 may be)"]
    for name in ("train.parquet", "test.parquet", "scaling.json"):
        made, wanted = (one.folder / "featurized" / "redis" / name for one in (dropped, without))
        assert made.read_bytes() == wanted.read_bytes()
    versions = [read(one, "featurized", "redis", "quality.json")["data_version"] for one in (dropped, without)]
    assert versions[0] == versions[1]


def test_what_is_passed_on_is_without_them_and_says_by_what_policy(tmp_path: Path) -> None:
    """So that what a killed run left is not taken up under another policy."""
    with project(tmp_path):
        steps = steps_of(tmp_path / "all", file(), drop=["range", "not_null", "unique_windows"], at_most=0.05)
    kept = pd.read_parquet(steps.folder / "validated" / "rows")
    assert len(kept) == 297 and not set(kept.index) & {row + 1 for row in BAD} and kept.index.name == "record"
    source, raw = read(steps, "featurized", "source.json"), read(steps, "samples", "source.json")
    assert source["rows"] == 297 and source["data_version"] != raw["data_version"] and raw["rows"] == 300
    assert source["bad_rows"] == {"rules": ["not_null", "range", "unique_windows"], "at_most": 0.05}
    assert "bad_rows" not in raw and Origin.read(steps.folder / "samples").bad_rows is not None


@pytest.mark.parametrize(("policy", "message"), [
    ({}, r"column 'took' \(latency_ms\) must have a value in every row, got none \(workload redis: 1 of 300 rows, "
         r"first at record 4, window 2026-01-05 00:03:00"),
    ({"at_most": "0.9 %"}, r"bad rows must be at most 2 of 300 \(at_most: 0.9 %\), got 3: 1 not_null, 1 range, 1 "
                           r"unique_windows \(workload redis, first at record 4, column 'took': none\); fix the "
                           r"source, or set bad_rows: \{at_most: 1 %\} in the mapping"),
])
def test_without_a_policy_or_beyond_its_limit_the_workload_stops(tmp_path: Path, policy: dict[str, Any],
                                                                message: str) -> None:
    with project(tmp_path), pytest.raises(RefusedError, match=message):
        steps_of(tmp_path / "all", file(), **policy).audit()


def test_the_evidence_has_them(tmp_path: Path) -> None:
    with project(tmp_path):
        steps = steps_of(tmp_path / "all", file(), drop=True, at_most="1 %")
        steps.audit()
        steps.pretrain()
        steps.fan_out()
    found = read(steps, "bundle", "redis", "evidence.json")["data"]["bad_rows"]
    assert (found["rows"], found["dropped"], found["unit"]) == (300, 3, "record")
    assert found["by_rule"] == {"not_null": 1, "range": 1, "unique_windows": 1}
    assert found["first"][1] == {"row": 42, "rule": "range", "column": "took", "value": "-5"}
