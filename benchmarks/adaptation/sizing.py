"""The sizing task through the whole pipeline, on public data: what is proved, let through, and how well it predicts.

    python -m benchmarks sizing [--data cloudbandit scout] [--seeds 0 1]

`assay run --telemetry FILE --mapping examples/sizing/DATA.yaml --seed S`, in a state folder of its own, as a user would
run it: half of the workloads, drawn by the seed, are adapted from three runs each. Recorded are, for each workload, the
directions that its data left, the verdict, the gates, and the error of the exported network beside the closed form that
it was trained on and the mean of the three runs. Resumable: a run that is there for the same code and input is kept.
"""

import argparse
import hashlib
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks.adaptation.splits import DATA_SETS, files_of
from benchmarks.harness.data_folder import add_data_folder
from benchmarks.harness.entries import Entries
from benchmarks.harness.machine import describe_machine, load_average, now_utc
from benchmarks.harness.markdown import paragraph, table
from benchmarks.harness.result_file import RESULTS
from benchmarks.harness.shown import verdicts_line
from benchmarks.pipeline.assay_run import run_assay
from feature_store.errors import InputError
from pipelines.request import code_version

OUTPUT = RESULTS / "sizing.json"
FORMAT = "assay-sizing/1"
METRICS = ("test_mape", "closed_form_mape", "baseline_mape", "similarity", "parity_max_abs", "latency_us")


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py."""
    parser.add_argument("--data", nargs="+", choices=list(DATA_SETS), default=list(DATA_SETS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    add_data_folder(parser)


def run(options: argparse.Namespace) -> None:
    """Makes the entries that are missing."""
    code = code_version()
    files = {data: files_of(data, options.data_folder) for data in options.data}
    for path in (path for pair in files.values() for path in pair):
        if not path.is_file():
            raise InputError(f"data: expected an existing file, got {path}; name the folder of public data with "
                             "--data-folder")
    inputs = {data: hashlib.sha256(file.read_bytes() + mapping.read_bytes()).hexdigest()[:16]
              for data, (file, mapping) in files.items()}
    # Entries that are not asked for now stay, whatever code made them: each names it.
    results = Entries(options.output, FORMAT, _key, lambda _, entry: (
        entry["data"] not in options.data or entry["seed"] not in options.seeds
        or (entry["code"], entry["input"]) == (code, inputs[entry["data"]])))
    for data in options.data:
        for seed in options.seeds:
            if results.has((data, seed)):
                continue
            made = _entry(*files[data], seed)
            results.content |= {"machine": describe_machine()}
            results.add({"data": data, "seed": seed, "code": code, "input": inputs[data], **made})
            print(f"{made['seconds']:6.0f} s  {data}, seed {seed}", file=sys.stderr, flush=True)


def _key(entry: Mapping[str, Any]) -> tuple[str, int]:
    return entry["data"], entry["seed"]


def _entry(file: Path, mapping: Path, seed: int) -> dict[str, Any]:
    """One run of the pipeline, in a state folder of its own."""
    with tempfile.TemporaryDirectory(prefix="assay-sizing-") as folder:
        home = Path(folder)
        made = run_assay(["--telemetry", str(file.absolute()), "--mapping", str(mapping), "--seed", str(seed)], home)
        request = json.loads((home / "runs" / "benchmark" / "request.json").read_text())
    task = yaml.safe_load(request["arguments"]["task_yaml"])
    return {"seconds": made.seconds, "pool": len(task["few_shot"]["pool"]), "runs": task["few_shot"].get("runs", 3),
            "workloads": [_workload(entry, task) for entry in made.summary["entries"]],
            "at": now_utc(), "load": load_average()}


def _workload(entry: Mapping[str, Any], task: Mapping[str, Any]) -> dict[str, Any]:
    workload_task = task["workloads"][entry["workload"]]
    rules = [rule["monotone"] for rule in workload_task["specification"]["properties"]]
    metrics = entry["metrics"] or {}
    return {"workload": entry["workload"], "status": entry["status"], "verdict": entry["verdict"],
            "message": entry["message"], "note": workload_task["note"],
            "directions": [name for rule in rules for name in rule["features"]],
            **{name: metrics.get(name) for name in METRICS}}


def sizing_table(results: Mapping[str, Any]) -> str:
    """One row a run."""
    rows = []
    for entry in results["entries"]:
        workloads = entry["workloads"]
        judged = [one for one in workloads if one["test_mape"] is not None]
        errors = {name: float(np.mean([one[name] for one in judged])) for name in METRICS[:3]}
        rows.append([
            entry["data"], str(entry["seed"]), str(entry["pool"]), str(len(workloads)),
            str(sum(bool(one["note"]) for one in workloads)),
            str(sum("contradict" in (one["message"] or "") for one in workloads)),
            f"{sum(one['verdict'] == 'PROVED' for one in judged)} of {len(judged)}",
            str(sum(one["status"] == "registered" for one in workloads)),
            *(f"{errors[name]:.3f}" for name in METRICS[:3]), f"{entry['seconds']:.0f}"])
    return table(["data", "seed", "pool", "adapted", "a direction left out", "stopped by the audit", "proved",
                  "let through", "MAPE: exported network", "closed form", "mean of the runs", "seconds"], rows,
                 right=(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11))


def headline(results: Mapping[str, Any]) -> tuple[str, str]:
    """README's line: the error beside that of the mean of the runs."""
    judged = [one for entry in results["entries"] for one in entry["workloads"] if one["test_mape"] is not None]
    ours, baseline = (100 * float(np.mean([one[name] for one in judged])) for name in ("test_mape", "baseline_mape"))
    return (f"off by {ours:.0f} % in the mean, where the mean of the three runs is off by {baseline:.0f} % "
            f"({len(judged)} workloads of two public data sets)", verdicts_line([one["verdict"] for one in judged]))


def sizing_conditions_line(results: Mapping[str, Any]) -> str:
    """What the figures are of."""
    entries = results["entries"]
    return paragraph(f"`assay run`, {entries[0]['runs']} runs of each workload, configurations chosen one after the "
                     "other; errors over all other measured configurations of the workloads that the audit let pass. "
                     "Other work ran on the machine.")
