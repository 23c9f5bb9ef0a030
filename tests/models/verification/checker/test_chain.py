"""The checker's own reader of ONNX chains: what it reads is what onnxruntime computes; all else is refused."""

from fractions import Fraction
from pathlib import Path
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
from models.verification.checker.rounding import chain_error
from models.verification.closed_loop.chain_builder import ChainBuilder
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
        elif kind in ("Add", "Mul", "Div"):
            if kind == "Div":
                row = np.copysign(0.1 + np.abs(row), row)
            if kind != "Add" and row.size == 1:  # a scalar must be one of float32
                row = np.copysign(np.exp2(np.round(np.log2(np.abs(row)))), row)
            add(kind, np.asarray(row), first=kind == "Div" or bool(rng.integers(2)))
        elif kind == "Sub":
            add(kind, np.asarray(row))
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
                           np.full((3, 1, 1), 0.5), kinds=chain.kinds)
    for box in range(3):
        points = points_inside(rng, lower[box], upper[box], 30)
        assert (value(chain, points) @ row + 0.5 >= margins[box, 0] - PARITY).all()
    output, feature = int(rng.integers(outputs)), int(rng.integers(inputs))
    one, sign = chain.row(output), int(rng.choice([-1, 1]))
    bounds = leaf_bounds(one.weights, one.biases, lower, upper, [(feature, sign)], kinds=one.kinds)
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
    assert chain.kinds == ("relu",) and [w.shape for w in chain.weights] == [(4, 3), (2, 4)]
    np.testing.assert_array_equal(chain.weights[0], weights[0].astype(np.float32))


