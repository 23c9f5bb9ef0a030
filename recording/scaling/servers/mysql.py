"""MariaDB (MySQL) aggregating ranges of rows that fit its buffer pool; a pool of threads executes the queries."""

import shutil
from pathlib import Path
from typing import ClassVar

import numpy as np

from feature_store.errors import SourceError
from recording.scaling.protocols import answers, mysql_query
from recording.scaling.servers.base import ScalableServer
from recording.workloads.base import Place, RunCommand, StartCommand
from recording.workloads.mysql import MySQL

_ROWS = 100_000
_MEAN_RANGE = 2400
_BUFFER_MB = 128.0
_ANSWER_TIMEOUT_S = 5.0


class ScalableMySQL(ScalableServer):
    """Relational database; workers are the groups of its thread pool, one active thread each."""

    name: ClassVar[str] = "mysql"
    tools: ClassVar[tuple[str, ...]] = ("mariadbd", "sysbench")
    protocol: ClassVar[str] = "mysql"
    connections: ClassVar[int] = 32
    most_workers: ClassVar[int] = 2
    request_text: ClassVar[str] = "an aggregate over a range of rows (geometric length, mean 2400) of sysbench's table"

    def prepare(self, place: Place, run: RunCommand, start: StartCommand) -> None:
        """One table in a data folder."""
        MySQL().make_tables(place, run, start, tables=1, rows=_ROWS)

    def copy(self, home: Path, instance: Path) -> Path:
        """A copy: a data folder has one server."""
        shutil.copytree(home / "data", instance / "data", symlinks=True)  # a server laid it down: none is followed
        return instance

    def command(self, place: Place, workers: int) -> list[str | Path]:
        """MariaDB on its copy."""
        return [
            *MySQL().server({"memory_mb": _BUFFER_MB}, place),
            *("--thread-handling=pool-of-threads", f"--thread-pool-size={workers}", "--thread-pool-oversubscribe=1"),
        ]

    def is_ready(self, place: Place) -> bool:
        """Whether it accepts connections, on its socket."""
        return MySQL().is_ready(place)

    def address(self, place: Place) -> str:
        """Its socket: the root account has no password."""
        return f"unix:{MySQL().socket(place)}"

    def set_workers(self, place: Place, workers: int, leader: int) -> None:
        """The server's own variable."""
        statement = mysql_query(f"SET GLOBAL thread_pool_size={workers}")
        if not answers(self.protocol, self.address(place), statement, _ANSWER_TIMEOUT_S):
            raise SourceError(f"database must accept {workers} thread groups, got no answer (mysql)")

    def requests(self, random: np.random.Generator, count: int) -> list[bytes]:
        """Ranges of geometric length."""
        lengths = np.minimum(random.geometric(1 / _MEAN_RANGE, count), _ROWS // 2)
        firsts = random.integers(1, _ROWS - lengths)
        return [mysql_query(f"SELECT SUM(k), MAX(c) FROM sbtest1 WHERE id BETWEEN {first} AND {first + length}")
                for first, length in zip(firsts, lengths, strict=True)]
