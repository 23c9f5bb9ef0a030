"""What pretraining costs as the pool grows: seconds and memory of the default few-shot learner on synthetic pools.

    python -m benchmarks adaptation-scale [--repeats 3]

Synthetic workloads follow performance models: a serial and a parallel part (Amdahl), communication that grows with the
nodes (Ernest, Venkataraman et al., NSDI 2016: t = a + b/n + c log n + d n), a knee where memory does not suffice, a
factor of each machine family, noise; three tenths of the cells are missing. `fit` is what a recommendation needs,
`pretrain` also calibrates the intervals (15 more fits), once and up to 3000 workloads. Each size in a process of its
own, on one thread; medians over processes of seconds of CPU time, which a busy machine stretches less than those of a
clock. Memory is the process's peak above what it held once its libraries were loaded.

Resumable: a size that was measured by the same code on the same machine is not measured again.

Symbols: W workloads, C configurations.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.harness.code_digest import code_digest
from benchmarks.harness.entries import Entries
from benchmarks.harness.machine import describe_machine, load_average, now_utc
from benchmarks.harness.power_law import fit_power_law
from benchmarks.harness.result_file import RESULTS
from models.adaptation.learner import FloatArray, IntArray, Pool
from models.adaptation.pool.conformal import calibrate

OUTPUT = RESULTS / "adaptation_scale.json"
FORMAT = "assay-adaptation-scale/2"
WORKLOADS, CONFIGURATIONS = (100, 300, 1000, 3000, 10_000), (20, 80, 320)
FIXED_WORKLOADS, FIXED_CONFIGURATIONS = 1000, 80
MOST_CALIBRATED = 3000  # workloads; 15 fits to 10,000 take longer than all the rest together
MISSING, NOISE, FAMILIES = 0.3, 0.09, 4
# One measurement, in a process of its own: its peak memory is nobody else's.
_CHILD = """import json, sys
from benchmarks.adaptation.scale import measure_once
print(json.dumps(measure_once(*map(int, sys.argv[1:]))))"""
COSTS = ("fit_cpu_s", "pretrain_cpu_s", "memory_mib")


@dataclass(frozen=True)
class Machines:
    """nodes, memory, in GiB a node, family, each (C,); x (C, columns) and distance (columns, C, C) as in Pool."""

    nodes: FloatArray
    memory: FloatArray
    family: IntArray
    x: FloatArray
    distance: FloatArray


def machines(configurations: int, rng: np.random.Generator) -> Machines:
    """Four families, nodes from 1 to 32, memory a node from 4 to 64."""
    nodes, memory = 2 ** rng.uniform(0, 5, configurations), 2 ** rng.uniform(2, 6, configurations)
    family = rng.integers(0, FAMILIES, configurations)
    columns = [np.log2(nodes), np.log2(memory), *(np.eye(FAMILIES)[family].T)]
    x = np.column_stack([(column - column.mean()) / (column.std() or 1.0) for column in columns])
    numbers = [((column[:, None] - column[None]) ** 2) / 2 for column in x.T[:2]]
    distance = np.stack([*numbers, (family[:, None] != family[None]).astype(float)])
    return Machines(nodes, memory, family, x, distance)


@dataclass(frozen=True)
class Laws:
    """What is hidden of workloads, each (W, 1): seconds of the serial part, of the parallel part on one node, of talk a
    log of nodes, and of each node; GiB that are needed; factor (W, families)."""

    serial: FloatArray
    parallel: FloatArray
    talk: FloatArray
    linear: FloatArray
    need: FloatArray
    factor: FloatArray

    def short(self, on: Machines) -> FloatArray:
        """(W, C): by how often the memory is too small, at least 1."""
        return np.maximum(self.need / (on.memory * on.nodes), 1.0)

    def log_seconds(self, on: Machines) -> FloatArray:
        """(W, C): without noise."""
        seconds = (self.serial + self.parallel / on.nodes + self.talk * np.log(on.nodes) + self.linear * on.nodes)
        return np.log(seconds * self.factor[:, on.family] * self.short(on) ** 0.7)


def laws(workloads: int, rng: np.random.Generator) -> Laws:
    """Independent of each other, lognormal."""
    serial, parallel = rng.lognormal(2, 1, (workloads, 1)), rng.lognormal(5, 1, (workloads, 1))
    talk, linear = rng.lognormal(0, 1, (workloads, 1)), rng.lognormal(-2, 1, (workloads, 1))
    return Laws(serial, parallel, talk, linear, rng.lognormal(3, 1, (workloads, 1)),
                rng.lognormal(0, 0.2, (workloads, FAMILIES)))


def noisy(y: FloatArray, rng: np.random.Generator) -> FloatArray:
    """(W, C): log seconds with noise, NaN where missing."""
    y = y + NOISE * rng.normal(size=y.shape)
    y[rng.random(y.shape) < MISSING] = np.nan
    return y


def synthetic_pool(workloads: int, configurations: int, seed: int = 0) -> Pool:
    """Workloads of known laws, without metrics."""
    rng = np.random.default_rng(seed)
    on = machines(configurations, rng)
    y = noisy(laws(workloads, rng).log_seconds(on), rng)
    return Pool(on.x, on.distance, y, (~np.isnan(y)).astype(np.int64), np.empty((*y.shape, 0)), NOISE**2)


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py."""
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workloads", type=int, nargs="+", default=list(WORKLOADS))


