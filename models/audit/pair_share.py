r"""A confidence interval of a share of pairs, where pairs share rows.

    var = K / (K - 1) * (sum_c S_c^2 - sum_{c < d} B_cd^2) / P^2                                        (1)
    n*  = share (1 - share) / var * (z / t_{K-1})^2                                                     (2)

S_c: sum of (satisfied - share) over the pairs that touch group c, B_cd: over those between c and d. (1) is the variance
of Aronow, Samii and Assenova, Cluster-robust variance estimation for dyadic data, Political Analysis 23 (2015). n* goes
into the interval of Clopper and Pearson in place of the number of pairs: Korn and Graubard, Confidence intervals for
proportions with small expected number of positive counts estimated from survey data, Survey Methodology 24 (1998).

Not a bootstrap by rows: that has width 0 where all pairs satisfy, it weighs a pair by the product of its rows' weights,
which triples the variance of pairs that share no row, and it needs hundreds of passes where this needs one.

Symbols: P pairs, K groups (rows, or rows taken together) that pairs touch, t and z quantiles of Student and Gauss.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, norm, t

from models.audit.pairs import IntArray


@dataclass(frozen=True)
class Interval:
    """lower <= share <= upper, in 0..1; NaN where there is no pair."""

    lower: float
    upper: float


def share_interval(satisfied: NDArray[np.bool_], pairs: IntArray, group: IntArray, confidence: float) -> Interval:
    """The share of satisfied pairs with its interval, whose rows may stand in several pairs.

    Args:
        satisfied: (P,), whether each pair obeys.
        pairs: (P, 2), row indices.
        group: (m,), rows of one number are not independent.
        confidence: probability that the interval holds the share, in (0, 1).
    """
    if not len(pairs):
        return Interval(float("nan"), float("nan"))
    number = _effective_pairs(satisfied, pairs, group, (1 - confidence) / 2)
    hits, tail = satisfied.mean() * number, (1 - confidence) / 2
    lower = float(beta.ppf(tail, hits, number - hits + 1)) if satisfied.any() else 0.0
    upper = float(beta.ppf(1 - tail, hits + 1, number - hits)) if not satisfied.all() else 1.0
    return Interval(lower, upper)


def _effective_pairs(satisfied: NDArray[np.bool_], pairs: IntArray, group: IntArray, tail: float) -> float:
    """n*, between 1 and the number of rows (pairs of as many rows cannot say more)."""
    rows, share = len(np.unique(pairs)), satisfied.mean()
    known, ends = np.unique(group[pairs], return_inverse=True)
    a, b = ends.reshape(-1, 2).T
    if len(known) < 2:
        return 1.0
    small = (norm.ppf(tail) / t.ppf(tail, len(known) - 1)) ** 2
    if share in (0.0, 1.0):  # rows that pairs share halve what they say, at worst of all complete sets of pairs
        return float(max(1.0, small * min(rows / 2, len(pairs))))
    rest, between = satisfied - share, a != b
    touching = np.bincount(a, rest, len(known)) + np.bincount(b[between], rest[between], len(known))
    keys = np.unique(np.minimum(a, b) * len(known) + np.maximum(a, b), return_inverse=True)[1]
    twice = np.bincount(keys[between], rest[between])
    variance = len(known) / (len(known) - 1) * ((touching ** 2).sum() - (twice ** 2).sum()) / len(pairs) ** 2
    variance = max(variance, share * (1 - share) / len(pairs))
    return float(np.clip(small * share * (1 - share) / variance, 1.0, rows))
