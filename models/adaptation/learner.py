"""What few-shot learners see, and what they answer: one contract for all of them, baselines and meta learners.

A learner is fitted to a pool of workloads and then predicts, for workloads that it has not seen, the logarithm of the
target under every configuration, from a few measured runs (the support). Logarithms, for run times of workloads differ
by factors. Many workloads are predicted at once.

Symbols: W workloads of the pool, C configurations (the pool's and all candidates), d encoded columns, p metrics,
E workloads to predict, k runs of the support.
"""

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
NONE = -1  # no run: padding of a support


@dataclass(frozen=True)
class Pool:
    """Measured workloads that a learner is fitted to.

    Attributes:
        x (C, columns): encoded configurations, see encoding.py.
        distance (columns, C, C): of each column, 0 or 1 of a category, of mean 1 of a number.
        y (W, C): mean log target, NaN where not measured.
        runs (W, C): number of measured runs.
        metrics (W, C, p): mean log metrics of those runs, NaN where missing; p may be 0.
        noise: variance of the log target among runs of the same workload and configuration; NaN where nothing was
            repeated.
    """

    x: FloatArray
    distance: FloatArray
    y: FloatArray
    runs: IntArray
    metrics: FloatArray
    noise: float

    @property
    def workloads(self) -> int:
        """W."""
        return len(self.y)

    def part(self, rows: IntArray) -> "Pool":
        """The pool of these workloads alone."""
        return replace(self, y=self.y[rows], runs=self.runs[rows], metrics=self.metrics[rows])


@dataclass(frozen=True)
class Support:
    """Measured runs: at (E, k), index of the configuration or NONE; y (E, k), log target; metrics (E, k, p), log.

    Values where `at` is NONE are not looked at.
    """

    at: IntArray
    y: FloatArray
    metrics: FloatArray

    @property
    def is_run(self) -> NDArray[np.bool_]:
        """(E, k): where there is a run."""
        return np.asarray(self.at != NONE)


@dataclass(frozen=True)
class Prediction:
    """Of one further run's log target, each (E, C): mean, and variance (of the configuration's mean and of the run)."""

    mean: FloatArray
    variance: FloatArray


class Fitted(Protocol):
    """A learner that knows a pool."""

    def predict(self, support: Support) -> Prediction:
        """Under every configuration of the pool. A workload without any run gets the pool's own expectation."""
        ...


class Learner(Protocol):
    """Settings that can be fitted to a pool."""

    @property
    def name(self) -> str:
        """As in reports and task files."""
        ...

    def fit(self, pool: Pool, seed: int = 0) -> Fitted:
        """Raises InputError where the pool is too small for it."""
        ...


def supports(pool: Pool, workloads: IntArray, at: IntArray) -> Support:
    """The support that workloads (E,) of a pool give at configurations (E, k); NONE where nothing was measured."""
    rows = np.asarray(workloads)[:, None]
    y = np.where(at == NONE, np.nan, pool.y[rows, at])
    return Support(np.where(np.isnan(y), NONE, at), np.nan_to_num(y), np.nan_to_num(pool.metrics[rows, at], nan=np.nan))