ROW = np.ones(3)
REFUSED: dict[str, tuple[list[Any], dict[str, np.ndarray]]] = {
    "tanh": ([helper.make_node("Tanh", ["x"], ["y"])], {}),
    "constant over x": ([helper.make_node("Div", ["c", "x"], ["y"])], {"c": ROW}),
    "division by 0": ([helper.make_node("Div", ["x", "c"], ["y"])], {"c": np.array([1.0, 0.0, 2.0])}),
    "division by what may be flushed": ([helper.make_node("Div", ["x", "c"], ["y"])], {"c": 1e-310 * ROW}),
    "reciprocal that may be flushed": ([helper.make_node("Div", ["x", "c"], ["y"])], {"c": 1e308 * ROW}),
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


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_a_chain_is_refused(name: str) -> None:
    nodes, stored = REFUSED[name]
    model = model_of(nodes, stored, [1, 3])
    if name == "foreign domain":
        model.opset_import.append(helper.make_opsetid("elsewhere", 1))
    with pytest.raises(Rejected):
        read_chain(model.SerializeToString())


def divided(constant: np.ndarray) -> Chain:
    """v / c, and more layers of it than one, so that every kind of pass meets the reciprocals."""
    nodes = [helper.make_node("Div", ["x", "c"], ["a"]), helper.make_node("Relu", ["a"], ["b"]),
             helper.make_node("Div", ["b", "c"], ["d"]), helper.make_node("Relu", ["d"], ["e"]),
             helper.make_node("Div", ["e", "c"], ["y"])]
    return read_chain(model_of(nodes, {"c": constant}, [1, 3]).SerializeToString())


@attack
@given(seed=st.integers(0, 2**32 - 1))
def test_bounds_hold_for_the_exact_quotients_not_for_the_rounded_reciprocals_alone(seed: int) -> None:
    rng = np.random.default_rng(seed)
    constant, point = rng.uniform(0.1, 10, 3), rng.uniform(0.1, 10, 3)
    chain = divided(constant)
    assert not chain.exact and divided(np.array([0.25, 1.0, 8.0])).exact
    for row in (*np.eye(3), *-np.eye(3)):
        of_value = leaf_margins(chain.weights, chain.biases, point[None], point[None], row[None, None, None],
                                np.zeros((1, 1, 1)), kinds=chain.kinds)[0, 0]
        at = int(np.argmax(np.abs(row)))
        quotient = Fraction(point[at]) / Fraction(constant[at]) ** 3
        assert Fraction(of_value) <= int(row[at]) * quotient
        one = chain.row(at)
        of_slope = leaf_bounds(one.weights, one.biases, point[None], point[None], [(at, int(row[at]))],
                               kinds=one.kinds)[0, 0]
        assert Fraction(of_slope) <= int(row[at]) / Fraction(constant[at]) ** 3


def test_a_policy_that_divides_is_not_put_into_another_chain() -> None:
    with pytest.raises(InputError, match="policy must multiply by what its file holds"):
        ChainBuilder({"x": 3}).through(divided(3 * ROW), "x", "y", [])


@pytest.mark.parametrize("optimised", [False, True])
def test_execution_of_quotients_stays_within_its_bound(optimised: bool) -> None:
    rng = np.random.default_rng(0)
    constant = rng.uniform(0.1, 10, 3).astype(np.float32)
    nodes = [helper.make_node("Div", ["x", "c"], ["a"]), helper.make_node("Add", ["a", "b"], ["y"])]
    bias = rng.normal(size=3).astype(np.float32)
    model = model_of(nodes, {"c": constant, "b": bias}, [1, 3])
    for side in (*model.graph.input, *model.graph.output):
        side.type.tensor_type.elem_type = TensorProto.FLOAT
    chain = read_chain(model.SerializeToString())
    error = chain_error(chain, np.full(3, -5.0), np.full(3, 5.0))
    options = onnxruntime.SessionOptions()
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    x = rng.uniform(-5, 5, (200, 3)).astype(np.float32)
    executed = np.concatenate([session.run(None, {"x": row[None]})[0] for row in x]).astype(np.float64)
    exact = x.astype(np.float64) / constant.astype(np.float64) + bias.astype(np.float64)
    off = np.abs(executed - exact).max(axis=0)
    assert (off > 0).all() and (off <= error).all() and (error <= 100 * off).all()


@pytest.mark.parametrize("constant", [1e-40, 2e38])
def test_a_divisor_that_float32_may_flush_is_refused_though_float64_holds_its_inverse(constant: float) -> None:
    stored = {"c": np.full(3, constant, dtype=np.float32)}
    model = model_of([helper.make_node("Div", ["x", "c"], ["y"])], stored, [1, 3])
    for side in (*model.graph.input, *model.graph.output):
        side.type.tensor_type.elem_type = TensorProto.FLOAT
    with pytest.raises(Rejected, match="divisors must be normal numbers of float32"):
        read_chain(model.SerializeToString())


@pytest.mark.parametrize("written", [{"value_float": 0.5}, {"value_floats": [0.5, -2.0, 3.0]},
                                   {"value": numpy_helper.from_array(np.array([4.0], np.float32))}],
                         ids=lambda written: next(iter(written)))
def test_a_constant_is_read_by_the_name_of_its_attribute(written: dict[str, Any]) -> None:
    nodes = [helper.make_node("Constant", [], ["c"], **written),
             helper.make_node("Constant", [], ["s"], value_ints=[1, 3]),
             helper.make_node("Add", ["x", "c"], ["y"]), helper.make_node("Reshape", ["y", "s"], ["z"])]
    sides = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 3])] for name in ("x", "z")]
    model = helper.make_model(helper.make_graph(nodes, "chain", *sides), opset_imports=[helper.make_opsetid("", 17)],
                              ir_version=8)
    x = np.array([[1.0, 2.0, 3.0]], np.float32)
    (runtime,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    np.testing.assert_array_equal(value(read_chain(model.SerializeToString()), x), runtime)


def test_a_constant_that_holds_no_numbers_is_refused() -> None:
    nodes = [helper.make_node("Constant", [], ["c"], "text", value_string="a"),
             helper.make_node("Add", ["x", "c"], ["y"])]
    with pytest.raises(Rejected, match=r"hold numbers as one dense tensor, got value_string \(node 'text'\)"):
        read_chain(model_of(nodes, {}, [1, 3]).SerializeToString())


@pytest.mark.parametrize("constant", [True, False])
def test_weights_in_another_file_are_refused(constant: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where the file would be looked for
    (tmp_path / "w.bin").write_bytes(np.full(3, -5.0, dtype=np.float32).tobytes())
    tensor = TensorProto(name="c", data_type=TensorProto.FLOAT, dims=[3], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="w.bin")
    nodes = [helper.make_node("Add", ["x", "c"], ["y"])]
    model = model_of([helper.make_node("Constant", [], ["c"], value=tensor), *nodes] if constant else nodes, {}, [1, 3])
    if not constant:
        model.graph.initializer.append(tensor)
    with pytest.raises(Rejected, match="in the file itself"):
        read_chain(model.SerializeToString())


def test_more_than_one_row_is_refused() -> None:
    model = model_of([helper.make_node("MatMul", ["x", "c"], ["y"])], {"c": np.ones((3, 2))}, [2, 3])
    with pytest.raises(Rejected, match="one example must be one row"):
        read_chain(model.SerializeToString())


def test_a_refusal_names_the_node() -> None:
    model = model_of([helper.make_node("Tanh", ["x"], ["y"], name="squash")], {}, [1, 3])
    with pytest.raises(Rejected, match="'squash', Tanh"):
        read_chain(model.SerializeToString())
