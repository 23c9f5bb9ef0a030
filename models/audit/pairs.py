"""Pairs of rows that differ in one feature, and the noise between rows that differ in none.

    exact     all held columns are equal, up to a tolerance
    matched   each held column differs by less than a caliper, the feature by a multiple of that; both in standard
              deviations (Stuart, Matching methods for causal inference, Statistical Science 25, 2010)

Symbols: m rows, h held columns, P pairs; pairs (P, 2): row indices, the feature is smaller in the first.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from models.verification.language.properties import FloatArray

IntArray = NDArray[np.int64]
CANDIDATES = 64  # nearest rows looked at for partners of a row


def levels(column: FloatArray, tolerance: float) -> IntArray:
    """(m,) the value's number in the order of values; a step of at most `tolerance` of the range makes no new value."""
    order = np.argsort(column, kind="stable")
    steps = np.diff(column[order]) > tolerance * np.ptp(column)
    numbers = np.empty(len(column), dtype=np.int64)
    numbers[order] = np.concatenate([[0], np.cumsum(steps)])
    return numbers


def groups_of_equal(columns: Sequence[IntArray], rows: int) -> IntArray:
    """(rows,) rows with one number are equal in all columns; numbers are 0, 1, ..."""
    group = np.zeros(rows, dtype=np.int64)
    for column in columns:
        group = np.unique(group * (column.max() + 1) + column, return_inverse=True)[1].astype(np.int64)
    return group


def exact_pairs(group: IntArray, feature: FloatArray, level: IntArray, limit: int, seed: int) -> IntArray:
    """Pairs of rows of a group whose feature has another level; of more than `limit`, a random sample.

    The sample is drawn from all pairs of a group, so that fewer than `limit` may be left.
    """
    order = np.argsort(group, kind="stable")
    sizes = np.bincount(group)
    starts, ends = np.cumsum(sizes) - sizes, np.cumsum(sizes * (sizes - 1) // 2)
    total = int(ends[-1])
    if total > limit:
        number = np.unique(np.random.default_rng(seed).integers(total, size=limit))
    else:
        number = np.arange(total)
    group_of_pair = np.searchsorted(ends, number, side="right")
    number = number - (ends - sizes * (sizes - 1) // 2)[group_of_pair]
    # pair number k of a group is (second, first) in 1 0, 2 0, 2 1, 3 0, ...: second (second - 1) / 2 <= k
    second = ((1 + np.sqrt(1 + 8 * number)) // 2).astype(np.int64)
    first = number - second * (second - 1) // 2
    a, b = order[starts[group_of_pair] + first], order[starts[group_of_pair] + second]
    return _ordered(a, b, feature)[level[a] != level[b]]


def standardised(x: FloatArray) -> FloatArray:
    """(m, n) in standard deviations; a constant column becomes 0."""
    spread = x.std(axis=0)
    return (x - x.mean(axis=0)) / np.where(spread > 0, spread, 1.0)


def matched_pairs(held: FloatArray, feature: FloatArray, caliper: float, step: float, partners: int) -> IntArray:
    """Each row with up to `partners` of the rows nearest in all held columns (largest difference), each pair once.

    Args:
        held: (m, h), standardised, h >= 1: the columns that have to be alike.
        feature: (m,), standardised.
        caliper: each held column differs by less than this.
        step: the feature differs by at least this.
        partners: the most for each row.
    """
    rows = np.arange(len(held))[:, None]
    distance, near = _nearest(held, caliper)
    fits = np.isfinite(distance)
    near = np.where(fits, near, rows)
    fits &= (near != rows) & (np.abs(feature[near] - feature[rows]) >= step)
    fits &= fits.cumsum(axis=1) <= partners
    a, b = np.broadcast_to(rows, near.shape)[fits], near[fits]
    pairs = np.unique(np.stack([np.minimum(a, b), np.maximum(a, b)], axis=1), axis=0)
    return _ordered(pairs[:, 0], pairs[:, 1], feature)


def noise_of_repeats(group: IntArray, y: FloatArray) -> float:
    """Standard deviation of y among rows of a group, all groups pooled; NaN where no group has two rows."""
    count = np.bincount(group)
    degrees = int((count - 1).clip(0).sum())
    if not degrees:
        return float("nan")
    left = y - (np.bincount(group, y) / np.maximum(count, 1))[group]
    return float(np.sqrt((left ** 2).sum() / degrees))


def noise_of_near_repeats(x: FloatArray, y: FloatArray, caliper: float, group: IntArray) -> float:
    """Half the mean squared difference to the nearest row of another group, as a standard deviation.

    It holds, beside the noise, what differences as large as the caliper do to y, as matched pairs do. Of another group,
    for rows of one (windows of a minute, say) are alike in what no column tells. NaN where no row has such a neighbour.
    Devroye, Gyoerfi, Lugosi and Walk, A nearest neighbor estimate of the residual variance, Electronic Journal of
    Statistics 12, 2018.

    Args:
        x: (m, n), standardised.
        y: (m,).
        caliper: as in `matched_pairs`.
        group: (m,): rows of one number are alike in what no column tells; a number for each row where all differ.
    """
    distance, near = _nearest(x, caliper)
    rows = np.arange(len(x))
    near = np.where(np.isfinite(distance), near, rows[:, None])
    fits = group[near] != group[:, None]
    nearest = near[rows, fits.argmax(axis=1)]
    difference = (y - y[nearest])[fits.any(axis=1)]
    return float(np.sqrt((difference ** 2).mean() / 2)) if len(difference) else float("nan")


def _nearest(x: FloatArray, caliper: float) -> tuple[FloatArray, IntArray]:
    """(m, CANDIDATES or m) largest differences, ascending, infinite beyond the caliper, and row indices."""
    return cKDTree(x).query(x, k=np.arange(1, min(CANDIDATES, len(x)) + 1), p=np.inf, distance_upper_bound=caliper)


def _ordered(a: IntArray, b: IntArray, feature: FloatArray) -> IntArray:
    return np.stack([np.where(feature[a] <= feature[b], a, b), np.where(feature[a] <= feature[b], b, a)], axis=1)
