"""Where the lines of a ledger are kept: what serving/ledger.py needs of a place, and which place is meant.

    a path              one file (serving/ledger_file.py), for all who share a file system
    postgresql://...    a table (serving/ledger_table.py), for several machines
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from serving.ledger_entry import Entry
from serving.ledger_file import LedgerFile
from serving.ledger_heads import Head


class LedgerPlace(Protocol):
    """Keeps lines and knows nothing of what they say. Threads and processes may share it."""

    def is_there(self) -> bool:
        """Whether there is a ledger. Raises AssayError where that cannot be looked at."""

    def read(self) -> tuple[list[bytes], bytes]:
        """The complete lines, without their ends, and what follows them. Raises AssayError where it cannot be read."""

    def heads(self) -> tuple[Head, ...]:
        """What the place itself remembers of the ledger's end. Read it before the ledger, which may be growing."""

    def locked(self, timeout_s: float) -> AbstractContextManager[None]:
        """Holds the ledger against every other process and thread; nothing else lets one append. May be nested.

        Raises:
            AssayError: another held it for longer than `timeout_s`, or the place is away.
        """

    def append(self, entries: Sequence[Entry]) -> None:
        """Writes entries, all or none, while the ledger is held.

        Raises:
            AssayError: they could not be written.
        """


def place_of(address: Path | str) -> LedgerPlace:
    """The place at a path, or at the address of a database.

    Raises:
        MissingToolError: of a database, whose client is not installed.
    """
    if isinstance(address, Path):
        return LedgerFile(address)
    from serving.ledger_table import LedgerTable  # few need its client

    return LedgerTable(address)
