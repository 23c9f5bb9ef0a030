"""The audit step: data that contradict a specification stop their workload, unless it is wished for by policy."""

import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from models.audit.pair_share import Interval
from models.audit.specification_audit import PropertyAudit
from models.reporting.report import render_version_report
from models.tasks.supervised.pages import SupervisedPages
from tests.components.steps import Steps, prepare, project
from tests.e2e import tiny


def turned(by_policy: bool) -> dict[str, Any]:
    """The tiny task with the wrong direction for nginx."""
    task = tiny.task()
    task["workloads"]["nginx"]["specification"] = {
        "properties": [{"monotone": {"features": ["psi_cpu_some"], "direction": "decreasing"}}]}
    task["workloads"]["nginx"]["by_policy"] = by_policy
    return task


def audited(folder: Path, task: dict[str, Any],
            telemetry: pd.DataFrame | None = None) -> tuple[Steps, dict[str, Any]]:
    with project(folder):
        steps = prepare(folder, tiny.telemetry() if telemetry is None else telemetry, task)
        steps.ingest()
        steps.validate()
        steps.featurize()
        return steps, steps.audit()


def test_what_the_data_obey_goes_on_and_is_written_down(tmp_path: Path) -> None:
    steps, found = audited(tmp_path, tiny.task())
    assert set(found) == {"nginx", "redis"}
    assert all(one["verdict"] != "contradicted" and one["by_policy"] is False for own in found.values() for one in own)
    features = steps.folder / "features"
    assert json.loads((features / "audit.json").read_text()) == found
    assert set(json.loads((features / "status.json").read_text()).values()) == {""}
    before = {path.relative_to(steps.folder / "featurized") for path in (steps.folder / "featurized").rglob("*")}
    assert before < {path.relative_to(features) for path in features.rglob("*")}


def test_a_target_of_zero_is_compared_as_it_is(tmp_path: Path) -> None:
    """Targets above 0 are compared by their logarithms, and 0 has none."""
    telemetry = tiny.telemetry()
    least = telemetry["latency_ms"].idxmin()
    telemetry.loc[least, "latency_ms"] = 0.0
    task = tiny.task() | {"target": {"name": "latency_ms", "unit": "ms", "minimum": 0.0}}
    _, found = audited(tmp_path, task, telemetry)
    workload = str(telemetry.loc[least, "workload"])
    for one in found[workload]:
        assert one["verdict"] != "contradicted"
        assert all(math.isfinite(pair[side]) for pair in one["worst"] for side in ("low_target", "high_target"))


def test_a_specification_that_the_data_contradict_stops_its_workload_alone(tmp_path: Path) -> None:
    steps, found = audited(tmp_path, turned(by_policy=False))
    status = json.loads((steps.folder / "features" / "status.json").read_text())
    assert status["redis"] == ""
    said = "specification: expected one that the data obey, got psi_cpu_some decreasing: contradicted"
    assert said in status["nginx"]
    assert "by_policy: true" in status["nginx"] and "at worst" in status["nginx"]
    assert json.loads((steps.folder / "featurized" / "status.json").read_text())["nginx"] == ""
    (one,) = found["nginx"]
    latencies = tiny.telemetry()["latency_ms"]
    assert all(latencies.min() * 0.999 <= pair["low_target"] <= latencies.max() * 1.001 for pair in one["worst"])


def test_a_specification_by_policy_is_reported_and_stops_nothing(tmp_path: Path) -> None:
    steps, found = audited(tmp_path, turned(by_policy=True))
    assert set(json.loads((steps.folder / "features" / "status.json").read_text()).values()) == {""}
    assert [one["verdict"] for one in found["nginx"]] == ["contradicted"] and found["nginx"][0]["by_policy"] is True
    page = render_version_report({}, {}, [], {"audit": found["nginx"]}, SupervisedPages())
    assert "Do the data obey the specification?" in page and "Worst pairs" in page and "by policy" in page


def test_a_step_that_is_repeated_gives_the_same(tmp_path: Path) -> None:
    with project(tmp_path):
        steps, found = audited(tmp_path, turned(by_policy=False))
        assert steps.audit() == found


@pytest.mark.parametrize(("pairs", "said"), [(0, "no two rows can be compared"), (40, "50.0% of 40 exact pairs obey")])
def test_the_sentence_says_what_was_compared(pairs: int, said: str) -> None:
    whole = Interval(0.0, 1.0)
    found = PropertyAudit("cores", "decreasing", "exact", pairs, pairs, 0.5, whole, 0.6, whole, 0.1, 0.1, (), 0.8, 30)
    assert said in found.sentence


def test_a_workload_whose_audit_fails_does_not_sink_the_others(tmp_path: Path) -> None:
    with project(tmp_path):
        steps = prepare(tmp_path, tiny.telemetry(), tiny.task())
        steps.ingest()
        steps.validate()
        steps.featurize()
        (steps.folder / "featurized" / "nginx" / "test.parquet").write_bytes(b"damaged")
        assert set(steps.audit()) == {"redis"}
    status = json.loads((steps.folder / "features" / "status.json").read_text())
    assert status["redis"] == "" and "ArrowInvalid" in status["nginx"]
