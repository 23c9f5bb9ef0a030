"""A ledger in a table of PostgreSQL, a row an entry: what several machines append to.

    assay_ledger (sequence bigint primary key, line bytea)     the very lines that a file would hold

Who appends holds an advisory lock of the database, and writes through the connection that holds it, in one transaction.
The server frees the lock when that connection ends, however its process ended; a writer whose connection broke has lost
its lock, and can append nothing any more. Two entries of one number are beyond the table.

What remembers the end of such a ledger lies outside: the registry's tags, and what controllers saw.
Why a table: docs/decisions/0017-a-ledger-for-several-machines.md.
"""

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from feature_store.errors import AssayError, InputError, MissingToolError
from serving.ledger_entry import Entry
from serving.ledger_heads import Head

try:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict
except ImportError as missing:
    raise MissingToolError("ledger in PostgreSQL needs psycopg, got none: pip install 'psycopg[binary]'") from missing

TABLE = "assay_ledger"
_LOCK = 0x61737361  # of all ledgers of a database; no other program may take this number for something else
_PATIENCE: dict[str, Any] = {"connect_timeout": 10, "tcp_user_timeout": 30_000}  # s, ms
# A machine that lost its power says no goodbye: the server asks for it after 10 s, and gives up after 25 s.
_KEEPALIVES = "set tcp_keepalives_idle = 10; set tcp_keepalives_interval = 5; set tcp_keepalives_count = 3"


class LedgerTable:
    """Implements `serving.ledger_place.LedgerPlace` with a table, which the first writer makes."""

    def __init__(self, address: str) -> None:
        """Args:
            address: postgresql://user@host:port/database. libpq finds the password, which is no part of it: in
                $PGPASSWORD, or in the file $PGPASSFILE.

        Raises:
            InputError: it is no such address, or has a password, which every message would show.
        """
        try:
            self._options = conninfo_to_dict(address)
        except psycopg.Error as error:
            raise InputError(f"ledger: expected postgresql://user@host/database, got {str(error).strip()}") from error
        if self._options.get("password"):
            raise InputError("ledger: expected an address without a password, got one; put it into $PGPASSWORD or a "
                             "file that $PGPASSFILE names")
        self._address = address
        self._threads = threading.RLock()
        self._holder: psycopg.Connection | None = None

    def is_there(self) -> bool:
        """See `serving.ledger_place.LedgerPlace`; a table without rows is no ledger yet."""
        with self._errors("be readable"), self._connection() as connection:
            found = _has_table(connection) and connection.execute(f"select 1 from {TABLE} limit 1").fetchone()
            return bool(found)

    def read(self) -> tuple[list[bytes], bytes]:
        """See `serving.ledger_place.LedgerPlace`. Nothing ever follows the lines."""
        with self._errors("be readable"), self._connection() as connection:
            if not _has_table(connection):
                return [], b""
            rows = connection.execute(f"select line from {TABLE} order by sequence", binary=True)
            return [bytes(line) for (line,) in rows], b""

    def heads(self) -> tuple[Head, ...]:
        """None: whoever can cut the table can cut what is remembered beside it."""
        return ()

    @contextlib.contextmanager
    def locked(self, timeout_s: float) -> Iterator[None]:
        """See `serving.ledger_place.LedgerPlace`."""
        if not self._threads.acquire(timeout=timeout_s):
            raise self._busy(timeout_s)
        try:
            if self._holder is not None:
                yield
                return
            with contextlib.ExitStack() as stack:
                with self._errors("be writable"):
                    holder = stack.enter_context(self._connection())
                    self._take(holder, timeout_s)
                self._holder = holder
                try:
                    yield
                finally:
                    self._holder = None
        finally:
            self._threads.release()

    def append(self, entries: Sequence[Entry]) -> None:
        """See `serving.ledger_place.LedgerPlace`."""
        assert self._holder is not None, "the ledger is held by whoever appends"
        rows = [(entry.sequence, entry.line.removesuffix(b"\n")) for entry in entries]
        rule = "be written, and `assay history` says whether it was"  # a connection may break while it commits
        with self._errors(rule), self._holder.transaction(), self._holder.cursor() as cursor:
            cursor.executemany(f"insert into {TABLE} (sequence, line) values (%s, %s)", rows)

    def _take(self, holder: "psycopg.Connection", timeout_s: float) -> None:
        holder.execute(_KEEPALIVES)
        holder.execute(f"set lock_timeout = {max(1, round(timeout_s * 1000))}")
        try:
            holder.execute("select pg_advisory_lock(%s)", [_LOCK])
        except psycopg.errors.LockNotAvailable as error:
            raise self._busy(timeout_s) from error
        if not _has_table(holder):
            holder.execute(f"create table {TABLE} (sequence bigint primary key, line bytea not null)")

    def _connection(self) -> "contextlib.closing[psycopg.Connection]":
        return contextlib.closing(psycopg.connect(**{**_PATIENCE, **self._options}, autocommit=True))

    @contextlib.contextmanager
    def _errors(self, rule: str) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise AssayError(f"ledger must {rule}, got {str(error).strip() or type(error).__name__} "
                             f"({self._address})") from error

    def _busy(self, timeout_s: float) -> AssayError:
        return AssayError(f"ledger must be free within {timeout_s:g} s, another process holds it ({self._address}); "
                          "try again")


def _has_table(connection: "psycopg.Connection") -> bool:
    row = connection.execute("select to_regclass(%s)", [TABLE]).fetchone()
    return row is not None and row[0] is not None
