"""Freshness: what counts as new, what a scheduled run records, and a state that survives crashes and two writers."""

import json
import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from feature_store.errors import InputError
from models.gates import MetricGate, VerdictGate
from models.tasks.task import parse_task
from pipelines.command_line import app
from pipelines.local_run import RunOutcome
from pipelines.request import TrainRequest
from pipelines.schedules.freshness import digest_of, is_new, record
from tests.e2e import tiny
from tests.e2e.processes import new_project

REQUEST = TrainRequest(parse_task(tiny.task(), "tiny"), "name: tiny", ("redis", "nginx"), (("redis",), ("nginx",)),
                       (("redis", "nginx"),), 1, "/t.parquet", "columns: {}", "d", "c", 0, "one")
GATES = (VerdictGate(), MetricGate("accuracy", "test_accuracy", "larger", 0.5))
SCHEDULED = ("run", "--task", "tiny.yaml", "--telemetry", "samples.parquet", "--scheduled", "--json")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state" / "freshness.json"


def test_without_a_record_all_data_is_new(state: Path) -> None:
    assert is_new(state, "assay run", "d1")
    assert not state.parent.exists()


def test_what_was_recorded_is_not_new_and_anything_else_is(state: Path) -> None:
    record(state, "assay run", "d1")
    assert not is_new(state, "assay run", "d1")
    assert is_new(state, "assay run", "d2")


def test_commands_are_kept_apart(state: Path) -> None:
    record(state, "assay run --workload redis", "d1")
    assert is_new(state, "assay run --workload nginx", "d1")
    record(state, "assay run --workload nginx", "d2")
    assert not is_new(state, "assay run --workload redis", "d1")
    assert not is_new(state, "assay run --workload nginx", "d2")


@pytest.mark.parametrize("change", [
    {"data_version": "e"}, {"code_version": "d"}, {"task_yaml": "name: tiny\ntraining: {method: verified}"},
    {"mapping_yaml": "columns: {a: b}"}, {"seed": 1}, {"workloads": ("redis",)}], ids=str)
def test_whatever_a_run_is_made_of_makes_another_digest(change: dict[str, Any]) -> None:
    assert digest_of(replace(REQUEST, **change), GATES) != digest_of(REQUEST, GATES)


def test_a_gate_that_is_another_makes_another_digest_and_a_name_or_a_core_does_not() -> None:
    assert digest_of(REQUEST, (GATES[0], replace(GATES[1], limit=0.6))) != digest_of(REQUEST, GATES)
    other = replace(REQUEST, run_name="two", parallelism=8, shards=(("redis", "nginx"),))
    assert digest_of(other, GATES) == digest_of(REQUEST, GATES)


@pytest.mark.parametrize(
    "text",
    [
        "",
        '{"format": "assay-freshness/2", "runs": {"assay r',
        "[]",
        '{"format": "other/9", "runs": {}}',
        '{"format": "assay-freshness/1", "tasks": {"performance": {"data_version": "d1", "code_version": "c1"}}}',
        '{"format": "assay-freshness/2", "runs": 3}',
        "\x00\x00\x00",
    ],
)
def test_a_torn_or_an_earlier_state_counts_as_new_with_a_warning_and_is_replaced(
    state: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    state.parent.mkdir()
    state.write_text(text)
    with caplog.at_level(logging.WARNING):
        assert is_new(state, "performance", "d1")
    assert str(state) in caplog.text
    record(state, "performance", "d1")
    assert not is_new(state, "performance", "d1")


def test_a_state_that_is_not_utf8_counts_as_new(state: Path) -> None:
    state.parent.mkdir()
    state.write_bytes(b"\xff\xfe")
    assert is_new(state, "assay run", "d1")


def test_a_failed_write_keeps_the_old_state_and_leaves_no_file(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(state, "assay run", "d1")

    def full_disk(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(InputError, match="No space left"):
        record(state, "assay run", "d2")
    assert not is_new(state, "assay run", "d1")
    assert sorted(path.name for path in state.parent.iterdir()) == ["freshness.json", "freshness.json.lock"]


def test_runs_that_end_at_once_keep_each_others_entries(state: Path) -> None:
    commands = [f"assay run --seed {number}" for number in range(20)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda command: record(state, command, "d"), commands))
    assert sorted(json.loads(state.read_text())["runs"]) == sorted(commands)


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., bool]:
    """Runs `assay run --scheduled` with further options in a project; whether it trained. Workloads end in a status."""
    project = new_project(tmp_path)
    monkeypatch.chdir(project.folder)
    for name, value in project.environment.items():
        monkeypatch.setenv(name, value)

    def call(*options: str, status: str = "registered") -> bool:
        def run_local(request: TrainRequest, *_: Any, **__: Any) -> RunOutcome:
            entries = [{"workload": name, "status": status, "message": "", "gates": {"passed": True}, "alias": None,
                        "version": 1} for name in request.workloads]
            return RunOutcome(tmp_path, {"entries": entries, "report": "report.html"}, 1.0)

        monkeypatch.setattr("pipelines.local_run.run_local", run_local)
        document = json.loads(CliRunner().invoke(app, [*SCHEDULED, *options]).stdout)
        return document.get("status") != "no new data"

    return call


def test_schedules_of_one_task_do_not_take_turns(trained: Callable[..., bool]) -> None:
    """Each trains once, whichever came before it."""
    options = [("--workload", "redis"), ("--workload", "nginx"), ("--seed", "1")]
    assert [trained(*one) for one in options] == [True] * 3
    assert [trained(*one) for one in options] == [False] * 3


@pytest.mark.parametrize("status", ["failed", "error"])
def test_a_run_of_which_a_workload_failed_is_tried_again(trained: Callable[..., bool], status: str) -> None:
    assert trained(status=status) and trained(status="rejected") and not trained()


def test_a_changed_task_file_is_trained(trained: Callable[..., bool]) -> None:
    assert trained() and not trained()
    with Path("tiny.yaml").open("a") as file:
        file.write("\n# said otherwise\n")
    assert trained()
