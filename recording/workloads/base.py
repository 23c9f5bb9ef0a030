"""What a workload is to the recorder: a server, a load generator and a parser of its log.

One file per workload implements this; recording/workloads/catalogue.py names them all.
Recipe: docs/recipes/record-a-server.md. Source: vPALs, table 2.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

# Values of the columns of feature_store.schema.CONFIGURATION that the workload has.
Configuration = Mapping[str, float]
# Runs a command to its end; raises SourceError where it fails.
RunCommand = Callable[[Sequence[str | Path]], None]
# Starts a server in the background; the returned function stops it.
StartCommand = Callable[[Sequence[str | Path]], Callable[[], None]]


@dataclass(frozen=True)
class Interval:
    """Mean latency of the requests that ended between two times.

    Attributes:
        start_s: Unix time, seconds.
        end_s: Unix time, seconds, after `start_s`.
        count: number of requests, more than 0.
        mean_latency_ms: their mean latency, ms.
    """

    start_s: float
    end_s: float
    count: float
    mean_latency_ms: float


@dataclass(frozen=True)
class Place:
    """Where a workload works.

    Attributes:
        home: state made once in a campaign by `prepare` (data folders, corpora).
        run: empty folder for this combination, removed after it.
        port: free port on 127.0.0.1 for the server.
    """

    home: Path
    run: Path
    port: int

    @property
    def address(self) -> str:
        """The server's `127.0.0.1:port`."""
        return f"127.0.0.1:{self.port}"


class RecordedWorkload(ABC):
    """One application with its load generator.

    Attributes:
        name: value of the column `workload` in the data.
        tools: programs that it needs, keys of recording.tools.PACKAGES.
    """

    name: ClassVar[str]
    tools: ClassVar[tuple[str, ...]]

    @abstractmethod
    def ranges(self, profile: str) -> Mapping[str, tuple[float, ...]]:
        """Configurable properties and the values that a campaign draws from, for a profile."""

    @abstractmethod
    def prepare(self, place: Place, run: RunCommand, start: StartCommand) -> None:
        """Makes what `server` and `load` need, once per campaign, under `place.home`."""

    @abstractmethod
    def memory_limit_mb(self, configuration: Configuration) -> float | None:
        """Memory limit for the server's control group, MB; None where the server limits itself."""

    @abstractmethod
    def server(self, configuration: Configuration, place: Place) -> list[str | Path]:
        """Command of the server, in the foreground, on loopback only, without root's rights (`unprivileged`)."""

    @abstractmethod
    def is_ready(self, place: Place) -> bool:
        """Whether the server answers."""

    @abstractmethod
    def load(self, configuration: Configuration, place: Place) -> list[str | Path] | None:
        """Command of the load generator; None where the server itself prints the latency log."""

    @abstractmethod
    def parse(self, log: str) -> list[Interval]:
        """Intervals in a stamped log (see recording/stamped_log.py), in order. Pure."""
