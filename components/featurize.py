"""featurize: every workload that passed the data gate -> train and test tables, scaling, quality."""

import json
import traceback
from pathlib import Path

import pandas as pd
import yaml

from components.progress import step
from feature_store.correlation import correlation_table
from feature_store.errors import AssayError
from feature_store.features import featurize as featurize_workload
from feature_store.scaling import FeatureScaling
from models.tasks.task import parse_task
from models.training.workload import raw_specification


def run_featurize(task_yaml: str, workloads: list[str], seed: int, validated: Path, output: Path) -> dict[str, str]:
    """Writes <workload>/ for each usable workload, correlation.json, and status.json: workload -> "" or why not."""
    with step("featurize"):
        task = parse_task(yaml.safe_load(task_yaml), "task")
        frame = pd.read_parquet(validated / "samples.parquet")
        verdicts = json.loads((validated / "validation.json").read_text())
        output.mkdir(parents=True, exist_ok=True)
        status: dict[str, str] = {}
        for name in workloads:
            failures = verdicts[name]["failures"]
            status[name] = "; ".join(failure["message"] for failure in failures)
            if failures:
                continue
            try:
                featurize_workload(frame, task.telemetry_schema(name), task.test_share, int(seed), output / name,
                                   checks=verdicts[name]["checks"])
                # a specification that does not fit the workload stops it here, before any training
                scaling = FeatureScaling.from_json((output / name / "scaling.json").read_text())
                raw_specification(task, name, scaling)
            except AssayError as error:
                status[name] = str(error)
            except Exception as error:  # a defect must not sink the other workloads; the log keeps where it happened
                traceback.print_exc()
                status[name] = f"{type(error).__name__}: {error}"
        usable = frame[frame["workload"].isin(workloads)]
        table = correlation_table(usable, [q.name for q in task.inputs], task.target.name)
        (output / "correlation.json").write_text(json.dumps(table.to_dict(), indent=1))
        (output / "status.json").write_text(json.dumps(status, indent=1))
        (output / "validation.json").write_text(json.dumps(verdicts, indent=1))
        (output / "source.json").write_text((validated / "source.json").read_text())
        return status
