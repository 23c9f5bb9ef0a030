"""The run lock: one holder, freed however the holder ends, and a message that names it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from feature_store.errors import InputError, RefusedError
from pipelines.command_line import app
from pipelines.run_lock import LOCK_NAME, MONITOR, RUN, BusyError, acquire_run_lock, beside_others
from tests.e2e.processes import new_project

HOLDER = """
import sys, time
from pathlib import Path
from pipelines.run_lock import acquire_run_lock
with acquire_run_lock(Path(sys.argv[1]), sys.argv[2]):
    print("held", flush=True)
    time.sleep(float(sys.argv[3]))
"""


def start_holder(lock: Path, command: str = RUN, seconds: float = 60.0) -> subprocess.Popen[str]:
    """A second process that holds the lock by the time this returns, for so long."""
    root = Path(__file__).parents[2]
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(lock), command, str(seconds)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    return holder


def stop(holder: subprocess.Popen[str]) -> None:
    holder.kill()
    holder.communicate()


def test_a_second_run_is_refused_and_told_who_runs(tmp_path: Path) -> None:
    lock = tmp_path / "state folder" / "run.lock"
    holder = start_holder(lock)
    try:
        with pytest.raises(RefusedError) as caught, acquire_run_lock(lock):
            pytest.fail("two holders")
    finally:
        stop(holder)
    assert f"process {holder.pid} since 20" in str(caught.value) and "(assay run)" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 75


def test_a_run_waits_for_a_monitor_and_not_for_a_run(tmp_path: Path) -> None:
    """A nightly run and a monitor of every five minutes begin in the same second."""
    lock = tmp_path / "run.lock"
    holder = start_holder(lock, MONITOR, seconds=1.0)
    with acquire_run_lock(lock, patience_s=60.0):
        assert holder.wait() == 0
        stop(holder)
        began = time.monotonic()
        with pytest.raises(BusyError), acquire_run_lock(lock, patience_s=60.0):
            pytest.fail("two holders")
        assert time.monotonic() - began < 5.0
    holder = start_holder(lock, MONITOR)
    try:
        with pytest.raises(BusyError, match="assay monitor"), acquire_run_lock(lock, patience_s=0.5):
            pytest.fail("two holders")
    finally:
        stop(holder)


@pytest.mark.parametrize("command", [RUN, MONITOR])
def test_a_run_by_hand_is_told_of_a_scheduled_one_or_a_monitor_and_holds_nobody_up(tmp_path: Path,
                                                                                  command: str) -> None:
    holder = start_holder(tmp_path / LOCK_NAME, command)
    try:
        with beside_others(tmp_path) as other:
            assert other.startswith(f"process {holder.pid} since 20") and other.endswith(f"({command})")
    finally:
        stop(holder)
    with beside_others(tmp_path) as other, acquire_run_lock(tmp_path / LOCK_NAME):
        assert other == ""  # the killed one left its text


def test_a_run_by_hand_is_told_of_another_one(tmp_path: Path) -> None:
    with beside_others(tmp_path) as first, beside_others(tmp_path) as second:
        assert first == "" and second.startswith(f"process {os.getpid()} since 20")
    with beside_others(tmp_path) as third:
        assert third == ""


def test_the_command_tells_its_user_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def begun(*_: object, **__: object) -> None:
        raise InputError("it went on")

    monkeypatch.setattr("pipelines.local_run.run_local", begun)
    project = new_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    for name, value in project.environment.items():
        monkeypatch.setenv(name, value)
    command = ("run", "--task", "tiny.yaml", "--telemetry", "samples.parquet")
    alone = CliRunner().invoke(app, command)
    assert alone.exit_code == 2 and alone.stderr == "error: it went on\n"
    with acquire_run_lock(project.home / LOCK_NAME):
        beside = CliRunner().invoke(app, command)
        refused = CliRunner().invoke(app, [*command, "--scheduled"])
    assert beside.exit_code == 2 and beside.stderr.splitlines()[1:] == ["error: it went on"]
    first = beside.stderr.splitlines()[0]
    assert first.startswith(f"process {os.getpid()} since 20") and first.endswith(
        " (assay run) is at work, too; this run goes on beside it")
    assert refused.exit_code == 75 and f"process {os.getpid()} since 20" in refused.stderr


def test_a_run_by_hand_leaves_it_to_the_run_to_say_that_its_folder_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with beside_others(tmp_path / "file") as other:
        assert other == ""


def test_the_lock_is_free_after_its_holder_is_killed(tmp_path: Path) -> None:
    lock = tmp_path / "run.lock"
    holder = start_holder(lock)
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    with acquire_run_lock(lock):
        pass


def test_the_lock_is_free_after_an_error_in_the_block(tmp_path: Path) -> None:
    lock = tmp_path / "run.lock"
    with pytest.raises(KeyError), acquire_run_lock(lock):
        raise KeyError
    with acquire_run_lock(lock):
        pass


def test_two_holders_in_one_process_are_refused_too(tmp_path: Path) -> None:
    lock = tmp_path / "run.lock"
    with acquire_run_lock(lock):
        with pytest.raises(RefusedError, match=f"process {os.getpid()}"), acquire_run_lock(lock):
            pytest.fail("two holders")
        # The refused one must not have freed the lock of the first.
        with pytest.raises(RefusedError), acquire_run_lock(lock):
            pytest.fail("two holders")


def test_a_program_started_under_the_lock_does_not_keep_it(tmp_path: Path) -> None:
    lock = tmp_path / "run.lock"
    with acquire_run_lock(lock):
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        with acquire_run_lock(lock):
            pass
    finally:
        child.kill()
        child.wait()


def test_a_lock_file_without_holder_text_still_refuses(tmp_path: Path) -> None:
    lock = tmp_path / "run.lock"
    with acquire_run_lock(lock):
        lock.write_text("{torn")
        with pytest.raises(RefusedError, match="another process"), acquire_run_lock(lock):
            pytest.fail("two holders")


def test_the_holder_is_named_whatever_longer_text_an_earlier_one_left(tmp_path: Path) -> None:
    lock = tmp_path / "run.lock"
    lock.write_text('{"pid": 4194304, "since": "2026-01-31T12:00:00+00:00", "host": "of an older version"}')
    with acquire_run_lock(lock):
        with pytest.raises(RefusedError, match=f"process {os.getpid()} since"), acquire_run_lock(lock):
            pytest.fail("two holders")


def test_a_lock_that_cannot_be_made_is_an_input_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="run lock"), acquire_run_lock(tmp_path / "file" / "run.lock"):
        pytest.fail("no lock")
