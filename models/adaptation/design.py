"""Which configuration to measure next: the one after which a new workload is predicted best.

Two views are averaged. The pool's: held-out workloads of the pool (validation.py) are predicted from the runs so far
and the candidate; their mean absolute percentage error is what one wants, but rests on few workloads. The model's: what
is left of the hierarchical model's standard deviation, over all configurations, is smooth but knows no heavy tails. For
a workload that has been measured already, the errors are weighted by how alike the workloads are (neighbours.py): the
next configuration then depends on what was seen (sequential design); without any run all count alike, and the same rule
gives base configurations for everybody (the model's half alone is greedy variance reduction, MacKay 1992; Krause, Singh
and Guestrin 2008). Where it is known how many runs there will be, they are better chosen together (`together`).

Symbols as in learner.py; J candidates.
"""

from dataclasses import dataclass, field

import numpy as np

from models.adaptation.closed_form.hierarchical import Hierarchical
from models.adaptation.closed_form.neighbours import Neighbours
from models.adaptation.learner import NONE, FloatArray, IntArray, Learner, Pool, Support, supports
from models.adaptation.pool.validation import Fold, absolute_percentage_errors, folds_of, mean_over_cells

# Share of the model's view. Mean |z| of a standard normal turns its deviation into a mean absolute error.
MODEL_SHARE, MEAN_ABSOLUTE = 0.7, 0.8
FOLDS = 15
# Passes of the exchange; it settles in two or three.
EXCHANGES = 4
# Held-out workloads with a candidate, below which the pool has no view of it.
FEWEST = 3


@dataclass
class Design:
    """Chooses configurations for workloads that are predicted by `learner`, which is fitted to `pool`.

    similar: 0: all workloads of the pool count alike whatever was measured; 1: by their weights as neighbours.
    """

    pool: Pool
    learner: Learner
    model: Hierarchical = field(default_factory=Hierarchical)
    model_share: float = MODEL_SHARE
    similar: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        fitted = self.model.fit(self.pool, self.seed)
        self._covariance = fitted.target @ fitted.covariance @ fitted.target.T
        self._noise = float(fitted.noise[0])
        self._neighbours = Neighbours(filling=self.model).fit(self.pool, self.seed)
        self._folds: list[Fold] = []
        if self.pool.workloads > 1 and self.model_share < 1:
            self._folds = folds_of(self.learner, self.pool, FOLDS, self.seed)
        self._errors: dict[tuple[int, ...], FloatArray] = {}

    def base(self, count: int, candidates: IntArray | None = None) -> IntArray:
        """(count,): configurations to measure of any new workload, best first; candidates: which may be (all)."""
        chosen: list[int] = []
        empty = Support(np.empty((1, 0), dtype=np.int64), np.empty((1, 0)),
                        np.empty((1, 0, self.pool.metrics.shape[-1])))
        free = self._free(candidates, chosen)
        while len(chosen) < count and len(free):
            chosen.append(self._best(chosen, free, self._weights(empty)))
            free = self._free(candidates, chosen)
        return np.array(chosen, dtype=np.int64)

    def together(self, count: int, candidates: IntArray | None = None) -> IntArray:
        """(count,): configurations to measure of any new workload where all of them will be: the best set, not the best
        beginnings. From `base`, each is replaced by the best beside the others until none changes (coordinate exchange,
        Meyer and Nachtsheim 1995)."""
        chosen = [int(at) for at in self.base(count, candidates)]
        weights = np.full(self.pool.workloads, 1 / self.pool.workloads)
        for _ in range(EXCHANGES if len(chosen) > 1 else 0):
            before = sorted(chosen)
            for i in range(len(chosen)):
                others = chosen[:i] + chosen[i + 1:]
                chosen[i] = self._best(others, self._free(candidates, others), weights)
            if sorted(chosen) == before:
                break
        return np.array(chosen, dtype=np.int64)

    def following(self, support: Support, candidates: IntArray | None = None) -> int:
        """The configuration to measure next of the one workload of `support`; NONE where no candidate is left."""
        measured = [int(at) for at in support.at[0] if at != NONE]
        free = self._free(candidates, measured)
        return self._best(measured, free, self._weights(support)) if len(free) else NONE

    def _free(self, candidates: IntArray | None, taken: list[int]) -> IntArray:
        every = np.arange(self.pool.y.shape[1]) if candidates is None else np.asarray(candidates, dtype=np.int64)
        return every[~np.isin(every, taken)]

    def _weights(self, support: Support) -> FloatArray:
        """(W,)"""
        alike = np.full(self.pool.workloads, 1 / self.pool.workloads)
        if not support.is_run.any():
            return alike
        return (1 - self.similar) * alike + self.similar * self._neighbours.weights(support)[0]

    def _best(self, measured: list[int], candidates: IntArray, weights: FloatArray) -> int:
        model = self._model_error(measured)[candidates]
        model = model - model.mean()
        score = model
        if self._folds:
            errors = self._pool_error(measured)[:, candidates]
            is_known = ~np.isnan(errors)
            share = np.where(is_known, weights[:, None], 0.0)
            with np.errstate(invalid="ignore"):
                pool = np.where(is_known, errors, 0.0).T @ weights / share.sum(axis=0)
            known = is_known.sum(axis=0) >= FEWEST
            if known.any():  # the pool tells candidates apart that it knows; how they stand to others, the model
                pool = pool - pool[known].mean() + model[known].mean()
            score = np.where(known, (1 - self.model_share) * pool + self.model_share * model, model)
        return int(candidates[score.argmin()])

    def _model_error(self, measured: list[int]) -> FloatArray:
        """(C,): mean deviation over all configurations once each of them is measured as well."""
        left = self._covariance
        for at in measured:
            left = left - np.outer(left[:, at], left[at]) / (left[at, at] + self._noise)
        variances = np.diag(left) + self._noise
        variance = np.diag(left)[:, None] - left**2 / variances
        return np.asarray(MEAN_ABSOLUTE * np.sqrt(np.clip(variance, 0, None) + self._noise).mean(axis=0))

    def _pool_error(self, measured: list[int]) -> FloatArray:
        """(W, C): of each held-out workload, relative to its own mean, once each configuration is measured as well."""
        key = tuple(sorted(measured))
        if key not in self._errors:
            configurations = self.pool.y.shape[1]
            found = np.full((self.pool.workloads, configurations), np.nan)
            for fold in self._folds:
                rows = np.repeat(fold.held_out, configurations)
                extra = np.tile(np.arange(configurations), len(fold.held_out))
                at = np.column_stack([np.tile(key, (len(rows), 1)).astype(np.int64), extra])
                support = supports(self.pool, rows, at)
                errors = mean_over_cells(absolute_percentage_errors(
                    self.pool, rows, support.at, fold.fitted.predict(support)))
                errors[~support.is_run.all(axis=1)] = np.nan
                found[fold.held_out] = errors.reshape(len(fold.held_out), configurations)
            self._errors[key] = found - mean_over_cells(found)[:, None]
        return self._errors[key]
