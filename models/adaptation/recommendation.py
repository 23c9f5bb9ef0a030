"""The cheapest configuration that meets a deadline, from a few measured runs of a workload.

Everything measured of other workloads is the pool; the workload's own runs are its support. Costs are of a run: what a
configuration costs per unit of the target is the median over the runs that the file has, and a prediction of the target
predicts the cost. A configuration meets the deadline if the upper end of its interval does (conformal.py), or, asked to
take the risk, its point. A point lies below the median by the learner's variance (combination.py), which the pool may
show to be too large; it is never below its interval.

Symbols as in learner.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from feature_store.errors import InputError, nearest
from models.adaptation.closed_form.combination import point
from models.adaptation.design import Design
from models.adaptation.encoding import Table
from models.adaptation.learner import NONE, FloatArray, IntArray, Learner, Pool, supports
from models.adaptation.learners import NamedLearner, learner_named
from models.adaptation.pool.conformal import COVERAGE, calibrate
from models.adaptation.pool.selection import candidates_for, choose_learner

# Fewer workloads than this cannot be held out to calibrate intervals.
SMALLEST_POOL = 3


@dataclass(frozen=True)
class Recommendation:
    """What `assay recommend` answers.

    Attributes:
        workload: whose runs are the support.
        options: one row a configuration, cheapest first: its columns, predicted, lower, upper, cost, runs, meets.
        chosen: row of `options`; None where none meets the deadline.
        measure_next: the configuration (its columns) whose run would tell most; None where all were measured.
        runs: measured configurations of the workload; runs without a result do not count.
        pool_workloads: number of other workloads.
        coverage: of the intervals.
        learner: its name.
        reason: why this learner.
    """

    workload: str
    options: pd.DataFrame
    chosen: int | None
    measure_next: Mapping[str, Any] | None
    runs: int
    pool_workloads: int
    coverage: float
    learner: str
    reason: str


def recommend(table: Table, workload: str, deadline: float | None = None, coverage: float = COVERAGE,
              risk: bool = False, learner: str | None = None, seed: int = 0) -> Recommendation:
    """The cheapest configuration that meets the deadline, and how sure that is.

    Args:
        table: all measurements.
        workload: whose own rows are the support; all others are the pool.
        deadline: in units of the target; None: the cheapest of all.
        coverage: of the intervals, between 0 and 1.
        risk: judge by the point instead of the interval's upper end.
        learner: a name of models/adaptation/learners.py; None: chosen on the pool (selection.py), among closed forms.
        seed: of folds, and of what a learner draws.

    Raises:
        InputError: no such workload or learner, too small a pool, a deadline or coverage out of range, or no costs.
    """
    if workload not in table.workloads:
        raise InputError(f"workload must have a run that did not fail, got {workload!r}; "
                         + nearest(workload, table.workloads))
    if deadline is not None and not deadline > 0:
        raise InputError(f"deadline must be above 0, got {deadline}")
    if table.cost is None:
        raise InputError("mapping must name the `cost` of a run, got none; without it nothing is cheapest")
    with threadpool_limits(1):  # the matrices are small: more threads wait for each other most of the time
        return _recommend(table, table.workloads.index(workload), deadline, coverage, risk,
                          None if learner is None else learner_named(learner), seed)


def _recommend(table: Table, row: int, deadline: float | None, coverage: float, risk: bool,
               named: NamedLearner | None, seed: int) -> Recommendation:
    pool = table.pool.part(np.setdiff1d(np.arange(len(table.workloads)), [row]))
    if pool.workloads < SMALLEST_POOL:
        raise InputError(f"pool must have at least {SMALLEST_POOL} other workloads, got {pool.workloads}")
    learner, reason, loss = _learner(pool, named, seed)
    measured = np.flatnonzero(~np.isnan(table.pool.y[row]))
    support = supports(table.pool, np.array([row]), measured[None])
    prediction = learner.fit(pool, seed).predict(support)
    lower, upper = calibrate(learner, pool, coverage, seed=seed).interval(prediction, len(measured))
    predicted = np.maximum(point(prediction, loss), lower)[0]
    options = table.configurations.assign(
        predicted=predicted, lower=lower[0], upper=upper[0], cost=predicted * cost_rate(table),
        runs=table.pool.runs[row])
    limit = np.inf if deadline is None else deadline
    options["meets"] = (options["predicted"] if risk else options["upper"]) <= limit
    options = options.sort_values("cost", kind="stable").reset_index(drop=True)
    meets = np.flatnonzero(options["meets"] & options["cost"].notna())
    return Recommendation(table.workloads[row], options, int(meets[0]) if len(meets) else None,
                          _next(table, pool, learner, row, measured, seed), len(measured), pool.workloads, coverage,
                          learner.name, reason)


def _learner(pool: Pool, named: NamedLearner | None, seed: int) -> tuple[Learner, str, str]:
    """The learner, why it is this one, and the loss whose point it reports."""
    if named is not None:
        learner = named.make()
        return learner, f"{learner.name}: asked for by name.", named.loss
    metrics = bool((~np.isnan(pool.metrics)).any())
    choice = choose_learner(pool, candidates_for(pool.workloads, metrics, networks=False), seed=seed)
    return choice.learner, choice.reason, "mape"


def cost_rate(table: Table) -> FloatArray:
    """(C,): cost per unit of the target; NaN where no run of a configuration has a cost."""
    assert table.cost is not None
    rates = table.cost / np.exp(table.pool.y)
    return np.array([np.nanmedian(column) if (~np.isnan(column)).any() else np.nan for column in rates.T])


def _next(table: Table, pool: Pool, learner: Learner, row: int, measured: IntArray,
          seed: int) -> Mapping[str, Any] | None:
    design = Design(pool, learner, seed=seed)
    at = design.following(supports(table.pool, np.array([row]), measured[None]))
    return None if at == NONE else dict(table.configurations.iloc[at])
