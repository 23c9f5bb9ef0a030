"""The promotion ledger: every move of a model version, in order, hash-chained and signed.

One JSON line an entry, appended and never rewritten. The ledger is the truth about which version is
champion; the registry's aliases follow it (serving/promotion.py).

    hash       SHA-256 of the entry's canonical JSON without hash and signature; it covers previous_hash,
               so that no entry can be changed, removed, inserted or reordered without breaking the chain
    signature  the project key's, over the same bytes as a DSSE payload of a type of its own

What the file alone cannot show is that its END was cut off: a shorter chain is a valid chain. So the
head (sequence and hash) is also kept as a tag of the registered model, and compared at every move.

Writing takes a lock file beside the ledger, one write and one fsync. A crash in the middle of a write
leaves an incomplete last line; it was never acted upon, and the next writer moves it to `<ledger>.torn`.
"""

import base64
import binascii
import contextlib
import errno
import fcntl
import hashlib
import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, get_args

from cryptography.hazmat.primitives.asymmetric import ec

from feature_store.errors import AssayError, InputError, RefusedError
from serving.canonical import canonical_json, parse_json
from serving.keys import is_signed, load_private_key, load_public_key, sign_payload
from serving.moves import Action, Move, Standing, after

GENESIS = "0" * 64
PAYLOAD_TYPE = "application/vnd.assay.ledger-entry+json"
_LOCK_SECONDS = 60.0


@dataclass(frozen=True)
class Entry:
    """A move in its place in the chain."""

    sequence: int
    move: Move
    previous_hash: str
    hash: str
    signature: str

    @property
    def head(self) -> str:
        """What the registry remembers of the ledger's end: "<sequence>:<hash>"."""
        return f"{self.sequence}:{self.hash}"

    def to_json(self) -> dict[str, Any]:
        """One flat object: the line in the file."""
        return {**_body(self.sequence, self.move, self.previous_hash), "hash": self.hash,
                "signature": self.signature}  # fmt: skip


@dataclass(frozen=True)
class _Verified:
    """What `Ledger` has verified so far, and with which key."""

    key: ec.EllipticCurvePublicKey
    lines: list[bytes]
    entries: tuple[Entry, ...]
    standings: dict[tuple[str, str], Standing]


_MOVE_KEYS = tuple(item.name for item in fields(Move))
_TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys((*_MOVE_KEYS, "previous_hash", "hash", "signature"), (str,)),
    "sequence": (int,),
    "version": (int,),
    "previous_version": (int, type(None)),
    "gates_passed": (bool,),
}


class Ledger:
    """Reads and appends one ledger file. Threads and processes may share the file."""

    def __init__(self, path: Path, public_key_path: Path, private_key_path: Path | None = None) -> None:
        """Without a private key the ledger can be read and verified, not written."""
        self.path = path
        self._public_key_path = public_key_path
        self._private_key_path = private_key_path
        self._lock = threading.RLock()
        self._lock_depth = 0
        self._verified: _Verified | None = None

    @contextlib.contextmanager
    def locked(self, timeout_s: float = _LOCK_SECONDS) -> Iterator[None]:
        """Holds the ledger against every other process. May be nested.

        Raises:
            AssayError: another process held it for longer than `timeout_s`.
        """
        with self._lock:
            if self._lock_depth:
                yield
                return
            # A file of its own, never removed: the ledger itself may be replaced in a restore.
            lock_path = self.path.with_name(f"{self.path.name}.lock")
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                file = lock_path.open("ab")
            except OSError as error:
                raise AssayError(f"ledger must be writable, got {error.strerror} ({lock_path})") from error
            with file:
                _lock_within(file.fileno(), timeout_s, self.path)
                self._lock_depth = 1
                try:
                    yield
                finally:
                    self._lock_depth = 0

    def verify(self) -> tuple[Entry, ...]:
        """Reads the whole ledger and checks every hash, signature and move.

        An incomplete last line is left out: its writer crashed, or is writing it now.

        Raises:
            RefusedError: naming the first entry that does not hold.
            InputError: the file or the key cannot be read.
        """
        return self._replay()[0]

    def history(self, task: str | None = None, workload: str | None = None) -> tuple[Entry, ...]:
        """The verified entries of a task and workload (None: of all), oldest first."""
        return tuple(
            entry
            for entry in self.verify()
            if task in (None, entry.move.task) and workload in (None, entry.move.workload)
        )

    def standings(self) -> dict[tuple[str, str], Standing]:
        """The standing of every (task, workload) that has moves."""
        return self._replay()[1]

    def standing(self, task: str, workload: str) -> Standing:
        """Champion, challenger and earlier champions of a task and workload."""
        return self.standings().get((task, workload), Standing())

    def champion_of(self, task: str, workload: str) -> int | None:
        """The champion's version, None where there is none."""
        return self.standing(task, workload).champion

    def append(self, moves: Sequence[Move]) -> tuple[Entry, ...]:
        """Appends moves in one write; on the disk are all of them or (after an error) none.

        Raises:
            RefusedError: the ledger does not verify, or a move contradicts it.
            InputError: the private key is missing or unusable.
            AssayError: the disk is full or cannot be written, or the lock was not to be had.
        """
        if self._private_key_path is None:
            raise InputError(f"ledger must have its private key to be written, got none ({self.path})")
        with self.locked():
            key = load_private_key(self._private_key_path)
            entries, standings = self._replay()
            head, added = (entries[-1].hash if entries else GENESIS), []
            for number, move in enumerate(moves, start=len(entries)):
                pair, where = (move.task, move.workload), f"{self.path}, new entry {number}"
                _check_time(move.at, where)
                standings[pair] = after(standings.get(pair, Standing()), move, where)
                added.append(_sign(key, move, number, head))
                head = added[-1].hash
            self._set_torn_line_aside()
            self._write(b"".join(canonical_json(entry.to_json()) + b"\n" for entry in added))
            return tuple(added)

    def _replay(self) -> tuple[tuple[Entry, ...], dict[tuple[str, str], Standing]]:
        lines = self._read()[0]
        if not lines:
            return (), {}
        key = load_public_key(self._public_key_path)
        with self._lock:
            known = self._verified
            # A move reads the ledger several times: lines that verified once need not do so again.
            if known is None or known.key != key or known.lines != lines[: len(known.lines)]:
                known = _Verified(key, [], (), {})
            entries, standings = list(known.entries), dict(known.standings)
            for number, line in enumerate(lines[len(entries) :], start=len(entries)):
                where = f"{self.path}, entry {number}"
                entry = _parse(line, where)
                _check_link(entry, number, entries[-1].hash if entries else GENESIS, key, where)
                pair = (entry.move.task, entry.move.workload)
                standings[pair] = after(standings.get(pair, Standing()), entry.move, where)
                entries.append(entry)
            self._verified = _Verified(key, lines, tuple(entries), standings)
            return tuple(entries), dict(standings)

    def _read(self) -> tuple[list[bytes], bytes]:
        """Complete lines, and what follows the last newline."""
        try:
            *lines, rest = self.path.read_bytes().split(b"\n")
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
            _sync_folder(self.path.parent)


