"""The default run of each system: an empty state folder each, the verdict and the gates that failed are kept."""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.control import default_runs
from benchmarks.harness.result_file import read_results
from feature_store.errors import AssayError


def done(verdict: str) -> Any:
    class Done:
        seconds, all_processes_peak_gb = 90.0, 1.0
        summary = {"entries": [{"workload": "one", "status": "rejected", "verdict": verdict, "gates": {"gates": [
            {"name": "violations", "passed": False}, {"name": "reward", "passed": True}]},
            "metrics": dict.fromkeys(default_runs.METRICS, 0.25)}]}

    return Done


def test_a_run_a_task_in_an_empty_folder_and_what_is_there_is_kept(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def run_assay(options: Sequence[str], home: Path) -> Any:
        assert options[0] == "--task" and not list(home.iterdir())
        ran.append(options[1])
        return done("PROVED" if options[1] == "sender" else "UNKNOWN")

    monkeypatch.setattr(default_runs, "run_assay", run_assay)
    monkeypatch.setattr(default_runs, "load_task", lambda name: SimpleNamespace(objective=SimpleNamespace(
        maximise="reward" if name == "sender" else "saving")))
    options = Namespace(tasks=["sender", "clock"], output=tmp_path / "result.json")
    default_runs.run(options)
    default_runs.run(options)
    assert ran == ["sender", "clock"], "what is there of the same code is kept"
    found = read_results(tmp_path / "result.json") or {}
    assert [default_runs.verdict_of(found, task) for task in ("sender", "clock", "another")] == [
        "PROVED, 1 of 1", "0 of 1 PROVED, the others UNKNOWN", "not measured"]
    assert ("| sender | one | PROVED | 1 of 2 | violations | 25.0 (25.0) | reward +0.250 (+0.250) | "
            "reward +0.250 (+0.250) | 1.50 |") in default_runs.runs_table(found)
    assert "25.0 % saved (25.0) | 25.0 % saved (25.0) | 1.50 |" in default_runs.runs_table(found)
    monkeypatch.setattr(default_runs, "made_of", lambda: "another")
    default_runs.run(Namespace(tasks=["sender"], output=tmp_path / "result.json"))
    assert ran[2:] == ["sender"], "and of other code is made again, but for tasks that were not asked for"
    assert len((read_results(tmp_path / "result.json") or {})["entries"]) == 2


def test_a_workload_without_gates_and_code_that_changes_are_told(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = done("PROVED")
    failed.summary = {"entries": [{"workload": "one", "status": "failed", "verdict": None, "gates": None,
                                   "metrics": None, "message": "data gate"}]}
    monkeypatch.setattr(default_runs, "run_assay", lambda options, home: failed)
    options = Namespace(tasks=["autoscaling"], output=tmp_path / "result.json")
    with pytest.raises(AssayError, match="workload one must come as far as its gates, got failed: data gate"):
        default_runs.run(options)
    versions = iter(["before", "after"])
    monkeypatch.setattr(default_runs, "made_of", lambda: next(versions))
    with pytest.raises(AssayError, match="code must stay as it is while autoscaling runs"):
        default_runs.run(options)
    assert not options.output.exists()
