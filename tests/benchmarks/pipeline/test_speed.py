"""The benchmark command: what it writes, what it keeps, and that a measurement that fails sinks nothing."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import main as run_benchmark
from benchmarks.harness import isolation
from benchmarks.harness.machine import describe_machine, without_paths
from benchmarks.harness.quantity import below, quantity
from benchmarks.pipeline import speed as pipeline
from benchmarks.pipeline.sizes import QUICK, Sizes


@pytest.fixture
def telemetry(tmp_path: Path) -> Path:
    path = tmp_path / "samples.parquet"
    path.write_bytes(b"stands for telemetry")
    return path


@pytest.fixture
def outcomes(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Any]]:
    """What each measurement answers, instead of measuring."""
    answers: dict[str, dict[str, Any]] = {}

    def run(name: str, *_: object) -> dict[str, Any]:
        return answers.get(name) or {"status": "done", "quantities": {"it": quantity("it", "s", [1.0, 3.0, 2.0],
                                                                                     below(2.5))}, "details": {}}

    monkeypatch.setattr(pipeline, "run_isolated", run)
    return answers


def test_all_measurements_are_written(telemetry: Path, outcomes: dict[str, Any], tmp_path: Path) -> None:
    output = tmp_path / "out.json"
    assert run_benchmark(["pipeline", "--telemetry", str(telemetry), "--output", str(output)]) == 0
    results = json.loads(output.read_text())
    assert set(results["measurements"]) == set(isolation.MEASUREMENTS)
    assert results["measurements"]["rollback"]["quantities"]["it"]["values"] == [1.0, 3.0, 2.0]
    assert results["measurements"]["rollback"]["sizes"] == {"rollback_repeats": 15}
    assert str(tmp_path) not in output.read_text()


def test_a_failed_measurement_is_recorded_and_the_others_go_on(
    telemetry: Path, outcomes: dict[str, Any], tmp_path: Path,
) -> None:
    outcomes["ingestion"] = {"status": "failed", "error": "no server"}
    output = tmp_path / "out.json"
    assert run_benchmark(["pipeline", "--telemetry", str(telemetry), "--output", str(output)]) == 1
    measurements = json.loads(output.read_text())["measurements"]
    assert measurements["ingestion"]["error"] == "no server"
    assert measurements["scale"]["status"] == "done"


def test_what_is_not_measured_again_is_kept(telemetry: Path, outcomes: dict[str, Any], tmp_path: Path) -> None:
    output = tmp_path / "out.json"
    run_benchmark(["pipeline", "--telemetry", str(telemetry), "--output", str(output)])
    outcomes["rollback"] = {"status": "failed", "error": "later"}
    run_benchmark(["pipeline", "--only", "rollback", "--telemetry", str(telemetry), "--output", str(output)])
    measurements = json.loads(output.read_text())["measurements"]
    assert measurements["rollback"]["status"] == "failed" and measurements["scale"]["status"] == "done"


def test_another_machine_s_measurements_are_not_mixed_in(
    telemetry: Path, outcomes: dict[str, Any], tmp_path: Path,
) -> None:
    output = tmp_path / "out.json"
    run_benchmark(["pipeline", "--only", "rollback", "--telemetry", str(telemetry), "--output", str(output)])
    results = json.loads(output.read_text())
    results["machine"]["cores"] += 1
    output.write_text(json.dumps(results))
    run_benchmark(["pipeline", "--only", "scale", "--telemetry", str(telemetry), "--output", str(output)])
    assert set(json.loads(output.read_text())["measurements"]) == {"scale"}


def test_missing_telemetry_is_bad_usage(tmp_path: Path) -> None:
    assert run_benchmark(["pipeline", "--telemetry", str(tmp_path / "none.parquet")]) == 2


def test_sizes_are_options(telemetry: Path, outcomes: dict[str, Any], tmp_path: Path) -> None:
    output = tmp_path / "out.json"
    run_benchmark(["pipeline", "--quick", "--only", "scale", "--scale-workloads", "3", "6",
                   "--telemetry", str(telemetry), "--output", str(output)])
    measured = json.loads(output.read_text())["measurements"]["scale"]
    assert measured["sizes"]["scale_workloads"] == [3, 6]
    assert measured["sizes"]["scale_rows"] == QUICK.scale_rows != Sizes().scale_rows
    assert measured["quick"] is True


def test_a_measurement_runs_in_a_process_of_its_own(tmp_path: Path) -> None:
    found = isolation.run_isolated("recorder", QUICK, tmp_path, tmp_path / "samples.parquet")
    assert found["status"] == "failed" and "card.json" in found["error"]
    shares = {"recorder": 0.01, "sum": 0.03}
    (tmp_path / "card.json").write_text(json.dumps(
        {"recorder_core_share": shares, "combinations": 60, "recorded_utc": ["", ""]}))
    found = isolation.run_isolated("recorder", QUICK, tmp_path, tmp_path / "samples.parquet")
    assert found["quantities"]["cores"]["median"] == 0.03 and found["quantities"]["cores"]["met"] is True


def test_a_quantity_without_a_value_is_refused() -> None:
    with pytest.raises(ValueError, match="must have a value"):
        quantity("nothing", "s", [])


def test_messages_lose_their_paths() -> None:
    assert without_paths("no such file: '/some/where/data.json', at http://127.0.0.1:9/api") == \
        "no such file: 'data.json', at http://127.0.0.1:9/api"


def test_the_machine_is_described_without_its_name() -> None:
    import platform

    assert platform.node() not in json.dumps(describe_machine()).split('"')