def _check_time(at: str, where: str) -> None:
    try:
        is_utc = datetime.fromisoformat(at).utcoffset() == timedelta(0)
    except ValueError:
        is_utc = False
    if not is_utc:
        raise InputError(f"at must be a UTC time such as 2026-01-31T12:00:00+00:00, got {at!r} ({where})")


def _body(sequence: int, move: Move, previous_hash: str) -> dict[str, Any]:
    return {"sequence": sequence, **vars(move), "previous_hash": previous_hash}


def _sign(key: ec.EllipticCurvePrivateKey, move: Move, sequence: int, previous_hash: str) -> Entry:
    payload = canonical_json(_body(sequence, move, previous_hash))
    signature = base64.b64encode(sign_payload(key, PAYLOAD_TYPE, payload)).decode("ascii")
    return Entry(sequence, move, previous_hash, hashlib.sha256(payload).hexdigest(), signature)


def _parse(line: bytes, where: str) -> Entry:
    data = parse_json(line, where)
    if set(data) != set(_TYPES):
        raise RefusedError(
            f"ledger entry must hold {', '.join(sorted(_TYPES))}, got {sorted(data)} ({where})"
        )
    for key, kinds in _TYPES.items():
        if type(data[key]) not in kinds:
            raise RefusedError(f"{key} must be {kinds[0].__name__}, got {data[key]!r} ({where})")
    if data["action"] not in get_args(Action):
        raise RefusedError(
            f"action must be one of {', '.join(get_args(Action))}, got {data['action']!r} ({where})"
        )
    move = Move(**{key: data[key] for key in _MOVE_KEYS})
    entry = Entry(data["sequence"], move, data["previous_hash"], data["hash"], data["signature"])
    if canonical_json(entry.to_json()) != line:
        raise RefusedError(f"ledger entry must be canonical JSON, got other spacing or order ({where})")
    return entry


def _check_link(
    entry: Entry, number: int, previous_hash: str, key: ec.EllipticCurvePublicKey, where: str
) -> None:
    payload = canonical_json(_body(entry.sequence, entry.move, entry.previous_hash))
    try:
        signature = base64.b64decode(entry.signature, validate=True)
    except (binascii.Error, ValueError) as error:
        raise RefusedError(f"signature must be base64, got {error} ({where})") from error
    if entry.sequence != number:
        raise RefusedError(f"sequence must be {number}, got {entry.sequence} ({where}); entries were moved")
    if entry.previous_hash != previous_hash:
        raise RefusedError(f"previous_hash must be {previous_hash}, got {entry.previous_hash} ({where})")
    if entry.hash != hashlib.sha256(payload).hexdigest():
        raise RefusedError(f"hash must be that of the entry, got another ({where}); the entry was changed")
    if not is_signed(key, signature, PAYLOAD_TYPE, payload):
        raise RefusedError(f"ledger entry must be signed with the project's key, it is not ({where})")


def _lock_within(descriptor: int, timeout_s: float, path: Path) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            if time.monotonic() >= deadline:
                rule = f"ledger must be free within {timeout_s:g} s"
                raise AssayError(f"{rule}, another process holds it ({path}); try again") from error
        time.sleep(0.005)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
