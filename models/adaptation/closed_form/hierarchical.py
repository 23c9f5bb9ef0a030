"""A hierarchical Bayes linear model: every workload has its own coefficients, drawn from the pool's distribution.

    y_w(c) = phi(c) @ beta_w + noise,   beta_w ~ N(mean, covariance)

phi is a level of 1 and the features of a kernel over configurations, whitened: with the identity as covariance it is a
Gaussian process with that kernel. Mean, covariance and noise are estimated by expectation-maximisation (Dempster, Laird
and Rubin 1977, random coefficients); the covariance has an inverse-Wishart prior around the kernel's, worth
`strength` workloads, so that a small pool falls back on the kernel and a large one speaks for itself. All steps are
closed forms, and what it predicts is linear in the coefficients.

Metrics of the runs are further outputs of the same model, each with a level and a linear effect of the configuration:
their covariance with the target's coefficients is what a new workload's metrics tell about it.

Symbols as in learner.py; r coefficients (of target and metrics), o observations of a workload.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from feature_store.errors import InputError
from models.adaptation.learner import FloatArray, Pool, Prediction, Support

# Share of the kernel's variance that the features keep, and the most of them.
VARIANCE_KEPT, MOST_FEATURES = 0.999, 64
ITERATIONS = 25
# Observations of one tensor operation in the expectation step: (workloads, r, r).
CHUNK_ELEMENTS = 20_000_000


@dataclass(frozen=True)
class Hierarchical:
    """Coefficients of every workload, with the distribution of the pool that they are drawn from.

    Attributes:
        lengthscale: of the kernel, in units of the mean distance of configurations.
        additive: share of the kernel that is a sum over the configuration's columns; the rest is a product.
        strength: of the prior, in workloads.
        metrics: whether metrics are used.
        name: in reports.
    """

    lengthscale: float = 2.0
    additive: float = 0.5
    strength: float = 5.0
    metrics: bool = True
    name: str = "hierarchical"

    def fit(self, pool: Pool, seed: int = 0) -> "FittedHierarchical":
        """Closed form: the seed does not matter. Raises InputError: no workload has a run."""
        if not (~np.isnan(pool.y)).any():
            raise InputError("pool must have at least one measured run, got none")
        phi = kernel_features(pool, self.lengthscale, self.additive)
        p = pool.metrics.shape[-1] if self.metrics else 0
        return _fit(pool, phi, p, self.strength)


def kernel(distance: FloatArray, lengthscale: float, additive: float) -> FloatArray:
    """(C, C): of distances (columns, C, C)."""
    each = np.exp(-distance / lengthscale**2)
    product = np.exp(-distance.mean(axis=0) / lengthscale**2)
    return np.asarray(additive * each.mean(axis=0) + (1 - additive) * product)


def kernel_features(pool: Pool, lengthscale: float, additive: float) -> FloatArray:
    """(C, r): a level of 1, then features whose inner products are the kernel's."""
    values, vectors = np.linalg.eigh(kernel(pool.distance, lengthscale, additive))
    order = np.argsort(values)[::-1]
    values, vectors = np.clip(values[order], 0, None), vectors[:, order]
    needed = int(np.searchsorted(np.cumsum(values) / values.sum(), VARIANCE_KEPT)) + 1
    keep = min(needed, MOST_FEATURES, int((values > 1e-10 * values[0]).sum()))
    return np.column_stack([np.ones(len(values)), vectors[:, :keep] * np.sqrt(values[:keep])])


