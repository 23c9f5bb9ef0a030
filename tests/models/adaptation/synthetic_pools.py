"""Pools whose truth is known: a level, a slope of each workload along one column, a little noise."""

import numpy as np

from models.adaptation.learner import IntArray, Pool, Support, supports

NOISE = 0.01


def pool(workloads: int = 16, configurations: int = 10, seed: int = 0, missing: float = 0.0, metrics: int = 0) -> Pool:
    """Metrics, if any, tell the slope."""
    generator = np.random.default_rng(seed)
    x = np.column_stack([np.linspace(-1.5, 1.5, configurations), generator.normal(size=configurations)])
    level, slope = generator.normal(4.0, 0.5, (workloads, 1)), generator.normal(-0.6, 0.4, (workloads, 1))
    y = level + slope * x[:, 0] + 0.3 * x[:, 1] + NOISE * generator.normal(size=(workloads, configurations))
    y[generator.random(y.shape) < missing] = np.nan
    told = np.repeat(slope[:, None] + np.zeros((1, configurations, 1)), metrics, axis=2)
    told[np.isnan(y)] = np.nan
    distance = np.stack([(column[:, None] - column[None]) ** 2 for column in x.T])
    return Pool(x, distance / distance.mean(axis=(1, 2), keepdims=True), y, (~np.isnan(y)).astype(np.int64), told,
                NOISE**2)


def constant() -> Pool:
    """All targets are the same."""
    made = pool(6, 5)
    return Pool(made.x, made.distance, np.full_like(made.y, 3.0), made.runs, made.metrics, float("nan"))


def random_support(made: Pool, shots: int, seed: int = 0) -> Support:
    """One support for each workload, at different configurations."""
    generator = np.random.default_rng(seed)
    at: IntArray = np.array([generator.choice(made.y.shape[1], shots, replace=False) for _ in made.y])
    return supports(made, np.arange(made.workloads), at)


def error(mean: np.ndarray, made: Pool) -> float:
    """Mean absolute error of logs over what was measured."""
    return float(np.nanmean(np.abs(mean - made.y)))
