"""One run at a time: a lock file that the kernel frees when its holder ends, however it ends.

Taken by every scheduled run (pipelines/schedules/local.py starts them) and by whatever must not overlap with one. The
file (feature_store/file_lock.py) says who holds it. A step that outlives its killed pipeline does not hold the lock:
programs that Python starts do not inherit it.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from feature_store.errors import InputError, RefusedError
from feature_store.file_lock import file_lock

LOCK_NAME = "run.lock"


@contextmanager
def acquire_run_lock(path: Path) -> Iterator[None]:
    """Hold the lock at `path` for the length of the block.

    Args:
        path: the lock file, usually `<state folder>/run.lock`; made where missing, with its folder.

    Raises:
        RefusedError: another process holds it. The message names that process and since when it runs.
        InputError: the file cannot be made or opened.
    """
    lock = file_lock(path)
    try:
        _take(lock, path)
        yield
    finally:
        lock.release()


def _take(lock: FileLock, path: Path) -> None:
    """Takes the lock and leaves process id and start time for the message of whoever comes second."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(blocking=False)
        path.write_text(json.dumps({"pid": os.getpid(), "since": datetime.now(UTC).isoformat(timespec="seconds")}))
    except Timeout:
        raise RefusedError(
            f"another run has not ended: {_holder(path)} ({path}); "
            "wait for it to end: nothing was started or registered"
        ) from None
    except OSError as error:
        raise InputError(f"run lock: expected a file that can be written, got {error.strerror} ({path})") from None


def _holder(path: Path) -> str:
    """Who holds the lock, as far as the file says: its holder may be about to write."""
    try:
        holder = json.loads(path.read_bytes())
        return f"process {holder['pid']} since {holder['since']}"
    except (OSError, ValueError, TypeError, KeyError):
        return "another process"
