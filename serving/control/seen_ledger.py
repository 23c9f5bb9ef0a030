"""The ledger as a controller sees it: what it saw once must be there at every later look.

    <controller's folder>/ledger.head     the last verified head (serving/ledger_heads.py)

An older ledger that is put back, or one that is cut, verifies: it is a valid, shorter chain. It would undo a stop and
bring back who was revoked, so it is refused by whoever has seen a longer one, also after a restart.
"""

import threading
from collections.abc import Callable
from pathlib import Path

from feature_store.errors import AssayError
from models.configuration import Configuration
from serving.ledger import Ledger
from serving.ledger_chain import Chain, Pair
from serving.ledger_heads import Head, read_head_file, require_heads, write_head_file
from serving.moves import Standing
from serving.state_folder import StateFolder

_lock = threading.Lock()  # among all of a process that share a file


class SeenLedger:
    """Reads a ledger. Threads may share it, and several of one process may share a folder."""

    def __init__(self, state: Configuration | StateFolder, folder: Path | None = None,
                 keep: Callable[[Chain], None] = lambda _: None) -> None:
        """Args:
            state: whose ledger and public key.
            folder: of a controller; None: what was seen is known to this object alone.
            keep: called with what was read before its head is: a kill in between leaves no head that a copy lacks.
        """
        self.path = state.ledger_path
        self._ledger = Ledger(self.path, state.public_key_path)
        self._file = None if folder is None else folder / "ledger"  # whose head is kept, in ledger.head
        self._seen: tuple[Head, ...] = ()
        self._keep = keep

    def standings(self) -> dict[Pair, Standing]:
        """See `serving.ledger.Ledger.standings`, and `chain`."""
        return dict(self.chain().standings)

    def chain(self) -> Chain:
        """See `serving.ledger.Ledger.chain`.

        Raises:
            RefusedError: it does not verify, or does not hold what was seen: it was cut, or is an older one.
            AssayError: it is away, or cannot be looked at.
        """
        while True:
            kept = self._kept()
            self._require_there()
            # outside of the lock: who waits for a file system that hangs holds up nobody else
            chain = self._ledger.chain()
            if not chain.entries:  # not if it went away just now
                self._require_there()
            with _lock:
                if self._kept() == kept:  # else somebody saw more meanwhile: what was read may be older than that
                    require_heads(chain, (*kept, *self._seen), self.path, is_torn=False)
                    self._keep(chain)
                    self._see(chain, kept)
                    return chain

    def _kept(self) -> tuple[Head, ...]:
        return () if self._file is None else read_head_file(self._file)

    def _see(self, chain: Chain, kept: tuple[Head, ...]) -> None:
        if not chain.entries:
            return
        head = chain.entries[-1].head
        self._seen = (Head(head, "this controller saw", "start the controller again"),)
        if self._file is not None and [one.value for one in kept] != [head]:
            write_head_file(self._file, head)

    def _require_there(self) -> None:
        if not self._ledger.is_there():
            raise AssayError(f"ledger must be there, got none ({self.path})")
