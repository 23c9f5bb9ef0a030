"""A ledger in one file: a JSON line an entry, appended and never rewritten.

Writing takes a lock file beside the ledger, one write and one fsync. A crash in the middle of a write
leaves an incomplete last line; it was never acted upon, and the next writer moves it to `<ledger>.torn`.
"""

import contextlib
import errno
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from filelock import Timeout

from feature_store.errors import AssayError, InputError
from feature_store.file_lock import file_lock
from feature_store.whole_files import read_regular, sync_folder
from serving.ledger_entry import Entry
from serving.ledger_heads import Head, read_head_file, write_head_file


class LedgerFile:
    """Implements `serving.ledger_place.LedgerPlace` with a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # A file of its own, never removed: the ledger itself may be replaced in a restore.
        self._lock = file_lock(path.with_name(f"{path.name}.lock"))

    def is_there(self) -> bool:
        """See `serving.ledger_place.LedgerPlace`."""
        try:
            return self.path.exists()
        except OSError as error:
            raise AssayError(f"ledger must be readable, got {error.strerror} ({self.path})") from error

    def read(self) -> tuple[list[bytes], bytes]:
        """See `serving.ledger_place.LedgerPlace`; what follows the last end of a line is what a crash left."""
        try:
            *lines, rest = read_regular(self.path).split(b"\n")
        except FileNotFoundError:
            return [], b""
        except OSError as error:
            raise InputError(f"ledger must be a readable file, got {error.strerror} ({self.path})") from error
        return lines, rest

    def heads(self) -> tuple[Head, ...]:
        """The one in the file beside the ledger."""
        return read_head_file(self.path)

    @contextlib.contextmanager
    def locked(self, timeout_s: float) -> Iterator[None]:
        """See `serving.ledger_place.LedgerPlace`."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._lock.acquire(timeout=timeout_s)
        except Timeout as error:
            rule = f"ledger must be free within {timeout_s:g} s"
            raise AssayError(f"{rule}, another process holds it ({self.path}); try again") from error
        except OSError as error:
            raise AssayError(f"ledger must be writable, got {error.strerror} ({self._lock.lock_file})") from error
        try:
            yield
        finally:
            self._lock.release()

    def append(self, entries: Sequence[Entry]) -> None:
        """See `serving.ledger_place.LedgerPlace`; on the disk are all of them or (after an error) none."""
        try:
            self._set_torn_line_aside()
            self._write(b"".join(entry.line for entry in entries))
        except OSError as error:
            raise AssayError(
                f"ledger must be written in full, got {error.strerror} ({self.path}); nothing was recorded, "
                "make room or give write access, and repeat"
            ) from error
        if entries:
            write_head_file(self.path, entries[-1].head)

    def _set_torn_line_aside(self) -> None:
        lines, rest = self.read()
        if not rest:
            return
        with self.path.with_name(f"{self.path.name}.torn").open("ab") as file:
            file.write(rest + b"\n")
            file.flush()
            os.fsync(file.fileno())
        with self.path.open("r+b") as file:
            file.truncate(sum(len(line) + 1 for line in lines))
            os.fsync(file.fileno())

    def _write(self, data: bytes) -> None:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            self._write_or_undo(descriptor, data)
        finally:
            os.close(descriptor)

    def _write_or_undo(self, descriptor: int, data: bytes) -> None:
        size = os.fstat(descriptor).st_size
        try:
            if os.write(descriptor, data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(descriptor)
        except OSError:
            os.ftruncate(descriptor, size)
            raise
        if not size:  # the name of a new file has to survive a power cut too
            sync_folder(self.path.parent)
