"""The whole run under several loads: each in a state folder of its own, and pretrained once."""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.result_file import read_results
from systems.autoscaling.benchmarks import whole_run


class Done:
    """Of a run."""

    seconds, all_processes_peak_gb = 60.0, 1.0
    summary = {"entries": [{"workload": "nginx", "status": "registered", "verdict": "PROVED",
                            "gates": {"gates": [{"name": "saves", "passed": True},
                                                {"name": "reward", "passed": False}]},
                            "metrics": dict.fromkeys(whole_run.METRICS, 0.5)}]}


def test_all_but_the_first_take_over_what_the_first_pretrained_and_nothing_else(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[tuple[list[str], list[str]]] = []

    def run_assay(options: Sequence[str], home: Path) -> Any:
        found.append(([option for option in options if option.startswith("--")],
                      sorted(str(path.relative_to(home)) for path in home.rglob("*") if path.is_file())))
        for name in ("pretrained/key", "cache/key", "ledger"):
            (home / name).parent.mkdir(exist_ok=True)
            (home / name).write_text("content")
        return Done

    monkeypatch.setattr(whole_run, "run_assay", run_assay)
    output = tmp_path / "result.json"
    whole_run.run(Namespace(loads=["shipped", "made"], output=output, data_folder=None))
    assert found == [(["--task"], []), (["--task", "--telemetry"], ["load.parquet", "pretrained/key"])]
    entries = (read_results(output) or {})["entries"]
    assert [(one["load"], one["pretrained"], one["workloads"][0]["passed"]) for one in entries] == [
        ("shipped", False, 1), ("made", True, 1)]
    whole_run.run(Namespace(loads=["shipped", "made"], output=output, data_folder=None))
    assert len(found) == 2, "what is there of the same code is kept"
