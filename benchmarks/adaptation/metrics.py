"""What system metrics of the measured runs are worth, as the pool grows: synthetic workloads whose laws are known.

    python -m benchmarks adaptation-metrics [--workloads 14 30 ...] [--seeds 0 1 ...]

Run times are those of adaptation/scale.py: Amdahl's and Ernest's terms, a knee where memory does not suffice, factors
of machine families, noise, missing cells. Metrics of a run are noisy functions of the same hidden laws:

    cpu_seconds    log of the work of all nodes, that of talk and of waiting for memory included
    io_bytes       log of what is read, in proportion to what is computed, and what does not fit into memory
    memory_peak    log of what is needed, or of all that there is
    network_bytes  log of what all nodes say

and a tenth of them is missing. A seed draws 500 workloads, of which the first 14, 30, ... are the pool, and 50 more
that no learner has seen: each is predicted from 1, 2 and 3 random runs, DRAWS times, the same for all methods. `chosen`
is what models/adaptation/pool/selection.py picks on the pool alone.

Resumable: an entry (workloads, seed, method) that was made by the same code is not made again.

Symbols: W workloads, C configurations, p metrics.
"""

import argparse
import sys
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from benchmarks.adaptation.methods import DRAWS
from benchmarks.adaptation.scale import NOISE, Laws, Machines, laws, machines, noisy
from benchmarks.harness.code_digest import code_digest
from benchmarks.harness.entries import Entries
from benchmarks.harness.machine import describe_machine, load_average, now_utc
from benchmarks.harness.result_file import RESULTS
from models.adaptation.learner import FloatArray, IntArray, Learner, Pool, supports
from models.adaptation.pool.selection import NETWORK_WORKLOADS, candidates_for, choose_learner
from models.adaptation.pool.validation import SHOTS, absolute_percentage_errors, mean_over_cells, random_supports

OUTPUT = RESULTS / "adaptation_metrics.json"
FORMAT = "assay-adaptation-metrics/1"
WORKLOADS, NEW, CONFIGURATIONS = (14, 30, 60, 100, 500), 50, 40
SEEDS = tuple(range(5))
METRIC_NAMES = ("cpu_seconds", "io_bytes", "memory_peak", "network_bytes")
METRIC_NOISE, METRIC_MISSING = 0.15, 0.1
READ_SPREAD = 0.3  # of what is read around what is computed, by workload
CHOSEN = "chosen"
LEARNERS: Mapping[str, Learner] = {one.name: one for one in candidates_for(NETWORK_WORKLOADS, metrics=True)}
METHODS = ("hierarchical_nearest_without_metrics", "hierarchical_nearest", "boosted_ratios", "meta_network", CHOSEN)


def synthetic_table(workloads: int, configurations: int = CONFIGURATIONS, seed: int = 0) -> Pool:
    """Workloads of known laws, with system metrics (W, C, 4) as in METRIC_NAMES."""
    rng = np.random.default_rng(seed)
    on, hidden = machines(configurations, rng), laws(workloads, rng)
    y = noisy(hidden.log_seconds(on), rng)
    metrics = _metrics(hidden, on, rng)
    metrics[np.isnan(y)] = np.nan
    return Pool(on.x, on.distance, y, (~np.isnan(y)).astype(np.int64), metrics, NOISE**2)


