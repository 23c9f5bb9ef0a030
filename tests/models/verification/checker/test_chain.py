"""The checker's own reader of ONNX chains: what it reads is what onnxruntime computes; all else is refused."""

from fractions import Fraction
from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper, numpy_helper

from feature_store.errors import InputError
from models.verification.checker.archive import Rejected
from models.verification.checker.chain import Chain, read_chain
from models.verification.checker.check import leaf_bounds, leaf_margins
from models.verification.closed_loop.document_check import policy_digest
from tests.models.verification.networks import points_inside
from tests.models.verification.onnx_files import dense_model

attack = settings(max_examples=60, deadline=None)
# float64 runs of at most a few hundred terms of size 10
PARITY = 1e-9


def value(chain: Chain, x: np.ndarray) -> np.ndarray:
    v = x
    for k, (weight, bias) in enumerate(zip(chain.weights, chain.biases, strict=True)):
        v = v @ weight.T + bias
        if k < len(chain.relus) and chain.relus[k]:
            v = np.maximum(v, 0)
    return v


def model_of(nodes: list[Any], stored: dict[str, np.ndarray], shape: list[Any], rank: int = 2) -> ModelProto:
    """A graph from "x" of this shape to the last node's output of this rank."""
    sides = ([helper.make_tensor_value_info("x", TensorProto.DOUBLE, shape)],
             [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.DOUBLE, [None] * rank)])
    graph = helper.make_graph(nodes, "chain", *sides, [numpy_helper.from_array(a, n) for n, a in stored.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def random_chain(rng: np.random.Generator) -> tuple[ModelProto, int]:
    """A random chain in float64 of the operators that can be read; and its number of inputs."""
    size = inputs = int(rng.integers(1, 6))
    shape: list[Any] = [["n", size], [1, size], [1, 1, 1, size], [1, 1, size]][rng.integers(4)]
    nodes: list[Any] = []
    stored: dict[str, np.ndarray] = {}
    here, rank = "x", len(shape)

    def add(kind: str, *constants: np.ndarray, first: bool = True, **attributes: Any) -> None:
        nonlocal here
        names = [f"c{len(stored) + k}" for k in range(len(constants))]
        stored.update(zip(names, constants, strict=True))
        operands = [here, *names] if first else [*names, here]
        here = f"v{len(nodes)}"
        nodes.append(helper.make_node(kind, operands, [here], **attributes))

    for _ in range(rng.integers(1, 8)):
        kind = rng.choice(["Relu", "Flatten", "Identity", "Gemm", "MatMul", "Add", "Sub", "Mul", "Div"])
        row = rng.normal(size=[(size,), (1, size), (1,), ()][rng.integers(4)])
        if kind in ("Relu", "Identity"):
            add(kind)
        elif kind == "Flatten":
            add(kind)
            rank = 2
        elif kind in ("Add", "Mul"):
            if kind == "Mul" and row.size == 1:  # a scalar must be one of float32
                row = np.copysign(np.exp2(np.round(np.log2(np.abs(row)))), row)
            add(kind, np.asarray(row), first=bool(rng.integers(2)))
        elif kind == "Sub":
            add(kind, np.asarray(row))
        elif kind == "Div":
            sizes = np.copysign(np.maximum(np.abs(row), 0.25), row)
            add(kind, np.asarray(np.copysign(np.exp2(np.round(np.log2(np.abs(row)))), row) if row.size == 1 else sizes))
        else:
            after = int(rng.integers(1, 6))
            weight = rng.normal(size=(size, after))
            if kind == "MatMul" or rank != 2:
                add("MatMul", weight)
            else:
                turned = int(rng.integers(2))
                bias = [rng.normal(size=s) for s in [(after,), (1, after), (1,)]][rng.integers(3)]
                add("Gemm", weight.T if turned else weight, *[bias][: rng.integers(2)], transB=turned)
            size = after
    add("Identity")
    return model_of(nodes, stored, shape, rank), inputs


def runtime(model: ModelProto, x: np.ndarray) -> np.ndarray:
    options = onnxruntime.SessionOptions()  # optimised, it folds constants of float64 in float32
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    (entry,) = session.get_inputs()
    shape = [d if isinstance(d, int) else 1 for d in entry.shape]
    return np.stack([session.run(None, {"x": row.reshape(shape)})[0].reshape(-1) for row in x])


@attack
@given(seed=st.integers(0, 2**32 - 1))
def test_what_is_read_is_what_onnxruntime_computes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    model, inputs = random_chain(rng)
    chain, x = read_chain(model.SerializeToString()), rng.normal(size=(5, inputs))
    assert len(chain.relus) == len(chain.weights) - 1
    np.testing.assert_allclose(value(chain, x), runtime(model, x), atol=PARITY, rtol=PARITY)


@attack
@given(seed=st.integers(0, 2**32 - 1))
def test_bounds_over_a_chain_hold_with_layers_that_have_no_relu(seed: int) -> None:
    rng = np.random.default_rng(seed)
    chain = read_chain(random_chain(rng)[0].SerializeToString())
    inputs, outputs = chain.weights[0].shape[1], len(chain.weights[-1])
    lower = rng.normal(size=(3, inputs))
    upper = lower + rng.random((3, inputs)) * rng.choice([1e-3, 0.3, 2.0])
    row = rng.normal(size=outputs)
    margins = leaf_margins(chain.weights, chain.biases, lower, upper, np.tile(row, (3, 1, 1, 1)),
                           np.full((3, 1, 1), 0.5), relus=chain.relus)
    for box in range(3):
        points = points_inside(rng, lower[box], upper[box], 30)
        assert (value(chain, points) @ row + 0.5 >= margins[box, 0] - PARITY).all()
    output, feature = int(rng.integers(outputs)), int(rng.integers(inputs))
    one, sign = chain.row(output), int(rng.choice([-1, 1]))
    bounds = leaf_bounds(one.weights, one.biases, lower, upper, [(feature, sign)], relus=one.relus)
    for box in range(3):  # a difference quotient is a mean of derivatives
        points = points_inside(rng, lower[box], upper[box], 30)
        low, high = points.copy(), points.copy()
        low[:, feature], high[:, feature] = lower[box, feature], upper[box, feature]
        rise = sign * (value(one, high) - value(one, low))[:, 0]
        assert (rise >= bounds[box, 0] * (high - low)[:, feature] - PARITY).all()


@attack
@given(seed=st.integers(0, 2**32 - 1))
def test_a_step_is_the_difference_of_two_values_of_a_feature(seed: int) -> None:
    rng = np.random.default_rng(seed)
    chain = read_chain(random_chain(rng)[0].SerializeToString())
    inputs, output = chain.weights[0].shape[1], int(rng.integers(len(chain.weights[-1])))
    feature = int(rng.integers(inputs))
    x = rng.normal(size=(5, inputs))
    low, high = x.copy(), x.copy()
    low[:, feature], high[:, feature] = -0.25, 1.5
    step = chain.step(feature, output, -0.25, 1.5)
    expected = value(chain, high)[:, output] - value(chain, low)[:, output]
    np.testing.assert_allclose(value(step, x)[:, 0], expected, atol=PARITY)


def test_a_dense_network_is_read_layer_by_layer() -> None:
    rng = np.random.default_rng(0)
    weights, biases = [rng.normal(size=(4, 3)), rng.normal(size=(2, 4))], [rng.normal(size=4), rng.normal(size=2)]
    chain = read_chain(dense_model(weights, biases).SerializeToString())
    assert chain.relus == (True,) and [w.shape for w in chain.weights] == [(4, 3), (2, 4)]
    np.testing.assert_array_equal(chain.weights[0], weights[0].astype(np.float32))


ROW = np.ones(3)
REFUSED: dict[str, tuple[list[Any], dict[str, np.ndarray]]] = {
    "tanh": ([helper.make_node("Tanh", ["x"], ["y"])], {}),
    "divided": ([helper.make_node("Div", ["c", "x"], ["y"])], {"c": 3 * ROW}),
    "by zero": ([helper.make_node("Div", ["x", "c"], ["y"])], {"c": np.array([1.0, 0.0, 2.0])}),
    "by next to nothing": ([helper.make_node("Div", ["x", "c"], ["y"])], {"c": np.array([1.0, 1e-45, 2.0]) * 1e-300}),
    "constant minus x": ([helper.make_node("Sub", ["c", "x"], ["y"])], {"c": ROW}),
    "x twice": ([helper.make_node("Add", ["x", "x"], ["y"])], {}),
    "skip": ([helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Add", ["a", "x"], ["y"])], {}),
    "dead end": ([helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Relu", ["x"], ["y"])], {}),
    "broadcast": ([helper.make_node("Add", ["x", "c"], ["y"])], {"c": np.ones((2, 3))}),
    "alpha": ([helper.make_node("Gemm", ["x", "c"], ["y"], alpha=0.5)], {"c": np.ones((3, 2))}),
    "transposed x": ([helper.make_node("Gemm", ["x", "c"], ["y"], transA=1)], {"c": np.ones((1, 2))}),
    "weight first": ([helper.make_node("MatMul", ["c", "x"], ["y"])], {"c": np.ones((2, 1))}),
    "infinite": ([helper.make_node("Add", ["x", "c"], ["y"])], {"c": np.array([1.0, np.inf, 0.0])}),
    "sizes": ([helper.make_node("MatMul", ["x", "c"], ["y"])], {"c": np.ones((4, 2))}),
    "axis": ([helper.make_node("Flatten", ["x"], ["y"], axis=0)], {}),
    "foreign domain": ([helper.make_node("Relu", ["x"], ["y"], domain="elsewhere")], {})}


@pytest.mark.parametrize(("divisor", "exact"), [(np.array([1.0, -0.5, 4.0]), True), (np.array([1.0, 3.0, 4.0]), False)])
def test_a_division_is_a_product_with_the_inverse_whose_rounding_is_known(divisor: np.ndarray, exact: bool) -> None:
    model = model_of([helper.make_node("Div", ["x", "c"], ["y"])], {"c": divisor}, [1, 3])
    chain = read_chain(model.SerializeToString())
    assert chain.exact is exact
    for weight, c in zip(np.diag(chain.weights[0]), divisor, strict=True):
        assert abs(Fraction(weight) * Fraction(c) - 1) <= Fraction(2) ** -53
    if exact:
        assert policy_digest(chain)
    else:
        with pytest.raises(InputError, match="policy must have the file's own weights, got a division"):
            policy_digest(chain)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_a_chain_is_refused(name: str) -> None:
    nodes, stored = REFUSED[name]
    model = model_of(nodes, stored, [1, 3])
    if name == "foreign domain":
        model.opset_import.append(helper.make_opsetid("elsewhere", 1))
    with pytest.raises(Rejected):
        read_chain(model.SerializeToString())


def test_more_than_one_row_is_refused() -> None:
    model = model_of([helper.make_node("MatMul", ["x", "c"], ["y"])], {"c": np.ones((3, 2))}, [2, 3])
    with pytest.raises(Rejected, match="one example must be one row"):
        read_chain(model.SerializeToString())


def test_a_refusal_names_the_node() -> None:
    model = model_of([helper.make_node("Tanh", ["x"], ["y"], name="squash")], {}, [1, 3])
    with pytest.raises(Rejected, match="'squash', Tanh"):
        read_chain(model.SerializeToString())
