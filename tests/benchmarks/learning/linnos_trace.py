"""A made trace of IOs in the form of linnos.csv.gz: each row is an IO with the four before it."""

from pathlib import Path

import numpy as np

# IOs that the first row has before it.
BEFORE = 4


def trace(ios: int, seed: int = 0) -> np.ndarray:
    """(ios - 4, 10) int, in order of time: queue lengths oldest first, the queue now, latencies oldest first, this."""
    generator = np.random.default_rng(seed)
    queue = generator.integers(1, 60, ios)
    latency = 200 + 10 * queue + generator.integers(0, 400, ios)
    rows = range(BEFORE, ios)
    return np.array([[*queue[row - BEFORE:row + 1], *latency[row - BEFORE:row + 1]] for row in rows])


def write_trace(path: Path, rows: np.ndarray) -> Path:
    """As a CSV without a header, packed where the name ends in .gz."""
    np.savetxt(path, rows, fmt="%d", delimiter=",")
    return path
