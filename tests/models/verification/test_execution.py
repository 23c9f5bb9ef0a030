"""What is said about execution is true of onnxruntime, and a proof that execution makes worthless is none."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from feature_store.errors import InputError
from models.verification.checker.chain import read_chain
from models.verification.checker.rounding import chain_error
from models.verification.decide import decide
from models.verification.network import runtime_agreement
from models.verification.onnx_verdict import OnnxVerdict
from models.verification.proof_file import check_proof
from models.verification.verdict import Status
from tests.models.verification.onnx_files import dense_file, run_file

RISING = [{"monotone": {"features": ["x0"], "direction": "increasing"}}]


def verify(model: Path, properties: list[dict[str, Any]], **more: Any) -> tuple[OnnxVerdict, Path, Path]:
    specification, proof = model.with_name("spec.yaml"), model.with_name("proof.npz")
    specification.write_text(yaml.safe_dump({"box": {"x0": [0, 1]}, "properties": properties} | more))
    return decide(model, specification, 20.0, certificate=proof), specification, proof


def cancelling(path: Path, size: float, **options: Any) -> Path:
    """size x - (size - 1) x, from two active neurons of other sizes: x, but for the weights' rounding."""
    last = [size / 0.7, (1 - size) / 0.3]
    return dense_file(path, [[[0.7], [0.3]], [last]], [[0.25, 0.25], [-0.25 * sum(last)]], **options)


def largest_fall(model: Path) -> float:
    y = np.array([run_file(model, np.array([x]))[0] for x in np.linspace(0, 1, 4001, dtype=np.float32).astype(float)])
    return float((np.maximum.accumulate(y) - y).max())


def test_an_order_that_every_operation_keeps_is_kept_in_execution(tmp_path: Path) -> None:
    model = dense_file(tmp_path / "m.onnx", [[[2.0], [-1.0]], [[3.0, -1.0]]], [[0.1, 0.3], [0.7]])
    found, specification, proof = verify(model, RISING)
    assert found.status is Status.PROVED and largest_fall(model) == 0
    assert found.execution == "Its execution in float32 adds nothing: every operation keeps these orders."
    assert check_proof(proof, model, specification).execution == found.execution


def test_what_is_said_of_weights_that_cancel_covers_what_they_do(tmp_path: Path) -> None:
    model = cancelling(tmp_path / "m.onnx", 1e4)
    found, _, _ = verify(model, RISING, units={"y0": "ms"}, outputs=["y0"])
    assert found.status is Status.PROVED
    assert found.execution.startswith("Executed in float32, with sums in any order, it may differ from that: y0 by at")
    said = float(re.findall(r"at most (\S+) ms", found.execution)[0])
    assert 1e-4 < largest_fall(model) <= 2 * said < 0.1  # two inputs may differ by twice as much as one


def test_a_constant_is_one_in_execution_only_where_nothing_on_the_way_overflows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """0 times infinity is no number: a spike that no sample meets would be proved to be in order."""
    plain = dense_file(tmp_path / "plain.onnx", [[[0.7], [0.3]], [[0.0, 0.0]]], [[0.25, 0.25], [7.0]])
    found, _, proof = verify(plain, RISING)
    assert found.status is Status.PROVED
    proof.unlink()
    spike = dense_file(
        tmp_path / "spike.onnx", [[[1.0], [1.0], [1.0]], [[1e25, -2e25, 1e25]], [[1e25]], [[0.0]]],
        [[-0.3, -0.3 - 2.0**-15, -0.3 - 2.0**-14], [-1e19], [0.0], [7.0]])
    assert np.isnan(run_file(spike, np.array([float(np.float32(0.3 + 2.0**-15))]))).any()
    with pytest.raises(InputError, match="got nan at"):  # where its units switch
        verify(spike, RISING)
    monkeypatch.setattr(runtime_agreement, "SWITCHES", 0)
    found, _, proof = verify(spike, RISING)
    assert found.status is not Status.PROVED and not proof.exists()


def test_a_proof_that_execution_may_undo_altogether_is_none(tmp_path: Path) -> None:
    model = cancelling(tmp_path / "m.onnx", 2e7)
    found, specification, proof = verify(model, [{"range": {"output": "y0", "maximum": 100.0}}])
    assert found.status is Status.UNKNOWN and not proof.exists()
    assert "execution in float32 must keep y0 within its size" in found.parts[-1].reason
    wide = cancelling(tmp_path / "wide.onnx", 2e7, dtype=np.float64)
    found, specification, proof = verify(wide, [{"range": {"output": "y0", "maximum": 100.0}}])
    assert found.status is Status.PROVED and check_proof(proof, wide, specification).accepted


def test_a_counterexample_counts_whatever_execution_adds(tmp_path: Path) -> None:
    model = cancelling(tmp_path / "m.onnx", 2e7)
    found, _, _ = verify(model, [{"range": {"output": "y0", "maximum": -1000.0}}])
    assert found.status is Status.REFUTED


