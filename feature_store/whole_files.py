"""Files and folders that are read whole, or written whole: under another name first, then renamed.

The one place where this project writes atomically. Whoever reads finds the old content or the new one, never a part,
also after a kill or a power cut at any moment: content is on the disk (fsync) before it gets its name, and the name
before the writer goes on. A kill leaves at most a file or folder named `.<16 hex digits>.<name>`, which nobody reads.
"""

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from feature_store.errors import InputError


def require_file(path: Path, what: str, most_bytes: int) -> None:
    """Raises InputError where reading it might not end: no regular file (a pipe, a device), or a larger one."""
    if not path.is_file():
        raise InputError(f"{what} must be an existing file, got {path}")
    if (size := path.stat().st_size) > most_bytes:
        raise InputError(f"{what} must have at most {most_bytes:,} bytes, got {size:,} ({path})")


def read_regular(path: Path, most_bytes: int = -1) -> bytes:
    """Content of a regular file, or its first bytes; of a pipe, say, nobody waits for a writer. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "no regular file", str(path))
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(most_bytes)
    finally:  # also of a folder, which `open` refuses and leaves open
        os.close(descriptor)


def require_writable(path: Path, what: str, read: Iterable[Path]) -> None:
    """Refuses before the work what could not be written after it, and to overwrite what is read."""
    try:
        if path.exists() and not path.is_file():
            raise InputError(f"{what} must be a file, got {path}")
        if path.exists() and any(other.exists() and path.samefile(other) for other in read):
            raise InputError(f"{what} must not be a file that is read, got {path}")
        _new_beside(path).unlink()
    except OSError as error:
        raise InputError(f"{what} must be writable, got {error}") from error


def _new_beside(path: Path, folder: Path | None = None, mode: int = 0o666) -> Path:
    """A new, empty file to be renamed to `path`, under a name that nobody has and with the same ending.

    Args:
        path: what the file will be called.
        folder: where it is made, on the same file system; without it the folder of `path`.
        mode: its permissions, less the process's umask.
    """
    new = _unused_name(path, folder)
    os.close(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode))
    return new


def write_whole(path: Path, text: str, what: str) -> None:
    """Writes a text that a user asked for. Raises InputError, which says `what` it is, where it cannot be written."""
    try:
        write_file(path, text)
    except OSError as error:
        raise InputError(f"{what} must be writable, got {error}") from error


def write_file(
    path: Path, content: str | bytes, *, mode: int = 0o666, folder: Path | None = None, overwrite: bool = True
) -> None:
    """Writes a file whole; text as UTF-8. For the arguments see `whole_file`.

    Raises:
        OSError: the disk is full or the folder cannot be written; what stood at `path` still does.
    """
    with whole_file(path, mode=mode, folder=folder, overwrite=overwrite) as new:
        new.write_bytes(content.encode() if isinstance(content, str) else content)


@contextmanager
def whole_file(
    path: Path, *, mode: int = 0o666, folder: Path | None = None, overwrite: bool = True
) -> Iterator[Path]:
    """Yields a new, empty file for the block to fill; it gets its name when the block ends without an error.

    Args:
        path: the name; its folder must exist.
        mode: permissions of the file, less the process's umask; it never has more, not for an instant.
        folder: where the file lies until then, on the same file system; without it beside `path`.
        overwrite: where False, a file that stands at `path` by the end of the block is left alone, and nothing raised.

    Raises:
        OSError: the disk is full or the folder cannot be written; what stood at `path` still does.
    """
    new = _new_beside(path, folder, mode)
    try:
        yield new
        _sync(new)
        if overwrite:
            new.replace(path)
        else:
            with suppress(FileExistsError):  # unlike a rename, a link fails where another process was first
                path.hardlink_to(new)
        sync_folder(path.parent)
    finally:
        new.unlink(missing_ok=True)


@contextmanager
def whole_folder(path: Path, *, overwrite: bool = True) -> Iterator[Path]:
    """Yields a new, empty folder for the block to fill; it gets its name when the block ends without an error.

    Args:
        path: the name; missing parents are made.
        overwrite: whether a folder that stands there is replaced. It is moved aside first: a kill between two renames
            can leave nothing at `path`, never a mixture.

    Raises:
        OSError: the disk is full, the parent cannot be written, or something stands at `path` that must not be
            overwritten; what stood there still does.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    new, old = _unused_name(path), _unused_name(path)
    new.mkdir()
    try:
        yield new
        for file in sorted(new.rglob("*")):
            _sync(file)
        _sync(new)
        if overwrite and path.is_dir():
            path.rename(old)
        try:
            new.rename(path)
        except OSError:
            if old.is_dir():
                old.rename(path)
            raise
        sync_folder(path.parent)
    finally:
        shutil.rmtree(new, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def sync_folder(folder: Path) -> None:
    """Returns once the names in the folder would survive a power cut."""
    _sync(folder)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unused_name(path: Path, folder: Path | None = None) -> Path:
    return (folder or path.parent) / f".{secrets.token_hex(8)}.{path.name}"
