"""Variants of the performance task for measurements that must not train for minutes."""

from pathlib import Path
from typing import Any

import yaml

from benchmarks.harness.isolation import ROOT

TASK = ROOT / "models" / "tasks" / "prediction" / "performance.yaml"


def write_task(path: Path, epochs: int) -> Path:
    """The task with so many epochs instead of its own."""
    task = read_task()
    task["training"] = {**(task.get("training") or {}), **short_training(epochs)}
    path.write_text(yaml.safe_dump(task, sort_keys=False))
    return path


def write_copies(path: Path, workloads: int, epochs: int, hidden: list[int]) -> dict[str, str]:
    """A task of so many workloads, copies of the recorded ones in turn. Returns copy -> the recorded one."""
    task = read_task()
    recorded = list(task["workloads"])
    copies = {f"{recorded[k % len(recorded)]}{k // len(recorded):02d}": recorded[k % len(recorded)]
              for k in range(workloads)}
    task["workloads"] = {name: {**task["workloads"][source], "hidden": hidden} for name, source in copies.items()}
    task["training"] = {**(task.get("training") or {}), **short_training(epochs)}
    path.write_text(yaml.safe_dump(task, sort_keys=False))
    return copies


def write_open_gates(path: Path) -> Path:
    """mlflow.yaml with gates that a hardly trained model passes: what is measured is the cost of registering it."""
    configuration: dict[str, Any] = yaml.safe_load((ROOT / "mlflow.yaml").read_text())
    gates = configuration["gates"]["performance"]
    gates["test_accuracy"] |= {"at_least": 0.0, "least_cases": 1}
    for name in ("champion_mse", "baseline_mse", "mean_baseline"):
        gates[name] |= {"at_most_ratio": 1e6, "least_cases": 1}
    path.write_text(yaml.safe_dump(configuration, sort_keys=False))
    return path


def short_training(epochs: int) -> dict[str, Any]:
    return {"epochs": epochs, "pretrain_epochs": max(1, epochs // 2)}


def read_task() -> dict[str, Any]:
    return dict(yaml.safe_load(TASK.read_text()))
