"""The time limit holds whatever a file is made of: reading, the first look, bounding and checking end with it.

The files are small and each keeps one stage busy for many times the limit.
"""

import gzip
import hashlib
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from feature_store.errors import InputError
from models.verification.checker.check import leaf_margins
from models.verification.checker.time_limit import OutOfTime, require_time, time_limit
from models.verification.decide import decide
from models.verification.network.onnx_reader import model_bytes
from models.verification.proof_document import KEYS, proof_bytes, trees_digest
from models.verification.proof_file import check_proof
from models.verification.trees.forest_reader import read_forest
from models.verification.verdict import BoxTree, Status
from tests.models.verification.trees.forests import random_forest

SECONDS, LATE = 1.0, 2.0  # the limit, and by how much a verdict may miss it on a quiet core
BUSY = 2.0  # a core that others use as well


def deep(layers: int) -> onnx.GraphProto:
    """ReLUs in a row: every bound of a layer goes back through all before it."""
    nodes = []
    for k in range(layers):
        nodes += [helper.make_node("Gemm", [f"a{k}" if k else "x", "w"], [f"z{k}"]),
                  helper.make_node("Relu", [f"z{k}"], [f"a{k + 1}" if k < layers - 1 else "y"])]
    return graph(nodes, 1, {"w": np.array([[1.0]], np.float32)})


def wide(outputs: int) -> onnx.GraphProto:
    """One input, copied: 200 bytes that make so many outputs."""
    zero = numpy_helper.from_array(np.array([0], np.int64))
    nodes = [helper.make_node("ConstantOfShape", ["s"], ["at"], value=zero),
             helper.make_node("Gather", ["x", "at"], ["y"], axis=1)]
    return graph(nodes, outputs, {"s": np.array([outputs], np.int64)})


def graph(nodes: list[onnx.NodeProto], outputs: int, stored: dict[str, np.ndarray]) -> onnx.GraphProto:
    return helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", 1, [1, 1])],
                             [helper.make_tensor_value_info("y", 1, [1, outputs])],
                             [numpy_helper.from_array(array, name) for name, array in stored.items()])


def files(folder: Path, made: onnx.GraphProto) -> tuple[Path, Path]:
    model, specification = folder / "m.onnx", folder / "s.yaml"
    onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), model)
    specification.write_text("box: {x0: [0, 1]}\nproperties:\n  - range: {maximum: 100, output: y0}\n")
    return model, specification


@pytest.mark.parametrize("made", [lambda: deep(1500), lambda: wide(300_000)], ids=["deep", "wide"])
def test_a_verdict_comes_within_the_time(made: Callable[[], onnx.GraphProto], tmp_path: Path) -> None:
    model, specification = files(tmp_path, made())
    began = time.process_time()
    try:
        assert decide(model, specification, SECONDS).status is Status.TIMEOUT
    except InputError as error:
        assert "must be read within the time limit" in str(error)
    assert time.process_time() - began < SECONDS + LATE + BUSY


def test_a_packed_model_that_unfolds_to_gigabytes_is_given_up_in_time(tmp_path: Path) -> None:
    model = tmp_path / "m.onnx.gz"
    with gzip.open(model, "wb", 1) as file:
        for _ in range(6):
            file.write(bytes(2**26))
    with time_limit(0.2), pytest.raises(OutOfTime):
        model_bytes(model)


def test_a_proof_is_refused_within_the_time(tmp_path: Path) -> None:
    model, specification = files(tmp_path, deep(1500))
    trees, proof = [BoxTree(np.array([-1]), np.array([0.0]))], tmp_path / "p.npz"
    document = dict.fromkeys(KEYS, "") | {"parts": [{"name": "outputs", "leaves": 1}],
                                          "trees_sha256": trees_digest(trees)}
    for name, path in (("model", model), ("specification", specification)):
        document[f"{name}_sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    proof.write_bytes(proof_bytes(document, trees))
    began = time.process_time()
    checked = check_proof(proof, model, specification, 3 * SECONDS)
    assert not checked.accepted and "within the time limit" in checked.reason
    assert time.process_time() - began < 3 * SECONDS + LATE + BUSY


def test_a_forest_is_evaluated_and_bounded_with_looks_at_the_clock() -> None:
    """Of 150,000 leaves the values that a tolerance is measured by took 6 s in one go."""
    forest = read_forest(random_forest(0).SerializeToString())
    low, high = np.zeros((1, 3)), np.ones((1, 3))
    for ask in (lambda: forest.value(low), lambda: forest.rounding(low), lambda: forest.execution_error(low),
                lambda: forest.largest_execution_error(low, high), lambda: forest.largest(low, high, np.ones((1, 1)))):
        with time_limit(0.0), pytest.raises(OutOfTime):
            ask()


def test_leaves_of_many_inputs_are_bounded_a_few_at_a_time() -> None:
    """Bounds begin with the identity of the inputs, one a leaf: together they were a gigabyte for 300 inputs."""
    inputs, leaves = 300, 256
    tracemalloc.start()
    try:
        leaf_margins([np.ones((1, inputs))], [np.zeros(1)], np.zeros((leaves, inputs)), np.ones((leaves, inputs)),
                     -np.ones((leaves, 1, 1, 1)), np.full((leaves, 1, 1), 301.0))
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 50_000_000


def test_an_inner_limit_does_not_outlast_an_outer_one_and_ends_with_its_block() -> None:
    with time_limit(60.0):
        with time_limit(0.0), pytest.raises(OutOfTime):
            require_time()
        require_time()
        with time_limit(1e9):
            require_time()
    with time_limit(0.0), time_limit(60.0), pytest.raises(OutOfTime):
        require_time()
    require_time()
