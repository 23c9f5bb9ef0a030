"""export: what was proved, and the evidence about the file that ships, become a bundle."""

import json
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from components.progress import step
from components.verify import PRODUCT
from components.workload_status import guarded
from models.export.bundle import MODEL_FILE, complete_bundle
from models.export.onnx_model import INPUT
from models.export.parity import largest_difference, one_row_latency_us
from models.export.row_errors import ordered_test_set, recorded, residuals
from models.tasks.few_shot.settings import POOL
from models.tasks.task import Task, read_task
from models.training.baseline import BASELINE, monotone_gradient_boosting
from models.training.counterexample_loop import counterexample_accuracy
from models.training.evaluation import (
    accuracy,
    mean_absolute_error,
    mean_squared_error,
    partial_dependence,
    predictions,
    scores,
)
from models.training.workload import Workload, load_network, load_workload
from models.verification.network.fully_connected import ReluNetwork

PARITY_POINTS = 10_000
PACKAGES = ("torch", "onnx", "onnxruntime", "scikit-learn", "numpy", "pandas", "mlflow", "kfp")


def run_export(task_yaml: str, workload: str, seed: int, code_version: str, command: str, features: Path,
               verified: Path, output: Path) -> None:
    """Writes the bundle that `verify` left, with its evidence.json, to the folder `output`.

    Args:
        command: what reproduces the version, see pipelines/request.py; "": unknown.
    """
    with step("export", workload):
        torch.set_num_threads(1)

        def work(folder: Path) -> None:
            task = read_task(task_yaml)
            data = load_workload(features / workload, task, workload)
            network, twin = (load_network(verified / name) for name in ("network.npz", "twin.npz"))
            quality = json.loads((features / workload / "quality.json").read_text())
            versions = {"code_version": code_version, "data_version": quality["data_version"], "seed": seed}
            model = (verified / PRODUCT / MODEL_FILE).read_bytes()
            evidence = _evidence(task, data, network, twin, verified, int(seed))
            evidence["metrics"] |= {
                "parity_max_abs": largest_difference(model, network, data.scaling, PARITY_POINTS, int(seed)),
                "parity_points": PARITY_POINTS,
                "latency_us": one_row_latency_us(model, data.scaling.features.unscale(data.x_test[:1])[0])}
            evidence |= _test_errors(task, data, model, features / workload, evidence["metrics"])
            if task.few_shot is not None:
                # scikit-learn and Optuna, which no other task needs
                from models.tasks.few_shot.evidence import FEW_SHOT_BASELINE, few_shot_facts, few_shot_metrics

                own = features / workload
                evidence["metrics"] |= few_shot_metrics(own, network, data.scaling, task.accuracy_tolerance)
                evidence["baseline"] = FEW_SHOT_BASELINE
                evidence["few_shot"] = {
                    "note": task.workload(workload).note,
                    **few_shot_facts(own, features / POOL, network, data.scaling, data.specification, int(seed))}
            verdict = json.loads((verified / "verdict.json").read_text())
            evidence |= {"verdict": verdict, "data": _data(features / workload, quality),
                         "reproduce": _reproduce(command, versions)}
            folder.rmdir()  # complete_bundle makes it whole
            complete_bundle(verified / PRODUCT, folder, evidence)

        guarded("export", verified, output, work)


def _evidence(task: Task, data: Workload, network: ReluNetwork, twin: ReluNetwork, verified: Path,
              seed: int) -> dict[str, Any]:
    loop = json.loads((verified / "loop.json").read_text())
    with np.load(verified / "counterexamples.npz", allow_pickle=False) as stored:
        pairs = {name: stored[name] for name in stored.files}
    metrics: dict[str, float] = {}
    for prefix, predict in (("", network.value), ("twin_", twin.value)):
        metrics |= scores(f"{prefix}train", predict, data.x, data.y, task.accuracy_tolerance)
    metrics |= scores("twin_test", twin.value, data.x_test, data.y_test, task.accuracy_tolerance)
    metrics["test_rows"] = len(data.y_test)
    if task.few_shot is None:
        metrics["mean_mse"] = mean_squared_error(np.full(len(data.y_test), data.y.mean()), data.y_test)
        baseline = monotone_gradient_boosting(data.x, data.y, data.specification.queries, seed)
        metrics |= scores("baseline", baseline.predict, data.x_test, data.y_test, task.accuracy_tolerance)
    tolerance = data.specification.tolerance
    metrics |= {
        "counterexamples": len(pairs["sign"]),
        "counterexample_accuracy": counterexample_accuracy(network, pairs, tolerance),
        "twin_counterexample_accuracy": counterexample_accuracy(twin, pairs, tolerance),
        "verification_iterations": len(loop["rounds"]), "verification_seconds": loop["seconds"]["verification"],
        "training_seconds": loop["seconds"]["training"], "twin_seconds": loop["seconds"]["twin"]}
    learners = {"verified": network.value, "unverified": twin.value}
    curves = partial_dependence(learners, data.x_test, data.scaling, data.specification.queries)
    units = {quantity.name: quantity.unit for quantity in task.features(data.name)}
    return {
        "format": "assay-evidence/1", "task": task.name, "workload": data.name, "seed": seed,
        "target": {"name": task.target.name, "unit": task.target.unit, "accuracy_tolerance": task.accuracy_tolerance,
                   "minimum": data.scaling.target.minimum[0], "maximum": data.scaling.target.maximum[0]},
        "metrics": metrics, "baseline": BASELINE, "twin_verdict": loop["twin_verdict"],
        "history": {"epochs": loop["epochs"], "rounds": loop["rounds"]},
        "curves": {"partial_dependence": {name: {**curve, "unit": units[name]} for name, curve in curves.items()},
                   "predictions": predictions(learners, data.x_test, data.y_test, data.scaling)}}


def _test_errors(task: Task, data: Workload, model: bytes, folder: Path, metrics: dict[str, Any]) -> dict[str, Any]:
    """Puts test_mse, test_mae and test_accuracy of the exported file into `metrics`; returns its errors row by row."""
    found = residuals(model, INPUT, data.scaling.features.names, ordered_test_set(folder, task.split_by),
                      task.target.name)
    scaled = found / (data.scaling.target.maximum[0] - data.scaling.target.minimum[0])
    nothing = np.zeros_like(scaled)
    metrics |= {"test_mse": mean_squared_error(scaled, nothing),
                "test_mae": mean_absolute_error(scaled, nothing),
                "test_accuracy": accuracy(scaled, nothing, task.accuracy_tolerance)}
    return {"test": {"unit": task.target.unit, "residuals": recorded(found)}}


def _data(folder: Path, quality: dict[str, Any]) -> dict[str, Any]:
    from feature_store.digests import content_digest

    return {"train_rows": quality["train_rows"], "test_rows": quality["test_rows"], "quality": quality,
            "files": {name: content_digest(folder / name) for name in ("train.parquet", "test.parquet")}}


def _reproduce(command: str, versions: dict[str, Any]) -> dict[str, Any]:
    return {"command": command, **versions,
            "python": platform.python_version(), "packages": {name: version(name) for name in PACKAGES}}
