"""Writes the folder of plain files that ships: ONNX, contract, certificate, evidence.

Flow: called by the export step with a final verdict; the gate step adds gates.json, and `register` signs.
Formats: docs/reference/bundle.md; serving/bundle.py opens and checks what this module writes.
"""

import hashlib
import io
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from feature_store.scaling import FeatureScaling
from feature_store.whole_files import whole_folder
from models.export.json_file import write_json
from models.export.onnx_model import INPUT, OPSET, executable_onnx, require_same_weights
from models.tasks.quantity import Quantity
from models.tasks.supervised.task import SupervisedTask
from models.verification.bundle_check import check_exported
from models.verification.checker.model_file import statement
from models.verification.language.specification import Specification
from models.verification.network.fully_connected import ReluNetwork
from models.verification.verdict import Status, Verdict

CONTRACT_FORMAT = "assay-bundle/1"
ENCODER_FILE = "encoder.onnx"
CERTIFICATE_FORMAT = "assay-certificate/1"


def specification_digest(contract: Mapping[str, Any]) -> str:
    """Hex SHA-256 over specification, inputs and outputs of a contract: what a certificate is about."""
    claim = {key: contract[key] for key in ("specification", "inputs", "outputs")}
    return hashlib.sha256(json.dumps(claim, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def make_contract(
    task: SupervisedTask, workload: str, scaling: FeatureScaling, specification: Specification, model: bytes,
    versions: Mapping[str, Any], embedding: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The content of contract.json. `specification` has its box in raw units; versions: code, data, seed; embedding:
    of a few-shot model, see serving/contract.py."""
    names = specification.feature_names
    contract: dict[str, Any] = {
        "format": CONTRACT_FORMAT, "task": task.name, "workload": workload,
        "inputs": [_entry(q, float(a), float(b), description=q.description)
                   for q, a, b in zip(task.features(workload), specification.lower, specification.upper, strict=True)],
        "outputs": [_entry(task.target, scaling.target.minimum[0], scaling.target.maximum[0])],
        "specification": {
            "tolerance": specification.tolerance,
            "properties": [{"monotone": {"features": [names[f] for f in rule.features], "direction": rule.direction}}
                           for rule in specification.orders]},
        "model": {"file": "model.onnx", "sha256": hashlib.sha256(model).hexdigest(), "opset": OPSET, "input": INPUT,
                  "output": task.target.name},
        "code_version": versions["code_version"], "data_version": versions["data_version"],
        "seed": int(versions["seed"]),
        **({} if embedding is None else {"embedding": dict(embedding)}),
    }
    contract["specification"]["statement"] = statement(contract)
    return contract


def _entry(quantity: Quantity, low: float, high: float, **more: Any) -> dict[str, Any]:
    return {"name": quantity.name, "unit": quantity.unit, **more, "minimum": low, "maximum": high,
            "physical_minimum": quantity.minimum, "physical_maximum": quantity.maximum}


def write_bundle(
    folder: Path, task: SupervisedTask, workload: str, network: ReluNetwork, scaling: FeatureScaling,
    specification: Specification, verdict: Verdict, versions: Mapping[str, Any],
    encoder: tuple[bytes, Mapping[str, Any]] | None = None,
) -> tuple[bytes, Verdict]:
    """Writes model.onnx, contract.json and, where PROVED, the certificate; the folder appears whole.

    The certificate is checked against the written file by the independent checker: a proof that does not carry
    over to the file is UNKNOWN.

    Args:
        specification: with its box in raw units.
        verdict: of the search, over a box in scaled coordinates that holds the scaled raw box.
        encoder: of a few-shot model: encoder.onnx and what the contract says of it, without file and digest.

    Returns:
        The bytes of model.onnx, and the verdict about the file.
    """
    metadata = {"task": task.name, "workload": workload, "code_version": str(versions["code_version"]),
                "data_version": str(versions["data_version"]), "units": "inputs and output are in raw units"}
    model = executable_onnx(network, scaling, task.target.name, metadata, specification)
    embedding = None if encoder is None else {
        "file": ENCODER_FILE, "sha256": hashlib.sha256(encoder[0]).hexdigest(), **encoder[1]}
    contract = make_contract(task, workload, scaling, specification, model, versions, embedding)
    with whole_folder(folder, overwrite=False) as new:
        (new / "model.onnx").write_bytes(model)
        if encoder is not None:
            (new / ENCODER_FILE).write_bytes(encoder[0])
        require_same_weights(new / "model.onnx", network)
        write_json(new / "contract.json", contract)
        if verdict.status is Status.PROVED:
            verdict = _write_certificate(new, contract, verdict)
    return model, verdict


def _write_certificate(folder: Path, contract: Mapping[str, Any], verdict: Verdict) -> Verdict:
    tree = verdict.tree
    if tree is None:
        return verdict.because(Status.ERROR, "a proof must carry its leaves, got none")
    leaves = io.BytesIO()
    np.savez_compressed(leaves, split_dimension=tree.split_dimension, split_value=tree.split_value)
    path = folder / "certificate.npz"
    path.write_bytes(leaves.getvalue())
    certificate = {
        "format": CERTIFICATE_FORMAT, "verdict": str(Status.PROVED), "model_sha256": contract["model"]["sha256"],
        "specification_sha256": specification_digest(contract), "leaves_file": path.name, "leaves": tree.leaves,
        "leaves_sha256": hashlib.sha256(leaves.getvalue()).hexdigest(), "lower_bound": -math.inf, "rounding": math.inf,
        "tolerance": contract["specification"]["tolerance"], "statement": contract["specification"]["statement"]}
    result = check_exported(folder / "model.onnx", contract, certificate, path)
    if not result.accepted:
        path.unlink()
        return verdict.because(Status.UNKNOWN, f"the independent checker refused the file: {result.reason}")
    # the bound of the file, whose stored scaling is rounded: the verdict's is that of the network alone
    certificate |= {"lower_bound": result.lower_bound, "rounding": result.rounding}
    write_json(folder / "certificate.json", certificate)
    return verdict
