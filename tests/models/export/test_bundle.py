"""The folder that ships: whole or absent, and a proof in it only where the checker accepts it."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import yaml

from feature_store.errors import InputError
from feature_store.scaling import FeatureScaling, MinMaxScaling
from models.control.contract.guarantee import Shipped
from models.export import bundle as bundle_module
from models.export.bundle import complete_bundle, write_bundle
from models.export.json_file import write_json
from models.export.onnx_model import INPUT, OPSET
from models.export.product import Product, ProductInput, ProductOutput, promised
from models.tasks.supervised.product import network_product
from models.tasks.supervised.specifications import raw_specification
from models.verification.closed_loop.answer import GuaranteeCheck
from models.verification.decide import OnnxVerdict
from models.verification.language.specification_language import parse_file
from models.verification.network.fully_connected import ReluNetwork
from models.verification.proof_file import ProofCheck, check_proof
from models.verification.verdict import Status
from serving.contract import Contract
from serving.promise import read_promise
from tests.models.verification.certified import SCALING, VERSIONS, monotone, network_with_many_leaves, task_with
from tests.models.verification.networks import monotone_network, random_network
from tests.models.verification.onnx_files import dense_model

QUERIES = [(0, 1), (2, -1)]
TASK = task_with([monotone("pressure"), monotone("temperature", direction="decreasing")],
                 {"connections": [0.5, 100.0]})
RAW = raw_specification(TASK, "w", SCALING)
UNPROVED = {"model.onnx", "specification.yaml", "contract.json"}


def product_of(network: ReluNetwork, **changes: Any) -> Product:
    arguments: dict[str, Any] = {"task": TASK, "workload": "w", "network": network, "scaling": SCALING,
                                 "specification": RAW, "versions": VERSIONS, **changes}
    return network_product(**arguments)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def checked(folder: Path) -> ProofCheck:
    return check_proof(folder / "proof.npz", folder / "model.onnx", folder / "specification.yaml")


@pytest.fixture(scope="module")
def network() -> ReluNetwork:
    return monotone_network(3, (8, 6), QUERIES, seed=1)


@pytest.fixture(scope="module")
def made(network: ReluNetwork, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, OnnxVerdict, Product]:
    folder, product = tmp_path_factory.mktemp("made") / "deep" / "bundle", product_of(network)
    return folder, write_bundle(folder, product), product


def test_a_proved_network_ships_with_a_proof_that_anyone_can_check(made: tuple[Path, OnnxVerdict, Product]) -> None:
    folder, verdict, product = made
    assert verdict.status is Status.PROVED
    assert names(folder) == UNPROVED | {"proof.npz"}
    assert names(folder.parent) == {"bundle"}  # nothing temporary stays
    assert (folder / "model.onnx").read_bytes() == product.model
    found = checked(folder)
    assert found.accepted and found.statement == verdict.statement and found.execution == verdict.execution
    assert verdict.evidence()["leaves"] == found.leaves and verdict.evidence()["status"] == "PROVED"


def test_the_evidence_is_added_last(made: tuple[Path, OnnxVerdict, Product], tmp_path: Path) -> None:
    folder, verdict, _ = made
    (tmp_path / "bundle").mkdir()
    complete_bundle(folder, tmp_path / "bundle", {"verdict": verdict.evidence()})
    assert "guarantee" not in json.loads((tmp_path / "bundle" / "contract.json").read_text())
    assert names(tmp_path / "bundle") == names(folder) | {"evidence.json"} and names(tmp_path) == {"bundle"}
    evidence = json.loads((tmp_path / "bundle" / "evidence.json").read_text())
    assert evidence["verdict"] == verdict.evidence()
    assert evidence["specification"] == yaml.safe_load((folder / "specification.yaml").read_text())


def test_a_guarantee_of_the_closed_loop_ships_with_its_proof_and_is_said_in_the_contract(
        made: tuple[Path, OnnxVerdict, Product], tmp_path: Path) -> None:
    complete_bundle(made[0], tmp_path / "bundle", {}, Shipped(b"proof", GuaranteeCheck(True, statement="It holds.")))
    assert (tmp_path / "bundle" / "guarantee.npz").read_bytes() == b"proof"
    said = Contract.from_json(json.loads((tmp_path / "bundle" / "contract.json").read_text()))
    assert said.guarantee is not None and said.to_json()["guarantee"] == {
        "file": "guarantee.npz", "sha256": hashlib.sha256(b"proof").hexdigest(),
        "statement": "It holds."}
    numbers = GuaranteeCheck(True, "", 1, "It is at most 3 s.", "It is at most so much.", {"s": 3.0})
    (tmp_path / "other").mkdir()
    complete_bundle(made[0], tmp_path / "other", {}, Shipped(b"proof", numbers))
    said = Contract.from_json(json.loads((tmp_path / "other" / "contract.json").read_text()))
    assert said.guarantee is not None and (said.guarantee.about, said.guarantee.at_most) == (
        numbers.about, numbers.at_most)


def test_a_network_that_falls_is_refuted_on_the_file_and_ships_without_a_proof(tmp_path: Path) -> None:
    other = random_network(np.random.default_rng(0), 3, (8, 6))
    verdict = write_bundle(tmp_path / "bundle", product_of(other))
    assert verdict.status is Status.REFUTED and names(tmp_path / "bundle") == UNPROVED
    witness = verdict.evidence()["witness"]
    low, high = (point["inputs"] for point in witness["points"])
    assert witness["units"]["pressure"] == "share" and witness["replayed_with"] == "onnxruntime"
    assert sum(low[name] != high[name] for name in low) == 1
    box = dict(zip(RAW.feature_names, zip(RAW.lower, RAW.upper, strict=True), strict=True))
    assert all(a <= point[name] <= b for point in (low, high) for name, (a, b) in box.items())


def test_what_takes_too_long_ships_without_a_proof(tmp_path: Path) -> None:
    task = task_with([monotone("pressure")])
    product = product_of(network_with_many_leaves(), task=task, specification=raw_specification(task, "w", SCALING))
    verdict = write_bundle(tmp_path / "bundle", replace(product, seconds=1e-9))
    assert verdict.status in (Status.TIMEOUT, Status.UNKNOWN) and names(tmp_path / "bundle") == UNPROVED


def test_a_proof_that_the_checker_refuses_is_unknown(
    network: ReluNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("models.verification.decide.write_proof", lambda *_: ProofCheck(False, "a leaf too many"))
    verdict = write_bundle(tmp_path / "bundle", product_of(network))
    assert verdict.status is Status.UNKNOWN and "a leaf too many" in verdict.parts[-1].reason
    assert names(tmp_path / "bundle") == UNPROVED


def test_a_model_that_cannot_be_judged_is_unknown_and_says_why(network: ReluNetwork, tmp_path: Path) -> None:
    product = product_of(network)
    model = onnx.load_model_from_string(product.model)
    model.ir_version = 99
    verdict = write_bundle(tmp_path / "bundle", replace(product, model=model.SerializeToString()))
    assert verdict.status is Status.UNKNOWN and str(tmp_path) not in verdict.reason
    assert "IR version" in verdict.reason or "ir_version" in verdict.reason.lower()
    contract = json.loads((tmp_path / "bundle" / "contract.json").read_text())
    assert Contract.from_json(contract).specification.statement == verdict.statement


def test_a_stored_scaling_far_from_the_true_one_is_not_proved_wrongly(tmp_path: Path) -> None:
    # float32 moves a range of 1 at 3e6 by a quarter of it: the box that the file sees is another than the scaling's
    far = FeatureScaling(MinMaxScaling(SCALING.features.names, (3e6 + 0.1, 1.0, -3.5), (3e6 + 1.1, 64.0, 12.25)),
                         SCALING.target)
    task = task_with([monotone("pressure")])
    product = product_of(network_with_many_leaves(), task=task, specification=raw_specification(task, "w", far),
                         scaling=far)
    verdict = write_bundle(tmp_path / "bundle", replace(product, seconds=3.0))
    # proved about the file as it is, or not at all
    assert (verdict.status is Status.PROVED) == ("proof.npz" in names(tmp_path / "bundle"))


def test_the_folder_appears_whole_or_not_at_all(
    network: ReluNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(bundle_module, "write_json", fail)
    with pytest.raises(OSError, match="No space left"):
        write_bundle(tmp_path / "bundle", product_of(network))
    assert not names(tmp_path)


def test_a_folder_that_holds_something_is_not_replaced(network: ReluNetwork, tmp_path: Path) -> None:
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "precious").write_text("kept")
    with pytest.raises(OSError, match="not empty"):
        write_bundle(tmp_path / "bundle", product_of(network))
    assert names(tmp_path) == {"bundle"} and names(tmp_path / "bundle") == {"precious"}


# --- the contract and the specification ----------------------------------------------------------------------------


def test_the_contract_tells_a_controller_what_to_feed_and_what_it_gets(made: tuple[Path, OnnxVerdict, Product]) -> None:
    folder, _, product = made
    found = json.loads((folder / "contract.json").read_text())
    assert [entry["name"] for entry in found["inputs"]] == ["pressure", "connections", "temperature"]
    assert found["inputs"][0] == {"name": "pressure", "unit": "share", "description": "", "minimum": 0.125,
                                  "maximum": 0.875, "physical_minimum": 0.0, "physical_maximum": 1.0}
    assert found["outputs"] == [{"name": "latency_ms", "unit": "ms", "kind": "prediction", "minimum": 0.5,
                                 "maximum": 40.25, "physical_minimum": 0.0, "physical_maximum": None}]
    assert found["model"] == {"file": "model.onnx", "sha256": hashlib.sha256(product.model).hexdigest(), "opset": OPSET,
                              "input": INPUT, "output": "latency_ms"}
    assert (found["task"], found["workload"], found["seed"]) == ("certified", "w", 0)
    assert found["specification"]["sha256"] == hashlib.sha256((folder / "specification.yaml").read_bytes()).hexdigest()


def test_serving_reads_what_was_written(made: tuple[Path, OnnxVerdict, Product]) -> None:
    folder, verdict, _ = made
    contract = Contract.from_json(json.loads((folder / "contract.json").read_text()))
    promise = read_promise(contract, (folder / "specification.yaml").read_bytes(), "bundle")
    assert contract.specification.statement == verdict.statement
    assert promise.specification.lower.tolist() == RAW.lower.tolist()


def test_the_specification_is_the_tasks_in_raw_units_with_nothing_left_to_defaults(
    made: tuple[Path, OnnxVerdict, Product],
) -> None:
    data = yaml.safe_load((made[0] / "specification.yaml").read_text())
    assert data["features"] == list(RAW.feature_names) and data["outputs"] == ["latency_ms"]
    assert data["units"] == {"pressure": "share", "connections": "count", "temperature": "K", "latency_ms": "ms"}
    assert data["box"] == {"pressure": [0.125, 0.875], "connections": [0.5, 100.0], "temperature": [-3.5, 12.25]}
    assert data["tolerance"] == {"latency_ms": 0.00397}  # 1e-4 of 0.5 ms to 40.25 ms, cut to three digits
    assert data["rounding"] == {"latency_ms": 0.000397}
    assert data["properties"] == [
        {"monotone": {"features": ["pressure"], "direction": "increasing", "output": "latency_ms"}},
        {"monotone": {"features": ["temperature"], "direction": "decreasing", "output": "latency_ms"}}]


def scaler(bias: float = 0.0) -> bytes:
    """load, cores, old -> limit = old + load + bias, change = load - cores; both through ReLUs that are active."""
    return bytes(dense_model([[[1, 0, 0], [0, 1, 0], [0, 0, 1]], [[1, 0, 1], [1, -1, 0]]], [[0, 0, 0], [bias, 0]])
                 .SerializeToString())


def controller(bias: float = 0.0, **changed: Any) -> Product:
    """A product with two outputs, finite inputs and every kind of property that is proved."""
    data: dict[str, Any] = {
        "features": ["load", "cores", "old"], "outputs": ["limit", "change"], "units": {"old": "GiB", "limit": "GiB"},
        "box": {"load": [0, 1], "old": [1, 8]}, "inputs": {"cores": {"values": [1, 2, 4]}},
        "tolerance": {"limit": 0.01, "change": 0.01}, "rounding": {"limit": 0.01, "change": 0.01},
        "properties": [
            {"monotone": {"features": ["load", "old"], "output": "limit"}},
            {"monotone": {"features": ["cores"], "direction": "decreasing", "output": "change"}},
            {"range": {"output": "limit", "minimum": 0.9, "maximum": 9.1}},
            {"range": {"output": "limit", "minus": "old", "maximum": 0.6, "when": {"load": [0, 0.5]}}},
            {"order": {"upper": "limit", "lower": "old", "margin": -0.001}},
            {"order": {"upper": "limit", "lower": "change"}},
            {"robust": {"points": [[0.5, 2, 4]], "radius": {"load": 0.1}, "change": 0.2, "output": "change"}}],
        **changed}
    specification = parse_file(data, 3, 2, "here")
    inputs = tuple(ProductInput(name, data["units"].get(name, "")) for name in data["features"])
    outputs = (ProductOutput("limit", "GiB", "target", 0.0, 10.0), ProductOutput("change", "", "change", -4.0, 1.0))
    return Product("limits", "w", scaler(bias), specification, inputs, outputs, VERSIONS)


def test_every_kind_of_property_of_several_outputs_is_proved_in_a_bundle(tmp_path: Path) -> None:
    verdict = write_bundle(tmp_path / "bundle", controller())
    assert verdict.status is Status.PROVED, verdict
    parts = [part.name for part in verdict.parts]
    assert parts[:3] == ["monotone", "outputs", "outputs and inputs"]
    assert checked(tmp_path / "bundle").accepted
    contract = json.loads((tmp_path / "bundle" / "contract.json").read_text())
    assert contract["inputs"][1]["values"] == [1.0, 2.0, 4.0]
    assert [(item["name"], item["kind"]) for item in contract["outputs"]] == [("limit", "target"), ("change", "change")]
    assert "limit is at least old minus 0.001" in contract["specification"]["statement"]
    assert "limit minus old is at most 0.6, where load is 0 to 0.5" in contract["specification"]["statement"]
    promise = read_promise(Contract.from_json(contract), (tmp_path / "bundle" / "specification.yaml").read_bytes(), "b")
    assert promise.specification.choices == {1: (1.0, 2.0, 4.0)}


def test_an_order_with_an_input_is_refuted_with_what_the_file_gives_for_it(tmp_path: Path) -> None:
    verdict = write_bundle(tmp_path / "bundle", controller(bias=-0.25))
    assert verdict.status is Status.REFUTED and verdict.witness is not None
    (point,) = verdict.witness["points"]
    assert point["outputs"]["limit"] < point["inputs"]["old"] - 0.001


def test_a_product_has_the_specifications_names_and_units() -> None:
    product = controller()
    with pytest.raises(InputError, match=r"outputs of a product must be the specification's, with their units"):
        replace(product, outputs=product.outputs[::-1])
    with pytest.raises(InputError, match=r"inputs of a product must be the specification's.*'GiB'"):
        replace(product, inputs=(*product.inputs[:2], ProductInput("old", "MiB")))
    with pytest.raises(InputError, match=r"encoder.onnx must come with what the contract says"):
        replace(product, files={"encoder.onnx": b"x"})


def test_a_promise_has_amounts_in_units_of_each_output() -> None:
    base = replace(controller().specification, over_the_box=None, allowed=None, tolerance=1e-3, rounding={}, units={})
    found = promised(base, [10.0, 4.0], {"old": "GiB", "limit": "GiB", "change": ""})
    assert found.over_the_box is not None and found.over_the_box.tolist() == [0.01, 0.004]
    assert found.rounding == {0: 1e-4, 1: 4e-5} and found.units == {"old": "GiB", "limit": "GiB"}
    assert found.slope(2, 0) == pytest.approx(0.01 / 7) and found.slope(2, 0) * 7 <= 0.01


def test_json_is_written_under_another_name_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "evidence.json"
    write_json(path, {"a": 1})
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    assert json.loads(path.read_text()) == {"a": 1}
    assert names(tmp_path) == {"evidence.json"}
