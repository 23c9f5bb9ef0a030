"""The run lock: one holder, freed however the holder ends, and a message that names it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from feature_store.errors import InputError, RefusedError
from pipelines.run_lock import acquire_run_lock

HOLDER = """
import sys, time
from pathlib import Path
from pipelines.run_lock import acquire_run_lock
with acquire_run_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def start_holder(lock: Path) -> subprocess.Popen[str]:
    """A second process that holds the lock by the time this returns."""
    root = Path(__file__).parents[2]
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(lock)],
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
    assert f"process {holder.pid} since 20" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 1


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
