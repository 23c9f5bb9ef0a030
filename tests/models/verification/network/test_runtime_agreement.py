"""A network that was read as something else than onnxruntime computes is refused; one that was read right never is."""

import hashlib
import subprocess
import sys
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from onnx import numpy_helper

from benchmarks.verification.tampered_proof import Proof
from feature_store.errors import InputError
from models.export.onnx_model import build_onnx
from models.verification import proof_file
from models.verification.attack.replay import graph_stages
from models.verification.checker.chain import Chain, read_chain
from models.verification.network import onnx_reader, runtime_agreement
from models.verification.network.fully_connected import ReluNetwork
from models.verification.network.graph import Affine, FloatArray, Graph
from models.verification.network.onnx_reader import read_onnx
from models.verification.network.runtime_agreement import (
    CORNERS,
    RANDOM_POINTS,
    chain_stages,
    points,
    require_agreement,
    switches,
)
from tests.models.verification.certified import SCALING, monotone, prove, task_with
from tests.models.verification.network.test_onnx_reader import PUBLIC, build, chains, op
from tests.models.verification.networks import monotone_network
from tests.models.verification.onnx_files import dense_model
from tests.models.verification.test_decide import chain, one_input, verify

TYPES = [np.float16, np.float32, np.float64]
# Output weights that are wrong by this share of themselves are seen in networks of a few dozen neurons a layer.
SEEN = {np.float16: 5.0, np.float32: 1e-2, np.float64: 1e-10}


@dataclass
class Box:
    lower: FloatArray
    upper: FloatArray


def cube(inputs: int, wall: float = 1.0) -> list[Box]:
    return [Box(np.full((1, inputs), -wall), np.full((1, inputs), wall))]


def compare(content: bytes, graph: Graph | None = None, boxes: list[Box] | None = None) -> None:
    network = read_onnx(content)
    require_agreement(content, network.sha256, graph_stages(graph or network.graph),
                      boxes or cube(network.graph.inputs), "model.onnx")


def random_file(seed: int, dtype: type, kind: str = "Relu", scale: float = 1.0) -> bytes:
    rng = np.random.default_rng(seed)
    sizes = [int(rng.integers(1, 7)), *(int(size) for size in rng.integers(2, 60, size=rng.integers(1, 5))), 2]
    weights = [rng.normal(size=(after, before)) / before**0.5 * scale for before, after in pairwise(sizes)]
    return dense_model(weights, [rng.normal(size=size) for size in sizes[1:]], kind=kind,
                       dtype=dtype).SerializeToString()


@pytest.mark.parametrize("kind", ["Relu", "LeakyRelu", "Tanh", "Sigmoid"])
@pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: dtype.__name__)
@pytest.mark.parametrize("wall", [1e-3, 1.0, 1e4])
def test_networks_that_are_read_right_are_never_refused(dtype: type, kind: str, wall: float) -> None:
    for seed in range(6):
        content = random_file(seed, dtype, kind, scale=(0.3, 1.0, 3.0)[seed % 3])
        compare(content, boxes=cube(read_onnx(content).graph.inputs, wall))


@settings(max_examples=40, deadline=None)
@given(chains(longest=10))
def test_random_graphs_that_are_read_right_are_never_refused(content: bytes) -> None:
    compare(content)


@pytest.mark.skipif(not PUBLIC, reason="the public networks are not there (set ASSAY_DATA)")
@pytest.mark.parametrize("path", PUBLIC, ids=lambda path: path.stem)
def test_public_networks_are_never_refused(path: Path) -> None:
    compare(path.read_bytes())
    chain = read_chain(path.read_bytes())
    require_agreement(path.read_bytes(), read_onnx(path).sha256,
                      chain_stages(chain.weights, chain.biases, chain.kinds), cube(chain.weights[0].shape[1]), "model")


def changed(graph: Graph, share: float) -> Graph:
    """The graph with the weights of its output off by a share of themselves."""
    return replace(graph, output=Affine({s: m * (1 + share) for s, m in graph.output.matrices.items()},
                                        graph.output.offset))


@pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: dtype.__name__)
def test_wrong_weights_are_seen(dtype: type) -> None:
    for seed in range(6):
        content = random_file(seed, dtype)
        with pytest.raises(InputError, match=r"network as read must compute what onnxruntime [\d.]+ computes: output "
                                             r"\d must be .* within .*, got .* at \[.*\] \(model.onnx\)$"):
            compare(content, changed(read_onnx(content).graph, SEEN[dtype]))