def _metrics(hidden: Laws, on: Machines, rng: np.random.Generator) -> FloatArray:
    """(W, C, 4)."""
    short = hidden.short(on)
    busy = (hidden.serial + hidden.parallel + (hidden.talk + hidden.linear) * on.nodes) * hidden.factor[:, on.family]
    read = hidden.parallel * rng.lognormal(0, READ_SPREAD, hidden.parallel.shape)
    spilled = hidden.need * (short - 1) / short
    peak = np.minimum(hidden.need, on.memory * on.nodes)
    sent = (hidden.talk * np.log(on.nodes) + hidden.linear * on.nodes) * on.nodes + 0.1
    exact = np.log(np.stack([busy * short**0.2, read + spilled, peak, sent], axis=-1))
    metrics: FloatArray = exact + METRIC_NOISE * rng.normal(size=exact.shape)
    metrics[rng.random(metrics.shape) < METRIC_MISSING] = np.nan
    return metrics


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py."""
    parser.add_argument("--workloads", type=int, nargs="+", default=list(WORKLOADS))
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS, metavar="METHOD")


def run(options: argparse.Namespace) -> None:
    """Makes the entries that are missing."""
    torch.set_num_threads(1)
    with threadpool_limits(1):
        _run(options)


def _run(options: argparse.Namespace) -> None:
    code = code_digest("benchmarks.adaptation.metrics", "")
    results = Entries(options.output, FORMAT, _key, lambda before, _: before["code"] == code)
    results.content |= {"code": code, "machine": describe_machine(), "shots": list(SHOTS), "draws": DRAWS,
                        "new_workloads": NEW, "configurations": CONFIGURATIONS}
    for workloads in options.workloads:
        for seed in options.seeds:
            split = _Split(workloads, seed)
            for method in options.methods:
                if results.has((workloads, METHODS.index(method), seed)) or not _suits(method, workloads):
                    continue
                entry = split.entry(method)
                results.add(entry)
                print(f"{workloads} workloads, seed {seed}, {method}: "
                      f"{' / '.join(f'{value:.3f}' for value in entry['mape'])}, fit {entry['fit_cpu_s']:.3g} s"
                      + (f", {entry['choice']}" if method == CHOSEN else ""), file=sys.stderr, flush=True)


class _Split:
    """One pool and the new workloads; learners that were measured are not fitted again."""

    def __init__(self, workloads: int, seed: int) -> None:
        self.table, self.seed = synthetic_table(max(WORKLOADS) + NEW, seed=seed), seed
        self.pool = self.table.part(np.arange(workloads))
        new = np.arange(max(WORKLOADS), max(WORKLOADS) + NEW)
        self.rows: IntArray = np.repeat(new, DRAWS)
        self.at = random_supports(self.table, self.rows, max(SHOTS), np.random.default_rng([seed, 1]))
        self.measured: dict[str, dict[str, Any]] = {}

    def entry(self, method: str) -> dict[str, Any]:
        """Of a method: MAPE by number of runs, CPU seconds; of `chosen` also what it is and why."""
        entry: dict[str, Any] = {"workloads": self.pool.workloads, "seed": self.seed, "method": method,
                                 "load": load_average(), "date": now_utc()}
        if method != CHOSEN:
            return entry | self._measure(LEARNERS[method])
        began = time.process_time()
        choice = choose_learner(self.pool, shots=SHOTS, seed=self.seed)
        entry["choice_cpu_s"] = round(time.process_time() - began, 3)
        entry |= {"choice": choice.name, "reason": choice.reason,
                  "pool_errors": {name: [round(one.mape, 5), round(one.standard_error, 5)]
                                  for name, one in choice.errors.items()}}
        return entry | self._measure(choice.learner)

    def _measure(self, learner: Learner) -> dict[str, Any]:
        if learner.name not in self.measured:
            began, errors = time.process_time(), []
            fitted = learner.fit(self.pool, self.seed)
            fit_s = time.process_time() - began
            for shots in SHOTS:
                support = supports(self.table, self.rows, self.at[:, :shots])
                found = absolute_percentage_errors(self.table, self.rows, support.at, fitted.predict(support))
                errors.append(round(float(np.nanmean(mean_over_cells(found))), 6))
            self.measured[learner.name] = {"mape": errors, "fit_cpu_s": round(fit_s, 4)}
        return self.measured[learner.name]


def _suits(method: str, workloads: int) -> bool:
    return method != "meta_network" or workloads >= NETWORK_WORKLOADS


def _key(entry: Mapping[str, Any]) -> tuple[int, int, int]:
    return entry["workloads"], METHODS.index(entry["method"]), entry["seed"]
