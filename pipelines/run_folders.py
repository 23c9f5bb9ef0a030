"""Folders of runs, <home>/runs/<name>: which are Assay's, which are at work, and how they go.

`assay clean` (cleaning.py) and each run that begins (local_run.py) remove old ones, neither while a run is at work:
kfp's cache hands it files of earlier runs. What goes is renamed into <home>/trash/ before its first byte is deleted, so
that the cache never finds half a run.
"""

import errno
import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

from filelock import Timeout

from feature_store.file_lock import file_lock
from feature_store.whole_files import read_regular

TRASH = "trash"
AT_WORK_NAME = "lock"  # in a run's folder, held as long as the run is at work


def is_run(folder: Path) -> bool:
    """Whether a run of ours made it."""
    with suppress(OSError):
        return b'"pipeline_root"' in read_regular(folder / "request.json")
    return False


def is_no_file(path: Path) -> bool:
    """Something else has its name: a folder, a link, a pipe that would be read for ever."""
    return path.is_symlink() or (path.exists() and not path.is_file())


def is_reached_without_links(path: Path, home: Path) -> bool:
    """Whether no link leads from the state folder to it; what a link leads to may be anybody's."""
    return Path(os.path.realpath(path)) == Path(os.path.realpath(home)) / path.relative_to(home)


@contextmanager
def held(path: Path) -> Iterator[bool]:
    """Holds a lock file for the length of the block; False: somebody else does. Raises OSError: it cannot be opened."""
    with ExitStack() as lock:
        try:
            lock.enter_context(file_lock(path).acquire(blocking=False))
            free = True
        except Timeout:
            free = False
        except PermissionError:  # another account's run left it, say: whoever may read it can lock it too
            free = _locked(lock.enter_context(open(path, "rb", opener=_no_link)))
        yield free


def _locked(file: IO[bytes]) -> bool:
    """Whether it is, until it is closed; False: somebody else has locked it."""
    with suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _no_link(path: str, flags: int) -> int:
    """An opener."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


@contextmanager
def runs_held(home: Path, but: Path | None = None) -> Iterator[Path | None]:
    """Holds the locks of all runs for the length of the block; yields the folder of one that is at work, None: none is.

    Args:
        home: the state folder.
        but: the folder of a run that does not count: the one that asks.

    Raises:
        OSError: a lock cannot be opened.
    """
    with ExitStack() as locks:
        for path in home.glob(f"runs/*/{AT_WORK_NAME}"):
            if path.parent == but or not is_reached_without_links(path, home) or is_no_file(path):
                continue  # or no run's
            if not locks.enter_context(held(path)):
                yield path.parent
                return
        yield None


def moved_to_trash(path: Path, trash: Path) -> Path | None:
    """What it is called there; None: it has gone, or is on another disk. Raises OSError."""
    new = trash / secrets.token_hex(8)
    try:
        path.rename(new)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.EXDEV):
            raise
        return None
    return new
