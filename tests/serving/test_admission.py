"""What is signed: a bundle whose evidence passes the gates again and whose proof is checked."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

import serving.admission
from feature_store.errors import RefusedError
from models.configuration import Configuration
from serving.admission import let_through
from serving.bundle import check_bundle
from serving.signature import SIGNATURE_FILE, sign_folder
from tests.serving.conftest import made_up_proof
from tests.serving.measured import TEST_ROWS, cases, measured_champion, squared_errors

Writer = Callable[..., Path]
Admit = Callable[..., Any]


@pytest.fixture
def admit(configuration: Configuration, checker: Any) -> Admit:
    def let(folder: Path, champion: dict[str, Any] | None = None) -> Any:
        return let_through(folder, configuration, champion, checker)

    return let


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def refused(admit: Admit, folder: Path, message: str, champion: Any = None) -> None:
    with pytest.raises(RefusedError, match=message):
        admit(folder, champion)
    assert not (folder / SIGNATURE_FILE).exists()
    assert [path.name for path in folder.parent.iterdir() if path.name.startswith(".")] == []


def test_a_bundle_that_passes_is_signed_in_place(
    admit: Admit, bundle: Path, configuration: Configuration
) -> None:
    signed = admit(bundle)
    assert signed.is_signed
    assert check_bundle(bundle, configuration.public_key_path, library=True).sha256 == signed.sha256
    again = admit(bundle)
    assert again.sha256 == signed.sha256, "a registration that died after signing is repeated"


def test_a_bundle_that_fails_a_gate_stays_unsigned(
    admit: Admit, bundle_writer: Writer, tmp_path: Path
) -> None:
    folder = bundle_writer(tmp_path / "refuted", status="REFUTED")
    assert not admit(folder).is_signed
    assert not (folder / SIGNATURE_FILE).exists()


def test_gates_that_say_more_than_the_evidence_bears_are_not_signed(admit: Admit, bundle: Path) -> None:
    evidence = json.loads((bundle / "evidence.json").read_text())
    metrics = {**evidence["metrics"], "counterexample_accuracy": 0.5}
    edit(bundle / "evidence.json", metrics=metrics)
    refused(admit, bundle, "must say what the evidence bears, got passed although counterexample_accuracy")


def test_gates_that_ran_without_the_champion_are_not_signed(
    admit: Admit, bundle_writer: Writer, tmp_path: Path
) -> None:
    folder = bundle_writer(tmp_path / "worse", test_mse=2.0)
    refused(admit, folder, "although champion_mse: test_mse 2", {"version": 1, "metrics": {"test_mse": 1.0}})


def test_fewer_gates_than_the_project_has_are_not_enough(admit: Admit, bundle: Path) -> None:
    gates = json.loads((bundle / "gates.json").read_text())
    edit(bundle / "gates.json", gates=gates["gates"][:1])
    evidence = json.loads((bundle / "evidence.json").read_text())
    edit(bundle / "evidence.json", metrics={**evidence["metrics"], "latency_us": 1e6})
    refused(admit, bundle, "although latency")


@pytest.mark.parametrize("broken", [[1e-6] * TEST_ROWS, squared_errors(1.0)[:10], [10**400] * TEST_ROWS, None])
def test_cases_that_contradict_the_metrics_are_not_signed(
    admit: Admit, bundle: Path, broken: Any
) -> None:
    contradicting = {**cases(1.0), "values": broken}
    refused(admit, bundle, "the evidence of the champion contradicts itself: cases",
            {**measured_champion(1, 1.0), "cases": contradicting})
    edit(bundle / "evidence.json", cases=contradicting)
    refused(admit, bundle, "the evidence of the bundle contradicts itself: cases")


def test_a_rejected_bundle_with_a_signature_is_refused(
    admit: Admit, bundle_writer: Writer, tmp_path: Path, other_keys: tuple[Path, Path]
) -> None:
    folder = bundle_writer(tmp_path / "refuted", status="REFUTED")
    sign_folder(folder, other_keys[0])
    with pytest.raises(RefusedError, match="must not be signed where a gate fails"):
        admit(folder)


def test_a_proof_for_another_model_is_not_signed(admit: Admit, bundle: Path) -> None:
    contract = json.loads((bundle / "contract.json").read_text())
    (bundle / "proof.npz").write_bytes(made_up_proof(contract, model_sha256="0" * 64))
    refused(admit, bundle, "proof's model_sha256 must be")


def test_a_proof_that_proves_nothing_is_not_signed(bundle: Path, configuration: Configuration) -> None:
    """The folder says PROVED everywhere; its leaves do not bear it. With the project's own checker."""

    def with_the_projects_checker(folder: Path, champion: Any) -> Any:
        return let_through(folder, configuration, champion)

    refused(with_the_projects_checker, bundle, "proof must prove the specification, got: document must hold")


