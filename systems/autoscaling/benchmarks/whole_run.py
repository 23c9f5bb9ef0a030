"""The default run of the autoscaler, under its own load and under loads that no setting was chosen on.

    python -m benchmarks autoscaling-run --data-folder FOLDER [--loads shipped made azure]

`assay run --task autoscaling`. Loads: the one that is shipped (settings were chosen while looking at it); one made by
the same recipe from another seed; and the Azure Functions trace, four functions a day and workload, no function twice,
scaled to the shipped load's mean. The last of three days judges. Each run begins with an empty state folder, but for
the generic policy, which no load has a part in: all but the first of a command take over what the first pretrained.

Resumable: a load that is there for the same code is kept.
"""

import argparse
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.control.default_runs import workloads_of
from benchmarks.harness.data_folder import add_data_folder, required
from benchmarks.harness.entries import Entries
from benchmarks.harness.machine import describe_machine, load_average, now_utc
from benchmarks.harness.markdown import number, paragraph, table
from benchmarks.harness.result_file import RESULTS
from benchmarks.pipeline.assay_run import run_assay
from feature_store.sources.invocations import read_invocations
from pipelines.request import code_version
from systems.autoscaling.simulator.made_load import DAYS, made_load

OUTPUT = RESULTS / "autoscaling_run.json"
FORMAT = "assay-autoscaling-run/1"
LOADS: Mapping[str, str] = {"shipped": "shipped", "made": "made from another seed", "azure": "Azure Functions"}
OTHER_SEED = 77
FUNCTIONS = 4  # of a workload's day
# A function that is called less than once a minute, or has a minute of ten times its mean, is no service with replicas.
LEAST_A_MINUTE, HIGHEST_PEAK = 1.0, 10.0
METRICS = ("violating_share", "violating_share_upper", "cost_saved", "cost_saved_lower", "own_cost_saved",
           "own_cost_saved_lower", "reward_gain", "own_reward_gain", "generic_cost_saved_lower", "latency_us")


def azure_load(folder: Path, seed: int = 7) -> pd.DataFrame:
    """The shipped load with other shapes: sums of real functions, weighted at random."""
    counts = read_invocations(folder / "azure_functions" / "invocations_per_minute_1350.csv.gz")
    means = counts.mean(axis=1)
    usual = counts[(means >= LEAST_A_MINUTE) & (counts.max(axis=1) < HIGHEST_PEAK * means)]
    random, load, begin = np.random.default_rng(seed), made_load(), 0
    order = random.permutation(len(usual))
    for _, rows in load.groupby("workload"):
        days = []
        for _ in range(DAYS):
            shapes = usual[order[begin:begin + FUNCTIONS]]
            begin += FUNCTIONS
            weights = random.lognormal(0.0, 1.0, (len(shapes), 1)) / shapes.mean(axis=1, keepdims=True)
            day = (shapes * weights).sum(axis=0)
            days.append(day / day.mean())
        rate = np.concatenate(days) * rows["rate_rps"].mean()
        load.loc[rows.index, "rate_rps"] = rate.clip(min=1.0).round(3)
    return load.assign(environment="azure")


def measure(load: str, folder: Path | None, work: Path) -> dict[str, Any]:
    """One run in a state folder of its own below `work`: seconds, and a row a workload."""
    options, home, before = ["--task", "autoscaling"], work / load, next(work.iterdir(), None)
    home.mkdir()
    if before is not None:
        shutil.copytree(before / "pretrained", home / "pretrained")
    if load != "shipped":
        telemetry = home / "load.parquet"
        (azure_load(required(folder)) if load == "azure" else made_load(OTHER_SEED)).to_parquet(telemetry)
        options += ["--telemetry", str(telemetry)]
    done = run_assay(options, home)
    return {"pretrained": before is not None, "seconds": done.seconds, "peak_gb": done.all_processes_peak_gb,
            "workloads": workloads_of(done, METRICS)}


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py."""
    parser.add_argument("--loads", nargs="+", choices=list(LOADS), default=list(LOADS))
    add_data_folder(parser)


def run(options: argparse.Namespace) -> None:
    """Runs what is not there yet."""
    code = code_version()
    entries = Entries(options.output, FORMAT, lambda entry: list(LOADS).index(entry["load"]),
                      lambda _, entry: entry["load"] not in options.loads or entry["code"] == code)
    entries.content["machine"] = {**describe_machine(), "date": now_utc()}
    with tempfile.TemporaryDirectory(prefix="assay-benchmark-") as work:
        for load in options.loads:
            if entries.has(list(LOADS).index(load)):
                continue
            before = load_average()
            entries.add({"load": load, "code": code, "load_average": before,
                         **measure(load, options.data_folder, Path(work))})
            print(f"{LOADS[load]}: done", flush=True)


def run_table(results: Mapping[str, Any]) -> str:
    """One row a load and workload."""
    entries = results["entries"]
    rows = [[LOADS[entry["load"]], one["workload"], one["verdict"], f"{one['passed']} of {one['gates']}",
             _percent(one["violating_share"], one["violating_share_upper"]),
             _percent(one["cost_saved"], one["cost_saved_lower"]),
             _percent(one["own_cost_saved"], one["own_cost_saved_lower"]), f"{one['reward_gain']:+.3f}"]
            for entry in entries for one in entry["workloads"]]
    took = ", ".join(f"{LOADS[entry['load']]} {number(entry['seconds'] / 60)} minutes"
                     f"{' without pretraining' if entry.get('pretrained') else ''}" for entry in entries)
    machine, busy = results["machine"], max(entry["load_average"] for entry in entries)
    note = paragraph(
        "Of the last day. violating: share of steps, and the upper end of its interval (the gate: 3 %); saved: cost",
        "against the best rule tuned on the training applications, and against the best one tuned to the workload,",
        f"with lower ends (99 %); reward: against the former. Whole run: {took}, on {machine['cores']} cores of",
        f"{machine['cpu_model']}{f', beside other work (load average up to {busy:.0f})' if busy > 1 else ''}.",
        f"{machine['date'][:10]}.")
    header = ["load", "workload", "verdict", "gates passed", "violating, %", "saved, %",
              "saved against its own rule, %", "reward a step"]
    return f"{table(header, rows, (4, 5, 6, 7))}\n\n{note}"


def _percent(value: float, end: float) -> str:
    return f"{100 * value:.1f} ({100 * end:.1f})"
