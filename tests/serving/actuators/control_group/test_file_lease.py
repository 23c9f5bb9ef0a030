"""One controller a target, however the last one ended."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from serving.actuators.actuator import ActuatorError
from serving.actuators.control_group.file_lease import FileLease
from tests.e2e.tiny import ROOT

HOLD = ("import sys, time; from pathlib import Path; from serving.actuators.control_group.file_lease import FileLease\n"
        "lease = FileLease(Path(sys.argv[1])); print(repr(lease.acquire('first')), flush=True); time.sleep(60)")


def test_of_two_processes_one_has_it_and_a_killed_one_frees_it_at_once(tmp_path: Path) -> None:
    path = tmp_path / "state" / "lease"
    second = FileLease(path)
    with subprocess.Popen([sys.executable, "-c", HOLD, str(path)], cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"''\n"
        assert second.acquire("second") == f"first (process {process.pid})" and not second.is_held()
        process.kill()
        process.wait(timeout=60)
    assert second.acquire("second") == "" and second.is_held()


def test_it_is_renewed_by_its_holder_alone(tmp_path: Path) -> None:
    lease = FileLease(tmp_path / "lease")
    assert [lease.acquire(name) for name in ("a", "a", "b")] == ["", "", f"a (process {os.getpid()})"]
    lease.release("b")
    assert lease.is_held()
    lease.release("a")
    assert not lease.is_held() and lease.acquire("b") == ""


def test_two_objects_of_one_process_exclude_each_other(tmp_path: Path) -> None:
    first, second = FileLease(tmp_path / "lease"), FileLease(tmp_path / "lease")
    assert first.acquire("first") == "" and second.acquire("second").startswith("first")
    first.release("first")
    assert second.acquire("second") == ""


def test_a_holder_that_said_nothing_has_it_nevertheless(tmp_path: Path) -> None:
    first, second = FileLease(tmp_path / "lease"), FileLease(tmp_path / "lease")
    first.acquire("first")
    (tmp_path / "lease").write_text("")
    assert second.acquire("second") == "another controller"


def test_a_lock_file_that_was_removed_holds_nothing(tmp_path: Path) -> None:
    first, second = FileLease(tmp_path / "lease"), FileLease(tmp_path / "lease")
    first.acquire("first")
    (tmp_path / "lease").unlink()
    assert not first.is_held()
    assert second.acquire("second") == "" and first.acquire("first").startswith("second")
    first.release("first")
    assert second.is_held() and first.acquire("first").startswith("second")


def test_a_file_that_cannot_be_locked_lets_nobody_act(tmp_path: Path) -> None:
    (tmp_path / "lease").mkdir()
    with pytest.raises(ActuatorError, match="the lease must be a file that can be locked"):
        FileLease(tmp_path / "lease").acquire("a")


@pytest.mark.timeout(30)
def test_of_a_pipe_nobody_waits_for_the_holders_name(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "lease")
    first, second = FileLease(tmp_path / "lease"), FileLease(tmp_path / "lease")
    assert first.acquire("first") == "" and second.acquire("second") == "another controller"
