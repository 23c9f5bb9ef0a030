"""What a load generator counts while it runs, in a file that an exporter reads: the side of a client or a proxy.

Counters only ever grow, as Prometheus has them. The file is replaced whole, so that whoever reads it sees one moment.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

# Upper bounds of the latency buckets, s: 10 % apart, so that a percentile is known to that.
BOUNDS_S: tuple[float, ...] = tuple(float(f"{0.0005 * 1.1**power:.4g}") for power in range(105))


@dataclass(frozen=True)
class Counts:
    """Since the start.

    Attributes:
        arrived: requests that were due.
        failed: those that timed out or were refused; they are in the buckets with the time-out.
        buckets: finished requests by latency, one for each bound and one beyond the last; not cumulative.
        seconds: sum of the latencies, s.
    """

    arrived: int = 0
    failed: int = 0
    buckets: Sequence[int] = (0,) * (len(BOUNDS_S) + 1)
    seconds: float = 0.0

    @staticmethod
    def read(path: Path) -> "Counts":
        """Those of a generator; none where it has not written yet."""
        try:
            return Counts(**json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return Counts()


class CountersFile:
    """Gathers latencies and writes them."""

    def __init__(self, path: Path) -> None:
        self._path, self._new = path, path.with_name(f"{path.name}.new")
        self._buckets = np.zeros(len(BOUNDS_S) + 1, dtype=np.int64)
        self._seconds, self._failed = 0.0, 0
        self._pending: list[float] = []

    def add(self, latency_s: float, *, failed: bool) -> None:
        """One finished request; a failed one with the time-out for its latency."""
        self._pending.append(latency_s)
        self._failed += failed

    def write(self, arrived: int) -> None:
        """Everything so far. arrived: requests that were due."""
        found = np.bincount(np.searchsorted(BOUNDS_S, self._pending), minlength=len(self._buckets))
        self._buckets += found
        self._seconds += sum(self._pending)
        self._pending.clear()
        counts = Counts(arrived, self._failed, self._buckets.tolist(), self._seconds)
        self._new.write_text(json.dumps(asdict(counts)), encoding="utf-8")
        self._new.replace(self._path)
