"""The folder that ships: whole or absent, and a certificate in it only where the checker accepts it."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feature_store.scaling import FeatureScaling, MinMaxScaling
from models.export import bundle as bundle_module
from models.export.bundle import make_contract, specification_digest, write_bundle
from models.export.json_file import write_json
from models.export.onnx_model import INPUT, OPSET
from models.training.workload import raw_specification, scaled_specification
from models.verification.checker.check import check_certificate
from models.verification.network.fully_connected import ReluNetwork
from models.verification.search.branch_and_bound import Budget
from models.verification.verdict import BoxTree, Status, Verdict
from models.verification.verify import verify
from serving.contract import Contract, specification_sha256
from tests.models.verification.certified import SCALING, VERSIONS, monotone, network_with_many_leaves, task_with
from tests.models.verification.networks import monotone_network, random_network

QUERIES = [(0, 1), (2, -1)]
TASK = task_with([monotone("pressure"), monotone("temperature", direction="decreasing")],
                 {"connections": [0.5, 100.0]})
RAW = raw_specification(TASK, "w", SCALING)


def write(folder: Path, network: ReluNetwork, verdict: Verdict, **changes: Any) -> tuple[bytes, Verdict]:
    arguments: dict[str, Any] = {"task": TASK, "workload": "w", "network": network, "scaling": SCALING,
                                 "specification": RAW, "verdict": verdict, "versions": VERSIONS, **changes}
    return write_bundle(folder, **arguments)


def proved(network: ReluNetwork) -> Verdict:
    verdict = verify(network, scaled_specification(RAW, SCALING), Budget(seconds=10))
    assert verdict.status is Status.PROVED
    return verdict


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.fixture(scope="module")
def network() -> ReluNetwork:
    return monotone_network(3, (8, 6), QUERIES, seed=1)


def test_a_proved_network_ships_with_a_certificate_that_checks(network: ReluNetwork, tmp_path: Path) -> None:
    model, verdict = write(tmp_path / "deep" / "bundle", network, proved(network))
    folder = tmp_path / "deep" / "bundle"
    assert verdict.status is Status.PROVED
    assert names(folder) == {"model.onnx", "contract.json", "certificate.json", "certificate.npz"}
    assert names(folder.parent) == {"bundle"}  # nothing temporary stays
    assert (folder / "model.onnx").read_bytes() == model
    contract, certificate = (json.loads((folder / f"{name}.json").read_text()) for name in ("contract", "certificate"))
    result = check_certificate(folder / "model.onnx", contract, certificate, folder / "certificate.npz")
    assert result.accepted
    assert certificate["lower_bound"] == result.lower_bound and certificate["leaves"] == result.leaves
    assert certificate["leaves_sha256"] == hashlib.sha256((folder / "certificate.npz").read_bytes()).hexdigest()
    assert certificate["statement"] == contract["specification"]["statement"]
    assert certificate["tolerance"] == RAW.tolerance


@pytest.mark.parametrize("status", [Status.REFUTED, Status.UNKNOWN, Status.TIMEOUT, Status.ERROR])
def test_only_a_proof_gets_a_certificate(network: ReluNetwork, tmp_path: Path, status: Status) -> None:
    tree = proved(network).tree  # even a tree that would do is not certified under another status
    _, verdict = write(tmp_path / "bundle", network, Verdict(status, "as it is", tree=tree))
    assert verdict.status is status and verdict.reason == "as it is"
    assert names(tmp_path / "bundle") == {"model.onnx", "contract.json"}


def test_a_proof_that_the_checker_refuses_is_unknown_and_ships_without_a_certificate(tmp_path: Path) -> None:
    other = random_network(np.random.default_rng(0), 3, (8, 6))
    claimed = Verdict(Status.PROVED, "so it says", -1e-9, tree=BoxTree(np.array([-1], dtype=np.int16), np.zeros(1)))
    _, verdict = write(tmp_path / "bundle", other, claimed)
    assert verdict.status is Status.UNKNOWN
    assert "the independent checker refused the file: every leaf must be proved" in verdict.reason
    assert names(tmp_path / "bundle") == {"model.onnx", "contract.json"}


def test_a_proof_over_a_smaller_box_than_the_contracts_is_unknown(tmp_path: Path) -> None:
    # proved where pressure is high; the contract speaks of all of it
    task = task_with([monotone("pressure")])
    other = network_with_many_leaves()
    full = raw_specification(task, "w", SCALING)
    scaled = scaled_specification(full, SCALING)
    part = verify(other, replace(scaled, lower=np.maximum(scaled.lower, [0.9, 0.9, 0.9])), Budget(seconds=10))
    assert part.status is Status.PROVED and part.tree is not None and part.tree.leaves == 1
    _, verdict = write(tmp_path / "bundle", other, part, task=task, specification=full)
    assert verdict.status is Status.UNKNOWN


def test_a_proof_without_its_leaves_is_an_error(network: ReluNetwork, tmp_path: Path) -> None:
    _, verdict = write(tmp_path / "bundle", network, Verdict(Status.PROVED, "so it says"))
    assert verdict.status is Status.ERROR and "must carry its leaves" in verdict.reason
    assert names(tmp_path / "bundle") == {"model.onnx", "contract.json"}


def test_a_stored_scaling_far_from_the_true_one_is_not_certified_wrongly(tmp_path: Path) -> None:
    # float32 moves a range of 1 at 3e6 by a quarter of it: the box that the file sees is another than the verifier's
    far = FeatureScaling(MinMaxScaling(SCALING.features.names, (3e6 + 0.1, 1.0, -3.5), (3e6 + 1.1, 64.0, 12.25)),
                         SCALING.target)
    task = task_with([monotone("pressure")])
    raw = raw_specification(task, "w", far)
    other = network_with_many_leaves()
    verdict = verify(other, scaled_specification(raw, far), Budget(seconds=10))
    assert verdict.status is Status.PROVED
    _, found = write(tmp_path / "bundle", other, verdict, task=task, specification=raw, scaling=far)
    # proved about the file as it is, or not at all
    assert found.status in (Status.PROVED, Status.UNKNOWN)
    assert (found.status is Status.PROVED) == ("certificate.json" in names(tmp_path / "bundle"))


def test_the_folder_appears_whole_or_not_at_all(
    network: ReluNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(bundle_module, "_write_certificate", fail)
    with pytest.raises(OSError, match="No space left"):
        write(tmp_path / "bundle", network, proved(network))
    assert not names(tmp_path)


def test_a_folder_that_holds_something_is_not_replaced(network: ReluNetwork, tmp_path: Path) -> None:
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "precious").write_text("kept")
    with pytest.raises(OSError, match="not empty"):
        write(tmp_path / "bundle", network, proved(network))
    assert names(tmp_path) == {"bundle"} and names(tmp_path / "bundle") == {"precious"}


# --- the contract ------------------------------------------------------------------------------------------


def contract() -> dict[str, Any]:
    return make_contract(TASK, "w", SCALING, RAW, b"model", VERSIONS)


def test_the_contract_tells_a_controller_what_to_feed_and_what_it_gets() -> None:
    found = contract()
    assert [entry["name"] for entry in found["inputs"]] == ["pressure", "connections", "temperature"]
    assert found["inputs"][0] == {"name": "pressure", "unit": "share", "description": "", "minimum": 0.125,
                                  "maximum": 0.875, "physical_minimum": 0.0, "physical_maximum": 1.0}
    assert found["outputs"] == [{"name": "latency_ms", "unit": "ms", "minimum": 0.5, "maximum": 40.25,
                                 "physical_minimum": 0.0, "physical_maximum": None}]
    assert found["model"] == {"file": "model.onnx", "sha256": hashlib.sha256(b"model").hexdigest(), "opset": OPSET,
                              "input": INPUT, "output": "latency_ms"}
    assert (found["task"], found["workload"], found["seed"]) == ("certified", "w", 0)


def test_the_contracts_box_is_the_specifications_in_raw_units_to_the_last_bit() -> None:
    found = contract()["inputs"]
    assert [(entry["minimum"], entry["maximum"]) for entry in found] == list(
        zip(RAW.lower.tolist(), RAW.upper.tolist(), strict=True))
    assert (found[1]["minimum"], found[1]["maximum"]) == (0.5, 100.0)  # the task's own box, not the training range


def test_the_contracts_specification_is_that_of_the_task() -> None:
    found = contract()["specification"]
    assert found["properties"] == [
        {"monotone": {"features": ["pressure"], "direction": "increasing"}},
        {"monotone": {"features": ["temperature"], "direction": "decreasing"}}]
    assert found["tolerance"] == RAW.tolerance == 1e-4


def test_serving_reads_the_contract_and_computes_the_same_digest(network: ReluNetwork, tmp_path: Path) -> None:
    write(tmp_path / "bundle", network, proved(network))
    stored = json.loads((tmp_path / "bundle" / "contract.json").read_text())
    parsed = Contract.from_json(stored)
    certificate = json.loads((tmp_path / "bundle" / "certificate.json").read_text())
    digest = specification_digest(stored)
    assert digest == specification_sha256(parsed) == specification_sha256(stored)
    assert digest == certificate["specification_sha256"]


@pytest.mark.parametrize("values", [(0.1, 1 / 3), (1e-300, 1e300), (-0.0, 5e-324), (1, 2**53 + 1)])
def test_both_sides_digest_awkward_numbers_alike(values: tuple[float, float]) -> None:
    found = contract()
    found["inputs"][0].update(minimum=values[0], maximum=values[1], description="pression élevée \u2028 \"quoted\"")
    again = json.loads(json.dumps(found))
    assert specification_digest(found) == specification_sha256(found) == specification_digest(again)


def test_the_digest_covers_box_properties_tolerance_and_range_and_nothing_else() -> None:
    base = specification_digest(contract())
    for change in (lambda c: c["inputs"][0].update(minimum=0.1250001), lambda c: c["outputs"][0].update(maximum=41.0),
                   lambda c: c["specification"].update(tolerance=2e-4), lambda c: c["inputs"].reverse(),
                   lambda c: c["specification"]["properties"].pop()):
        other = contract()
        change(other)
        assert specification_digest(other) != base
    for key in ("task", "workload", "code_version", "seed"):
        assert specification_digest({**contract(), key: "other"}) == base


def test_json_is_written_under_another_name_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "evidence.json"
    write_json(path, {"a": 1})
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    assert json.loads(path.read_text()) == {"a": 1}
    assert names(tmp_path) == {"evidence.json"}
