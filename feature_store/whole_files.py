"""Files that are read or written whole: only regular ones, and never another's in their place."""

import secrets
from collections.abc import Iterable
from pathlib import Path

from feature_store.errors import InputError


def require_file(path: Path, what: str, most_bytes: int) -> None:
    """Raises InputError where reading it might not end: no regular file (a pipe, a device), or a larger one."""
    if not path.is_file():
        raise InputError(f"{what} must be an existing file, got {path}")
    if (size := path.stat().st_size) > most_bytes:
        raise InputError(f"{what} must have at most {most_bytes:,} bytes, got {size:,} ({path})")


def require_writable(path: Path, what: str, read: Iterable[Path]) -> None:
    """Refuses before the work what could not be written after it, and to overwrite what is read."""
    try:
        if path.exists() and not path.is_file():
            raise InputError(f"{what} must be a file, got {path}")
        if path.exists() and any(other.exists() and path.samefile(other) for other in read):
            raise InputError(f"{what} must not be a file that is read, got {path}")
        new_beside(path).unlink()
    except OSError as error:
        raise InputError(f"{what} must be writable, got {error}") from error


def new_beside(path: Path) -> Path:
    """A new, empty file in the same folder, to be renamed; under a name that nobody has."""
    new = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    new.touch(exist_ok=False)
    return new


def write_whole(path: Path, text: str, what: str) -> None:
    """Writes the text beside the path and renames it. Raises InputError where it cannot be written."""
    try:
        new = new_beside(path)
        try:
            new.write_text(text, encoding="utf-8")
            new.replace(path)
        finally:
            new.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{what} must be writable, got {error}") from error
