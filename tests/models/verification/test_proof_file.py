"""Proofs about anybody's ONNX file: written, checked again, and refused when anything of them is changed."""

import io
import json
import re
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import yaml
from onnx import numpy_helper

from feature_store.errors import InputError
from models.verification import decide as decide_module
from models.verification.checker.archive import MOST_BYTES, Rejected
from models.verification.checker.time_limit import time_limit
from models.verification.decide import decide
from models.verification.execution import execution_of
from models.verification.language.claim import read_claim
from models.verification.network.onnx_reader import read_onnx
from models.verification.onnx_verdict import OnnxVerdict
from models.verification.proof_document import MOST_SPLITS, trees_digest
from models.verification.proof_file import (
    ProofCheck,
    _prove,
    check_proof,
    checkable,
    part_check,
)
from models.verification.verdict import BoxTree, Status
from tests.models.verification.onnx_files import dense_file

BOX = {"features": ["a", "b"], "outputs": ["p50", "p99"], "box": {"a": [0, 1]}, "inputs": {"b": {"values": [0, 1, 3]}}}
RULES: dict[str, dict[str, Any]] = {
    "slope": {"monotone": {"features": ["a"], "output": "p99"}},
    "steps": {"monotone": {"features": ["b"], "output": "p50"}},
    "range": {"range": {"output": "p50", "minimum": -0.3, "maximum": 4.5}},
    "order": {"order": {"upper": "p99", "lower": "p50", "margin": 0.5}},
    "robust": {"robust": {"points": [[0.5, 1.0]], "radius": {"a": 0.1}, "change": 0.3, "output": "p50"}}}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """p50 = a + b and wiggles of little slope, p99 = p50 + 1."""
    rng = np.random.default_rng(1)
    first = np.vstack([np.eye(2), rng.normal(size=(6, 2))])
    second = np.zeros((2, 8))
    second[:, :2], second[:, 2:] = 1.0, 0.05 * rng.normal(size=6)
    return dense_file(tmp_path / "model.onnx", [first, second],
                      [np.r_[1.0, 1.0, rng.normal(size=6) * 0.5], [-2.0, -1.0]])


def prove(model: Path, claim: dict[str, Any] | str, **options: Any) -> tuple[OnnxVerdict, Path, Path]:
    """The verdict, the specification's file and the proof's."""
    specification = model.with_name("claim.vnnlib" if isinstance(claim, str) else "claim.yaml")
    specification.write_text(claim if isinstance(claim, str) else yaml.safe_dump(claim))
    proof = model.with_name("proof.npz")
    return decide(model, specification, 20.0, certificate=proof, **options), specification, proof


@pytest.fixture
def proved(model: Path) -> tuple[Path, Path, Path]:
    """Model, specification and proof of all kinds of properties."""
    found, specification, proof = prove(model, {**BOX, "properties": list(RULES.values())})
    assert found.status is Status.PROVED
    return model, specification, proof


@pytest.mark.parametrize("kind", RULES)
def test_a_proof_of_each_kind_of_property_is_written_and_accepted(model: Path, kind: str) -> None:
    found, specification, proof = prove(model, {**BOX, "properties": [RULES[kind]]})
    checked = check_proof(proof, model, specification)
    assert checked.accepted and checked.reason == "" and checked.statement == found.statement
    assert found.certificate == {"file": str(proof), "leaves": checked.leaves}
    assert checked.parts == len(found.parts) and checked.leaves >= checked.parts


def test_a_proof_of_thousands_of_vnnlib_boxes_is_accepted(tmp_path: Path) -> None:
    model = dense_file(tmp_path / "model.onnx", [[[1.0], [-1.0]], [[1.0, -1.0]]], [[0.0, 0.0], [0.25]])  # y = x + 0.25
    boxes = "\n".join(f"(and (>= X_0 {k / 1000}) (<= X_0 {(k + 1) / 1000}) (>= Y_0 {(k + 1) / 1000 + 0.2501}))"
                      for k in range(2000))
    found, specification, proof = prove(
        model, f"(declare-const X_0 Real)\n(declare-const Y_0 Real)\n(assert (or {boxes}))")
    assert found.status is Status.PROVED
    checked = check_proof(proof, model, specification)
    assert checked == ProofCheck(True, "", found.statement, 1, 2000, found.execution, found.model_sha256,
                                 found.specification_sha256, ({"name": "outputs", "leaves": 2000},))


def test_what_is_refuted_leaves_no_proof(model: Path) -> None:
    found, _, proof = prove(model, {**BOX, "properties": [{"range": {"output": "p50", "maximum": 1.0}}]})
    assert found.status is Status.REFUTED and found.certificate is None and not proof.exists()


