"""The learning benchmark: which tasks its methods get, and what a repeated command does not make again."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import performance
from benchmarks.learning_job import METHODS, make_tasks
from tests.benchmarks.sample_results import performance_results


def test_methods_differ_only_where_they_say() -> None:
    tasks = make_tasks(list(METHODS), {"epochs": 7, "iterations": None})
    assert {name: task.settings["method"] for name, task in tasks.items()} == {
        "monotone": "monotone", "counterexample_guided": "counterexample_guided", "plain": "plain",
        "monotone_not_pretrained": "monotone"}
    assert tasks["monotone_not_pretrained"].pretrain_epochs == 0
    assert all(task.settings["epochs"] == 7 for task in tasks.values())
    different = {key for key, value in tasks["monotone"].settings.items() if tasks["plain"].settings[key] != value}
    assert different == {"method"}


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[list[Any]]:
    """The jobs that each call of the command would have run; each is done at once."""
    made: list[list[Any]] = []

    def run(jobs: list[Any], prepared: Any, options: Any, results: dict[str, Any]) -> int:
        made.append(jobs)
        done = performance_results()["entries"][0]
        results["entries"] += [{**done, **vars(job)} for job in jobs]
        performance.write_results(options.output, results)
        return 0

    monkeypatch.setattr(performance, "_run", run)
    return made


def test_finished_entries_are_not_made_again(runs: list[list[Any]], tmp_path: Path) -> None:
    telemetry, output = tmp_path / "samples.parquet", tmp_path / "performance.json"
    telemetry.write_bytes(b"stands for telemetry")
    command = ["--telemetry", str(telemetry), "--output", str(output), "--methods", "monotone", "--seeds"]
    assert performance.main([*command, "0"]) == 0
    performance.main([*command, "0", "1"])
    assert [sorted({job.seed for job in jobs}) for jobs in runs] == [[0], [1]]
    performance.main([*command, "0", "--epochs", "3"])  # other settings: its entries are others
    assert sorted({job.seed for job in runs[-1]}) == [0]
    telemetry.write_bytes(b"other telemetry")
    performance.main([*command, "0", "--epochs", "3"])
    assert sorted({job.seed for job in runs[-1]}) == [0]
    assert {entry["seed"] for entry in json.loads(output.read_text())["entries"]} == {0}
