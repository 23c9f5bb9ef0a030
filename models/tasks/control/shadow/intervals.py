"""95 % intervals of what was measured in, or replayed of, one run: neighbouring steps resemble each other, so blocks of
time are drawn, an hour each (models/paired_comparison.py).

Symbols: T steps, N variations of what is not known of a service.
"""

import numpy as np

from models.paired_comparison import MINIMUM_CASES, interval
from models.tasks.control.judging import FloatArray

END = 0.975  # confidence of each end: 95 % in all
HOUR_S, PARTS = 3600.0, 10
ALIKE = 0.05  # relative: a difference that changes no decision, however short the intervals are


def block_of(steps: int, step_s: float) -> int:
    """Steps of a block: an hour, or a tenth of the run where that is shorter; 1 at least."""
    return max(1, min(round(HOUR_S / step_s), steps // PARTS))


def mean_with_ends(values: FloatArray, block: int) -> list[float]:
    """Mean, lower and upper end; NaN ends where there are not two blocks or not MINIMUM_CASES steps: few may be equal
    by luck, and their interval would have no width.

    Args:
        values: (T,), or (T, N): then the distances of time and of variations add up as independent ones do.
        block: steps that are drawn together.
    """
    values = np.asarray(values, dtype=np.float64)
    return _with_ends(values, block) if len(values) >= MINIMUM_CASES else _without_ends(values)


def _without_ends(values: FloatArray) -> list[float]:
    return [float(values.mean()) if len(values) else np.nan, np.nan, np.nan]


def _with_ends(values: FloatArray, block: int) -> list[float]:
    mean = float(values.mean())
    sides = [interval(values.reshape(len(values), -1).mean(axis=1), block, END) if len(values) >= 2 * block
             else (np.nan, np.nan)]
    if values.ndim > 1 and values.shape[1] > 1:
        sides.append(interval(values.mean(axis=0), 1, END))
    below, above = (float(np.sqrt(sum((side[end] - mean) ** 2 for side in sides))) for end in (0, 1))
    return [mean, mean - below, mean + above]


def median_with_ends(values: FloatArray, block: int) -> list[float]:
    """The same of the medians of blocks: (T,), or (T, N)."""
    length = min(block, max(1, len(values)))
    blocks = len(values) // length
    cut = np.asarray(values[:blocks * length], dtype=np.float64)
    medians = np.median(cut.reshape(blocks, length, *cut.shape[1:]), axis=1)
    return _with_ends(medians, 1) if len(values) >= MINIMUM_CASES and blocks >= 2 else _without_ends(medians)


def apart(one: list[float], other: list[float]) -> bool:
    """Whether two means differ by more than their intervals, which have no point in common, and by more than ALIKE."""
    return (one[1] > other[2] or other[1] > one[2]) and abs(one[0] - other[0]) > ALIKE * max(abs(one[0]), abs(other[0]))
