"""How often a monitor may be wrong, and what it claims at that rate: means and shares of values that resemble their
neighbours.

A monitor looks again and again, at many workloads. All looks at one champion of one task together may raise a false
alarm with a chance of FALSE_ALARM: look k spends 1 / (k (k + 1)) of the workload's share of it, which sums to 1 over
all k (alpha spending, as models/paired_comparison.py does for promotions). The bound is Bonferroni's: looks may share
rows, and workloads may depend on each other.

What is looked at are the newest rows, in windows of WINDOWS: a jump shows in few, a creep in many.
"""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from models.paired_comparison import MINIMUM_CASES, block_length, interval

FloatArray = NDArray[np.float64]
Values = TypeVar("Values", bound=Sequence[object] | NDArray[np.generic])

FALSE_ALARM = 0.01  # of all looks at the champions of a task, for as long as they are champions
WINDOWS = (20, 80, 320, 1280, 5120, 20480)  # newest rows


def level_of(look: int, workloads: int, claims: int = 1) -> float:
    """The chance of a false alarm that one claim may have.

    Args:
        look: at this champion, from 1.
        workloads: champions of the task.
        claims: that are made in one look.
    """
    return FALSE_ALARM / (workloads * claims * look * (look + 1))


def windows(count: int) -> tuple[int, ...]:
    """Of so many rows: every window that is full, and all rows where the next one is not."""
    full = [size for size in WINDOWS if size <= count]
    return (*full, count) if full and full[-1] < min(count, WINDOWS[-1]) else tuple(full)


def mean_with_ends(values: FloatArray, level: float) -> tuple[float, float, float]:
    """Mean, lower and upper end, each of which misses it with a chance of `level`; NaN for fewer than MINIMUM_CASES.

    Args:
        values: (n,) in order of time.
    """
    if len(values) < MINIMUM_CASES:
        return (np.nan,) * 3
    return float(values.mean()), *interval(values, block_length(values), 1.0 - level)


def excess(now: FloatArray, before: FloatArray, factor: float, level: float) -> float:
    """By how much the mean of `now` is above `factor` times that of `before`, at least; NaN where nobody can say.

    Of two independent samples the distances to the ends add up as those of independent errors do.
    """
    mean, lower, _ = mean_with_ends(now, level)
    reference, _, upper = mean_with_ends(before, level)
    return mean - factor * reference - float(np.hypot(mean - lower, factor * (upper - reference)))


def share_at_least(flags: NDArray[np.bool_], level: float) -> float:
    """The lower end of Clopper and Pearson for the share of the flags, as if each block of neighbours were one."""
    from scipy.stats import beta

    if len(flags) < MINIMUM_CASES or not flags.any():
        return 0.0
    blocks = len(flags) / block_length(flags.astype(np.float64))
    return float(beta.ppf(level, flags.mean() * blocks, blocks - flags.mean() * blocks + 1.0))
