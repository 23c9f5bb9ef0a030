"""What recommendations are worth: the configuration named after k runs of a new workload, beside search without a pool.

    python -m benchmarks adaptation-search [--data cloudbandit scout] [--seeds 0 1 ...] [--jobs 2]

A new workload is to be run as cheaply as may be within a deadline, which DEADLINE of its configurations meet. Each
method measures k configurations and then names one:

    ours      runs chosen one after the other (models/adaptation/design.py); then the cheapest configuration whose 90 %
              interval meets the deadline, measured or not, from the pool of half of the workloads
    ours_risk the same, but whose prediction meets it
    random    k random configurations; the cheapest measured one that met the deadline, or the quickest
    bayesian  CherryPick (Alipourfard et al., NSDI 2017) with Optuna's GP sampler: minimises log cost with a penalty
              beyond the deadline, three random runs first; names as random does. A suggestion is rounded to the nearest
              configuration that was not tried

What counts: how often the named configuration misses the deadline, and its cost by that of the cheapest configuration
that meets it. All costs and times are measured ones; configurations that failed cannot be chosen by anybody. Resumable
like benchmarks/adaptation/accuracy.py.
"""

import argparse
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from threadpoolctl import threadpool_limits

from benchmarks.adaptation.splits import DATA_SETS, Loaded, Split, load, split
from benchmarks.harness.code_digest import code_digest
from benchmarks.harness.data_folder import add_data_folder, required
from benchmarks.harness.entries import Entries, made_by
from benchmarks.harness.jobs import add_jobs, in_processes
from benchmarks.harness.machine import describe_machine, now_utc
from benchmarks.harness.result_file import RESULTS
from models.adaptation.closed_form.combination import point
from models.adaptation.design import Design
from models.adaptation.learner import Fitted, FloatArray, supports
from models.adaptation.pool.conformal import Conformal, calibrate
from models.adaptation.pool.selection import default_learner

OUTPUT = RESULTS / "adaptation_search.json"
FORMAT = "assay-adaptation-search/1"
BUDGETS = (1, 2, 3, 6, 10)
DEADLINE = 0.5
METHODS = ("ours", "ours_risk", "random", "bayesian")
# A run twice as long as the deadline is as bad as one that costs 2^PENALTY times as much.
PENALTY = 5.0
RANDOM_REPEATS = 10


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py."""
    parser.add_argument("--data", nargs="+", default=list(DATA_SETS), choices=DATA_SETS, metavar="DATA")
    add_data_folder(parser)
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(10)))
    add_jobs(parser)


def run(options: argparse.Namespace) -> None:
    """Makes the entries that are missing."""
    code = code_digest("benchmarks.adaptation.search", "")
    results = Entries(options.output, FORMAT, _key, made_by(code))
    results.content |= {"machine": describe_machine(), "budgets": list(BUDGETS), "deadline": DEADLINE}
    made = {(entry["data"], entry["seed"]) for entry in results.content["entries"]}
    jobs = [(data, required(options.data_folder), seed) for data in options.data for seed in options.seeds
            if (data, seed) not in made]

    def keep(job: tuple[str, Path, int], entries: list[dict[str, Any]]) -> str:
        results.add(*({**entry, "code": code} for entry in entries))
        return f"{job[0]}, seed {job[2]}"

    in_processes(_measure, jobs, options.jobs, keep)


def _key(entry: Mapping[str, Any]) -> tuple[str, int, int]:
    return entry["data"], entry["seed"], METHODS.index(entry["method"])


def _measure(data: str, folder: Path, seed: int) -> list[dict[str, Any]]:
    """One entry a method: misses and cost ratios by budget, averaged over the new workloads."""
    with threadpool_limits(1):
        loaded_data = load(data, folder)
        parts = split(loaded_data, "workload", seed, DATA_SETS[data].provider)
        learner = default_learner()
        fitted, design = learner.fit(parts.pool, seed), Design(parts.pool, learner, seed=seed)
        conformal = calibrate(learner, parts.pool, seed=seed)
        outcomes: dict[str, list[FloatArray]] = {method: [] for method in METHODS}
        rng = np.random.default_rng([seed, 2])
        for workload in parts.new:
            task = _Task(loaded_data, int(workload))
            for method, outcome in _ours(task, loaded_data, parts, fitted, design, conformal).items():
                outcomes[method].append(outcome)
            outcomes["random"].append(np.mean([task.outcomes(rng.permutation(task.candidates))
                                               for _ in range(RANDOM_REPEATS)], axis=0))
            outcomes["bayesian"].append(task.outcomes(_bayesian(task, loaded_data, seed)))
    return [{"data": data, "seed": seed, "method": method, "date": now_utc(), "workloads": len(values),
             "missed": np.mean([value[:, 0] for value in values], axis=0).round(5).tolist(),
             "cost_ratio": np.mean([value[:, 1] for value in values], axis=0).round(5).tolist(),
             "search_cost": np.mean([value[:, 2] for value in values], axis=0).round(5).tolist()}
            for method, values in outcomes.items()]


class _Task:
    """A new workload's measured configurations, its deadline, and the cheapest one that meets it."""

    def __init__(self, data: Loaded, workload: int) -> None:
        assert data.table.cost is not None
        self.workload = workload
        self.time, self.cost = np.exp(data.table.pool.y[workload]), data.table.cost[workload]
        self.candidates = np.flatnonzero(~np.isnan(self.time) & ~np.isnan(self.cost))
        self.deadline = float(np.quantile(self.time[self.candidates], DEADLINE))
        meets = self.candidates[self.time[self.candidates] <= self.deadline]
        self.best = float(self.cost[meets].min())

    def outcome(self, named: int, measured: np.ndarray) -> list[float]:
        """Whether it misses, its cost by the best one's, and what the runs cost by the best one's cost."""
        return [float(self.time[named] > self.deadline), float(self.cost[named] / self.best),
                float(self.cost[measured].sum() / self.best)]

    def outcomes(self, order: np.ndarray) -> FloatArray:
        """(budgets, 3), where the cheapest measured configuration that met the deadline is named."""
        outcomes = []
        for budget in BUDGETS:
            measured = order[:budget]
            met = measured[self.time[measured] <= self.deadline]
            named = met[self.cost[met].argmin()] if len(met) else measured[self.time[measured].argmin()]
            outcomes.append(self.outcome(int(named), measured))
        return np.array(outcomes)


