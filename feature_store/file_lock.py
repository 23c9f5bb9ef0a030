"""A lock among processes and threads: a file that stays, locked by the kernel (flock) until its holder ends."""

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
