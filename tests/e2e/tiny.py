"""A tiny learning problem for whole runs: synthetic telemetry, a task and a configuration of its own.

Latency really is monotone in the pressures (plus noise), so that a small network passes all gates in a few
epochs. Everything is seeded: the same call gives the same bytes, which is what the step cache goes by.
"""

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from feature_store.schema import CONFIGURATION, METRICS

ROOT = Path(__file__).resolve().parents[2]
TASK_NAME = "tiny"
WORKLOADS = ("nginx", "redis")
ROWS = 300
START = pd.Timestamp("2026-01-05T00:00:00Z")
WINDOW_S = 60.0
# ms at no pressure and at 1 connection, by workload
BASE_MS = {"nginx": 2.0, "redis": 0.5}


def telemetry(workloads: Sequence[str] = WORKLOADS, rows: int = ROWS, seed: int = 0) -> pd.DataFrame:
    """The canonical table: `rows` windows a workload, in order of time, latency rising with every pressure."""
    return pd.concat([_of_workload(name, rows, seed + k) for k, name in enumerate(workloads)], ignore_index=True)


def _of_workload(name: str, rows: int, seed: int) -> pd.DataFrame:
    generator = np.random.default_rng(seed)
    cpu, io = generator.beta(1.2, 2.0, (2, rows))
    connections = generator.choice([1.0, 4.0, 16.0], rows)
    base_ms = BASE_MS.get(name, 1.0)
    latency_ms = base_ms * (1 + 4 * cpu**2 + 3 * io + 0.05 * connections) * generator.normal(1.0, 0.02, rows)
    table = pd.DataFrame({
        "workload": name, "environment": "base",
        "combination": [f"c{row // 30:02d}" for row in range(rows)],
        "window_start": pd.date_range(START, periods=rows, freq="60s").as_unit("ms"), "window_s": WINDOW_S})
    measured = {"psi_cpu_some": cpu, "psi_io_full": io * 0.6, "psi_io_some": io, "disk_io_time": io**0.5,
                "cpu_time": 0.2 + 0.7 * cpu, "connections": connections}
    for column in (*METRICS, *CONFIGURATION):
        table[column] = measured.get(column, 0.01 if column in METRICS else np.nan)
    table["latency_ms"] = latency_ms
    return table


def task(workloads: Sequence[str] = WORKLOADS) -> dict[str, Any]:
    """The task as parsed YAML: two inputs and one configuration column, [16, 16], a few epochs."""
    properties = [{"monotone": {"features": ["psi_cpu_some", "psi_io_some"], "direction": "increasing"}}]
    entry = {"configuration": ["connections"], "hidden": [16, 16], "specification": {"properties": properties}}
    return {
        "name": TASK_NAME, "description": "tiny problem of the tests", "target": "latency_ms",
        "inputs": ["psi_cpu_some", "psi_io_some"], "workloads": {name: copy.deepcopy(entry) for name in workloads},
        "minimum_rows": 100, "accuracy_tolerance": 0.1,
        "training": {"epochs": 40, "pretrain_epochs": 5, "trunk_width": 16, "batch_size": 32, "learning_rate": 0.01,
                     "iterations": 3, "epochs_per_iteration": 2, "loop_verify_seconds": 10.0, "verify_seconds": 20.0}}


def configuration(approval: str = "auto") -> dict[str, Any]:
    """The shipped mlflow.yaml with gates for the tiny task: all of the real gates, wide enough for 16 neurons."""
    data: dict[str, Any] = yaml.safe_load((ROOT / "mlflow.yaml").read_text())
    gates = copy.deepcopy(data["gates"]["performance"])
    gates["champion_mse"]["at_most_ratio"] = 10.0  # other seeds, other test rows
    gates["baseline_mse"]["at_most_ratio"] = 20.0
    gates["latency"]["at_most"] = 20_000  # a busy machine must not decide
    data["gates"][TASK_NAME] = gates
    data["approval"] = approval
    return data


def write_yaml(data: Any, path: Path) -> Path:
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    return path
