"""The promotion ledger: every move of a model version, in order, hash-chained and signed.

One JSON line an entry (serving/ledger_entry.py), appended and never rewritten, in a file or in a table of a database
(serving/ledger_place.py). The ledger is the truth about which version is champion; the registry's aliases follow it
(serving/promotion.py).

Reading verifies: the chain with its last signature, or every signature (serving/ledger_chain.py). What the file alone
cannot show is that its END was cut off: so its head is remembered elsewhere too (serving/ledger_heads.py), and whoever
reads the ledger says which heads it must hold.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from feature_store.errors import InputError, RefusedError
from feature_store.names import as_utf8
from serving.keys import fingerprint, load_private_key, load_public_keys
from serving.ledger_chain import Chain, Pair, verified_chain
from serving.ledger_entry import Entry, check_move, sign_entry
from serving.ledger_heads import Head, require_heads
from serving.ledger_place import place_of
from serving.moves import KEY_ACTIONS, Move, Standing, after

# A registration holds the ledger for seconds, on a busy machine for half a minute; eight at once wait for each other.
# Who dies frees it at once, so that a long wait is never for nobody.
_LOCK_SECONDS = 600.0


class Ledger:
    """Reads and appends one ledger. Threads and processes may share it."""

    def __init__(self, path: Path | str, public_key_path: Path, private_key_path: Path | None = None) -> None:
        """Without a private key the ledger can be read and verified, not written.

        Args:
            path: its file; as a text, the address of its database (serving/ledger_place.py).
        """
        self.path = path
        self._place = place_of(path)
        self._public_key_path = public_key_path
        self._private_key_path = private_key_path

    def is_there(self) -> bool:
        """Whether there is a ledger. Raises AssayError where that cannot be looked at."""
        return self._place.is_there()

    def locked(self, timeout_s: float = _LOCK_SECONDS) -> AbstractContextManager[None]:
        """Holds the ledger against every other process and thread. May be nested.

        Raises:
            AssayError: another held it for longer than `timeout_s`, or it is away.
        """
        return self._place.locked(timeout_s)

    def verify(self, heads: tuple[Head, ...] = ()) -> tuple[Entry, ...]:
        """Reads the whole ledger and checks every hash, signature and move.

        An incomplete last line is left out: its writer crashed, or is writing it now.

        Args:
            heads: entries that it must hold, beside what its place remembers.

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
        """Appends moves, all or none.

        Args:
            heads: see `verify`; nothing is put on top of a ledger that lacks one.

        Raises:
            RefusedError: the ledger does not verify, a move contradicts it, or the private key is no accepted one.
            InputError: the private key is missing or unusable.
            AssayError: the disk is full, the database is away, or the lock was not to be had.
        """
        if self._private_key_path is None:
            raise InputError(f"ledger: expected a private key to write with, got none ({self.path})")
        with self.locked():
            key = load_private_key(self._private_key_path)
            if fingerprint(key.public_key()) not in load_public_keys(self._public_key_path).by_fingerprint:
                raise RefusedError(f"private key must be one of {self._public_key_path}, got another "
                                   f"({self._private_key_path}); was it rotated away and revoked?")
            chain = self._chain(heads, every_signature=True)
            standings, previous, added = dict(chain.standings), chain.last_hash, []
            for number, move in enumerate(moves, start=len(chain.entries)):
                pair, where = (move.task, move.workload), f"{self.path}, new entry {number}"
                _check_time(move.at, where)
                move = replace(move, reason=as_utf8(move.reason), actor=as_utf8(move.actor))
                check_move(move, where)
                if move.action not in KEY_ACTIONS:
                    standings[pair] = after(standings.get(pair, Standing()), move, where)
                added.append(sign_entry(key, move, number, previous))
                previous = added[-1].hash
            self._place.append(added)
            return tuple(added)

    def _chain(self, heads: tuple[Head, ...], every_signature: bool) -> Chain:
        # First the heads, then the ledger: another process may append between the two.
        heads = (*heads, *self._place.heads())
        lines, rest = self._place.read()
        chain = Chain()
        if lines:
            chain = verified_chain(self.path, lines, load_public_keys(self._public_key_path), every_signature)
        require_heads(chain, heads, self.path, is_torn=bool(rest))
        return chain


def _check_time(at: str, where: str) -> None:
    try:
        is_utc = datetime.fromisoformat(at).utcoffset() == timedelta(0)
    except ValueError:
        is_utc = False
    if not is_utc:
        raise InputError(f"at must be a UTC time such as 2026-01-31T12:00:00+00:00, got {at!r} ({where})")
