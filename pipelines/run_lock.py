"""One run at a time: a lock file that the kernel frees when its holder ends, however it ends.

Taken by every scheduled run and every monitor (pipelines/schedules/local.py starts them). The file
(feature_store/file_lock.py) says who holds it. A step that outlives its killed pipeline does not hold the lock:
programs that Python starts do not inherit it.

A run by hand waits for nobody, for its user sees what is at work and decides (docs/recipes/schedule.md). It leaves
the run lock alone, lest a scheduled run be refused for it, and has a lock of its own by which the next one sees it.
"""

import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from feature_store.errors import InputError, RefusedError
from feature_store.file_lock import file_lock

LOCK_NAME, BY_HAND_NAME = "run.lock", "run-by-hand.lock"
RUN, MONITOR = "assay run", "assay monitor"  # what holds them
PATIENCE_S = 60.0  # of a scheduled run where a monitor holds the lock, which looks for seconds
_POLL_S = 0.2


class BusyError(RefusedError):
    """Another process is at work. Exit code 75, "try again later" (EX_TEMPFAIL of sysexits.h)."""

    exit_code = 75


@contextmanager
def acquire_run_lock(path: Path, command: str = RUN, patience_s: float = 0.0) -> Iterator[None]:
    """Hold the lock at `path` for the length of the block.

    Args:
        path: the lock file, usually `<state folder>/run.lock`; made where missing, with its folder.
        command: who holds it then.
        patience_s: how long to wait for a monitor; for a run nobody waits.

    Raises:
        BusyError: another process holds it. The message names that process and since when it runs.
        InputError: the file cannot be made or opened.
    """
    lock = file_lock(path)
    try:
        _take(lock, path, command, time.monotonic() + patience_s)
        try:
            yield
        finally:
            with suppress(OSError):  # nobody is at work any more; a killed holder leaves its text
                path.write_text("")
    finally:
        lock.release()


@contextmanager
def beside_others(home: Path) -> Iterator[str]:
    """For the length of a run by hand: who else is at work in the state folder, "" for nobody."""
    with ExitStack() as held:
        others = [_holder(home / LOCK_NAME)]
        try:
            held.enter_context(acquire_run_lock(home / BY_HAND_NAME))
        except BusyError:
            others.append(_holder(home / BY_HAND_NAME))
        except InputError:
            pass  # the run itself says what is wrong with the folder
        yield next((said for pid, _, said in others if _lives(pid)), "")


def _take(lock: FileLock, path: Path, command: str, deadline: float) -> None:
    """Takes the lock and leaves process id, command and start time for the message of whoever comes second."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            try:
                lock.acquire(blocking=False)
                break
            except Timeout:
                _, holder, said = _holder(path)
                if holder == RUN or time.monotonic() >= deadline:
                    raise BusyError(f"another run has not ended: {said} ({path}); wait for it to end: nothing was "
                                    "started or registered") from None
                time.sleep(_POLL_S)
        path.write_text(json.dumps({"pid": os.getpid(), "command": command,
                                    "since": datetime.now(UTC).isoformat(timespec="seconds")}))
    except OSError as error:
        raise InputError(f"run lock: expected a file that can be written, got {error.strerror} ({path})") from None


def _holder(path: Path) -> tuple[int, str, str]:
    """Process and command that hold the lock, and both in words, as far as the file says: its holder may be about to
    write."""
    try:
        holder = json.loads(path.read_bytes())
        pid, command = int(holder["pid"]), str(holder["command"])
        return pid, command, f"process {pid} since {holder['since']} ({command})"
    except (OSError, ValueError, TypeError, KeyError):
        return 0, "", "another process"


def _lives(pid: int) -> bool:
    """Whether there is such a process; 0: nobody said which."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return pid != 0