def run(options: argparse.Namespace) -> None:
    """Makes the entries that are missing."""
    sizes = [(count, FIXED_CONFIGURATIONS) for count in options.workloads]
    sizes += [(FIXED_WORKLOADS, count) for count in CONFIGURATIONS if count != FIXED_CONFIGURATIONS]
    now = {"code": code_digest("benchmarks.adaptation.scale", ""), "machine": describe_machine()}
    results = Entries(options.output, FORMAT, _size, lambda before, entry: (
        entry["repeats"] >= options.repeats and {key: before[key] for key in now} == now))
    results.content |= {**now, "date": now_utc(), "most_calibrated": MOST_CALIBRATED}
    for workloads, configurations in sizes:
        if results.has((workloads, configurations)):
            continue
        entry = _entry(workloads, configurations, options.repeats)
        results.content["exponents"] = exponents([*results.content["entries"], entry])
        results.add(entry)
        calibrated = "" if entry["pretrain_cpu_s"] is None else f"pretrain {entry['pretrain_cpu_s']:.3g} s, "
        print(f"{workloads} workloads, {configurations} configurations: fit {entry['fit_cpu_s']:.3g} s, {calibrated}"
              f"{entry['memory_mib']:.0f} MiB", file=sys.stderr, flush=True)


def exponents(entries: Sequence[dict[str, Any]]) -> dict[str, dict[str, float | None]]:
    """Log-log slopes of each cost: against workloads at the fixed configurations, against configurations at the fixed
    workloads, and against samples over all entries. None where fewer than two sizes were measured."""
    series = {"workloads": [entry for entry in entries if entry["configurations"] == FIXED_CONFIGURATIONS],
              "configurations": [entry for entry in entries if entry["workloads"] == FIXED_WORKLOADS],
              "samples": list(entries)}
    exponents_of_costs: dict[str, dict[str, float | None]] = {}
    for size, of_size in series.items():
        exponents_of_costs[size] = {}
        for cost in COSTS:
            measured = [entry for entry in of_size if entry[cost] is not None]
            enough = len({entry[size] for entry in measured}) > 1
            points = [entry[size] for entry in measured], [entry[cost] for entry in measured]
            exponents_of_costs[size][cost] = round(fit_power_law(*points).exponent, 3) if enough else None
    return exponents_of_costs


def _size(entry: dict[str, Any]) -> tuple[int, int]:
    return entry["workloads"], entry["configurations"]


def _entry(workloads: int, configurations: int, repeats: int) -> dict[str, Any]:
    """Medians, all values of the fit, and the load."""
    load = load_average()
    made = [_child(workloads, configurations, number == 0 and workloads <= MOST_CALIBRATED)
            for number in range(repeats)]
    fits = [one["fit_cpu_s"] for one in made]
    calibration = made[0]["calibration_cpu_s"]
    fit_s = statistics.median(fits)
    return {"workloads": workloads, "configurations": configurations, "samples": made[0]["samples"],
            "repeats": repeats, "load_average_before": load, "fit_cpu_s": round(fit_s, 4),
            "fit_cpu_s_values": [round(value, 4) for value in fits],
            "fit_clock_s": round(statistics.median(one["fit_clock_s"] for one in made), 4),
            "pretrain_cpu_s": None if calibration is None else round(fit_s + calibration, 4),
            "memory_mib": round(statistics.median(one["memory_mib"] for one in made), 1),
            "peak_rss_mib": round(statistics.median(one["peak_rss_mib"] for one in made), 1)}


def _child(workloads: int, configurations: int, calibrated: bool) -> dict[str, Any]:
    environment = os.environ | dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    done = subprocess.run([sys.executable, "-c", _CHILD, str(workloads), str(configurations), str(int(calibrated))],
                          check=True, capture_output=True, text=True, env=environment)
    return dict(json.loads(done.stdout))


def measure_once(workloads: int, configurations: int, calibrated: int) -> dict[str, Any]:
    """Memory is that of the fit alone: the pool and what the fit holds."""
    from models.adaptation.pool.selection import default_learner

    learner = default_learner()
    learner.fit(synthetic_pool(4, 8))  # what is loaded at the first use
    before_mib = _peak_mib()
    pool = synthetic_pool(workloads, configurations)
    clock, cpu = time.perf_counter(), time.process_time()
    learner.fit(pool)
    fit_cpu_s, fit_clock_s, peak_mib = time.process_time() - cpu, time.perf_counter() - clock, _peak_mib()
    calibration_cpu_s = None
    if calibrated:
        cpu = time.process_time()
        calibrate(learner, pool)
        calibration_cpu_s = time.process_time() - cpu
    return {"fit_cpu_s": fit_cpu_s, "fit_clock_s": fit_clock_s, "samples": int(pool.runs.sum()),
            "peak_rss_mib": peak_mib, "memory_mib": max(peak_mib - before_mib, 0.1),
            "calibration_cpu_s": calibration_cpu_s}


def _peak_mib() -> float:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
