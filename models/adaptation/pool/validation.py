"""How well a learner predicts workloads of the pool that it has not seen: what every choice on the pool rests on.

The pool's workloads are held out in folds; of each, supports of 1, 2, ... random runs are drawn and all its other
configurations predicted. Only the pool is looked at, so that a choice made here is fair to any other workload.

Symbols as in learner.py; D draws a workload.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from feature_store.errors import InputError
from models.adaptation.closed_form.combination import point
from models.adaptation.learner import NONE, Fitted, FloatArray, IntArray, Learner, Pool, Prediction, Support, supports

SHOTS = (1, 2, 3)
FOLDS, DRAWS = 5, 4


@dataclass(frozen=True)
class Fold:
    """Workloads held out, and a learner that was fitted to the others."""

    held_out: IntArray
    fitted: Fitted


@dataclass(frozen=True)
class Held:
    """Supports of workloads that the learner had not seen: workload (E,), support, prediction (E, C)."""

    workload: IntArray
    support: Support
    prediction: Prediction

    @property
    def runs(self) -> IntArray:
        """(E,): runs of each support."""
        return np.asarray(self.support.is_run.sum(axis=1))

    def unmeasured(self, pool: Pool) -> FloatArray:
        """(E, C): the pool's log targets, NaN where not measured or in the support."""
        y = pool.y[self.workload]
        rows, columns = np.nonzero(self.support.is_run)
        y[rows, self.support.at[rows, columns]] = np.nan
        return y


def folds_of(learner: Learner, pool: Pool, folds: int = FOLDS, seed: int = 0) -> list[Fold]:
    """One fit a fold; at most as many folds as workloads.

    Raises:
        InputError: fewer than two workloads.
    """
    if pool.workloads < 2:
        raise InputError(f"pool: expected at least two workloads to choose on, got {pool.workloads}")
    parts = np.array_split(np.random.default_rng(seed).permutation(pool.workloads), min(folds, pool.workloads))
    everyone = np.arange(pool.workloads)
    return [Fold(part, learner.fit(pool.part(np.setdiff1d(everyone, part)), seed)) for part in parts]


def random_supports(pool: Pool, workloads: IntArray, shots: int, rng: np.random.Generator) -> IntArray:
    """(E, shots): for each of the workloads (E,) configurations that it measured, drawn without replacement, then NONE.

    At least one measured configuration is left to be predicted.
    """
    is_measured = ~np.isnan(pool.y[workloads])
    order = np.argsort(np.where(is_measured, rng.random(is_measured.shape), np.inf), axis=1)[:, :shots]
    count = is_measured.sum(axis=1)[:, None]
    at = np.full((len(order), shots), NONE)
    at[:, : order.shape[1]] = np.where(np.arange(order.shape[1]) < np.minimum(count - 1, shots), order, NONE)
    return at


def held_out_predictions(learner: Learner, pool: Pool, shots: Sequence[int] = SHOTS, folds: int = FOLDS,
                         draws: int = DRAWS, seed: int = 0) -> Held:
    """Random supports of every workload, predicted by a learner that has not seen it.

    Raises:
        InputError: fewer than two workloads, or none has more than `shots` measured configurations.
    """
    rng = np.random.default_rng(seed)
    parts: list[tuple[IntArray, Support, Prediction]] = []
    for fold in folds_of(learner, pool, folds, seed):
        rows = np.repeat(fold.held_out, draws)
        at = random_supports(pool, rows, max(shots), rng)
        for k in shots:
            support = supports(pool, rows, np.where(np.arange(at.shape[1]) < k, at, NONE))
            enough = support.is_run.sum(axis=1) == k
            support = Support(support.at[enough], support.y[enough], support.metrics[enough])
            parts.append((rows[enough], support, fold.fitted.predict(support)))
    for k in shots:
        if not any(len(rows) and support.is_run[0].sum() == k for rows, support, _ in parts):
            raise InputError(f"pool must have workloads with more than {k} measured configurations, got none")

    def joined(get: Callable[[tuple[IntArray, Support, Prediction]], FloatArray]) -> FloatArray:
        return np.concatenate([get(part) for part in parts])

    return Held(np.concatenate([rows for rows, _, _ in parts]),
                Support(np.concatenate([support.at for _, support, _ in parts]), joined(lambda part: part[1].y),
                        joined(lambda part: part[1].metrics)),
                Prediction(joined(lambda part: part[2].mean), joined(lambda part: part[2].variance)))


def absolute_percentage_errors(pool: Pool, workloads: IntArray, at: IntArray, prediction: Prediction,
                               loss: str = "mape") -> FloatArray:
    """(E, C): |predicted / measured - 1| of the mean of a cell's runs; NaN where not measured or in the support."""
    measured = np.exp(pool.y[workloads])
    rows, columns = np.nonzero(at != NONE)
    measured[rows, at[rows, columns]] = np.nan
    return np.abs(point(prediction, loss) / measured - 1)


def mean_over_cells(errors: FloatArray) -> FloatArray:
    """(E,): means over what is there; NaN where nothing is."""
    is_known = ~np.isnan(errors)
    count = is_known.sum(axis=-1)
    with np.errstate(invalid="ignore"):
        return np.where(count > 0, np.where(is_known, errors, 0.0).sum(axis=-1) / count, np.nan)


def validate(learner: Learner, pool: Pool, shots: Sequence[int] = SHOTS, folds: int = FOLDS, draws: int = DRAWS,
             seed: int = 0, on_fold: Callable[[int, FloatArray], None] = lambda fold, errors: None) -> FloatArray:
    """(shots, workloads): mean absolute percentage error of held-out workloads, by number of runs.

    Args:
        on_fold: called after each fold with its number and the errors so far, NaN of workloads that are still to come.
    """
    errors = np.full((len(shots), pool.workloads), np.nan)
    rng = np.random.default_rng(seed)
    for number, fold in enumerate(folds_of(learner, pool, folds, seed)):
        rows = np.repeat(fold.held_out, draws)
        at = random_supports(pool, rows, max(shots), rng)
        for s, k in enumerate(shots):
            prediction = fold.fitted.predict(supports(pool, rows, at[:, :k]))
            each = mean_over_cells(absolute_percentage_errors(pool, rows, at[:, :k], prediction))
            errors[s, fold.held_out] = mean_over_cells(each.reshape(-1, draws))
        on_fold(number, errors)
    return errors
