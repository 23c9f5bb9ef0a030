"""Cost of a run against the number of workloads, and the exponent with which it grows.

The workloads are copies of the recorded ones under new names, each with rows spread over its telemetry. Networks
are small and hardly trained, so that what is measured is what the pipeline adds: one trains longer, not more often.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.harness.isolation import Context
from benchmarks.harness.power_law import fit_power_law
from benchmarks.harness.quantity import quantity
from benchmarks.pipeline import time_shares
from benchmarks.pipeline.assay_run import AssayRun, run_assay
from benchmarks.pipeline.measurements.task_file import write_copies, write_open_gates
from benchmarks.pipeline.sizes import Sizes
from feature_store.errors import InputError
from pipelines.run_display import STAGES

HIDDEN = [32, 32]


def measure(sizes: Sizes, context: Context) -> dict[str, Any]:
    """One whole run for each number of workloads, smallest first."""
    if len(set(sizes.scale_workloads)) < 2:
        raise InputError(f"--scale-workloads must be two numbers or more, got {list(sizes.scale_workloads)}")
    configuration = write_open_gates(context.work / "scale-gates.yaml")
    runs: list[AssayRun] = []
    for workloads in sorted(sizes.scale_workloads):
        context.say(f"{workloads} workloads")
        runs.append(_run(workloads, sizes, context, configuration))
        context.say(f"{runs[-1].seconds:.0f} s")
    numbers = sorted(sizes.scale_workloads)
    seconds = [run.seconds for run in runs]
    quantities = {f"run_{number}": quantity(f"run with {number} workloads", "s", [run.seconds])
                  for number, run in zip(numbers, runs, strict=True)}
    quantities["exponent"] = quantity("exponent of the run's seconds in the number of workloads", "1",
                                      [fit_power_law(numbers, seconds).exponent])
    return {"quantities": quantities, "details": {
        "what": f"copies of the recorded workloads, {sizes.scale_rows} rows each, {sizes.scale_epochs} epochs, hidden "
                f"layers {HIDDEN}, accuracy gates left open, `assay run --fresh` in a new state folder, one run a "
                f"number, {min(2, len(os.sched_getaffinity(0)))} steps side by side",
        "workloads": numbers, "seconds": seconds, "fit": vars(fit_power_law(numbers, seconds)),
        "exponent_of_last_two": fit_power_law(numbers[-2:], seconds[-2:]).exponent,
        "overhead_share": [_overhead(run) for run in runs],
        "registered": [sum(entry["status"] == "registered" for entry in run.summary["entries"]) for run in runs],
        "stages": [_stage(stage, numbers, runs) for stage in STAGES]}}


def _run(workloads: int, sizes: Sizes, context: Context, configuration: Path) -> AssayRun:
    folder = context.work / f"scale-{workloads}"
    folder.mkdir()
    copies = write_copies(folder / "task.yaml", workloads, sizes.scale_epochs, HIDDEN)
    telemetry = _copied_telemetry(pd.read_parquet(context.telemetry), copies, sizes.scale_rows)
    telemetry.to_parquet(folder / "samples.parquet", index=False)
    options = ["--fresh", "--task", str(folder / "task.yaml"), "--telemetry", str(folder / "samples.parquet")]
    run = run_assay(options, folder / "home", configuration)
    lost = [entry["message"] for entry in run.summary["entries"] if entry["status"] in ("failed", "error")]
    if lost:
        raise RuntimeError(f"every copy must get through, {len(lost)} did not: {lost[0]}")
    return run


def _copied_telemetry(recorded: pd.DataFrame, copies: dict[str, str], rows: int) -> pd.DataFrame:
    """`rows` rows of each source, spread over its recording and in its order, under the copy's name."""
    parts = []
    for name, source in copies.items():
        of_workload = recorded[recorded["workload"] == source].sort_values("window_start", kind="stable")
        picked = np.unique(np.linspace(0, len(of_workload) - 1, min(rows, len(of_workload))).astype(int))
        parts.append(of_workload.iloc[picked].assign(workload=name))
    return pd.concat(parts, ignore_index=True)


def _overhead(run: AssayRun) -> float:
    return time_shares.overhead_share(time_shares.time_shares(run.began, run.ended, run.steps))


def _stage(stage: str, numbers: Sequence[int], runs: Sequence[AssayRun]) -> dict[str, Any]:
    """Seconds (own work, summed over the workloads) and peak memory for each number of workloads, with exponents."""
    steps = [[step for step in run.steps if step.step == stage] for run in runs]
    seconds = [sum(step.seconds for step in one) for one in steps]
    peaks = [max(step.peak_gb for step in one) for one in steps]
    return {"stage": stage, "seconds": seconds, "start_seconds": [sum(s.start_seconds for s in one) for one in steps],
            "peak_gb": peaks, "exponent": fit_power_law(numbers, seconds).exponent,
            "memory_exponent": fit_power_law(numbers, peaks).exponent}