def test_a_proof_that_the_checker_refuses_as_a_whole_is_no_proof(
    model: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(decide_module, "write_proof", lambda *_: ProofCheck(False, "a leaf too many"))
    found, _, proof = prove(model, {**BOX, "properties": [RULES["slope"]]})
    assert found.status is Status.UNKNOWN and "a leaf too many" in found.parts[-1].reason
    assert found.certificate is None and not proof.exists()


def test_boxes_that_only_the_search_can_prove_are_split_further(tmp_path: Path) -> None:
    # its slopes of the relaxation are optimised, the checker's are not: margins between the two need more boxes
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=(20, 3)), rng.normal(size=(20, 20)) / 4, rng.normal(size=(1, 20)) / 4]
    model = dense_file(tmp_path / "model.onnx", weights, [rng.normal(size=size) for size in (20, 20, 1)])
    claim = {"box": {f"x{i}": [-1, 1] for i in range(3)}, "properties": [{"range": {"maximum": 4.0}}]}
    found, specification, proof = prove(model, claim)
    alone = decide(model, specification, 20.0)
    assert found.status is alone.status is Status.PROVED
    assert sum(part.boxes for part in found.parts) >= sum(part.boxes for part in alone.parts)
    assert check_proof(proof, model, specification).accepted


# --- what has no proof that can be checked -----------------------------------------------------------------


def test_a_network_that_the_checker_cannot_read_is_bad_input_before_any_work(tmp_path: Path) -> None:
    model = dense_file(tmp_path / "model.onnx", [[[1.0]], [[1.0]]], [[0.0], [0.0]], kind="LeakyRelu")
    with pytest.raises(InputError, match=r"certificate is not to be had for this network.*LeakyRelu"):
        prove(model, {"box": {"x0": [0, 1]}, "properties": [{"range": {"maximum": 2.0}}]})


def test_a_share_is_counted_and_has_no_proof(model: Path) -> None:
    share = {"share": {"of": RULES["range"], "at_least": 0.9, "confidence": 0.99, "samples": 1000}}
    with pytest.raises(InputError, match="share: it is counted"):
        prove(model, {**BOX, "properties": [share]})


# --- attacks -----------------------------------------------------------------------------------------------


def rewritten(proof: Path, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> None:
    """The file with its arrays and its document changed."""
    with np.load(proof) as stored:
        arrays = {name: stored[name].copy() for name in stored.files}
    document = json.loads(arrays.pop("document").tobytes())
    change(document, arrays)
    file = io.BytesIO()
    np.savez_compressed(file, document=np.frombuffer(json.dumps(document).encode(), dtype=np.uint8), **arrays)
    proof.write_bytes(file.getvalue())


def drop_a_leaf(document: dict[str, Any], arrays: dict[str, Any]) -> None:
    arrays["dimension_0"], arrays["value_0"] = arrays["dimension_0"][:-1], arrays["value_0"][:-1]


def swap_parts(document: dict[str, Any], arrays: dict[str, Any]) -> None:
    document["parts"].reverse()


def move_a_split(document: dict[str, Any], arrays: dict[str, Any]) -> None:
    arrays["dimension_0"] = np.r_[np.int16(0), np.int16(-1), arrays["dimension_0"]]
    arrays["value_0"] = np.r_[7.0, 0.0, arrays["value_0"]]


def leave_a_part_out(document: dict[str, Any], arrays: dict[str, Any]) -> None:
    last = len(document["parts"]) - 1
    document["parts"].pop()
    arrays.pop(f"dimension_{last}")
    arrays.pop(f"value_{last}")


def miscount(document: dict[str, Any], arrays: dict[str, Any]) -> None:
    document["parts"][0]["leaves"] += 1


def overstate(document: dict[str, Any], arrays: dict[str, Any]) -> None:
    document["statement"] = "Everything holds."


def another_model(document: dict[str, Any], arrays: dict[str, Any]) -> None:
    document["model_sha256"] = "0" * 64


def another_verdict(document: dict[str, Any], arrays: dict[str, Any]) -> None:
    document["verdict"] = "UNKNOWN"


def a_promise_beside(document: dict[str, Any], arrays: dict[str, Any]) -> None:
    document["note"] = "It is robust as well."


def a_long_name(document: dict[str, Any], arrays: dict[str, Any]) -> None:
    document["parts"][0]["name"] = "x" * 1_000_000


def a_stowaway(document: dict[str, Any], arrays: dict[str, Any]) -> None:
    arrays["more"] = np.zeros(1)


@pytest.mark.parametrize("change", [drop_a_leaf, swap_parts, move_a_split, leave_a_part_out, miscount, overstate,
                                    another_model, another_verdict, a_stowaway, a_promise_beside, a_long_name])
def test_a_changed_proof_is_refused(proved: tuple[Path, Path, Path], change: Callable[..., None]) -> None:
    model, specification, proof = proved
    rewritten(proof, lambda document, arrays: None)
    assert check_proof(proof, model, specification).accepted
    rewritten(proof, change)
    checked = check_proof(proof, model, specification)
    assert not checked.accepted and checked.reason and len(checked.reason) < 2000


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"no archive", "cut"])
def test_a_file_that_is_no_proof_is_refused(proved: tuple[Path, Path, Path], content: bytes | str) -> None:
    model, specification, proof = proved
    proof.write_bytes(proof.read_bytes()[:200] if isinstance(content, str) else content)
    checked = check_proof(proof, model, specification)
    assert not checked.accepted and "must be readable" in checked.reason


