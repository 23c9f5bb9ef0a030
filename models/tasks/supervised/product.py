"""A trained network of one output as a product: what prediction and few-shot tasks ship."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from feature_store.scaling import FeatureScaling
from models.export.bundle import ENCODER_FILE
from models.export.onnx_model import executable_onnx, require_same_weights
from models.export.product import Product, ProductInput, ProductOutput, Versions, promised
from models.tasks.supervised.task import SupervisedTask
from models.training.workload import load_network, load_workload
from models.verification.language.specification import FloatArray, Specification
from models.verification.network.fully_connected import ReluNetwork


def network_product(
    task: SupervisedTask, workload: str, network: ReluNetwork, scaling: FeatureScaling, specification: Specification,
    versions: Versions, seconds: float = 60.0, points: FloatArray | None = None,
    encoder: tuple[bytes, Mapping[str, Any]] | None = None,
) -> Product:
    """The network behind its scaling, and what its task says of inputs and target.

    Args:
        network: n inputs, one output, in scaled coordinates.
        specification: the task's, its box in raw units, its tolerance a share of the target's range.
        seconds, points: of the proof, see Product.
        encoder: of a few-shot model: encoder.onnx and what the contract says of it, without file and digest.

    Raises:
        RefusedError: the file does not hold the network's weights.
    """
    target, features = task.target, task.features(workload)
    low, high = scaling.target.minimum[0], scaling.target.maximum[0]
    units = {quantity.name: quantity.unit for quantity in (*features, target)}
    promise = promised(specification, [high - low], units)
    metadata = {"task": task.name, "workload": workload, "code_version": versions.code_version,
                "data_version": versions.data_version, "units": "inputs and output are in raw units"}
    model = executable_onnx(network, scaling, target.name, metadata, promise, task.physical_range(workload))
    require_same_weights(model, network)
    return Product(
        task.name, workload, model, promise,
        tuple(ProductInput(q.name, q.unit, q.description, q.minimum, q.maximum) for q in features),
        (ProductOutput(target.name, target.unit, "prediction", low, high, target.minimum, target.maximum),), versions,
        {} if encoder is None else {ENCODER_FILE: encoder[0]}, None if encoder is None else encoder[1],
        seconds=seconds, points=points)


def product_of_learner(task: SupervisedTask, workload: str, versions: Versions, features: Path, learner: Path,
                       encoder: tuple[bytes, Mapping[str, Any]] | None = None) -> Product:
    """Of a learner's folder; counterexamples are sought at the training rows first. encoder: as of network_product."""
    data = load_workload(features / workload, task, workload)
    return network_product(
        task, workload, load_network(learner / "network.npz"), data.scaling, data.raw_specification, versions,
        task.training.verify_seconds, data.scaling.features.unscale(data.x), encoder)
