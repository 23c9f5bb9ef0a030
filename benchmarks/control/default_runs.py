"""The default run of each controlled system: what `assay run --task NAME` makes of the load that is shipped.

    python -m benchmarks control-runs [--tasks NAME ...]

Each run begins with an empty state folder. A system that has a benchmark of its whole run (`whole_run.py`) is left out
unless it is asked for. Resumable: a task that is there for the same code is kept.
"""

import argparse
import hashlib
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness.entries import Entries, made_by
from benchmarks.harness.isolation import ROOT
from benchmarks.harness.machine import describe_machine, load_average, now_utc
from benchmarks.harness.markdown import number, paragraph, table
from benchmarks.harness.result_file import RESULTS
from benchmarks.harness.shown import verdicts_line
from benchmarks.pipeline.assay_run import AssayRun, run_assay
from feature_store.errors import AssayError
from models.control.contract.systems import FOLDER, environment_names
from models.tasks.task import load_task
from pipelines.request import code_version

NAME = "control_runs"
OUTPUT = RESULTS / f"{NAME}.json"
FORMAT = "assay-control-runs/1"
METRICS = ("violating_share", "violating_share_upper", *(f"{prefix}{name}{end}" for prefix in ("", "own_")
                                                        for name in ("cost_saved", "reward_gain")
                                                        for end in ("", "_lower")))


def workloads_of(done: AssayRun, metrics: Sequence[str]) -> list[dict[str, Any]]:
    """A row a workload of a finished run: verdict, gates and gates passed, the names of those that failed, metrics.

    Raises:
        AssayError: a workload did not come as far as its gates.
    """
    rows = []
    for entry in done.summary["entries"]:
        if not entry["gates"]:
            raise AssayError(f"workload {entry['workload']} must come as far as its gates, got {entry['status']}: "
                             f"{entry.get('message', '')}")
        gates = entry["gates"]["gates"]
        rows.append({"workload": entry["workload"], "status": entry["status"], "verdict": entry["verdict"],
                     "gates": len(gates), "passed": sum(gate["passed"] for gate in gates),
                     "failed": [gate["name"] for gate in gates if not gate["passed"]],
                     **{name: entry["metrics"][name] for name in metrics}})
    return rows


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py."""
    names = environment_names()
    usual = [name for name in names if not (FOLDER / name / "benchmarks" / "whole_run.py").exists()]
    parser.add_argument("--tasks", nargs="+", choices=names, default=usual, help=f"default: {' '.join(usual)}")


def made_of() -> str:
    """Digest of what a run's outcome depends on, the gates among it, and of what is kept of it."""
    parts = (code_version(), (ROOT / "mlflow.yaml").read_text(), *METRICS)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def run(options: argparse.Namespace) -> None:
    """Runs what is not there yet."""
    code = made_of()
    entries = Entries(options.output, FORMAT, lambda entry: entry["task"], lambda before, entry: (
        entry["task"] not in options.tasks or made_by(code)(before, entry)))
    for task in options.tasks:
        if entries.has(task):
            continue
        busy = load_average()
        with tempfile.TemporaryDirectory(prefix="assay-benchmark-") as home:
            done = run_assay(["--task", task], Path(home))
        if made_of() != code:
            raise AssayError(f"the code must stay as it is while {task} runs, got other code; begin again in a clone")
        entries.add({"task": task, "code": code, "machine": describe_machine(), "date": now_utc(), "load_average": busy,
                     "seconds": done.seconds, "peak_gb": done.all_processes_peak_gb,
                     "objective": load_task(task).objective.maximise, "workloads": workloads_of(done, METRICS)})
        print(f"{task}: done in {done.seconds:.0f} s", flush=True)


def verdict_of(results: Mapping[str, Any], task: str) -> str:
    """How many of a task's policies are PROVED, for README's table of tasks."""
    verdicts = [one["verdict"] for entry in results["entries"] if entry["task"] == task for one in entry["workloads"]]
    return verdicts_line(verdicts) if verdicts else "not measured"


def runs_table(results: Mapping[str, Any]) -> str:
    """A row a task and workload."""
    rows = []
    for entry in results["entries"]:
        for one in entry["workloads"]:
            rows.append([entry["task"], one["workload"], one["verdict"], f"{one['passed']} of {one['gates']}",
                         ", ".join(one["failed"]) or "-",
                         f"{100 * one['violating_share']:.1f} ({100 * one['violating_share_upper']:.1f})",
                         _gained(entry["objective"], one, ""), _gained(entry["objective"], one, "own_"),
                         number(entry["seconds"] / 60)])
    busy = max(entry["load_average"] for entry in results["entries"])
    machines = dict.fromkeys(f"{one['cores']} cores of {one['cpu_model']}" for one in (
        entry["machine"] for entry in results["entries"]))
    dates = sorted({entry["date"][:10] for entry in results["entries"]})
    note = paragraph(
        "One run each, of the default seed, judged by the last part of the load. violating: share of steps, and the",
        "upper end of its interval; gained: against the best rule at the objective, tuned on the training",
        "applications, and tuned to the workload, with lower ends (99 %). On",
        f"{' and '.join(machines)}"
        f"{f', beside other work (load average up to {busy:.0f})' if busy > 1 else ''}. {' to '.join(dates)}.")
    header = ["task", "workload", "verdict", "gates passed", "failed", "violating, %", "gained",
              "gained against its own rule", "minutes"]
    return f"{table(header, rows, (5, 8))}\n\n{note}"


def _gained(objective: str, one: Mapping[str, Any], prefix: str) -> str:
    if objective == "reward":
        return f"reward {one[f'{prefix}reward_gain']:+.3f} ({one[f'{prefix}reward_gain_lower']:+.3f})"
    return f"{100 * one[f'{prefix}cost_saved']:.1f} % saved ({100 * one[f'{prefix}cost_saved_lower']:.1f})"
