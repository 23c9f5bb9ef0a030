"""Seconds and peak memory of each stage of whole runs on the recorded telemetry, and the share that is overhead."""

import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.harness.isolation import Context
from benchmarks.harness.quantity import below, quantity
from benchmarks.pipeline import time_shares
from benchmarks.pipeline.assay_run import AssayRun, run_assay
from benchmarks.pipeline.measurements.task_file import write_task
from benchmarks.pipeline.sizes import Sizes
from pipelines.run_display import STAGES

OVERHEAD_GOAL = 0.25
MEMORY_GOAL_GB = 3.0


def measure(sizes: Sizes, context: Context) -> dict[str, Any]:
    """Whole runs, each in a new state folder (which stays in `work` for the measurements that need a bundle)."""
    options = ["--fresh", "--telemetry", str(context.telemetry)]
    if sizes.stage_epochs:
        options += ["--task", str(write_task(context.work / "stages.yaml", epochs=sizes.stage_epochs))]
    runs = []
    for number in range(sizes.stage_runs):
        context.say(f"run {number + 1} of {sizes.stage_runs}")
        runs.append(run_assay(options, context.work / "homes" / f"stages-{number}"))
        context.say(f"{runs[-1].seconds:.0f} s")
    shares = [time_shares.time_shares(run.began, run.ended, run.steps) for run in runs]
    return {
        "quantities": _quantities(runs, shares),
        "details": {
            "what": "`assay run --fresh`, each time with a new state folder, all workloads of the task",
            "overhead_means": " ".join((time_shares.__doc__ or "").split()),
            "seconds_of_run": {kind: [round(share[kind], 3) for share in shares] for kind in time_shares.SHARES},
            "stages": _stages(runs),
            "workloads": [entry["workload"] for entry in runs[0].summary["entries"]],
            "exit_codes": [run.exit_code for run in runs]}}


def _quantities(runs: Sequence[AssayRun], shares: Sequence[dict[str, float]]) -> dict[str, Any]:
    process_seconds = [(sum(step.start_seconds for step in run.steps), sum(step.seconds for step in run.steps))
                       for run in runs]
    largest = [max(step.peak_gb for step in run.steps) for run in runs]
    return {
        "run": quantity("whole run", "s", [run.seconds for run in runs]),
        "overhead": quantity("share of the run that is overhead", "share",
                             [time_shares.overhead_share(share) for share in shares], below(OVERHEAD_GOAL)),
        "starts": quantity("process starts and imports, share of all steps' process time", "share",
                           [start / (start + work) for start, work in process_seconds]),
        "stage_peak": quantity("largest peak memory of a stage", "GB", largest, below(MEMORY_GOAL_GB)),
        "all_peak": quantity("peak memory of all processes of a run together", "GB",
                             [run.all_processes_peak_gb for run in runs])}


def _stages(runs: Sequence[AssayRun]) -> list[dict[str, Any]]:
    """One entry a stage; a stage of the fan-out is the sum over its workloads, its memory the largest of them."""
    rows = []
    for stage in STAGES:
        steps = [[step for step in run.steps if step.step == stage] for run in runs]
        values = {"seconds": [sum(step.seconds for step in one) for one in steps],
                  "start_seconds": [sum(step.start_seconds for step in one) for one in steps],
                  "peak_gb": [max((step.peak_gb for step in one), default=0.0) for one in steps]}
        rows.append({"stage": stage, "processes": len(steps[0]),
                     **{name: {"median": statistics.median(numbers), "values": numbers}
                        for name, numbers in values.items()}})
    return rows