@dataclass(frozen=True)
class FittedHierarchical:
    """target (C, r) and metrics (p, C, r): rows of observations; mean (r,), covariance (r, r); noise (1 + p,)."""

    target: FloatArray
    metrics: FloatArray
    mean: FloatArray
    covariance: FloatArray
    noise: FloatArray

    def coefficients(self, support: Support) -> tuple[FloatArray, FloatArray]:
        """Posterior mean (E, r) and covariance (E, r, r) of the coefficients: the embedding of a workload."""
        cross, inner, residual = self._normal_equations(support)
        gain = np.linalg.solve(inner, cross).transpose(0, 2, 1)  # (E, r, o)
        return self.mean + (gain @ residual[..., None])[..., 0], self.covariance - gain @ cross

    def predict(self, support: Support) -> Prediction:
        """See learner.py. Variances come without any workload's covariance of coefficients, which is large."""
        cross, inner, residual = self._normal_equations(support)
        before = ((self.target @ self.covariance) * self.target).sum(axis=1)
        from_target = cross @ self.target.T  # (E, o, C)
        solved = np.linalg.solve(inner, from_target)
        mean = self.target @ self.mean + (solved.transpose(0, 2, 1) @ residual[..., None])[..., 0]
        return Prediction(mean, np.clip(before - (from_target * solved).sum(axis=1), 0, None) + self.noise[0])

    def curves(self, pool: Pool) -> FloatArray:
        """(W, C): posterior means of a whole pool's workloads. Its cost grows with r, not with what was measured."""
        blocks = [(self.target, pool.y)] + [(rows, pool.metrics[..., j]) for j, rows in enumerate(self.metrics)]
        return _expect(blocks, self.mean, self.covariance, self.noise)[0] @ self.target.T

    def _normal_equations(self, support: Support) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Covariances of observations with coefficients (E, o, r) and among each other (E, o, o), residuals (E, o)."""
        rows, values, noise, is_observed = self._observations(support)
        # an observation that is not there has no row and any noise
        rows, residual = rows * is_observed[..., None], np.where(is_observed, values - rows @ self.mean, 0.0)
        cross = rows @ self.covariance
        inner = cross @ rows.transpose(0, 2, 1) + np.where(is_observed, noise, 1.0)[..., None] * np.eye(rows.shape[1])
        return cross, inner, residual

    def _observations(self, support: Support) -> tuple[FloatArray, FloatArray, FloatArray, NDArray[np.bool_]]:
        """Rows (E, o, r), values (E, o), noise (E, o) and whether they are there; o = k (1 + p)."""
        at, p = np.where(support.is_run, support.at, 0), len(self.metrics)
        rows, values = [self.target[at]], [support.y]
        noise, is_observed = [np.full(at.shape, self.noise[0])], [support.is_run]
        for j in range(p):
            rows.append(self.metrics[j][at])
            values.append(np.nan_to_num(support.metrics[..., j]))
            noise.append(np.full(at.shape, self.noise[1 + j]))
            is_observed.append(support.is_run & ~np.isnan(support.metrics[..., j]))
        return tuple(np.concatenate(part, axis=1) for part in (rows, values, noise, is_observed))  # type: ignore[return-value]


def _fit(pool: Pool, phi: FloatArray, p: int, strength: float) -> FittedHierarchical:
    workloads, configurations = pool.y.shape
    r, linear = phi.shape[1], np.column_stack([np.ones(configurations), pool.x])
    size = r + p * linear.shape[1]
    target, metrics = np.zeros((configurations, size)), np.zeros((p, configurations, size))
    target[:, :r] = phi
    for j in range(p):
        first = r + j * linear.shape[1]
        metrics[j, :, first:first + linear.shape[1]] = linear
    starts = [_start(phi, pool.y), *(_start(linear, pool.metrics[..., j]) for j in range(p))]
    blocks = [(target, pool.y)] + [(metrics[j], pool.metrics[..., j]) for j in range(p)]
    mean, prior = (np.concatenate([start[k] for start in starts]) for k in (0, 1))
    noise = 0.1 * np.array([start[2] for start in starts])
    if np.isfinite(pool.noise) and pool.noise > 0:
        noise[0] = pool.noise
    covariance, centre = np.diag(prior), mean
    for _ in range(ITERATIONS):
        moment, second, residual, counts = _expect(blocks, mean, covariance, noise)
        # the mean has a prior too, worth one workload, around the smooth effects of the start
        mean = (moment.sum(axis=0) + centre) / (workloads + 1)
        deviation = moment - mean
        scatter = second + deviation.T @ deviation
        covariance = (strength * np.diag(prior) + scatter) / (strength + workloads)
        noise = np.clip(residual / np.maximum(counts, 1), 1e-5, None)
    return FittedHierarchical(target, metrics, mean, covariance, noise)


def _start(rows: FloatArray, values: FloatArray) -> tuple[FloatArray, FloatArray, float]:
    """Of one output with rows (C, coefficients), as it is spread in the pool: mean and prior variance of its
    coefficients, and the spread of its values."""
    level = np.array([_nanmean(row) for row in values])
    rest = values - level[:, None]
    effect = np.array([_nanmean(column) for column in rest.T])
    spread = max(_nanvar(rest), 1e-4)
    seen = ~np.isnan(effect)
    design = rows[seen, 1:]
    slopes = np.linalg.solve(design.T @ design + np.eye(design.shape[1]), design.T @ effect[seen])
    mean = np.concatenate([[np.nan_to_num(_nanmean(level))], slopes])  # 0 of a metric that no run of the pool has
    return mean, np.concatenate([[max(_nanvar(level), spread)], np.full(len(slopes), spread)]), spread


def _expect(blocks: list[tuple[FloatArray, FloatArray]], mean: FloatArray, covariance: FloatArray,
            noise: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Posterior means (W, r), the sum of posterior covariances, and squared residuals and counts of each block."""
    size, workloads = len(mean), len(blocks[0][1])
    precision = np.linalg.inv(covariance)
    means = np.empty((workloads, size))
    total, residual, counts = np.zeros((size, size)), np.zeros(len(blocks)), np.zeros(len(blocks))
    chunk = max(1, CHUNK_ELEMENTS // size**2)
    for start in range(0, workloads, chunk):
        part = slice(start, start + chunk)
        inner = np.broadcast_to(precision, (len(range(*part.indices(workloads))), size, size)).copy()
        right = np.broadcast_to(precision @ mean, inner.shape[:2]).copy()
        for b, (rows, values) in enumerate(blocks):
            is_known = ~np.isnan(values[part])
            known = np.where(is_known, values[part], 0.0)
            used, square = _outer(rows)
            inner[:, used[:, None], used] += (is_known / noise[b] @ square).reshape(-1, len(used), len(used))
            right += known @ rows / noise[b]
        spread = np.linalg.inv(inner)
        means[part] = np.einsum("wrs,ws->wr", spread, right)
        total += spread.sum(axis=0)
        for b, (rows, values) in enumerate(blocks):
            is_known = ~np.isnan(values[part])
            left = np.where(is_known, values[part] - means[part] @ rows.T, 0.0)
            used, square = _outer(rows)
            variance = spread[:, used[:, None], used].reshape(len(spread), -1) @ square.T
            residual[b] += float((left**2).sum() + (variance * is_known).sum())
            counts[b] += is_known.sum()
    return means, total, residual, counts


def _outer(rows: FloatArray) -> tuple[NDArray[np.int64], FloatArray]:
    """The columns (u,) of a block that are its own, and rows (C, u u) of the products of each two of them."""
    used = np.flatnonzero(rows.any(axis=0))
    used_rows = rows[:, used]
    return used, (used_rows[:, :, None] * used_rows[:, None]).reshape(len(rows), -1)


def _nanmean(values: FloatArray) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")


def _nanvar(values: FloatArray) -> float:
    known = values[~np.isnan(values)]
    return float(known.var()) if len(known) else 0.0
