"""The kernel's page cache: memory limits charge a file's pages to whoever reads them first."""

import errno
import os
import stat
from pathlib import Path

_NO_FILE = (errno.ELOOP, errno.ENXIO, errno.ENOENT)  # a link, a socket, or gone meanwhile


def drop_from_cache(folder: Path) -> None:
    """Drops the files directly in `folder` from the cache, so that their next reader is charged for them.

    Regular files alone: of what a server lays down there no link is followed, and no pipe waited for.
    """
    for file in folder.iterdir():
        try:
            descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in _NO_FILE:
                continue
            raise
        try:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