def test_the_message_names_a_point_at_which_both_values_are_found() -> None:
    content = dense_model([[[2.0, 1.0]], [[1.0]]], [[5.0], [0.0]]).SerializeToString()
    graph = read_onnx(content).graph
    wrong = replace(graph, output=Affine(graph.output.matrices, np.array([0.5])))
    with pytest.raises(InputError) as caught:
        compare(content, wrong)
    said = str(caught.value)
    x = np.array([float(value) for value in said.split("at [")[1].split("]")[0].split(",")])
    right = graph.value(x[None])[0, 0]
    assert f"must be {right + 0.5:.6g}"[:14] in said and f"got {right:.6g}"[:9] in said


def test_points_are_always_the_same_numbers_of_the_type_in_the_box_corners_among_them() -> None:
    boxes = [Box(np.array([[0.7, -0.1, 3.0]]), np.array([[0.9, 0.1, 3.0]])),
             Box(np.array([[-2.0, 0.1, 1e10 + 100]]), np.array([[-1.0, 0.1, 1e10 + 200]]))]
    number = np.dtype(np.float32)
    x = points(boxes, number)
    np.testing.assert_array_equal(x, points(boxes, number))
    assert x.shape == (RANDOM_POINTS + CORNERS, 3) and (x == x.astype(np.float32)).all()
    first, second = x[x[:, 2] < 10], x[x[:, 2] > 10]
    assert len(first) and len(second)
    assert ((first >= boxes[0].lower) & (first <= boxes[0].upper)).all()
    assert ((second[:, 0] >= -2) & (second[:, 0] <= -1)).all()
    assert (second[:, 1] == np.float32(0.1)).all() and (second[:, 2] == 1e10).all()  # no float32 inside: the nearest
    corners = np.array([np.float32(0.7) + np.spacing(np.float32(0.7)), np.float32(0.9)])
    assert sum(np.isin(first[:, 0], corners)) >= 4


def test_half_of_the_points_depend_on_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    whole = runtime_agreement.evaluate
    monkeypatch.setattr(runtime_agreement, "evaluate", lambda stages, x, *rest: (found.append(x), whole(
        stages, x, *rest))[1])
    for bias in (0.0, 1.0, 1.0):
        compare(dense_model([[[1.0, 2.0]], [[1.0]]], [[bias], [0.0]]).SerializeToString())
    drawn = 2 * (RANDOM_POINTS + CORNERS)  # the rest is where units switch
    assert all(len(x) > drawn for x in found)
    first, second, again = (set(map(tuple, x[:drawn].tolist())) for x in found)
    corners, shared = 4, set(map(tuple, points(cube(2), np.dtype(np.float32)).tolist()))
    assert second == again and first & second >= shared and len(first - second) == RANDOM_POINTS
    assert len(first) == 2 * RANDOM_POINTS + corners


def test_where_the_runtime_overflows_nothing_is_compared() -> None:
    compare(dense_model([[[1.0]], [[1e30]], [[1e38]]], [[0.0], [0.0], [0.0]]).SerializeToString())
    compare(dense_model([[[1.0]], [[1.0]]], [[0.0], [0.0]]).SerializeToString(), boxes=cube(1, 1e39))


LARGE = {
    "a large constant": ([[[1e-3]], [[1.0]]], [[1e8], [-1e8]]),
    "overflow": ([[[1.0]], [[1e30]], [[1e38]]], [[0.0], [0.0], [0.0]]),
}


@pytest.mark.parametrize("name", LARGE)
def test_what_cannot_be_compared_is_not_proved_of_what_runs(tmp_path: Path, name: str) -> None:
    """A constant far larger than the output, or a sum that may overflow, explains any difference by rounding."""
    content = dense_model(*LARGE[name], kind="LeakyRelu").SerializeToString()
    network = read_onnx(content)
    said = require_agreement(content, network.sha256, graph_stages(network.graph), cube(1), "model.onnx")
    assert said.startswith("output 0 must be larger than what rounding may add to it")
    (tmp_path / "m.onnx").write_bytes(content)
    found = verify(tmp_path, tmp_path / "m.onnx", one_input(-1, 1, {"range": {"maximum": 1e300}}))
    assert found.verdict == "UNKNOWN" and "cannot be compared with what onnxruntime computes" in str(found)
    small = random_file(1, np.float32, "LeakyRelu")
    network = read_onnx(small)
    assert require_agreement(small, network.sha256, graph_stages(network.graph), cube(network.graph.inputs), "m") == ""


