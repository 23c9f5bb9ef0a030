"""A lock among processes and threads: a file that stays, locked by the kernel (flock) until its holder ends."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

_POLL_S = 0.01


def file_lock(path: Path) -> FileLock:
    """A lock at `path`, taken by `with` (waits for ever) or by `.acquire(timeout=seconds)`.

    However its holder ends, also by SIGKILL, the lock is free afterwards; the file is never removed, because two
    processes could then lock two different files of one name. A thread that holds it may take it again through the
    same object; through another object it gets a RuntimeError at once, not a deadlock.

    Raises, when it is taken:
        filelock.Timeout: another process or thread held it for longer than `timeout`.
        OSError: the file cannot be made or opened, or its file system has no flock. There is no fallback to a lock
            file that merely exists: it would outlive a killed holder.
    """
    return FileLock(path, mode=0o644, poll_interval=_POLL_S, fallback_to_soft=False)


@contextmanager
def shared_lock(path: Path, *, alone: bool, patience_s: float = 0.0) -> Iterator[bool]:
    """For the length of the block, a lock that many hold together, or one alone; False: it was not to be had in time.

    However its holder ends, also by SIGKILL, the lock is free afterwards.

    Args:
        alone: hold it against all others; the file is made where it is missing.
        patience_s: seconds to wait for others; 0: none.

    Raises:
        OSError: the file cannot be opened (not `alone`: or is not there), or its file system has no flock.
    """
    flags = os.O_RDWR | os.O_CREAT if alone else os.O_RDONLY
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    try:
        deadline = time.monotonic() + patience_s
        while not (held := _locked(descriptor, alone)) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        yield held
    finally:
        os.close(descriptor)


def _locked(descriptor: int, alone: bool) -> bool:
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
