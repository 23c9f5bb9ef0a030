"""gate: all gates of mlflow.yaml on every bundle; a missing or NaN metric fails."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from components.progress import step
from components.tracking import project_configuration
from components.workload_status import failure
from feature_store.errors import AssayError
from feature_store.names import inside
from feature_store.scaling import FeatureScaling
from models.configuration import Configuration
from models.export.json_file import write_json
from models.export.row_errors import ordered_test_set, residuals, squared_errors
from models.gate_report import evaluate_gates
from models.tasks.task import Task, read_task
from models.training.evaluation import mean_squared_error

CHAMPIONS = "champions.json"


def run_gate(task_yaml: str, workloads: list[str], features: Path, bundles: list[Path], output: Path) -> bool:
    """Copies each bundle to <output>/<workload>/ with its gates.json; failed workloads stay failed.json.

    champions.json beside them: workload -> the standing champion measured on the new test set, or null.

    Returns:
        Whether every workload passed all gates.
    """
    with step("gate"):
        task, configuration = read_task(task_yaml), project_configuration()
        shutil.rmtree(output, ignore_errors=True)
        output.mkdir(parents=True)
        passed, champions = [], {}
        for workload, bundle in zip(workloads, bundles, strict=True):
            folder = inside(output, workload)
            shutil.copytree(bundle, folder)
            if failure(bundle):
                passed.append(False)
                continue
            evidence = json.loads((bundle / "evidence.json").read_text())
            champions[workload] = champion = _champion(configuration, task, workload, features)
            report = evaluate_gates(evidence, champion, configuration.gates[task.name])
            write_json(folder / "gates.json", report.to_json())
            passed.append(report.passed)
        write_json(output / CHAMPIONS, champions)
        return all(passed)


def _champion(configuration: Configuration, task: Task, workload: str, features: Path) -> dict[str, Any] | None:
    """The standing champion on the new test set; None: no champion.

    Keys: version; metrics {test_mse, in the new scaling}; cases (models/paired_cases.py).
    """
    from feature_store.digests import content_digest
    from serving.registry import Registry

    registry, folder = Registry(configuration), features / workload
    version = registry.champion(task.name, workload)
    if version is None:
        return None
    try:
        bundle = registry.open_champion(task.name, workload)
        frame = ordered_test_set(folder, task.split_by)
        embedding = bundle.contract.embedding
        if embedding is not None:  # in the coordinates of the champion's own pool
            frame = frame.assign(**dict(zip(embedding.inputs, embedding.own, strict=True)))
        found = residuals(bundle.model, bundle.contract.model.input, bundle.contract.input_names, frame,
                          task.target.name)
    except (AssayError, KeyError) as error_found:
        # a champion that cannot be compared must not be replaced unseen: a metric that is missing fails its gate
        return {"version": version, "metrics": {}, "reason": str(error_found)}
    scaling = FeatureScaling.from_json((folder / "scaling.json").read_text()).target
    span = scaling.maximum[0] - scaling.minimum[0]
    cases = squared_errors(found, span, task.target.unit, content_digest(folder / "test.parquet"))
    return {"version": version, "metrics": {"test_mse": mean_squared_error(found / span, np.zeros_like(found))},
            "cases": cases.to_json()}
