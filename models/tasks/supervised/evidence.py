"""The evidence of a supervised model: errors, accuracy, curves, counterexamples, the exported file's own figures.

The champion is measured by the same code on the same rows (`champion_on_test_rows`), without those that it was trained
on: its bundle says which (`seen`, feature_store/trained_rows.py).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from feature_store.digests import content_digest
from feature_store.errors import InputError
from feature_store.scaling import FeatureScaling
from feature_store.trained_rows import SEEN, TrainedRows
from models.export.onnx_model import INPUT
from models.export.parity import largest_difference, one_row_latency_us
from models.export.physical_range import held_within
from models.export.row_errors import ordered_test_set, residuals, squared_errors
from models.paired_cases import LEFT_OUT, UNCLAIMED, recorded_places
from models.tasks.supervised.task import SupervisedTask
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
MOST_WORST = 3  # rows that the report shows
LEAST_UNSEEN = 30  # test rows, where some are left out: fewer say little about an error (as gates ask: `least_cases`)


@dataclass(frozen=True)
class TrainedLearner:
    """One workload's data, its network and the unverified twin, both held within the target's physical range, the
    folder of the proof, and the exported file."""

    data: Workload
    network: ReluNetwork
    twin: ReluNetwork
    verified: Path
    model: bytes


def load_trained(task: SupervisedTask, workload: str, features: Path, verified: Path, product: Path) -> TrainedLearner:
    """From the folders of the run."""
    torch.set_num_threads(1)
    data = load_workload(features / workload, task, workload)
    network, twin = (held_within(load_network(verified / f"{name}.npz"), task.physical_range(workload),
                                 data.scaling.target) for name in ("network", "twin"))
    return TrainedLearner(data, network, twin, verified, (product / "model.onnx").read_bytes())


def supervised_evidence(task: SupervisedTask, trained: TrainedLearner, features: Path, seed: int) -> dict[str, Any]:
    """What all supervised kinds measure; a kind adds its baseline."""
    data, learners = trained.data, {"verified": trained.network.value, "unverified": trained.twin.value}
    loop = json.loads((trained.verified / "loop.json").read_text())
    curves = partial_dependence(learners, data.x_test, data.scaling, data.specification.queries)
    units = {quantity.name: quantity.unit for quantity in task.features(data.name)}
    metrics = _scores(task, trained, loop)
    row = data.scaling.features.unscale(data.x_test[:1])[0]
    metrics |= {
        "parity_max_abs": largest_difference(trained.model, trained.network, data.scaling, PARITY_POINTS, seed),
        "parity_points": PARITY_POINTS, "latency_us": one_row_latency_us(trained.model, row)}
    errors = _test_errors(task, trained, features / data.name, metrics)
    return {
        "target": {"name": task.target.name, "unit": task.target.unit, "accuracy_tolerance": task.accuracy_tolerance,
                   "minimum": data.scaling.target.minimum[0], "maximum": data.scaling.target.maximum[0]},
        "metrics": metrics, "twin_verdict": loop["twin_verdict"],
        "history": {"epochs": loop["epochs"], "rounds": loop["rounds"]},
        "curves": {"partial_dependence": {name: {**curve, "unit": units[name]} for name, curve in curves.items()},
                   "predictions": predictions(learners, data.x_test, data.y_test, data.scaling)},
        **errors}


def boosting_baseline(task: SupervisedTask, data: Workload, seed: int) -> dict[str, Any]:
    """`metrics` and name of the baseline of models of telemetry: gradient boosting that obeys the same directions."""
    metrics = {"mean_mse": mean_squared_error(np.full(len(data.y_test), data.y.mean()), data.y_test)}
    baseline = monotone_gradient_boosting(data.x, data.y, data.specification.queries, seed)
    metrics |= scores("baseline", baseline.predict, data.x_test, data.y_test, task.accuracy_tolerance)
    return {"metrics": metrics, "baseline": BASELINE}


def champion_on_test_rows(task: SupervisedTask, workload: str, features: Path, bundle: Any,
                          inputs: Mapping[str, float] | None = None) -> dict[str, Any]:
    """The standing champion on the rows of the new test set that it was not trained on.

    Args:
        bundle: the champion's (serving/bundle.py).
        inputs: values that take the place of the columns of these names.

    Returns:
        metrics {test_mse, test_mae, test_accuracy}, in the new scaling; cases, a row each; left_out, where it has seen
        some. Or unclaimed: why the two models cannot be compared (models/paired_cases.py).

    Raises:
        KeyError: the rows lack an input of the champion's.
    """
    folder = features / workload
    frame = ordered_test_set(folder, task.split_by)
    try:
        seen = TrainedRows.from_json(bundle.evidence.get(SEEN)).among(frame)
    except InputError as error:
        return {"metrics": {}, UNCLAIMED: f"which rows it was trained on is not known ({error})"}
    if seen.any() and len(seen) - seen.sum() < LEAST_UNSEEN:
        return {"metrics": {}, UNCLAIMED: f"it was trained on {seen.sum():,} of the {len(seen):,} test rows; at least "
                                          f"{LEAST_UNSEEN} others are needed"}
    frame = frame.assign(**dict(inputs or {}))
    errors = residuals(bundle.model, bundle.contract.model.input, bundle.contract.input_names, frame, task.target.name)
    scaling = FeatureScaling.from_json((folder / "scaling.json").read_text()).target
    span = scaling.maximum[0] - scaling.minimum[0]
    cases = squared_errors(errors, span, task.target.unit, content_digest(folder / "test.parquet"))
    metrics = _of_errors(errors[~seen] / span, task.accuracy_tolerance)
    if not seen.any():
        return {"metrics": metrics, "cases": cases.to_json()}
    left_out = np.flatnonzero(seen[recorded_places(len(seen))]).tolist()
    unseen = cases.without(left_out)
    return {"metrics": metrics | {"test_mse": unseen.mean}, "cases": unseen.to_json(), LEFT_OUT: left_out}


def _of_errors(scaled: NDArray[np.float64], tolerance: float) -> dict[str, float]:
    """What a model is judged by on the test rows. Takes its errors (m,) there, in the scaling of the target."""
    zeros = np.zeros_like(scaled)
    return {"test_mse": mean_squared_error(scaled, zeros), "test_mae": mean_absolute_error(scaled, zeros),
            "test_accuracy": accuracy(scaled, zeros, tolerance)}


def _scores(task: SupervisedTask, trained: TrainedLearner, loop: Mapping[str, Any]) -> dict[str, Any]:
    data = trained.data
    with np.load(trained.verified / "counterexamples.npz", allow_pickle=False) as stored:
        pairs = {name: stored[name] for name in stored.files}
    metrics: dict[str, Any] = {}
    for prefix, predict in (("", trained.network.value), ("twin_", trained.twin.value)):
        metrics |= scores(f"{prefix}train", predict, data.x, data.y, task.accuracy_tolerance)
    metrics |= scores("twin_test", trained.twin.value, data.x_test, data.y_test, task.accuracy_tolerance)
    tolerance = data.specification.tolerance
    return metrics | {
        "test_rows": len(data.y_test),
        "counterexamples": len(pairs["sign"]),
        "counterexample_accuracy": counterexample_accuracy(trained.network, pairs, tolerance),
        "twin_counterexample_accuracy": counterexample_accuracy(trained.twin, pairs, tolerance),
        "verification_iterations": len(loop["rounds"]), "verification_seconds": loop["seconds"]["verification"],
        "training_seconds": loop["seconds"]["training"], "twin_seconds": loop["seconds"]["twin"]}


def _test_errors(task: SupervisedTask, trained: TrainedLearner, folder: Path,
                 metrics: dict[str, Any]) -> dict[str, Any]:
    """Puts test_mse, test_mae and test_accuracy of the exported file into `metrics`; returns its paired cases."""
    scaling = trained.data.scaling
    frame = ordered_test_set(folder, task.split_by)
    errors = residuals(trained.model, INPUT, scaling.features.names, frame, task.target.name)
    span = scaling.target.maximum[0] - scaling.target.minimum[0]
    metrics |= _of_errors(errors / span, task.accuracy_tolerance)
    cases = squared_errors(errors, span, task.target.unit, content_digest(folder / "test.parquet"))
    counts = {**dict.fromkeys(("test_mse", "test_mae", "test_accuracy"), "test_rows"),
              "counterexample_accuracy": "counterexamples", "parity_max_abs": "parity_points"}
    return {"cases": cases.to_json(), "case_counts": {metric: metrics[count] for metric, count in counts.items()},
            "worst": _worst(trained.data, frame, errors, task.target.name)}


def _worst(data: Workload, frame: pd.DataFrame, errors: NDArray[np.float64], target: str) -> dict[str, Any]:
    """The rows with the largest errors (counted from 1, in order of time), and how many lie outside of the box."""
    inputs = frame[list(data.scaling.features.names)]
    box, rows = data.raw_specification, inputs.to_numpy(dtype=np.float64)
    outside = ((rows < box.lower) | (rows > box.upper)).any(axis=1)
    places = np.argsort(-np.abs(errors), kind="stable")[:MOST_WORST]
    return {"rows_outside_box": int(outside.sum()),
            "rows": [{"row": int(place) + 1, "inputs": {name: float(inputs[name].iloc[place]) for name in inputs},
                      "measured": float(frame[target].iloc[place]),
                      "predicted": float(frame[target].iloc[place] + errors[place])} for place in places]}
