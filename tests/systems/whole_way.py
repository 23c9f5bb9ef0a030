"""A system's way from a recorded load to a signed champion, small; what acts differs from system to system."""

import json
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pandas as pd
import yaml

from serving.bundle import check_bundle
from serving.contract import Contract
from tests.e2e import tiny
from tests.e2e.processes import Project

SYSTEMS = Path(__file__).parents[2] / "systems"
SMALL: dict[str, Any] = {
    "hidden": [16, 16], "judging": {"episodes": 24, "steps": 60},
    "training": {"rounds": 12, "finetune_rounds": 4, "applications": 24, "steps": 40, "aims": [1.0], "rule_trials": 8}}


def small_champion(folder: Path, system: str, load: pd.DataFrame) -> tuple[Project, Contract]:
    """Trained by `assay run`, PROVED, gated, signed and checked again; its project, and what it says of itself.

    Args:
        system: folder of `systems`, whose task it is.
        load: telemetry of the task's one workload but for `workload`, a row a second.
    """
    settings = tiny.configuration()
    settings["gates"][system] = {"specification": {"verdict": "PROVED"}, "parity": {
        "metric": "parity_max_abs", "better": "smaller", "at_most": 0.001}}
    tiny.write_yaml(settings, folder / "mlflow.yaml")
    task = yaml.safe_load((SYSTEMS / system / f"{system}.yaml").read_text())
    tiny.write_yaml({**task, **SMALL}, folder / f"{system}.yaml")
    (workload,) = task["workloads"]
    moments = pd.date_range("2026-01-05T00:00:00Z", periods=len(load), freq="1s").as_unit("ms")
    load.assign(workload=workload, window_start=moments, window_s=1.0).to_csv(folder / "load.csv", index=False)
    made = Project(folder)
    done = made.call("run", "--task", str(folder / f"{system}.yaml"), "--telemetry", "load.csv", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    (entry,) = json.loads(done.stdout)["entries"]
    assert (entry["status"], entry["alias"], entry["verdict"]) == ("registered", "champion", "PROVED")
    return made, check_bundle(Path(entry["bundle"]), made.configuration.public_key_path, deep=True).contract


def steps_of(project: Project, done: CompletedProcess[str], actuator: str, controller: str) -> list[dict[str, Any]]:
    """The steps of a finished `assay control`. Where it ended while it held more than it had found, which stays until
    somebody says so, that is given back now."""
    if "`assay release` gives it back" in done.stdout:
        released = project.call("release", "--actuator", actuator, "--controller", controller)
        assert (done.returncode, released.returncode) == (1, 0), released.stdout + released.stderr
    else:
        assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"number"')]
