"""The sizing task through the whole pipeline, on public data: what is proved, let through, and how well it predicts.

    python -m benchmarks.adaptation.sizing [--data cloudbandit scout] [--seeds 0 1]

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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks.adaptation.splits import DATA_SETS, files_of
from benchmarks.harness.data_folder import add_data_folder
from benchmarks.harness.machine import describe_machine, load_average, now_utc
from benchmarks.harness.markdown import paragraph, table
from benchmarks.harness.result_file import RESULTS, read_results, write_results
from benchmarks.pipeline.assay_run import run_assay
from feature_store.errors import InputError
from pipelines.request import code_version

SIZING_RESULTS = RESULTS / "sizing.json"
FORMAT = "assay-sizing/1"
METRICS = ("test_mape", "closed_form_mape", "baseline_mape", "similarity", "parity_max_abs", "latency_us")


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0; 2 on bad usage or data; 130 when stopped."""
    options = _parser().parse_args(arguments)
    try:
        content = read_results(options.output) or {"format": FORMAT, "entries": []}
        for data in options.data:
            for seed in options.seeds:
                _once(data, seed, options, content)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; the same command goes on where it was", file=sys.stderr)
        return 130
    return 0


def _once(data: str, seed: int, options: argparse.Namespace, content: dict[str, Any]) -> None:
    file, mapping = files_of(data, options.data_folder)
    for path in (file, mapping):
        if not path.is_file():
            raise InputError(f"file must exist, got {path}; name the folder of public data with --data-folder")
    digest = hashlib.sha256(file.read_bytes() + mapping.read_bytes()).hexdigest()[:16]
    key = {"data": data, "seed": seed, "code": code_version(), "input": digest}
    content["entries"] = [entry for entry in content["entries"] if (entry["data"], entry["seed"]) != (data, seed)
                          or {name: entry[name] for name in key} == key]
    if any((entry["data"], entry["seed"]) == (data, seed) for entry in content["entries"]):
        return
    with tempfile.TemporaryDirectory(prefix="assay-sizing-") as folder:
        home = Path(folder)
        run = run_assay(["--telemetry", str(file.absolute()), "--mapping", str(mapping), "--seed", str(seed)], home)
        request = json.loads((home / "runs" / "benchmark" / "request.json").read_text())
    task = yaml.safe_load(request["arguments"]["task_yaml"])
    content["entries"].append({
        **key, "seconds": run.seconds, "pool": len(task["few_shot"]["pool"]), "runs": task["few_shot"].get("runs", 3),
        "workloads": [_workload(entry, task) for entry in run.summary["entries"]],
        "at": now_utc(), "load": load_average()})
    content["entries"].sort(key=lambda entry: (entry["data"], entry["seed"]))
    content |= {"machine": describe_machine()}
    write_results(options.output, content)
    print(f"{run.seconds:6.0f} s  {data}, seed {seed}", file=sys.stderr, flush=True)


def _workload(entry: Mapping[str, Any], task: Mapping[str, Any]) -> dict[str, Any]:
    own = task["workloads"][entry["workload"]]
    rules = [rule["monotone"] for rule in own["specification"]["properties"]]
    metrics = entry["metrics"] or {}
    return {"workload": entry["workload"], "status": entry["status"], "verdict": entry["verdict"],
            "message": entry["message"], "note": own["note"],
            "directions": [name for rule in rules for name in rule["features"]],
            **{name: metrics.get(name) for name in METRICS}}


def sizing_table(results: Mapping[str, Any]) -> str:
    """One row a run."""
    rows = []
    for entry in results["entries"]:
        own = entry["workloads"]
        judged = [one for one in own if one["test_mape"] is not None]
        errors = {name: float(np.mean([one[name] for one in judged])) for name in METRICS[:3]}
        rows.append([
            entry["data"], str(entry["seed"]), str(entry["pool"]), str(len(own)),
            str(sum(bool(one["note"]) for one in own)),
            str(sum("contradict" in (one["message"] or "") for one in own)),
            f"{sum(one['verdict'] == 'PROVED' for one in judged)} of {len(judged)}",
            str(sum(one["status"] == "registered" for one in own)),
            *(f"{errors[name]:.3f}" for name in METRICS[:3]), f"{entry['seconds']:.0f}"])
    return table(["data", "seed", "pool", "adapted", "a direction left out", "stopped by the audit", "proved",
                  "let through", "MAPE: exported network", "closed form", "mean of the runs", "seconds"], rows,
                 right=(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11))


def sizing_conditions_line(results: Mapping[str, Any]) -> str:
    """What the figures are of."""
    entries = results["entries"]
    return paragraph(f"`assay run`, {entries[0]['runs']} runs of each workload, configurations chosen one after the "
                     "other; errors over all other measured configurations of the workloads that the audit let pass. "
                     "Other work ran on the machine.")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="The sizing task through the whole pipeline.",
                                     epilog="Example: python -m benchmarks.adaptation.sizing --data scout --seeds 0")
    parser.add_argument("--data", nargs="+", choices=list(DATA_SETS), default=list(DATA_SETS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    add_data_folder(parser)
    parser.add_argument("--output", type=Path, default=SIZING_RESULTS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
