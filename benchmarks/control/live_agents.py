"""Agents of a shared node, live: their policy, trained once by `assay run`, and what `assay control` said of its steps.

For the benchmarks of systems in which each of several services has a controller of its own.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from benchmarks.harness.isolation import ROOT
from benchmarks.pipeline.assay_run import bundles, run_assay
from feature_store.errors import AssayError, InputError
from feature_store.whole_files import write_file
from models.control.simulation.made_load import made_load

CONFIGURATION, TASK_FILE = "mlflow.yaml", "task.yaml"
OWN = ", own"  # of a rule that was tuned to the workload, in the evidence


def made_telemetry(windows: int, window_s: float, mean_rps: float) -> pd.DataFrame:
    """Telemetry of a load that moves as made loads do."""
    load = np.exp(made_load(np.random.default_rng(0), windows, 1, np.array([60.0]), 0.02)[:, 0])
    moments = pd.date_range("2026-01-05T00:00:00Z", periods=windows, freq=f"{window_s:g}s").as_unit("ms")
    return pd.DataFrame({"window_start": moments, "window_s": window_s, "rate_rps": mean_rps * load})


def trained(task: str, workload: str, load: pd.DataFrame, home: Path, settings: Mapping[str, float],
            saves: float = 0.0) -> Mapping[str, Any]:
    """The champion of a workload: its verdict, gates, seconds of training, and the settings of each rule that was tuned
    to the workload. Trained where there is none yet.

    Args:
        load: telemetry of the workload.
        home: state folder, which keeps it.
        settings: of the workload, where they differ from the environment's.
        saves: of the cost of the best rule, what it must save at least.

    Raises:
        AssayError: it did not become champion.
        InputError: the one that is there was trained for something else.
    """
    told = home / "policy.json"
    written = yaml.safe_load((ROOT / "systems" / task / f"{task}.yaml").read_text())
    written["workloads"] = {workload: {"settings": dict(settings)}}
    if not told.exists():
        home.mkdir(parents=True, exist_ok=True)
        configuration = yaml.safe_load((ROOT / CONFIGURATION).read_text())
        configuration["gates"][task]["saves_cores"]["at_least"] = saves
        write_file(home / CONFIGURATION, yaml.safe_dump(configuration))
        write_file(home / TASK_FILE, yaml.safe_dump(written))
        load.assign(workload=workload).to_csv(home / "load.csv", index=False)
        done = run_assay(["--task", str(home / TASK_FILE), "--telemetry", str(home / "load.csv")], home,
                         home / CONFIGURATION)
        (entry,) = done.summary["entries"]
        gates = {} if entry["gates"] is None else {one["name"]: one["passed"] for one in entry["gates"]["gates"]}
        if entry["alias"] != "champion":
            raise AssayError(f"the policy must become champion, got {entry['status']}: {entry['message']} {gates}; "
                             f"remove {home} to train anew")
        evidence = json.loads((bundles(home)[-1] / "evidence.json").read_text())
        rules = {name.removesuffix(OWN): one["settings"] for name, one in evidence["controllers"].items()
                 if name.endswith(OWN)}
        write_file(told, json.dumps({"verdict": entry["verdict"], "gates": gates, "seconds": done.seconds,
                                     "rules": rules}))
    if yaml.safe_load((home / TASK_FILE).read_text()) != written:
        raise InputError(f"the policy must be of {task}'s task file and settings as they are now, got others; remove "
                         f"{home} to train anew")
    found: Mapping[str, Any] = json.loads(told.read_text())
    return found


def promises(entries: Sequence[Mapping[str, Any]], number: int) -> Mapping[str, Any] | None:
    """What the arms of a run that are there were promised; all arms of a run are promised the same."""
    return next((one["promised"] for one in entries if one["run"] == number), None)


def decisions(logs: Sequence[Path], first: int, end: int) -> dict[str, Any]:
    """From step `first` on, before `end`: steps of all agents; share of them by who decided and why, without numbers;
    how often a signal was beyond what training saw.

    Args:
        logs: what `assay control --json` printed, one of each agent.
    """
    steps = [json.loads(line) for log in logs for line in log.read_text().splitlines() if line.startswith('{"number"')]
    counted = [one for one in steps if first <= one["number"] < end]
    if not counted:
        raise AssayError(f"agents must have decided, got {logs[0].read_text()[-500:]!r}")
    by = Counter(": ".join(filter(None, [one["actor"], re.sub(r"[\d.]+", "n", one["reason"].split(":")[0])]))
                 for one in counted)
    return {"steps": len(counted), "by": {name: count / len(counted) for name, count in by.most_common()},
            "strange": dict(Counter(name for one in counted for name in one["strange"]).most_common())}
