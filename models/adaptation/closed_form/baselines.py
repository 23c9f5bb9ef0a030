"""Baselines for few-shot prediction: what any other learner has to be better than.

    support_mean   the mean of the support's logs, under every configuration
    additive       a workload's level plus a configuration's effect, in logarithms
    low_rank       levels, effects, and the leading patterns of what is left (probabilistic principal components)
    boosted_ratios gradient boosting of the log ratio between two configurations of one workload (scikit-learn)

The Gaussian process with exchangeable workloads is the hierarchical model whose covariance stays the kernel's: as good
as so at `Hierarchical(strength=1e9)` (learners.py).

Symbols as in learner.py.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor

from feature_store.errors import InputError
from models.adaptation.closed_form.hierarchical import Hierarchical
from models.adaptation.closed_form.neighbours import filled
from models.adaptation.learner import FloatArray, IntArray, Pool, Prediction, Support

SMALLEST_VARIANCE = 1e-6


@dataclass(frozen=True)
class SupportMean:
    """The support's mean; without any run the pool's."""

    name: str = "support_mean"

    def fit(self, pool: Pool, seed: int = 0) -> "FittedSupportMean":
        """Raises InputError: no workload has a run."""
        measured = pool.y[(~np.isnan(pool.y)).any(axis=1)]
        if not len(measured):
            raise InputError("pool must have at least one measured run, got none")
        level = np.nanmean(measured)
        rest = measured - np.nanmean(measured, axis=1, keepdims=True)
        return FittedSupportMean(pool.y.shape[1], float(level), float(np.nanvar(rest)), float(np.nanvar(measured)))


@dataclass(frozen=True)
class FittedSupportMean:
    """within, overall: variances of the pool's logs around workloads' levels and around the pool's."""

    configurations: int
    level: float
    within: float
    overall: float

    def predict(self, support: Support) -> Prediction:
        """See learner.py."""
        count = support.is_run.sum(axis=1)
        mean = np.where(support.is_run, support.y, 0.0).sum(axis=1) / np.maximum(count, 1)
        mean = np.where(count > 0, mean, self.level)
        variance = np.where(count > 0, self.within * (1 + 1 / np.maximum(count, 1)), self.overall)
        shape = (len(mean), self.configurations)
        return Prediction(np.broadcast_to(mean[:, None], shape).copy(),
                          np.broadcast_to(variance[:, None], shape).copy() + SMALLEST_VARIANCE)


@dataclass(frozen=True)
class LowRank:
    """rank 0: additive. filling: of the cells that the pool lacks."""

    rank: int = 2
    filling: Hierarchical = field(default_factory=Hierarchical)
    name: str = "low_rank"

    def fit(self, pool: Pool, seed: int = 0) -> "FittedLowRank":
        """Raises InputError: no workload has a run."""
        curves = filled(pool, self.filling.fit(pool, seed))
        level = curves.mean(axis=1, keepdims=True)
        effect = (curves - level).mean(axis=0)
        rest = curves - level - effect
        rank = min(self.rank, max(len(curves) - 1, 0))
        _, size, patterns = np.linalg.svd(rest, full_matrices=False)
        remaining = float((size[rank:] ** 2).sum() / max(rest.size, 1)) + SMALLEST_VARIANCE
        loadings = patterns[:rank] * size[:rank, None] / np.sqrt(max(len(curves), 1))
        rows = np.vstack([np.ones(len(effect)), loadings])  # the prior of every coefficient but the level's is N(0, 1)
        return FittedLowRank(rows, effect, float(level.mean()), max(float(level.var()), 1.0), remaining)


@dataclass(frozen=True)
class FittedLowRank:
    """rows (1 + rank, C): of the level and the patterns; effect (C,); level and its variance; noise."""

    rows: FloatArray
    effect: FloatArray
    level: float
    level_variance: float
    noise: float

    def predict(self, support: Support) -> Prediction:
        """See learner.py: the coefficients' Gaussian posterior."""
        at, is_run = np.where(support.is_run, support.at, 0), support.is_run[..., None]
        design = np.where(is_run, self.rows.T[at], 0.0)  # (E, k, 1 + rank)
        rest = np.where(support.is_run, support.y - self.level - self.effect[at], 0.0)
        precision = np.diag([1 / self.level_variance] + [1.0] * (len(self.rows) - 1))
        covariance = np.linalg.inv(precision + design.transpose(0, 2, 1) @ design / self.noise)
        mean = (covariance @ design.transpose(0, 2, 1) @ rest[..., None])[..., 0] / self.noise
        variance = np.einsum("rc,ers,sc->ec", self.rows, covariance, self.rows, optimize=True)
        return Prediction(self.level + self.effect + mean @ self.rows, np.clip(variance, 0, None) + self.noise)