def rehashed(model: Path, specification: Path, proof: Path) -> None:
    """What an attacker does who can compute SHA-256."""
    from hashlib import sha256

    def change(document: dict[str, Any], arrays: dict[str, Any]) -> None:
        document["model_sha256"] = sha256(model.read_bytes()).hexdigest()
        document["specification_sha256"] = sha256(specification.read_bytes()).hexdigest()
        graph = read_onnx(model).graph
        claim = read_claim(specification, graph)
        trees = [BoxTree(arrays[f"dimension_{k}"], arrays[f"value_{k}"]) for k in range(len(document["parts"]))]
        document["trees_sha256"] = trees_digest(trees)
        document |= {"statement": claim.statement, "execution": execution_of(model.read_bytes(), graph, claim).sentence}

    rewritten(proof, change)


def test_another_network_is_refused_with_and_without_fresh_digests(proved: tuple[Path, Path, Path]) -> None:
    model, specification, proof = proved
    graph = onnx.load(model)
    weight = next(tensor for tensor in graph.graph.initializer if tensor.name == "w1")
    array = numpy_helper.to_array(weight).copy()
    array[1, 0] = -0.5  # p99 falls in a
    weight.CopyFrom(numpy_helper.from_array(array, "w1"))
    onnx.save(graph, model)
    checked = check_proof(proof, model, specification)
    assert not checked.accepted and "model must be the file" in checked.reason
    rehashed(model, specification, proof)
    checked = check_proof(proof, model, specification)
    assert not checked.accepted and "every leaf must be proved" in checked.reason


# --- tanh and the sigmoid ----------------------------------------------------------------------------------


def curved(folder: Path, kind: str) -> Path:
    """Five neurons of x0 and x1, of which y takes the differences: it rises with x0, by little for some x."""
    weights = [[[1.0, 0.5], [0.8, -1.0], [1.2, 0.0], [-0.5, 1.0], [0.3, 0.3]], [[1.0, 0.9, 0.7, -0.4, 0.2]]]
    return dense_file(folder / "model.onnx", weights, [[0.1, -0.2, 0.0, 0.3, -0.1], [0.0]], kind=kind)


CURVED: dict[str, dict[str, Any]] = {
    "slope": {"monotone": {"features": ["x0"]}}, "range": {"range": {"minimum": -4.0, "maximum": 4.0}},
    "difference": {"robust": {"points": [[0.0, 0.0]], "radius": {"x0": 0.1, "x1": 0.1}, "change": 0.45}}}


@pytest.mark.parametrize("kind", ["Tanh", "Sigmoid"])
@pytest.mark.parametrize("rule", CURVED)
def test_a_proof_about_curves_is_accepted_and_of_another_network_refused(tmp_path: Path, kind: str, rule: str) -> None:
    model = curved(tmp_path, kind)
    found, specification, proof = prove(model, {"box": {"x0": [-1, 1], "x1": [-1, 1]}, "properties": [CURVED[rule]]})
    assert found.status is Status.PROVED and found.certificate is not None
    assert check_proof(proof, model, specification).accepted
    graph = onnx.load(model)
    weight = next(tensor for tensor in graph.graph.initializer if tensor.name == "w1")
    weight.CopyFrom(numpy_helper.from_array(-9 * numpy_helper.to_array(weight), "w1"))
    onnx.save(graph, model)
    rehashed(model, specification, proof)
    checked = check_proof(proof, model, specification)
    assert not checked.accepted and "every leaf must be proved" in checked.reason


