"""A ticket outlives its process, its lock does not."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from serving.unfinished import settle, ticket

ROOT = Path(__file__).parents[2]
ABOUT = {"model": "m", "task": "t", "workload": "w"}


def collect(folder: Path) -> list[tuple[str, dict[str, str]]]:
    found: list[tuple[str, dict[str, str]]] = []

    def clean_up(name: str, about: Mapping[str, str]) -> None:
        found.append((name, dict(about)))

    assert len(settle(folder, clean_up)) == len(found)
    return found


def test_finished_work_leaves_nothing(tmp_path: Path) -> None:
    with ticket(tmp_path, ABOUT):
        assert collect(tmp_path) == [], "it is held"
        assert len(list(tmp_path.iterdir())) == 1
    assert list(tmp_path.iterdir()) == []
    assert collect(tmp_path / "absent") == []


def test_failed_work_is_settled_once(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), ticket(tmp_path, ABOUT) as name:
        raise ZeroDivisionError
    assert collect(tmp_path) == [(name, ABOUT)]
    assert collect(tmp_path) == []


def test_what_could_not_be_cleaned_up_is_tried_again(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), ticket(tmp_path, ABOUT):
        raise ZeroDivisionError

    def fail(name: str, about: Mapping[str, str]) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        settle(tmp_path, fail)
    assert len(collect(tmp_path)) == 1


def test_the_work_of_a_killed_process_is_found_and_that_of_a_living_one_is_not(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from serving.unfinished import ticket\n"
        f"with ticket(Path(sys.argv[1]), {ABOUT}): print('ready', flush=True); time.sleep(60)"
    )
    arguments = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert collect(tmp_path) == []
        process.kill()
        process.wait(timeout=60)
    assert [about for _, about in collect(tmp_path)] == [ABOUT]


@pytest.mark.parametrize("content", [b"", b'{"model": "a', b"\0" * 40, b"\xff", b"5", b'{"model": 5}', b"[" * 100_000,
                                     b"{}", b'{"model": "m", "task": "t"}'])
def test_a_ticket_that_cannot_be_read_is_set_aside_and_said_once(
    tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "0.json"  # before any other
    broken.write_bytes(content)
    with pytest.raises(ZeroDivisionError), ticket(tmp_path, ABOUT):
        raise ZeroDivisionError
    assert [about for _, about in collect(tmp_path)] == [ABOUT]
    said = capsys.readouterr().err
    assert said.startswith(f"note: {broken} must be a ticket") and "0.unreadable" in said and said.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["0.unreadable"]
    assert (tmp_path / "0.unreadable").read_bytes() == content
    assert collect(tmp_path) == [] and capsys.readouterr().err == ""


def test_a_ticket_is_on_the_disk_before_the_work_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: dict[int, int] = {}
    monkeypatch.setattr("os.fsync", lambda file: synced.update({os.fstat(file).st_ino: os.fstat(file).st_size}))
    with ticket(tmp_path, ABOUT) as name:
        path = tmp_path / f"{name}.json"
        assert synced[path.stat().st_ino] == path.stat().st_size > 0, "its content"
        assert tmp_path.stat().st_ino in synced, "its name"


def test_a_ticket_that_is_being_written_is_nobodys(tmp_path: Path) -> None:
    (tmp_path / ".0123456789abcdef.0.json").touch()
    assert collect(tmp_path) == [] and len(list(tmp_path.iterdir())) == 1