@pytest.mark.parametrize("content", ["Its execution adds nothing.", ""])
def test_a_proof_that_says_something_else_of_execution_is_refused(tmp_path: Path, content: str) -> None:
    import io
    import json

    model = cancelling(tmp_path / "m.onnx", 1e4)
    _, specification, proof = verify(model, RISING)
    with np.load(io.BytesIO(proof.read_bytes())) as arrays:
        parts = dict(arrays)
    document = json.loads(parts["document"].tobytes()) | {"execution": content}
    parts["document"] = np.frombuffer(json.dumps(document).encode(), dtype=np.uint8)
    np.savez_compressed(proof, **parts)
    checked = check_proof(proof, model, specification)
    assert not checked.accepted and "execution must be" in checked.reason


def test_a_network_that_is_no_chain_is_said_not_to_be_bounded(tmp_path: Path) -> None:
    model = dense_file(tmp_path / "m.onnx", [[[1.0], [2.0]], [[1.0, 1.0]]], [[0, 0], [0]], kind="Tanh")
    specification = tmp_path / "spec.yaml"
    specification.write_text(yaml.safe_dump({"box": {"x0": [0, 1]}, "properties": RISING}))
    found = decide(model, specification, 20.0)
    assert found.status is Status.PROVED and "What its execution adds is not bounded" in found.execution


def test_an_order_with_a_factor_is_decided_and_certified_and_a_counterexample_replays(tmp_path: Path) -> None:
    model = dense_file(tmp_path / "m.onnx", [[[1.0], [1.0]], [[0.5, 0.25]]], [[0.0, -8.0], [0.0]])  # x / 2, 3 x / 4 - 2
    limits = [{"order": {"upper": "y0", "lower": "x0", "factor": 0.4}}]
    found, specification, proof = verify(model, limits, box={"x0": [1, 40]})
    assert found.status is Status.PROVED and check_proof(proof, model, specification).accepted
    assert "y0 is at least 0.4 times x0" in found.statement
    found, _, _ = verify(model, [{"order": {"upper": "y0", "lower": "x0", "factor": 0.6}}], box={"x0": [1, 40]})
    assert found.status is Status.REFUTED
    (point,) = (found.witness or {})["points"]
    assert point["outputs"]["y0"] < 0.6 * point["inputs"]["x0"]


def test_execution_adds_to_an_order_the_error_of_the_lower_side_times_its_factor(tmp_path: Path) -> None:
    model = dense_file(tmp_path / "m.onnx", [[[1.0]], [[3.0], [1.0]]], [[0.1], [0.0, 0.0]])
    rules = [{"order": {"upper": "y0", "lower": "y1", "factor": 2.5}}]
    error = chain_error(read_chain(model.read_bytes()), np.zeros(1), np.ones(1))
    most = float(error[0] + 2.5 * error[1])
    for limit, proved in ((most * 1.01, True), (most * 0.99, False)):
        found, _, _ = verify(model, rules, rounding={"y0": limit, "y1": 1.0})
        assert (found.status is Status.PROVED) == proved


FAR = [[[1000.0, 1.0], [1000.0, 0.0]], [[1.0, -1.0]]], [[0.0, 0.0], [0.0]]  # x1, lost in float32 where x0 is 1000


def executed(model: Path, *x: float) -> float:
    return float(run_file(model, np.array(x, dtype=np.float64))[0])


@pytest.mark.parametrize("limit", [1e-4, 10.0])
def test_execution_is_bounded_at_the_largest_value_of_a_finite_input_too(tmp_path: Path, limit: float) -> None:
    model = dense_file(tmp_path / "m.onnx", *FAR)
    # falls, though real arithmetic does not
    assert executed(model, 0.0, 0.03125) - executed(model, 1000.0, 0.03125) > 0.02
    found, specification, proof = verify(
        model, [{"monotone": {"features": ["x0"], "direction": "increasing"}}], box={"x1": [0, 1]},
        inputs={"x0": {"values": [0, 1000]}}, tolerance={"y0": 0.001}, rounding={"y0": limit})
    if limit < 1:
        assert found.status is Status.UNKNOWN and not proof.exists()
        assert "execution in float32 may add at most 0.0001 to a violation in y0, got" in found.parts[-1].reason
    else:
        assert found.status is Status.PROVED
        assert float(re.findall(r"y0 by at most (\d+\.\d+)", found.execution)[0]) > 0.02
        assert check_proof(proof, model, specification).accepted


def test_execution_is_bounded_at_a_point_outside_of_the_box_too(tmp_path: Path) -> None:
    model = dense_file(tmp_path / "m.onnx", *FAR)
    assert abs(executed(model, 0.5, 0.03125) - executed(model, 1000.0, 0.03125)) > 0.02
    found, _, proof = verify(
        model, [{"robust": {"points": [[1000, 0.03125]], "radius": {"x0": 1000}, "change": 0.001}}],
        box={"x0": [0, 1], "x1": [0, 1]}, rounding={"y0": 0.002})
    assert found.status is Status.UNKNOWN and not proof.exists()
    assert "execution in float32 may add at most 0.002 to a violation in y0, got" in found.parts[-1].reason