def test_a_proof_that_holds_of_a_sigmoid_is_refused_of_a_tanh(tmp_path: Path) -> None:
    model = curved(tmp_path, "Sigmoid")
    found, specification, proof = prove(model, {"box": {"x0": [-1, 1], "x1": [-1, 1]},
                                                "properties": [{"range": {"minimum": 0.2}}]})
    assert found.status is Status.PROVED
    curved(tmp_path, "Tanh")
    rehashed(model, specification, proof)
    checked = check_proof(proof, model, specification)
    assert not checked.accepted and "every leaf must be proved" in checked.reason


def test_curves_that_take_splits_have_a_proof_of_many_leaves(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    sizes = (3, 8, 8, 1)
    weights = [rng.normal(size=(after, before)) / before**0.5 * 1.5 for before, after in pairwise(sizes)]
    model = dense_file(tmp_path / "model.onnx", weights, [rng.normal(size=size) * 0.1 for size in sizes[1:]],
                       kind="Tanh")
    box = {f"x{i}": [-1, 1] for i in range(3)}
    y = read_onnx(model).graph.value(rng.uniform(-1, 1, (20_000, 3)))
    found, specification, proof = prove(model, {"box": box, "properties": [
        {"range": {"maximum": float(y.max() + 0.05 * (y.max() - y.min()))}}]})
    assert found.status is Status.PROVED
    checked = check_proof(proof, model, specification)
    assert checked.accepted and checked.leaves > 10


def test_a_larger_claim_is_refused_with_and_without_fresh_digests(proved: tuple[Path, Path, Path]) -> None:
    model, specification, proof = proved
    claim = yaml.safe_load(specification.read_text())
    claim["properties"][2]["range"]["maximum"] = 3.5
    specification.write_text(yaml.safe_dump(claim))
    checked = check_proof(proof, model, specification)
    assert not checked.accepted and "specification must be the file" in checked.reason
    rehashed(model, specification, proof)
    checked = check_proof(proof, model, specification)
    assert not checked.accepted and "every leaf must be proved" in checked.reason


def test_a_model_that_is_no_network_is_bad_input(proved: tuple[Path, Path, Path]) -> None:
    model, specification, proof = proved
    model.write_bytes(b"nothing")
    with pytest.raises(InputError):
        check_proof(proof, model, specification)


def test_nothing_half_written_stays_where_the_folder_is_gone(model: Path) -> None:
    (model.parent / "claim.yaml").write_text(yaml.safe_dump({**BOX, "properties": [RULES["slope"]]}))
    with pytest.raises(InputError, match="certificate must be writable"):
        decide(model, model.parent / "claim.yaml", certificate=model.parent / "gone" / "proof.npz")


def test_a_proof_that_unfolds_too_far_is_refused_before_it_does(proved: tuple[Path, Path, Path]) -> None:
    """0.8 MB of zeros are 400 million leaves and, unfolded, 4 GB."""
    model, specification, proof = proved
    most = MOST_BYTES // 2

    def fill(document: dict[str, Any], arrays: dict[str, Any]) -> None:
        arrays |= {"dimension_0": np.full(most, -1, np.int8), "value_0": np.zeros(most + 1, np.int8)}

    rewritten(proof, fill)
    assert proof.stat().st_size < 1_000_000
    began = time.process_time()
    assert re.match(r"proof must unfold to at most 128,000,000 bytes, got 128,\d{3},\d{3}$",
                    check_proof(proof, model, specification).reason)
    assert time.process_time() - began < 5.0

    def many(document: dict[str, Any], arrays: dict[str, Any]) -> None:
        arrays |= {"dimension_0": np.full(MOST_SPLITS + 1, -1, np.int8), "value_0": np.zeros(MOST_SPLITS + 1, np.int8)}

    rewritten(proof, many)
    assert check_proof(proof, model, specification).reason.startswith("proof must have at most 4,000,000 boxes, got 4,")


def test_a_proof_that_takes_too_long_to_check_is_refused(tmp_path: Path) -> None:
    model = dense_file(tmp_path / "model.onnx", [[[1.0], [-1.0]], [[1.0, -1.0]]], [[0.0, 0.0], [0.25]])
    found, specification, proof = prove(model, {"box": {"x0": [-1, 1]}, "properties": [{"monotone": {
        "features": ["x0"]}}]})
    assert found.status is Status.PROVED
    assert check_proof(proof, model, specification, seconds=60.0).accepted
    with pytest.raises(InputError, match="must be read within the time limit"):
        check_proof(proof, model, specification, seconds=0.0)
    (part,) = read_claim(specification, read_onnx(model).graph).parts
    check = part_check(checkable(model), part)
    with time_limit(0.0), pytest.raises(Rejected, match=r"within the time limit, got to 0 of 1 leaves \(monotone\)"):
        _prove(part, check, BoxTree(np.array([-1]), np.array([0.0])))
