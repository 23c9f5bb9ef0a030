"""Bundles with a proof, as values that a test can mutate; and an oracle that reads the graph in its own way."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from benchmarks.verification.tampered_proof import Proof
from feature_store.scaling import FeatureScaling, MinMaxScaling
from models.export.bundle import write_bundle
from models.export.product import Versions
from models.tasks.supervised.product import network_product
from models.tasks.supervised.specifications import raw_specification
from models.tasks.supervised.task import SupervisedTask
from models.tasks.task import parse_task
from models.verification.language.specification import FloatArray
from models.verification.network.fully_connected import ReluNetwork
from models.verification.verdict import Status
from tests.models.verification.networks import monotone_network, passage, random_network, sampled_slopes

VERSIONS = Versions("test", "test", 0)
INPUTS = [
    {"name": "pressure", "unit": "share", "minimum": 0.0, "maximum": 1.0},
    {"name": "connections", "unit": "count", "minimum": 0.0},
    {"name": "temperature", "unit": "K"},
]
SCALING = FeatureScaling(
    MinMaxScaling(("pressure", "connections", "temperature"), (0.125, 1.0, -3.5), (0.875, 64.0, 12.25)),
    MinMaxScaling(("latency_ms",), (0.5,), (40.25,)))
# Slopes that float64 cannot tell from rounding: violations of this share of the outputs' size are not looked at.
ORACLE_SLACK = 1e-9


def task_with(properties: Sequence[dict[str, Any]], box: dict[str, Any] | None = None) -> SupervisedTask:
    """A task with three inputs and one workload called w, about which only what is given is proved."""
    specification: dict[str, Any] = {"properties": list(properties)}
    if box:
        specification["box"] = box
    return parse_task({
        "name": "certified", "target": {"name": "latency_ms", "unit": "ms", "minimum": 0.0}, "inputs": INPUTS,
        "workloads": {"w": {"specification": specification, "physical_range": False}}}, "test")


def monotone(*features: str, direction: str = "increasing") -> dict[str, Any]:
    return {"monotone": {"features": list(features), "direction": direction}}


def prove(folder: Path, network: ReluNetwork, task: SupervisedTask, scaling: FeatureScaling = SCALING) -> Proof:
    """Exports, proves and reads back; fails unless the result is PROVED."""
    product = network_product(task, "w", network, scaling, raw_specification(task, "w", scaling), VERSIONS)
    verdict = write_bundle(folder, product)
    assert verdict.status is Status.PROVED, verdict
    return Proof.read(folder)


def network_with_many_leaves() -> ReluNetwork:
    """Increasing in its first input, with a margin that only small boxes show."""
    network = random_network(np.random.default_rng(2), 3, (6, 5))
    points = np.random.default_rng(0).random((5000, 3))
    return passage(network, 0, float(0.05 - sampled_slopes(network, points, [(0, 1)]).min()))


def proofs(folder: Path) -> dict[str, Proof]:
    """One proof of a single leaf in two features, one of many leaves in one feature."""
    single = monotone_network(3, (6, 5), [(0, 1), (2, -1)], seed=3)
    return {
        "single": prove(folder / "single", single, task_with(
            [monotone("pressure"), monotone("temperature", direction="decreasing")])),
        "many": prove(folder / "many", network_with_many_leaves(), task_with([monotone("pressure")])),
    }


def evaluate_graph(model: bytes, x: FloatArray) -> FloatArray:
    """What the nodes say, one by one with their ONNX meaning and NumPy's broadcasting, in float64."""
    graph = onnx.load_model_from_string(model).graph
    values: dict[str, Any] = {tensor.name: numpy_helper.to_array(tensor).astype(np.float64)
                              for tensor in graph.initializer}
    values[graph.input[0].name] = x
    for node in graph.node:
        given = [values[name] for name in node.input]
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        values[node.output[0]] = _apply(node.op_type, given, attributes)
    return np.asarray(values[graph.output[0].name])


def _apply(kind: str, given: list[Any], attributes: dict[str, Any]) -> Any:
    match kind:
        case "Sub":
            return given[0] - given[1]
        case "Mul":
            return given[0] * given[1]
        case "Div":
            return given[0] / given[1]
        case "Add":
            return given[0] + given[1]
        case "Relu":
            return np.maximum(given[0], 0)
        case "Sigmoid":
            return 1 / (1 + np.exp(-given[0]))
        case "Gemm":
            a = given[0].T if attributes.get("transA") else given[0]
            b = given[1].T if attributes.get("transB") else given[1]
            bias = given[2] if len(given) > 2 else 0.0
            return attributes.get("alpha", 1.0) * (a @ b) + attributes.get("beta", 1.0) * bias
        case "Cast" if attributes["to"] in (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE):
            return given[0]  # nothing is rounded here
        case _:
            raise NotImplementedError(kind)


def violation(proof: Proof, seed: int = 0, points: int = 160, grid: int = 9) -> float:
    """Largest violation found by brute force beyond what the specification allows; > 0 refutes the claim.

    In units of the output: sign * (f(low) - f(high)) - tolerance * distance, the distance in widths of the box.
    """
    claim = proof.claim
    names, (output,) = claim["features"], claim["outputs"]
    low, high = (np.array([claim["box"][name][side] for name in names], dtype=float) for side in (0, 1))
    rng = np.random.default_rng(seed)
    worst = -np.inf
    for entry in claim["properties"]:
        sign = {"increasing": 1.0, "decreasing": -1.0}[entry["monotone"]["direction"]]
        for name in entry["monotone"]["features"]:
            feature, share = names.index(name), np.linspace(0, 1, grid)
            x = np.repeat((low + (high - low) * rng.random((points, len(names))))[:, None, :], grid, axis=1)
            x[:, :, feature] = low[feature] + (high[feature] - low[feature]) * share
            x = np.clip(x, low, high)
            f = evaluate_graph(proof.model, x.reshape(-1, len(names))).reshape(points, grid)
            level = sign * f + claim["tolerance"][output] * share
            fall = (np.maximum.accumulate(level, axis=1) - level).max()
            worst = max(worst, float(fall) - ORACLE_SLACK * (1 + float(np.abs(f).max())))
    return worst
