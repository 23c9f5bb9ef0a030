"""Result files of entries: what two processes write to one file at a time is all kept."""

import json
import threading
from pathlib import Path

from benchmarks.harness.entries import Entries, made_by
from benchmarks.harness.result_file import one_writer


def entries_of(path: Path, code: str = "new") -> Entries:
    return Entries(path, "assay-test/1", lambda entry: entry["run"], made_by(code))


def written(path: Path) -> list[tuple[int, str]]:
    return [(entry["run"], entry["code"]) for entry in json.loads(path.read_text(encoding="utf-8"))["entries"]]


def test_two_that_write_one_file_keep_the_entries_of_both(tmp_path: Path) -> None:
    path = tmp_path / "made" / "results.json"
    one, other = entries_of(path), entries_of(path)
    one.add({"run": 2, "code": "new"})
    other.add({"run": 0, "code": "new"}, {"run": 1, "code": "new"})
    assert written(path) == [(0, "new"), (1, "new"), (2, "new")] and other.has(2) and not one.has(0)
    one.add({"run": 3, "code": "new"})
    assert [run for run, _ in written(path)] == [0, 1, 2, 3] and len(one) == 4
    assert [each.name for each in path.parent.iterdir()] == ["results.json"]


def test_what_another_has_made_anew_is_not_put_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    entries_of(path, "old").add({"run": 0, "code": "old"}, {"run": 1, "code": "old"})
    one, other = (Entries(path, "assay-test/1", lambda entry: entry["run"],
                          lambda _, entry, asked=run: entry["run"] != asked) for run in (0, 1))
    other.add({"run": 1, "code": "new"})
    one.add({"run": 0, "code": "new"})
    assert written(path) == [(0, "new"), (1, "new")]


def test_entries_of_one_key_that_are_made_together_are_all_kept(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    entries_of(path).add({"run": 0, "code": "new"}, {"run": 0, "code": "new"})
    entries_of(path).add({"run": 1, "code": "new"}, {"run": 1, "code": "new"})
    assert written(path) == [(0, "new")] * 2 + [(1, "new")] * 2


def test_a_writer_waits_for_the_one_before_it(tmp_path: Path) -> None:
    path, added = tmp_path / "results.json", threading.Event()

    def add() -> None:
        entries_of(path).add({"run": 0, "code": "new"})
        added.set()

    waiting = threading.Thread(target=add)
    with one_writer(path):
        waiting.start()
        assert not added.wait(0.3) and not path.exists()
    waiting.join(10)
    assert added.is_set() and written(path) == [(0, "new")]


def test_an_entry_of_other_code_does_not_come_back(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    entries_of(path, "old").add({"run": 0, "code": "old"}, {"run": 1, "code": "old"})
    new = entries_of(path)
    assert len(new) == 0
    new.add({"run": 1, "code": "new"})
    assert written(path) == [(1, "new")]
