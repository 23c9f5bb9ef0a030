"""featurize: every workload that passed the data gate -> train and test tables, scaling, quality."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from components.progress import step
from components.workload_status import attempt
from feature_store.correlation import correlation_table
from feature_store.features import featurize as featurize_workload
from feature_store.names import inside
from feature_store.scaling import FeatureScaling
from models.tasks.task import Task, read_task
from models.training.workload import raw_specification


def run_featurize(task_yaml: str, workloads: list[str], seed: int, validated: Path, output: Path) -> dict[str, str]:
    """Writes <workload>/ for each usable workload, correlation.json, and status.json: workload -> "" or why not."""
    with step("featurize"):
        task = read_task(task_yaml)
        frame = pd.read_parquet(validated / "samples.parquet")
        verdicts = json.loads((validated / "validation.json").read_text())
        output.mkdir(parents=True, exist_ok=True)
        status: dict[str, str] = {}
        for name in workloads:
            status[name] = "; ".join(failure["message"] for failure in verdicts[name]["failures"])
        passed = [name for name in workloads if not status[name]]
        if task.few_shot is not None:
            # torch, scikit-learn and Optuna, which no other task needs here
            from components.few_shot import featurize_few_shot

            status |= featurize_few_shot(task, task.few_shot, {name: verdicts[name] for name in passed}, frame,
                                         int(seed), validated, output)
        else:
            for name in passed:
                status[name] = attempt(
                    partial(_featurize, task, name, int(seed), verdicts[name]["checks"], frame, output))
        # a specification that does not fit the workload stops it here, before any training
        status |= {name: attempt(partial(_check_specification, task, name, output))
                   for name in passed if not status[name]}
        usable = frame[frame["workload"].isin(workloads)]
        table = correlation_table(usable, [q.name for q in task.inputs], task.target.name)
        (output / "correlation.json").write_text(json.dumps(table.to_dict(), indent=1))
        (output / "status.json").write_text(json.dumps(status, indent=1))
        (output / "validation.json").write_text(json.dumps(verdicts, indent=1))
        (output / "source.json").write_text((validated / "source.json").read_text())
        return status


def _featurize(task: Task, name: str, seed: int, checks: Sequence[Mapping[str, Any]], frame: pd.DataFrame,
               output: Path) -> None:
    featurize_workload(frame, task.telemetry_schema(name), task.test_share, seed, inside(output, name),
                       checks=checks)


def _check_specification(task: Task, name: str, output: Path) -> None:
    raw_specification(task, name, FeatureScaling.from_json((output / name / "scaling.json").read_text()))
