"""MariaDB (MySQL) under sysbench's OLTP read/write transactions. Latency: mean of a transaction.

Every commit is synced and pages bypass the page cache, so that the disk matters; a buffer pool
smaller than the tables makes reads matter too.
"""

import os
import pwd
import re
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from feature_store.errors import InputError
from recording.loopback import accepts_connections
from recording.processes import unprivileged
from recording.stamped_log import split_stamped
from recording.workloads.base import (
    Configuration,
    Interval,
    Place,
    RecordedWorkload,
    RunCommand,
    StartCommand,
)

_TABLES = 8
_ROWS = 100_000
_BASE_BUFFER_MB = 128
LONGEST_SOCKET = 107  # bytes of a path (unix(7)); MariaDB would not start

_SCRIPT = Path(__file__).with_name("oltp_paced.lua")
_REPORT = re.compile(r"^transactions count=(\d+) mean_ms=([\d.]+) seconds=([\d.]+)$")


class MySQL(RecordedWorkload):
    """Relational database."""

    name: ClassVar[str] = "mysql"
    tools: ClassVar[tuple[str, ...]] = ("mariadbd", "sysbench")

    def ranges(self, profile: str) -> Mapping[str, tuple[float, ...]]:
        """Quota, buffer pool, threads, transaction rate, number of tables and their rows."""
        if profile == "shifted":
            return {
                "cpu_quota_cores": (0.4, 0.7),
                "memory_mb": (8.0, 32.0),
                "connections": (4.0, 6.0, 8.0),
                "rate_per_s": (100.0, 250.0),
                "tables": (8.0,),
                "table_rows": (50000.0, 100000.0),
            }
        return {
            "cpu_quota_cores": (0.4, 0.7, 1.0),
            "memory_mb": (16.0, 64.0, 256.0),
            "connections": (1.0, 2.0, 4.0),
            "rate_per_s": (20.0, 60.0, 150.0),
            "tables": (2.0, 4.0, 8.0),
            "table_rows": (10000.0, 50000.0, 100000.0),
        }

    def prepare(self, place: Place, run: RunCommand, start: StartCommand) -> None:
        """Makes a data folder with all tables at full size; smaller tables are their first rows."""
        self.make_tables(place, run, start, tables=_TABLES, rows=_ROWS)

    def make_tables(self, place: Place, run: RunCommand, start: StartCommand, *, tables: int, rows: int) -> None:
        """Makes a data folder with `tables` tables of `rows` rows in the database sbtest."""
        place.home.mkdir(parents=True)
        run(
            [
                *("mariadb-install-db", "--no-defaults", f"--datadir={self._data(place)}", "--skip-test-db"),
                *("--auth-root-authentication-method=normal", *self._user()),
            ]
        )
        stop = start(self._daemon(place, _BASE_BUFFER_MB))
        try:
            run(
                [
                    "mariadb",
                    "--no-defaults",
                    f"--socket={self.socket(place)}",
                    "-uroot",
                    "-e",
                    "CREATE DATABASE sbtest",
                ]
            )
            run([*self._sysbench(place, tables, rows), "--threads=2", "prepare"])
        finally:
            stop()

    def memory_limit_mb(self, configuration: Configuration) -> float | None:
        """None: its buffer pool limits it."""
        return None

    def server(self, configuration: Configuration, place: Place) -> list[str | Path]:
        """MariaDB on the prepared data folder."""
        return self._daemon(place, configuration["memory_mb"])

    def is_ready(self, place: Place) -> bool:
        """Whether it accepts connections, on its socket."""
        return accepts_connections(self.socket(place))

    def load(self, configuration: Configuration, place: Place) -> list[str | Path] | None:
        """sysbench with pauses between transactions."""
        threads = int(configuration["connections"])
        return [
            *self._sysbench(place, int(configuration["tables"]), int(configuration["table_rows"]), _SCRIPT),
            *(f"--threads={threads}", f"--pause-ms={1000 * threads / configuration['rate_per_s']:.0f}"),
            *("--time=0", "--rand-type=uniform", "run"),
        ]

    def parse(self, log: str) -> list[Interval]:
        """The lines of sysbench's threads."""
        return parse_sysbench(log)

    def _daemon(self, place: Place, buffer_mb: float) -> list[str | Path]:
        return [
            *unprivileged(self._data(place), place.run),
            *("mariadbd", "--no-defaults", f"--datadir={self._data(place)}"),
            # No port: its root account has no password, and only the recorder can reach the socket.
            *(f"--socket={self.socket(place)}", "--skip-networking"),
            # Temporary files go where it may write: TMPDIR is one that its account may enter, and need be no more.
            *(f"--pid-file={place.run / 'mariadbd.pid'}", f"--tmpdir={place.run}"),
            *("--skip-name-resolve", "--performance-schema=OFF"),
            *(f"--innodb-buffer-pool-size={int(buffer_mb)}M", "--innodb-flush-method=O_DIRECT"),
            *("--innodb-flush-log-at-trx-commit=1", "--innodb-log-file-size=64M"),
            # A dump of the buffer pool would warm the next combination's cache with this one's pages.
            *("--innodb-buffer-pool-dump-at-shutdown=OFF", "--innodb-buffer-pool-load-at-startup=OFF"),
        ]

    def _sysbench(
        self, place: Place, tables: int, rows: int, script: str | Path = "oltp_read_write"
    ) -> list[str | Path]:
        return [
            *("sysbench", script, f"--mysql-socket={self.socket(place)}", "--mysql-user=root"),
            *(f"--tables={tables}", f"--table-size={rows}"),
        ]

    def _user(self) -> tuple[str, ...]:
        # Started as root, it wants to be told so.
        return (f"--user={pwd.getpwuid(0).pw_name}",) if os.geteuid() == 0 else ()

    def _data(self, place: Place) -> Path:
        return place.home / "data"

    def socket(self, place: Place) -> Path:
        """Where root logs in without a password. Raises InputError: its path is longer than a socket's may be."""
        path = place.run / "mysql.sock"
        if len(os.fsencode(path)) > LONGEST_SOCKET:
            raise InputError(f"folder for temporary files must leave a socket's path at most {LONGEST_SOCKET} bytes, "
                             f"got {path}: set TMPDIR to one with a shorter path")
        return path


def parse_sysbench(log: str) -> list[Interval]:
    """One interval for each line of a thread; count is the number of transactions."""
    intervals = []
    for stamp, line in split_stamped(log):
        match = _REPORT.match(line)
        if match is not None and float(match[3]) > 0:
            intervals.append(Interval(stamp - float(match[3]), stamp, int(match[1]), float(match[2])))
    return intervals
