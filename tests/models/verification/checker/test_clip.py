"""Clip, with which ReLU6 and clamped outputs are exported, as the checker reads it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models.verification.checker.archive import Rejected
from models.verification.checker.chain import Chain, read_chain
from models.verification.decide import decide
from models.verification.network.onnx_reader import read_onnx
from models.verification.network.runtime_session import open_session
from models.verification.proof_file import check_proof
from tests.models.verification.network.test_onnx_reader import build, op

RANDOM = np.random.default_rng(0)
WEIGHTS = {"w": RANDOM.normal(size=(3, 6)), "b": RANDOM.normal(size=6), "v": RANDOM.normal(size=(6, 1)),
           "zero": np.zeros(()), "six": np.full((), 6.0), "low": np.full((), -0.75), "high": np.full((), 1.25)}


def network(hidden: str, output: str, opset: int = 17, **attributes: Any) -> bytes:
    nodes = [op("Gemm", "x w b", "g"), op("Clip", f"g {hidden}", "c", **attributes), op("MatMul", "c v", "m"),
             op("Clip", f"m {output}", **attributes)]
    return build(nodes, WEIGHTS, (1, 3), opset=opset)


def through(chain: Chain, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    for weight, bias, relu in zip(chain.weights, chain.biases, (*chain.relus, False), strict=True):
        x = x @ weight.T + bias
        x = np.maximum(x, 0) if relu else x
    return x


FILES = {"both": network("zero six", "low high"), "below": network("zero", "low"), "above": network("- six", "- high"),
         "attributes": network("", "", opset=10, min=-0.5, max=0.5)}


@pytest.mark.parametrize("name", FILES)
def test_both_readers_compute_what_onnxruntime_computes(name: str) -> None:
    session = open_session(FILES[name])
    x = RANDOM.normal(size=(200, 3)).astype(np.float32)
    expected = np.concatenate([session.run(None, {"x": row[None]})[0] for row in x])
    assert len(np.unique(expected)) > 3
    np.testing.assert_allclose(read_onnx(FILES[name]).graph.value(x), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(through(read_chain(FILES[name]), x.astype(np.float64)), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("limit", "expected"), [(1.25, "PROVED"), (1.2, "REFUTED")])
def test_a_limit_of_a_clipped_output_is_proved_and_certified(tmp_path: Path, limit: float, expected: str) -> None:
    model, text, proof = tmp_path / "model.onnx", tmp_path / "spec.yaml", tmp_path / "proof.npz"
    model.write_bytes(FILES["both"])
    text.write_text("features: [a, b, c]\noutputs: [y]\nbox: {a: [-2, 2], b: [-2, 2], c: [-2, 2]}\n"
                    f"properties: [range: {{output: y, maximum: {limit + 1e-4}}}]\n")
    found = decide(model, text, 30.0, certificate=proof)
    assert found.verdict == expected
    assert expected == "REFUTED" or check_proof(proof, model, text).accepted


def test_a_limit_for_each_value_is_refused() -> None:
    with pytest.raises(Rejected, match="limits must be finite numbers of float32, one each"):
        read_chain(build([op("Clip", "x lo")], {"lo": np.zeros(3)}, (1, 3), inferred=False))