def additive() -> LowRank:
    """Level and effect alone."""
    return LowRank(rank=0, name="additive")


@dataclass(frozen=True)
class BoostedRatios:
    """Gradient boosting of log ratios, from both configurations, the base's log level and metrics; means over bases.

    pairs: rows that it is trained on, at most, drawn at random.
    """

    iterations: int = 200
    learning_rate: float = 0.06
    leaves: int = 15
    pairs: int = 40_000
    name: str = "boosted_ratios"

    def fit(self, pool: Pool, seed: int = 0) -> "FittedBoostedRatios":
        """Raises InputError: no workload has two runs."""
        row, base, target = _pairs(~np.isnan(pool.y), self.pairs, seed)
        if not len(row):
            raise InputError("pool must have a workload that was measured under two configurations, got none")
        inputs = _pair_inputs(pool.x[base], pool.x[target], pool.y[row, base], pool.metrics[row, base])
        used = np.asarray(~np.isnan(inputs).all(axis=0))  # scikit-learn takes no column without any value
        ratio = pool.y[row, target] - pool.y[row, base]
        model = HistGradientBoostingRegressor(max_iter=self.iterations, learning_rate=self.learning_rate,
                                              max_leaf_nodes=self.leaves, random_state=seed)
        model.fit(inputs[:, used], ratio)
        residual = float(np.var(ratio - model.predict(inputs[:, used])))
        return FittedBoostedRatios(model, pool, used, max(residual, SMALLEST_VARIANCE), FittedSupportMean(
            pool.y.shape[1], float(np.nanmean(pool.y)), 0.0, float(np.nanvar(pool.y))))


@dataclass(frozen=True)
class FittedBoostedRatios:
    """See BoostedRatios.

    Attributes:
        used: columns of the inputs.
        residual: variance of the training rows' residuals, which is too small for other workloads.
        without: predicts a workload without any run.
    """

    model: HistGradientBoostingRegressor
    pool: Pool
    used: NDArray[np.bool_]
    residual: float
    without: FittedSupportMean

    def predict(self, support: Support) -> Prediction:
        """See learner.py."""
        episodes, shots = support.at.shape
        configurations = len(self.pool.x)
        without = self.without.predict(support)
        total, count = np.zeros((episodes, configurations)), support.is_run.sum(axis=1)
        for shot in range(shots):
            e = np.flatnonzero(support.is_run[:, shot])
            if not len(e):
                continue
            base = np.repeat(support.at[e, shot], configurations)
            target = np.tile(np.arange(configurations), len(e))
            level = np.repeat(support.y[e, shot], configurations)
            metrics = np.repeat(support.metrics[e, shot], configurations, axis=0)
            inputs = _pair_inputs(self.pool.x[base], self.pool.x[target], level, metrics)
            ratio = self.model.predict(inputs[:, self.used])
            total[e] += (level + ratio).reshape(len(e), configurations)
        has_runs = (count > 0)[:, None]
        return Prediction(np.where(has_runs, total / np.maximum(count, 1)[:, None], without.mean),
                          np.where(has_runs, self.residual, without.variance))


def _pairs(is_measured: NDArray[np.bool_], most: int, seed: int) -> tuple[IntArray, IntArray, IntArray]:
    """Workload, base and target of ordered pairs of cells of one workload; (W, C, C) may not fit into memory."""
    count, columns = is_measured.sum(axis=1), np.nonzero(is_measured)[1]
    last = np.cumsum(count * (count - 1))  # pairs are numbered by workload, base and target
    total = int(last[-1]) if len(last) else 0
    pair = np.random.default_rng(seed).choice(total, most, replace=False) if total > most else np.arange(total)
    row = np.searchsorted(last, pair, side="right")
    base, target = np.divmod(pair - (last - count * (count - 1))[row], count[row] - 1)
    first = (np.cumsum(count) - count)[row]
    return row, columns[first + base], columns[first + target + (target >= base)]


def _pair_inputs(base: FloatArray, target: FloatArray, level: FloatArray, metrics: FloatArray) -> FloatArray:
    return np.concatenate([base, target, target - base, level[:, None], metrics], axis=1)
