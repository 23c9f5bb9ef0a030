"""Intervals that hold as often as they say on workloads that were not seen: conformal prediction over workloads.

A learner's own deviation gives an interval its shape; how many deviations wide it is comes from the pool, whose
workloads are held out in folds (validation.py): the quantile of |log target - mean| / deviation over their cells, every
workload counting alike (pooled empirical distributions of two-layer data, Dunn, Wasserman and Ramdas 2022,
"Distribution-free prediction sets for two-layer hierarchical models", section 3). Cells of one workload depend on each
other; workloads are exchangeable. The coverage is of a new workload's cells on average, and exact as the pool grows.

An interval's ends are mean -+ width * deviation with width >= 0 and deviation > 0, so that they never cross.

Symbols as in learner.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from feature_store.errors import InputError
from models.adaptation.learner import FloatArray, Learner, Pool, Prediction
from models.adaptation.pool.validation import SHOTS, Held, held_out_predictions

COVERAGE = 0.9
FOLDS, DRAWS = 15, 4


@dataclass(frozen=True)
class Conformal:
    """Calibrated intervals.

    Attributes:
        widths: by number of runs, in deviations of the prediction.
        coverage: the share of cells that are to be inside.
    """

    widths: Mapping[int, float]
    coverage: float

    def interval(self, prediction: Prediction, runs: int) -> tuple[FloatArray, FloatArray]:
        """Lower and upper end, each (E, C), in units of the target, for supports of `runs` runs.

        More runs than were calibrated count as the most that were, which is wider than need be.
        """
        known = [count for count in self.widths if count <= runs] or [min(self.widths)]
        reach = self.widths[max(known)] * np.sqrt(prediction.variance)
        return np.exp(prediction.mean - reach), np.exp(prediction.mean + reach)


def calibrate(learner: Learner, pool: Pool, coverage: float = COVERAGE, shots: Sequence[int] = SHOTS,
              seed: int = 0) -> Conformal:
    """Widths from the pool's held-out workloads.

    Raises:
        InputError: the coverage is not between 0 and 1, or the pool has fewer than two workloads.
    """
    if not 0 < coverage < 1:
        raise InputError(f"coverage must be between 0 and 1, got {coverage}")
    return widths_of(pool, held_out_predictions(learner, pool, shots, FOLDS, DRAWS, seed), coverage)


def widths_of(pool: Pool, held: Held, coverage: float) -> Conformal:
    """From held-out predictions that are there already."""
    score = np.abs(held.unmeasured(pool) - held.prediction.mean) / np.sqrt(held.prediction.variance)
    widths = {}
    for k in np.unique(held.runs):
        scores = score[held.runs == k]
        is_known = ~np.isnan(scores)
        weight = (is_known / np.maximum(is_known.sum(axis=1, keepdims=True), 1))[is_known]  # workloads count alike
        values = scores[is_known]
        order = np.argsort(values)
        share = np.cumsum(weight[order]) / weight.sum()
        widths[int(k)] = float(values[order][min(int(np.searchsorted(share, coverage)), len(values) - 1)])
    return Conformal(widths, coverage)
