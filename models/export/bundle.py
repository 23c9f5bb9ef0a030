"""Writes the folder of plain files that ships: model, specification, proof, contract, evidence.

Flow: the verify step hands over a product, whose specification is decided here on the very file that ships; the export
step adds the evidence, the gate step gates.json, and `register` signs. Formats: docs/reference/bundle.md;
serving/bundle.py opens and checks what this module writes.
"""

import hashlib
import json
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from feature_store.errors import InputError
from feature_store.strict_yaml import read_yaml
from feature_store.whole_files import whole_folder
from models.control.contract.guarantee import Shipped
from models.export.json_file import write_json
from models.export.product import Product, ProductInput
from models.verification.decide import OnnxVerdict, OnPart, PartVerdict, decide
from models.verification.language.specification_writing import as_yaml, written_out
from models.verification.model_facts import model_facts
from models.verification.verdict import Status

CONTRACT_FORMAT = "assay-bundle/2"
MODEL_FILE, SPECIFICATION_FILE, PROOF_FILE, ENCODER_FILE, GUARANTEE_FILE = (
    "model.onnx", "specification.yaml", "proof.npz", "encoder.onnx", "guarantee.npz")


def write_bundle(folder: Path, product: Product, seed: int = 0, on_progress: OnPart = None) -> OnnxVerdict:
    """Writes the product's files and contract.json, decides its specification, and keeps the proof where PROVED.

    The folder appears whole. What is missing of a bundle is the evidence: `complete_bundle`.

    Args:
        folder: a new one, or an empty one.
        seed: of the search for counterexamples.
        on_progress: called with the part's name after every round of the search.

    Returns:
        The verdict about the files in the folder. A model that cannot be judged, because it cannot be read, does not
        run or is not what runs, is UNKNOWN, with the reason.
    """
    with whole_folder(folder, overwrite=False) as new:
        model, specification = new / MODEL_FILE, new / SPECIFICATION_FILE
        model.write_bytes(product.model)
        specification.write_text(as_yaml(written_out(product.specification)), encoding="utf-8")
        for name, content in product.files.items():
            (new / name).write_bytes(content)
        verdict = _decided(product, model, specification, new / PROOF_FILE, seed, on_progress)
        write_json(new / "contract.json", make_contract(product, verdict))
    return verdict


def complete_bundle(source: Path, folder: Path, evidence: Mapping[str, Any], guarantee: Shipped | None = None) -> None:
    """Copies what `write_bundle` wrote to `folder`, an empty one, and adds evidence.json; the folder appears whole.

    The evidence gets the specification, as plain values, for reports. guarantee: of the closed loop; its proof is
    added, and the contract says it.
    """
    with whole_folder(folder, overwrite=False) as new:
        shutil.copytree(source, new, dirs_exist_ok=True)
        promised = read_yaml(new / SPECIFICATION_FILE, "specification")
        write_json(new / "evidence.json", {**evidence, "specification": promised})
        if guarantee is not None:
            (new / GUARANTEE_FILE).write_bytes(guarantee.content)
            said = guarantee.checked
            contract = json.loads((new / "contract.json").read_text())
            write_json(new / "contract.json", {**contract, "guarantee": {
                "file": GUARANTEE_FILE, "sha256": hashlib.sha256(guarantee.content).hexdigest(),
                "statement": said.statement,
                **({"about": said.about, "at_most": dict(said.at_most)} if said.at_most else {})}})


def make_contract(product: Product, verdict: OnnxVerdict) -> dict[str, Any]:
    """The content of contract.json."""
    specification = product.specification
    groups = [[specification.feature_names[i] for i in group] for group in specification.one_hot]
    embedding = None if product.embedding is None else {
        "file": ENCODER_FILE, "sha256": hashlib.sha256(product.files[ENCODER_FILE]).hexdigest(), **product.embedding}
    return {
        "format": CONTRACT_FORMAT, "task": product.task, "workload": product.workload,
        "inputs": [_input(product, number, item) for number, item in enumerate(product.inputs)],
        **({"one_hot": groups} if groups else {}),
        "outputs": [vars(item).copy() for item in product.outputs],
        "specification": {"file": SPECIFICATION_FILE, "sha256": verdict.specification_sha256,
                          "statement": verdict.statement},
        "model": {"file": MODEL_FILE, "sha256": verdict.model_sha256, **model_facts(product.model)},
        **vars(product.versions),
        **({} if embedding is None else {"embedding": embedding}),
        **({} if product.fallback is None else {"fallback": dict(product.fallback)}),
        **({} if product.driving is None else {"driving": dict(product.driving)}),
    }


def _input(product: Product, number: int, item: ProductInput) -> dict[str, Any]:
    specification = product.specification
    values = specification.choices.get(number)
    return {"name": item.name, "unit": item.unit, "description": item.description,
            "minimum": float(specification.lower[number]), "maximum": float(specification.upper[number]),
            "physical_minimum": item.physical_minimum, "physical_maximum": item.physical_maximum,
            **({} if values is None else {"values": list(values)})}


def _decided(product: Product, model: Path, specification: Path, proof: Path, seed: int,
             on_progress: OnPart) -> OnnxVerdict:
    try:
        return decide(model, specification, product.seconds, product.points, seed, on_progress, proof)
    except InputError as error:
        reason = str(error).replace(f"{model.parent}/", "")
        return OnnxVerdict(Status.UNKNOWN, (PartVerdict("file", Status.UNKNOWN, reason, 0.0, 0, 0.0, math.nan),),
                           product.specification.statement, None, 0.0, hashlib.sha256(product.model).hexdigest(),
                           hashlib.sha256(specification.read_bytes()).hexdigest())