def _ours(task: _Task, data: Loaded, parts: Split, fitted: Fitted, design: Design,
          conformal: Conformal) -> dict[str, FloatArray]:
    pool, rate = data.table.pool, _rates(data, parts)
    found: dict[str, list[list[float]]] = {"ours": [], "ours_risk": []}
    at = np.empty(0, dtype=np.int64)
    for count in range(1, max(BUDGETS) + 1):
        following = design.following(supports(pool, np.array([task.workload]), at[None]), task.candidates)
        at = np.append(at, following)
        if count not in BUDGETS:
            continue
        prediction = fitted.predict(supports(pool, np.array([task.workload]), at[None]))
        predicted = point(prediction, "median")[0]
        cost = predicted * rate
        cost[at] = task.cost[at]  # what was measured is known
        for method, judged in (("ours", conformal.interval(prediction, count)[1][0]), ("ours_risk", predicted.copy())):
            judged[at] = task.time[at]
            options = task.candidates[judged[task.candidates] <= task.deadline]
            safest = task.candidates[judged[task.candidates].argmin()]
            named = options[cost[options].argmin()] if len(options) else safest
            found[method].append(task.outcome(int(named), at))
    return {method: np.array(outcomes) for method, outcomes in found.items()}


def _rates(data: Loaded, parts: Split) -> FloatArray:
    """(C,): median cost per unit of the target over the pool's workloads; of all workloads where the pool has none."""
    assert data.table.cost is not None
    rates = data.table.cost / np.exp(data.table.pool.y)
    known = np.delete(rates, parts.new, axis=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a column without any value
        own = np.nanmedian(known, axis=0)
        return np.asarray(np.where(np.isnan(own), np.nanmedian(rates, axis=0), own))


def _bayesian(task: _Task, data: Loaded, seed: int) -> np.ndarray:
    """The order in which CherryPick measures."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    x = data.table.pool.x
    lower, upper = x.min(axis=0), x.max(axis=0)
    used = np.flatnonzero(upper > lower)
    spaces = {f"x{j}": optuna.distributions.FloatDistribution(float(lower[j]), float(upper[j])) for j in used}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the sampler says that it is experimental
        study = optuna.create_study(sampler=optuna.samplers.GPSampler(seed=seed, n_startup_trials=3))
        order: list[int] = []
        for _ in range(min(max(BUDGETS), len(task.candidates))):
            free = task.candidates[~np.isin(task.candidates, order)]
            asked = study.ask(spaces)
            wanted = np.array([asked.params[f"x{j}"] for j in used])
            at = int(free[((x[np.ix_(free, used)] - wanted) ** 2).sum(axis=1).argmin()])
            study.tell(asked, state=optuna.trial.TrialState.FAIL)  # what is measured is its nearest configuration
            value = np.log2(task.cost[at]) + PENALTY * max(0.0, np.log2(task.time[at] / task.deadline))
            study.add_trial(optuna.trial.create_trial(
                params={f"x{j}": float(x[at, j]) for j in used}, distributions=spaces, value=float(value)))
            order.append(at)
    return np.array(order)
