"""Nearest workloads of the pool, in log ratios: what took alike under the support takes alike elsewhere.

Every workload of the pool is a curve over the configurations, relative to its level at the support. Its weight is
exp(-d / 2), d being the squared distance of the support's log ratios, of the level and of the metrics, each in units of
its bandwidth. Cells that the pool lacks are filled in by the hierarchical model (hierarchical.py).

Symbols as in learner.py.
"""

from dataclasses import dataclass, field

import numpy as np

from models.adaptation.closed_form.hierarchical import FittedHierarchical, Hierarchical
from models.adaptation.learner import FloatArray, Pool, Prediction, Support

# A floor under every weight, in shares of the largest: far from all of the pool, all of the pool counts.
FLOOR = 1e-3


@dataclass(frozen=True)
class Neighbours:
    """Bandwidths: ratio, of log ratios; level, of the log level; metric, of standardised log metrics."""

    ratio: float = 0.2
    level: float = 1.0
    metric: float = 1.0
    filling: Hierarchical = field(default_factory=Hierarchical)
    name: str = "nearest"

    def fit(self, pool: Pool, seed: int = 0) -> "FittedNeighbours":
        """Raises InputError: no workload has a run."""
        fitted = self.filling.fit(pool, seed)
        return FittedNeighbours(self, filled(pool, fitted), *_metric_levels(pool), float(fitted.noise[0]))


def filled(pool: Pool, fitted: FittedHierarchical) -> FloatArray:
    """(W, C): the pool's own values, and the model's where there are none."""
    model = fitted.curves(pool)
    return np.where(np.isnan(pool.y), model, pool.y)


@dataclass(frozen=True)
class FittedNeighbours:
    """curves (W, C); metrics (W, p): mean residuals of the pool's metrics, standardised; effects and scales of them."""

    settings: Neighbours
    curves: FloatArray
    metrics: FloatArray
    effects: FloatArray
    scales: FloatArray
    noise: float

    def weights(self, support: Support) -> FloatArray:
        """(E, W), each row's sum 1."""
        is_run, at = support.is_run, np.where(support.is_run, support.at, 0)
        count = np.maximum(is_run.sum(axis=1), 1)[:, None]
        gap = np.where(is_run[:, None], self.curves[:, at].transpose(1, 0, 2) - support.y[:, None], 0.0)  # (E, W, k)
        level = gap.sum(axis=2) / count
        ratio = np.where(is_run[:, None], gap - level[..., None], 0.0)
        squared = (ratio**2).sum(axis=2) / self.settings.ratio**2 + (level / self.settings.level) ** 2
        if self.metrics.shape[1]:
            squared = squared + self._metric_distance(support) / self.settings.metric**2
        squared = np.where(is_run.any(axis=1, keepdims=True), squared, 0.0)
        weights = np.exp(-(squared - squared.min(axis=1, keepdims=True)) / 2) + FLOOR
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    def predict(self, support: Support) -> Prediction:
        """See learner.py."""
        weights, is_run = self.weights(support), support.is_run
        at, count = np.where(is_run, support.at, 0), np.maximum(is_run.sum(axis=1), 1)[:, None]
        level = (np.where(is_run, support.y, 0.0)).sum(axis=1, keepdims=True) / count  # (E, 1)
        base = np.where(is_run[:, None], self.curves[:, at].transpose(1, 0, 2), 0.0).sum(axis=2) / count  # (E, W)
        first = weights @ self.curves - (weights * base).sum(axis=1, keepdims=True)
        second = weights @ self.curves**2 - 2 * (weights * base) @ self.curves + (weights * base**2).sum(
            axis=1, keepdims=True)
        return Prediction(level + first, np.clip(second - first**2, 0, None) + self.noise)

    def _metric_distance(self, support: Support) -> FloatArray:
        """(E, W): mean over the metrics that are there of both, times their number's root."""
        at = np.where(support.is_run, support.at, 0)
        rest = np.where(support.is_run[..., None], support.metrics - self.effects[at], np.nan)  # (E, k, p)
        known = ~np.isnan(rest)
        levels = np.where(known, rest, 0.0).sum(axis=1) / np.maximum(known.sum(axis=1), 1) / self.scales  # (E, p)
        both = known.any(axis=1, keepdims=True) & ~np.isnan(self.metrics)[None]
        squared = np.where(both, (levels[:, None] - np.nan_to_num(self.metrics)[None]) ** 2, 0.0).sum(axis=2)
        shared = np.maximum(both.sum(axis=2), 1)
        return np.asarray(squared / np.sqrt(shared))


def _metric_levels(pool: Pool) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Each workload's mean residual (W, p) in units of its spread, the configurations' effects (C, p), scales (p,)."""
    values = pool.metrics
    is_known = ~np.isnan(values)
    count = np.maximum(is_known.sum(axis=1), 1)
    level = np.where(is_known, values, 0.0).sum(axis=1) / count  # (W, p)
    rest = np.where(is_known, values - level[:, None], 0.0)
    effects = rest.sum(axis=0) / np.maximum(is_known.sum(axis=0), 1) if len(values) else np.zeros(values.shape[1:])
    residual = np.where(is_known, values - effects, 0.0).sum(axis=1) / count
    residual = np.where(is_known.any(axis=1), residual, np.nan)
    scales = np.array([np.nanstd(column) if (~np.isnan(column)).any() else 1.0 for column in residual.T])
    scales = np.where(scales > 0, scales, 1.0)
    return residual / scales, effects, scales
