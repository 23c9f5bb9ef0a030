"""The promotion ledger: every move of a model version, in order, hash-chained and signed.

One JSON line an entry (serving/ledger_entry.py), appended and never rewritten. The ledger is the truth about which
version is champion; the registry's aliases follow it (serving/promotion.py).

Reading verifies: the chain with its last signature, or every signature (serving/ledger_chain.py). What the file alone
cannot show is that its END was cut off: so its head is remembered elsewhere too (serving/ledger_heads.py), and whoever
reads the ledger says which heads it must hold.

Writing takes a lock file beside the ledger, one write and one fsync. A crash in the middle of a write
leaves an incomplete last line; it was never acted upon, and the next writer moves it to `<ledger>.torn`.
"""

import contextlib
import errno
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from filelock import Timeout

from feature_store.errors import AssayError, InputError
from feature_store.file_lock import file_lock
from feature_store.names import as_utf8
from feature_store.whole_files import read_regular, sync_folder
from serving.keys import load_private_key, load_public_key
from serving.ledger_chain import Chain, Pair, verified_chain
from serving.ledger_entry import Entry, check_move, sign_entry
from serving.ledger_heads import Head, read_head_file, require_heads, write_head_file
from serving.moves import Move, Standing, after

_LOCK_SECONDS = 60.0


class Ledger:
    """Reads and appends one ledger file. Threads and processes may share the file."""

    def __init__(self, path: Path, public_key_path: Path, private_key_path: Path | None = None) -> None:
        """Without a private key the ledger can be read and verified, not written."""
        self.path = path
        self._public_key_path = public_key_path
        self._private_key_path = private_key_path
        # A file of its own, never removed: the ledger itself may be replaced in a restore.
        self._lock = file_lock(path.with_name(f"{path.name}.lock"))

    @contextlib.contextmanager
    def locked(self, timeout_s: float = _LOCK_SECONDS) -> Iterator[None]:
        """Holds the ledger against every other process and thread. May be nested.

        Raises:
            AssayError: another held it for longer than `timeout_s`, or the lock file cannot be made.
        """
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

    def verify(self, heads: tuple[Head, ...] = ()) -> tuple[Entry, ...]:
        """Reads the whole ledger and checks every hash, signature and move.

        An incomplete last line is left out: its writer crashed, or is writing it now.

        Args:
            heads: entries that it must hold, beside the one that the file beside it remembers.

        Raises:
            RefusedError: naming the first entry that does not hold, or a head that is gone.
            InputError: the file or the key cannot be read.
        """
        return self._chain(heads, every_signature=True).entries

    def history(
        self, task: str | None = None, workload: str | None = None, heads: tuple[Head, ...] = ()
    ) -> tuple[Entry, ...]:
        """The verified entries of a task and workload (None: of all), oldest first. See `verify`."""
        return tuple(
            entry
            for entry in self.verify(heads)
            if task in (None, entry.move.task) and workload in (None, entry.move.workload)
        )

    def chain(self, heads: tuple[Head, ...] = ()) -> Chain:
        """The verified chain, whose last entry has the ledger's head. See `standings`."""
        return self._chain(heads, every_signature=False)

    def standings(self, heads: tuple[Head, ...] = ()) -> dict[Pair, Standing]:
        """The standing of every (task, workload) that has moves, from the verified chain.

        Raises:
            RefusedError, InputError: see `verify`; of the signatures only the last one is looked at.
        """
        return dict(self.chain(heads).standings)

    def standing(self, task: str, workload: str, heads: tuple[Head, ...] = ()) -> Standing:
        """Champion, challenger and earlier champions of a task and workload. See `standings`."""
        return self.standings(heads).get((task, workload), Standing())

    def champion_of(self, task: str, workload: str) -> int | None:
        """The champion's version, None where there is none."""
        return self.standing(task, workload).champion

    def append(self, moves: Sequence[Move], heads: tuple[Head, ...] = ()) -> tuple[Entry, ...]:
        """Appends moves in one write; on the disk are all of them or (after an error) none.

        Args:
            heads: see `verify`; nothing is put on top of a ledger that lacks one.

        Raises:
            RefusedError: the ledger does not verify, or a move contradicts it.
            InputError: the private key is missing or unusable.
            AssayError: the disk is full or cannot be written, or the lock was not to be had.
        """
        if self._private_key_path is None:
            raise InputError(f"ledger: expected a private key to write with, got none ({self.path})")
        with self.locked():
            key = load_private_key(self._private_key_path)
            chain = self._chain(heads, every_signature=True)
            standings, previous, added = dict(chain.standings), chain.last_hash, []
            for number, move in enumerate(moves, start=len(chain.entries)):
                pair, where = (move.task, move.workload), f"{self.path}, new entry {number}"
                _check_time(move.at, where)
                move = replace(move, reason=as_utf8(move.reason), actor=as_utf8(move.actor))
                check_move(move, where)
                standings[pair] = after(standings.get(pair, Standing()), move, where)
                added.append(sign_entry(key, move, number, previous))
                previous = added[-1].hash
            self._set_torn_line_aside()
            self._write(b"".join(entry.line for entry in added))
            if added:
                write_head_file(self.path, added[-1].head)
            return tuple(added)

    def _chain(self, heads: tuple[Head, ...], every_signature: bool) -> Chain:
        # First the heads, then the ledger: another process may append between the two.
        heads = (*heads, *read_head_file(self.path))
        lines, rest = self._read()
        chain = Chain()
        if lines:
            chain = verified_chain(self.path, lines, load_public_key(self._public_key_path), every_signature)
        require_heads(chain, heads, self.path, is_torn=bool(rest))
        return chain

    def _read(self) -> tuple[list[bytes], bytes]:
        """Complete lines, and what follows the last newline."""
        try:
            *lines, rest = read_regular(self.path).split(b"\n")
        except FileNotFoundError:
            return [], b""
        except OSError as error:
            raise InputError(f"ledger must be a readable file, got {error.strerror} ({self.path})") from error
        return lines, rest

    def _set_torn_line_aside(self) -> None:
        lines, rest = self._read()
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
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                self._write_or_undo(descriptor, data)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise AssayError(
                f"ledger must be written in full, got {error.strerror} ({self.path}); nothing was recorded, "
                "make room or give write access, and repeat"
            ) from error

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


def _check_time(at: str, where: str) -> None:
    try:
        is_utc = datetime.fromisoformat(at).utcoffset() == timedelta(0)
    except ValueError:
        is_utc = False
    if not is_utc:
        raise InputError(f"at must be a UTC time such as 2026-01-31T12:00:00+00:00, got {at!r} ({where})")
