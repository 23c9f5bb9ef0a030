"""Freshness: what counts as new data, and a state file that survives crashes and two writers."""

import json
import logging
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from feature_store.errors import InputError
from pipelines.schedules.freshness import is_new_data, record_data_version


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state" / "freshness.json"


def test_without_a_record_all_data_is_new(state: Path) -> None:
    assert is_new_data(state, "performance", "d1", "c1")
    assert not state.parent.exists()


def test_the_same_data_and_code_is_not_new(state: Path) -> None:
    record_data_version(state, "performance", "d1", "c1")
    assert not is_new_data(state, "performance", "d1", "c1")


@pytest.mark.parametrize(("data", "code"), [("d2", "c1"), ("d1", "c2")])
def test_other_data_or_other_code_is_new(state: Path, data: str, code: str) -> None:
    record_data_version(state, "performance", "d1", "c1")
    assert is_new_data(state, "performance", data, code)


def test_tasks_are_kept_apart(state: Path) -> None:
    record_data_version(state, "performance", "d1", "c1")
    assert is_new_data(state, "sizing", "d1", "c1")
    record_data_version(state, "sizing", "d2", "c1")
    assert not is_new_data(state, "performance", "d1", "c1")
    assert not is_new_data(state, "sizing", "d2", "c1")


@pytest.mark.parametrize(
    "text",
    [
        "",
        '{"format": "assay-freshness/1", "tasks": {"perfor',
        "[]",
        '{"format": "other/9", "tasks": {}}',
        '{"format": "assay-freshness/1", "tasks": 3}',
        "\x00\x00\x00",
    ],
)
def test_a_torn_state_counts_as_new_with_a_warning_and_is_replaced(
    state: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    state.parent.mkdir()
    state.write_text(text)
    with caplog.at_level(logging.WARNING):
        assert is_new_data(state, "performance", "d1", "c1")
    assert str(state) in caplog.text
    record_data_version(state, "performance", "d1", "c1")
    assert not is_new_data(state, "performance", "d1", "c1")


def test_a_state_that_is_not_utf8_counts_as_new(state: Path) -> None:
    state.parent.mkdir()
    state.write_bytes(b"\xff\xfe")
    assert is_new_data(state, "performance", "d1", "c1")


def test_a_failed_write_keeps_the_old_state_and_leaves_no_file(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_data_version(state, "performance", "d1", "c1")

    def full_disk(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(InputError, match="No space left"):
        record_data_version(state, "performance", "d2", "c1")
    assert not is_new_data(state, "performance", "d1", "c1")
    assert sorted(path.name for path in state.parent.iterdir()) == ["freshness.json", "freshness.json.lock"]


def test_runs_that_end_at_once_keep_each_others_entries(state: Path) -> None:
    tasks = [f"task{number}" for number in range(20)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda task: record_data_version(state, task, "d", "c"), tasks))
    assert sorted(json.loads(state.read_text())["tasks"]) == sorted(tasks)