CANCELLING: dict[str, tuple[list[onnx.NodeProto], dict[str, np.ndarray]]] = {
    "sum": ([op("Add", "x c", "t"), op("Sub", "t c")], {"c": np.array([1e6])}),
    "scaled": ([op("Add", "x c", "t"), op("Mul", "t s", "u"), op("Add", "u d")],
               {"c": np.array([1e4]), "s": np.array([0.1]), "d": np.array([-1e3])}),
    "normalised": ([op("Add", "x c", "t"), op("BatchNormalization", "t one one m one")],
                   {"c": np.array([1e4]), "m": np.array([1e4 + 0.3]), "one": np.ones(1)}),
    "difference": ([op("Mul", "x c", "t"), op("Mul", "x d", "u"), op("Sub", "t u")],
                   {"c": np.array([1e5]), "d": np.array([1e5 + 0.25])}),
    "product": ([op("MatMul", "x w", "t"), op("MatMul", "t v")],
                {"w": np.array([[1e3, 1e3 + 0.5]]), "v": np.array([[1e3], [-1e3]])}),
}


@pytest.mark.parametrize("name", CANCELLING)
@pytest.mark.parametrize("dtype", TYPES[1:], ids=lambda dtype: dtype.__name__)
def test_what_a_type_loses_by_cancellation_is_rounding(name: str, dtype: type) -> None:
    nodes, constants = CANCELLING[name]
    compare(build(nodes, constants, (1, 1), dtype=dtype))


def test_a_constant_that_onnxruntime_rounds_elsewhere_in_a_whole_file_is_refused() -> None:
    # alone the difference is a float16; followed by a Cast, onnxruntime leaves it in float32
    sides = {name: numpy_helper.from_array(np.array([value], np.float16)) for name, value in (("a", 1.8), ("b", 1e-3))}
    nodes = [*(op("Constant", "", name, value=value) for name, value in sides.items()), op("Sub", "a b", "c"),
             op("Cast", "c", "d", to=onnx.TensorProto.FLOAT), op("Mul", "x d")]
    with pytest.raises(InputError, match="constants of float16 must be moved or converted alone"):
        compare(build(nodes, {}, (1, 1)))


def test_what_differs_in_a_sliver_where_units_switch_is_seen() -> None:
    """A bump of one at 0.7003, a ten-thousandth wide, is read as one of two: at no other point do they differ."""
    wide = 1e4
    content = dense_model([[[wide], [-wide]], [[-1.0, -1.0]], [[1.0]]],
                          [[-0.7003 * wide, 0.7003 * wide], [1.0], [0.0]]).SerializeToString()
    graph = read_onnx(content).graph
    box = [Box(np.zeros((1, 1)), np.ones((1, 1)))]
    compare(content, graph, box)
    twice = changed(graph, 1.0)
    apart = points(box, np.dtype(np.float32))
    assert np.array_equal(graph.value(apart), twice.value(apart)), "or random points would do"
    with pytest.raises(InputError, match=r"network as read must compute .* at \[0\.700"):
        compare(content, twice, box)


def test_points_at_switches_are_on_both_sides_in_the_box() -> None:
    content = random_file(3, np.float32)
    graph, number = read_onnx(content).graph, np.dtype(np.float32)
    box = Box(np.full((1, graph.inputs), 0.25), np.full((1, graph.inputs), 0.75))
    x = switches(graph_stages(graph), [box], number, 0)
    assert len(x) > 10 and len(x) % 2 == 0 and (x == x.astype(number)).all()
    assert ((x >= box.lower) & (x <= box.upper)).all()
    first, last = np.split(x, 2)
    assert np.abs(first - last).max() <= 2 * np.spacing(number.type(1.0))
    np.testing.assert_array_equal(x, switches(graph_stages(graph), [box], number, 0))
    linear = read_onnx(dense_model([[[1.0, 2.0]]], [[0.0]]).SerializeToString()).graph
    assert len(switches(graph_stages(linear), cube(2), number, 0)) == 0


def test_a_file_that_changes_meanwhile_is_refused() -> None:
    content = random_file(0, np.float32)
    with pytest.raises(InputError, match="model must stay the same while it is read"):
        require_agreement(content, "0" * 64, [], cube(1), "model.onnx")


# --- where it is asked -------------------------------------------------------------------------------------


def test_verify_refuses_a_network_that_it_would_read_wrong(tmp_path, monkeypatch) -> None:
    model = chain(tmp_path, (1.0, 0.0), (1.0, 0.0), kind="Tanh")
    claim = one_input(0, 2, {"range": {"maximum": 0.99}})
    assert verify(tmp_path, model, claim).verdict == "PROVED"
    monkeypatch.setitem(onnx_reader.KINDS, "Tanh", "sigmoid")
    with pytest.raises(InputError, match=r"network as read must .*chain.onnx\)$"):
        verify(tmp_path, model, claim)


