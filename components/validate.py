"""validate: the data gate. Workloads whose telemetry breaks a rule are stopped here, each with its message."""

import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd

from components.progress import step
from feature_store.expectations import validate_all
from models.tasks.task import read_task


def run_validate(task_yaml: str, workloads: list[str], samples: Path, output: Path, docs: Path) -> dict[str, Any]:
    """Judges every workload's rows; writes validation.json and the Data Docs, and passes the samples on.

    Returns:
        workload -> {"passed", "failures", "warnings", "checks", "statistics"}.
    """
    with step("validate"):
        task = read_task(task_yaml)
        frame = pd.read_parquet(samples / "samples.parquet")
        schemas = {name: task.telemetry_schema(name) for name in workloads}
        results = validate_all(dict.fromkeys(workloads, frame), schemas, docs)
        verdicts = {name: result.to_dict() for name, result in results.items()}
        shutil.copytree(samples, output, dirs_exist_ok=True)
        (output / "validation.json").write_text(json.dumps(verdicts, indent=1, default=str))
        return verdicts