def without_its_weights(model: onnx.ModelProto) -> bytes:
    """The file, with one tensor said to stand in another file."""
    onnx.external_data_helper.set_external_data(model.graph.initializer[2], "weights.bin")
    model.graph.initializer[2].ClearField("raw_data")
    data: bytes = model.SerializeToString()
    return data


def certify_anew(bundle: Path, contract: dict[str, Any]) -> None:
    """Writes the contract, and a proof that names its digests."""
    edit(bundle / "contract.json", **contract)
    (bundle / "proof.npz").write_bytes(made_up_proof(contract))


def test_weights_outside_of_the_model_are_not_signed(admit: Admit, bundle: Path) -> None:
    data = without_its_weights(onnx.load(bundle / "model.onnx"))
    (bundle / "model.onnx").write_bytes(data)
    contract = json.loads((bundle / "contract.json").read_text())
    contract["model"]["sha256"] = hashlib.sha256(data).hexdigest()
    certify_anew(bundle, contract)
    refused(admit, bundle, r"model\.onnx must hold its weights, got external data")


@pytest.mark.parametrize("whole", [True, False])
def test_weights_outside_of_the_encoder_are_not_signed(admit: Admit, bundle: Path, whole: bool) -> None:
    model = onnx.load(bundle / "model.onnx")
    data = model.SerializeToString() if whole else without_its_weights(model)
    (bundle / "encoder.onnx").write_bytes(data)
    contract = json.loads((bundle / "contract.json").read_text())
    contract["embedding"] = {
        "file": "encoder.onnx",
        "sha256": hashlib.sha256(data).hexdigest(),
        "inputs": ["psi_cpu_some"],
        "configuration": ["psi_io_full", "connections"],
        "target": "latency_ms",
        "runs": 3,
        "own": [0.2],
        "similarity": 0.9,
        "threshold": 0.5,
    }
    certify_anew(bundle, contract)
    if whole:
        assert admit(bundle).is_signed
    else:
        refused(admit, bundle, r"encoder\.onnx must hold its weights, got external data")


def test_what_is_written_into_the_folder_meanwhile_is_not_signed(
    admit: Admit, bundle: Path, configuration: Configuration, monkeypatch: pytest.MonkeyPatch
) -> None:
    sign = serving.admission.sign_folder

    def write_meanwhile(folder: Path, key: Path) -> Path:
        (bundle / "model.onnx").write_bytes(b"another model")
        return sign(folder, key)

    monkeypatch.setattr("serving.admission.sign_folder", write_meanwhile)
    with pytest.raises(RefusedError, match=r"got model\.onnx changed"):
        admit(bundle)
    with pytest.raises(RefusedError, match=r"got model\.onnx changed"):
        check_bundle(bundle, configuration.public_key_path)


def test_a_new_key_is_not_made_beside_an_old_ledger(
    admit: Admit, bundle: Path, configuration: Configuration
) -> None:
    configuration.ledger_path.parent.mkdir(parents=True)
    configuration.ledger_path.write_text("")
    refused(admit, bundle, "private key: expected one beside the ledger")
    assert not configuration.public_key_path.exists()


def test_weights_outside_of_the_file_are_found_in_branches_and_lists_too() -> None:
    """onnxruntime reads them from whatever folder it runs in."""
    from onnx import TensorProto, helper

    from serving.admission import _refuse_external_data

    def outside() -> TensorProto:
        tensor = TensorProto(name="e", data_type=1, dims=[1], data_location=TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value="w.bin")
        return tensor

    def branch(name: str, weight: TensorProto) -> onnx.GraphProto:
        return helper.make_graph([helper.make_node("Identity", ["e"], [name])], name, [],
                                 [helper.make_tensor_value_info(name, 1, [1])], [weight])

    inside = onnx.numpy_helper.from_array(np.ones(1, np.float32), "e")
    for weight, passes in ((inside, True), (outside(), False)):
        node = helper.make_node("If", ["c"], ["y"], then_branch=branch("a", inside), else_branch=branch("b", weight))
        model = helper.make_model(helper.make_graph([node], "g", [], [helper.make_tensor_value_info("y", 1, [1])]))
        bundle = SimpleNamespace(files={"encoder.onnx": model.SerializeToString()}, folder="here")
        if passes:
            _refuse_external_data(bundle)
            continue
        with pytest.raises(RefusedError, match=r"encoder\.onnx must hold its weights, got external data"):
            _refuse_external_data(bundle)
