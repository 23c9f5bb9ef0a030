"""One run at a time: a lock file that the kernel frees when its holder ends, however it ends.

Taken by every scheduled run (pipelines/local_schedule.py starts them) and by whatever must not overlap with
one. `flock` and not `lockf`: a POSIX record lock is lost as soon as any descriptor of the file is closed in
the process. The file itself stays: to delete it would let two runs lock two different files of the same name.
A step that outlives its killed pipeline does not hold the lock: programs that Python starts do not inherit
it.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from feature_store.errors import InputError, RefusedError

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
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise InputError(
            f"run lock must be a file that can be written, got {error.strerror} ({path})"
        ) from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RefusedError(
                f"run must not overlap with another, got {_holder(descriptor)} running ({path}); "
                "wait for it to end: nothing was started or registered"
            ) from None
        _write_holder(descriptor)
        yield
    finally:
        os.close(descriptor)


def _write_holder(descriptor: int) -> None:
    """Leave process id and start time for the message of whoever comes second."""
    text = json.dumps({"pid": os.getpid(), "since": datetime.now(UTC).isoformat(timespec="seconds")})
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, text.encode(), 0)


def _holder(descriptor: int) -> str:
    """Who holds the lock, as far as the file says: its holder may be about to write."""
    try:
        holder = json.loads(os.pread(descriptor, 4096, 0))
        return f"process {holder['pid']} since {holder['since']}"
    except (ValueError, TypeError, KeyError):
        return "another process"