def test_a_proof_about_a_network_that_the_checker_reads_wrong_is_refused(tmp_path, monkeypatch) -> None:
    model, proof = chain(tmp_path, (1.0, 0.0), (1.0, 0.0)), tmp_path / "proof.npz"
    claim = one_input(0, 2, {"range": {"maximum": 2.5}})
    assert verify(tmp_path, model, claim, certificate=proof).verdict == "PROVED"
    right = read_chain(model.read_bytes())
    monkeypatch.setattr(proof_file, "read_chain", lambda file, curves: replace(
        right, biases=(right.biases[0] - 0.25, right.biases[1])))
    with pytest.raises(InputError, match="network as read must"):
        proof_file.check_proof(proof, model, tmp_path / "claim.yaml")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Proof:
    return prove(tmp_path_factory.mktemp("agreement") / "b", monotone_network(3, (6, 5), [(0, 1)], seed=3),
                 task_with([monotone("pressure")]))


def off_by_a_hundredth(file: bytes, curves: bool) -> Chain:
    chain = read_chain(file, curves)
    return replace(chain, biases=(*chain.biases[:-1], chain.biases[-1] * 1.01 + 0.01))


def test_a_bundle_is_checked_against_onnxruntime(tmp_path, monkeypatch, bundle) -> None:
    accepted = bundle.check(tmp_path)
    assert accepted.accepted and accepted.leaves == bundle.leaves
    monkeypatch.setattr(proof_file, "read_chain", off_by_a_hundredth)
    refused = bundle.check(tmp_path)
    assert not refused.accepted and refused.reason.startswith("network as read must compute what onnxruntime")


@pytest.mark.parametrize("dtype", TYPES[1:], ids=lambda dtype: dtype.__name__)
def test_a_bundle_s_file_is_compared_in_the_type_that_it_computes_in(dtype: type) -> None:
    # weights that cancel to 1 / 1000: float32 loses what float64 between two Casts keeps
    weights = np.array([[1e3, 0, 0]] * 2, np.float32), np.array([[1e3, -999.0]], np.float32)
    network = ReluNetwork(weights, (np.zeros(2, np.float32), np.zeros(1, np.float32)))
    content = build_onnx(network, SCALING, "latency_ms", {}, dtype)
    box = [Box(*(np.array([side]) for side in (SCALING.features.minimum, SCALING.features.maximum)))]
    chain, read = read_chain(content), read_onnx(content)
    assert chain.executed == read.executed == dtype and chain.fed == read.number == np.float32

    def ask(weights: tuple[FloatArray, ...]) -> None:
        stages = chain_stages(weights, chain.biases, chain.kinds)
        require_agreement(content, hashlib.sha256(content).hexdigest(), stages, box, "model.onnx", chain.executed)

    ask(chain.weights)
    by = 1e-6 if dtype is np.float64 else 1e-1  # far below and above what float32 loses
    with pytest.raises(InputError, match="network as read must"):
        ask(tuple(weight * (1 + by) if weight.shape == (1, 2) else weight for weight in chain.weights))


def test_a_bundle_is_not_written_as_proved_where_onnxruntime_disagrees(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(proof_file, "read_chain", off_by_a_hundredth)
    with pytest.raises(AssertionError, match=r"UNKNOWN.*network as read must compute"):
        prove(tmp_path / "b", monotone_network(3, (6, 5), [(0, 1)], seed=3), task_with([monotone("pressure")]))
    assert not (tmp_path / "b" / "proof.npz").exists() and (tmp_path / "b" / "contract.json").exists()


def test_a_bundle_that_onnxruntime_does_not_take_is_refused(tmp_path, bundle) -> None:
    model = onnx.load_model_from_string(bundle.model)
    assert numpy_helper.to_array(model.graph.initializer[0]).dtype == np.float32
    model.ir_version = 99
    assert not bundle.with_graph(model).rehashed().check(tmp_path).accepted


def test_a_proof_is_checked_without_torch(tmp_path, bundle) -> None:
    bundle.write(tmp_path)
    program = ("import sys; from pathlib import Path\n"
               "from models.verification.proof_file import check_proof\n"
               "here = Path(sys.argv[1])\n"
               "result = check_proof(here / 'proof.npz', here / 'model.onnx', here / 'specification.yaml')\n"
               "print(result.accepted, 'torch' in sys.modules)")
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True,
                          check=True, cwd=Path(__file__).parents[4], timeout=120)
    assert done.stdout.split() == ["True", "False"]
