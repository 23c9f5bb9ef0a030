"""What pretraining costs as the pool grows: seconds and memory of the default few-shot learner on synthetic pools.

    python -m benchmarks.adaptation_scale [--repeats 3]

Synthetic workloads follow performance models: a serial and a parallel part (Amdahl), communication that grows with the
nodes (Ernest, Venkataraman et al., NSDI 2016: t = a + b/n + c log n + d n), a knee where memory does not suffice, a
factor of each machine family, noise; three tenths of the cells are missing. `fit` is what a recommendation needs,
`pretrain` also calibrates the intervals (15 more fits). Each size in a process of its own, on one thread; medians.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import describe_machine, load_average, now_utc
from benchmarks.power_law import fit_power_law
from benchmarks.result_file import RESULTS, write_results
from models.adaptation.conformal import calibrate
from models.adaptation.contract import Pool

SCALE_RESULTS = RESULTS / "adaptation_scale.json"
FORMAT = "assay-adaptation-scale/1"
WORKLOADS, CONFIGURATIONS = (100, 300, 1000, 3000, 10_000), (20, 80, 320)
FIXED_WORKLOADS, FIXED_CONFIGURATIONS = 1000, 80
MISSING, NOISE = 0.3, 0.09


def synthetic_pool(workloads: int, configurations: int, seed: int = 0) -> Pool:
    """See the module docstring; four families, nodes from 1 to 32, memory a node from 4 to 64."""
    rng = np.random.default_rng(seed)
    nodes, memory = 2 ** rng.uniform(0, 5, configurations), 2 ** rng.uniform(2, 6, configurations)
    family = rng.integers(0, 4, configurations)
    serial, parallel = rng.lognormal(2, 1, (workloads, 1)), rng.lognormal(5, 1, (workloads, 1))
    talk, linear = rng.lognormal(0, 1, (workloads, 1)), rng.lognormal(-2, 1, (workloads, 1))
    need, factor = rng.lognormal(3, 1, (workloads, 1)), rng.lognormal(0, 0.2, (workloads, 4))
    seconds = serial + parallel / nodes + talk * np.log(nodes) + linear * nodes
    short = np.maximum(need / (memory * nodes), 1.0)
    y = np.log(seconds * factor[:, family] * short**0.7) + NOISE * rng.normal(size=(workloads, configurations))
    y[rng.random(y.shape) < MISSING] = np.nan
    columns = [np.log2(nodes), np.log2(memory), *(np.eye(4)[family].T)]
    x = np.column_stack([(column - column.mean()) / column.std() for column in columns])
    numbers = [((column[:, None] - column[None]) ** 2) / 2 for column in x.T[:2]]
    distance = np.stack([*numbers, (family[:, None] != family[None]).astype(float)])
    return Pool(x, distance, y, (~np.isnan(y)).astype(np.int64), np.empty((*y.shape, 0)), NOISE**2)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0; 130 when stopped."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.adaptation_scale", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workloads", type=int, nargs="+", default=list(WORKLOADS))
    parser.add_argument("--output", type=Path, default=SCALE_RESULTS)
    parser.add_argument("--child", type=int, nargs=2, metavar=("WORKLOADS", "CONFIGURATIONS"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        print(json.dumps(_measure(*options.child)))
        return 0
    try:
        _run(options)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    return 0


def _run(options: argparse.Namespace) -> None:
    sizes = [(count, FIXED_CONFIGURATIONS) for count in options.workloads]
    sizes += [(FIXED_WORKLOADS, count) for count in CONFIGURATIONS if count != FIXED_CONFIGURATIONS]
    content: dict[str, Any] = {"format": FORMAT, "machine": describe_machine(), "date": now_utc(),
                               "load_average_before": load_average(), "repeats": options.repeats, "entries": []}
    for workloads, configurations in sizes:
        made = [_child(workloads, configurations) for _ in range(options.repeats)]
        entry = {"workloads": workloads, "configurations": configurations,
                 **{key: round(statistics.median(one[key] for one in made), 4) for key in made[0]}}
        content["entries"].append(entry)
        print(f"{workloads} workloads, {configurations} configurations: fit {entry['fit_s']:.3g} s, pretrain "
              f"{entry['pretrain_s']:.3g} s, {entry['peak_rss_mib']:.0f} MiB", file=sys.stderr, flush=True)
    series = [entry for entry in content["entries"] if entry["configurations"] == FIXED_CONFIGURATIONS]
    if len(series) > 1:
        content["exponents"] = {key: round(fit_power_law([entry["workloads"] for entry in series],
                                                         [entry[key] for entry in series]).exponent, 3)
                                for key in ("fit_s", "pretrain_s", "peak_rss_mib")}
    write_results(options.output, content)


def _child(workloads: int, configurations: int) -> dict[str, float]:
    environment = os.environ | dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    done = subprocess.run([sys.executable, "-m", "benchmarks.adaptation_scale", "--child", str(workloads),
                           str(configurations)], check=True, capture_output=True, text=True, env=environment)
    return dict(json.loads(done.stdout))


def _measure(workloads: int, configurations: int) -> dict[str, float]:
    import resource

    from benchmarks.adaptation_methods import default_learner

    pool = synthetic_pool(workloads, configurations)
    learner = default_learner()
    began = time.perf_counter()
    learner.fit(pool)
    fit_s = time.perf_counter() - began
    calibrate(learner, pool)
    return {"fit_s": fit_s, "pretrain_s": time.perf_counter() - began,
            "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


if __name__ == "__main__":
    sys.exit(main())
