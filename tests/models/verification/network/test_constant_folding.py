"""Constants are what onnxruntime computes, or refused; and no file of constants takes long.

Oracle: onnxruntime with its default optimisations, the operands fed as inputs, so that another path of it computes.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

from feature_store.errors import InputError
from models.verification.network import constant_folding
from models.verification.network.constant_folding import FOLDED, MOST_WORK, ConstantFolder
from models.verification.network.onnx_reader import read_onnx
from tests.models.verification.network.test_onnx_reader import Arrays, build, integers, op, require_agreement
from tests.models.verification.test_decide import verify

Case = tuple[NodeProto, Arrays]
# Opsets at which some operator here changed its meaning or its attributes, and the newest of all.
OPSETS = (7, 8, 9, 10, 11, 12, 13, 15, 17, 18, 20, 22)
FLOATS = ("Abs", "Ceil", "Cos", "Erf", "Exp", "Floor", "HardSigmoid", "LeakyRelu", "Log", "Neg", "Reciprocal", "Relu",
          "Round", "Sigmoid", "Sign", "Sin", "Softplus", "Sqrt", "Tanh")
PAIRS = ("Add", "Div", "Max", "Mean", "Min", "Mod", "Mul", "Pow", "Sub", "Sum", "Equal", "Greater", "Less",
         "GreaterOrEqual", "LessOrEqual")
REDUCTIONS = ("ReduceL1", "ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum",
              "ReduceSumSquare", "ArgMax", "ArgMin")
TYPES = (np.float16, np.float32, np.float64, np.int32, np.int64)


def values(rng: np.random.Generator, *shape: int, kind: type = np.float32) -> np.ndarray:
    """Numbers of both signs, some of them whole, ties among them; integers are never 0."""
    drawn = np.where(rng.random(shape) < 0.3, rng.integers(-3, 4, size=shape), rng.normal(size=shape) * 3)
    if np.dtype(kind).kind == "i":
        drawn = np.where(np.abs(drawn) < 1, 5, drawn)
    return np.asarray(drawn, dtype=kind)


def random_case(rng: np.random.Generator, opset: int) -> Case:
    """A node of constants of a random kind with random attributes, in the form of its opset."""
    kind, number = str(rng.choice(sorted(FOLDED))), TYPES[rng.integers(len(TYPES))]
    shape = tuple(int(size) for size in rng.integers(1, 4, size=rng.integers(1, 4)))
    axis = int(rng.integers(-len(shape), len(shape)))
    x, like = values(rng, *shape, kind=number), values(rng, *shape[1:], kind=number)
    if kind in PAIRS:
        return op(kind, "x z", **({"fmod": 1} if kind == "Mod" and x.dtype.kind == "f" else {})), {"x": x, "z": like}
    if kind in ("And", "Or", "Xor"):
        return op(kind, "x z"), {"x": x > 0, "z": like > 0}
    if kind in ("Softmax", "LogSoftmax", "Hardmax"):
        return op(kind, "x", **({} if rng.random() < 0.3 else {"axis": axis})), {"x": x}
    if kind in REDUCTIONS:
        more: dict[str, Any] = {"keepdims": int(rng.integers(2))}
        if kind.startswith("Arg"):
            more |= {"axis": axis} | ({"select_last_index": 1} if opset >= 12 and rng.random() < 0.5 else {})
            return op(kind, "x", **more), {"x": x}
        if opset >= (13 if kind == "ReduceSum" else 18):
            return op(kind, "x a", **more), {"x": x, "a": integers(axis)}
        return op(kind, "x", axes=[axis], **more), {"x": x}
    match kind:
        case "Cast":
            return op(kind, "x", to=int(rng.choice([1, 6, 7, 9, 10, 11]))), {"x": x}
        case "CastLike" | "Where":
            return (op(kind, "x z"), {"x": x, "z": np.ones(1, TYPES[rng.integers(3)])}) if kind == "CastLike" else (
                op(kind, "c x z"), {"c": like > 0, "x": x, "z": like})
        case "Clip":
            return (op(kind, "x l"), {"x": x, "l": np.array(-1, number)}) if opset >= 11 else (
                op(kind, "x", min=-1.0, max=0.5), {"x": x})
        case "Concat":
            return op(kind, "x x", axis=axis), {"x": x}
        case "ConstantOfShape":
            return op(kind, "s", value=numpy_helper.from_array(values(rng, 1, kind=number))), {"s": integers(*shape)}
        case "CumSum":
            return op(kind, "x a", exclusive=int(rng.integers(2)), reverse=int(rng.integers(2))), {
                "x": x, "a": np.array(axis)}
        case "BatchNormalization":
            return op(kind, "x s s s v"), {"x": values(rng, 1, 3, 2), "s": values(rng, 3),
                                           "v": np.abs(values(rng, 3)) + 1}
        case "Dropout":
            return op(kind, "x"), {"x": x}
        case "Expand" | "Tile":
            times = integers(*rng.integers(1, 3, size=len(shape))) if kind == "Tile" else integers(2, *shape)
            return op(kind, "x s"), {"x": x, "s": times}
        case "EyeLike":
            return op(kind, "x", k=int(rng.integers(-1, 2))), {"x": values(rng, 3, 4, kind=number)}
        case "Flatten":
            return op(kind, "x", axis=abs(axis)), {"x": x}
        case "Gather":
            return op(kind, "x i", axis=axis), {"x": x, "i": rng.integers(-shape[axis], shape[axis], size=2)}
        case "Gemm":
            a, b = values(rng, 3, 2), values(rng, 4, 3)
            return op(kind, "a b c", transA=1, transB=1, alpha=0.5, beta=-2.0), {"a": a, "b": b, "c": values(rng, 1, 4)}
        case "MatMul":
            return op(kind, "a b"), {"a": values(rng, 2, 3, 2), "b": values(rng, 2, 3)}
        case "Pad":
            amounts, mode = rng.integers(0, 2, size=2 * len(shape)), str(rng.choice(["constant", "reflect", "edge"]))
            return (op(kind, "x p", mode=mode), {"x": x, "p": integers(*amounts)}) if opset >= 11 else (
                op(kind, "x", mode=mode, pads=amounts.tolist()), {"x": x})
        case "Range":
            return op(kind, "a b d"), {"a": np.array(3, number), "b": np.array(-4, number), "d": np.array(-2, number)}
        case "Reshape":
            return op(kind, "x s"), {"x": x, "s": integers(0, -1)}
        case "Slice":
            if opset < 10:
                return op(kind, "x", starts=[-1], ends=[2**31 - 1], axes=[axis % len(shape)]), {"x": x}
            return op(kind, "x b e a s"), {"x": x, "b": integers(-1), "e": integers(-2**31), "a": integers(axis),
                                           "s": integers(-1)}
        case "Split":
            return op(kind, "x", axis=axis, **({"num_outputs": 1} if opset >= 18 else {})), {"x": x}
        case "Squeeze" | "Unsqueeze":
            x = x[None] if kind == "Squeeze" else x
            return (op(kind, "x a"), {"x": x, "a": integers(0)}) if opset >= 13 else (op(kind, "x", axes=[0]), {"x": x})
        case "Trilu":
            return op(kind, "x k", upper=int(rng.integers(2))), {"x": values(rng, 3, 3, kind=number), "k": np.array(1)}
        case "Not":
            return op(kind, "x"), {"x": x > 0}
        case _:  # of one operand
            return op(kind, "x"), {"x": np.abs(x) if kind in ("Log", "Sqrt") else x}


def outputs_of_the_runtime(node: NodeProto, operands: Arrays, opset: int) -> list[np.ndarray]:
    """What a file of the node gives; raises what onnxruntime raises."""
    inputs = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
              for name, a in operands.items()]
    graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name=name) for name in node.output])
    model = onnx.shape_inference.infer_shapes(helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10))
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, operands)


def attack(seeds: range) -> tuple[set[str], int]:
    """The operators of the cases that were folded, each as onnxruntime computes it, and how many were refused."""
    folded, refused = set[str](), 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        opset = OPSETS[rng.integers(len(OPSETS))]
        node, drawn = random_case(rng, opset)
        operands = {name: np.asarray(array) for name, array in drawn.items()}
        with np.errstate(all="ignore"):
            try:
                found = ConstantFolder(opset).fold(node, operands)
            except InputError:
                refused += 1
                continue
        expected = outputs_of_the_runtime(node, operands, opset)
        folded.add(node.op_type)
        for ours, theirs in zip(found, expected, strict=True):
            assert ours.dtype == theirs.dtype and ours.shape == theirs.shape, (seed, node.op_type)
            np.testing.assert_array_equal(ours, theirs, err_msg=f"{seed} {node.op_type} {opset}")
    return folded, refused


def test_a_constant_is_what_onnxruntime_computes_or_refused() -> None:
    folded, refused = attack(range(600))
    assert len(folded) > 0.9 * len(FOLDED), FOLDED - folded
    assert refused < 220  # types and opsets that the operator does not have, and most of float16


def test_a_constant_is_what_onnxruntime_computes_or_refused_in_a_long_attack() -> None:
    folded, _ = attack(range(1000, 6000))
    assert folded == FOLDED


# --- files that once were proved to do the opposite of what they do ----------------------------------------

FOUR = {"features": ["a", "b", "c", "d"], "box": {name: [0, 1] for name in "abcd"},
        "properties": [{"monotone": {"features": ["a", "b", "c", "d"]}}]}
LINE = [op("Sub", "w half", "v"), op("Reshape", "v to", "u"), op("MatMul", "x u", "h"), op("Relu", "h", "p"),
        op("Neg", "h", "n"), op("Relu", "n", "q"), op("Sub", "p q")]
FALLING: dict[str, tuple[NodeProto, Arrays, int]] = {
    "softmax-11": (op("Softmax", "l", "w", axis=1), {"l": np.zeros((1, 1, 4)), "half": np.full(1, 0.5)}, 11),
    "softmax-12": (op("Softmax", "l", "w", axis=1), {"l": np.zeros((1, 1, 4)), "half": np.full(1, 0.5)}, 12),
    "hardmax-11": (op("Hardmax", "l", "w", axis=1), {"l": np.zeros((1, 1, 4)), "half": np.full(1, 0.3)}, 11),
}


@pytest.mark.parametrize("name", FALLING)
def test_what_falls_in_onnxruntime_is_refuted(tmp_path, name) -> None:
    node, constants, opset = FALLING[name]
    content = build([node, *LINE], {**constants, "to": integers(4, 1)}, (1, 4), opset=opset)
    require_agreement(content)
    (tmp_path / "m.onnx").write_bytes(content)
    assert verify(tmp_path, tmp_path / "m.onnx", FOUR).verdict == "REFUTED"


def body() -> onnx.GraphProto:
    sides = [helper.make_tensor_value_info(name, kind, []) for name, kind in (
        ("i", TensorProto.INT64), ("c", TensorProto.BOOL), ("a", TensorProto.FLOAT))]
    ends = [helper.make_tensor_value_info("c2", TensorProto.BOOL, []),
            helper.make_tensor_value_info("a2", TensorProto.FLOAT, [])]
    return helper.make_graph([op("Identity", "c", "c2"), op("Add", "a a", "a2")], "body", sides, ends)


def branch(name: str) -> onnx.GraphProto:
    return helper.make_graph([op("Identity", "half", name)], name, [], [helper.make_tensor_value_info(name, 1, [1])])


ONE = np.ones(1, np.float32)
REFUSED: dict[str, tuple[NodeProto, Arrays, str]] = {
    "loop": (op("Loop", "n t half", "w", body=body()), {"n": np.array(2**62), "t": np.array(True)}, "got Loop"),
    "if": (op("If", "t", "w", then_branch=branch("p"), else_branch=branch("q")), {"t": np.array(True)}, "got If"),
    "lstm": (op("LSTM", "l k r", "w", hidden_size=4, clip=0.01),
             {"l": np.ones((1, 1, 1)), "k": np.ones((1, 16, 1)), "r": np.zeros((1, 16, 4))}, "got LSTM"),
    "convolution": (op("Conv", "l k", "w"), {"l": np.zeros((1, 1, 300, 300)), "k": np.zeros((1, 1, 99, 99))}, "Conv"),
    "unique": (op("Unique", "l", "w", sorted=0), {"l": np.array([9.0, 3, 4, 1])}, "got Unique"),
    "gather-nd": (op("GatherND", "half i", "w"), {"i": integers(0).reshape(1, 1)}, "got GatherND"),
    "expansion": (op("Expand", "half s", "w"), {"s": integers(2**20, 2**20)}, "arrays must have at most"),
    "tiles": (op("Tile", "half s", "w"), {"s": integers(2**40)}, "arrays must have at most"),
    "padding": (op("Pad", "half s", "w"), {"s": integers(2**40, 0)}, "arrays must have at most"),
    "range": (op("Range", "a b c", "w"), {"a": np.array(0.0), "b": np.array(1e15), "c": np.array(1e-3)}, "at most"),
    "range-0": (op("Range", "a b c", "w"), {"a": np.array(0), "b": np.array(9), "c": np.array(0)}, "must fit"),
    "division-by-0": (op("Div", "a b", "w"), {"a": integers(1), "b": integers(0)}, "got a division by 0"),
    "division-of-itself": (op("Div", "b b", "w"), {"b": integers(0)}, "got a division by 0"),
    "division-beyond": (op("Mod", "a b", "w"), {"a": integers(-2**63), "b": integers(-1)}, "division of the smallest"),
    "mean-of-nothing": (op("ReduceMean", "a", "w"), {"a": np.zeros(0, np.int64)}, "must have a value to be reduced"),
    "size-by-data": (op("Expand", "half s", "w"), {"s": np.ones(2000, np.int64)}, "must be known before"),
    "two-values": (op("Constant", "", "w", value_floats=[1.0], value=numpy_helper.from_array(ONE)), {},
                   "Constant must have one attribute, got 2: value, value_floats"),
    "no-value": (op("Constant", "", "w"), {}, "got 0: none"),
    # onnxruntime makes of it and a product after it one of 8 bits
    "quantised": (op("DequantizeLinear", "l s", "w"), {"l": np.ones((4, 1), np.int8), "s": np.array(0.5, np.float32)},
                  "got DequantizeLinear"),
    "text": (op("Constant", "", "w", value_string="a"), {}, "must hold numbers as a dense tensor, got value_string"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_small_computation_of_numbers_is_refused_at_once(name: str) -> None:
    node, constants, message = REFUSED[name]
    began = time.monotonic()
    with pytest.raises(InputError, match=rf"{message}.*\(node 'w', {node.op_type}\)$"):
        read_onnx(build([node, op("Add", "x w")], {**constants, "half": ONE}, (1, 4), inferred=False))
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("kind", ["Mul", "ReduceSum", "Exp"])
def test_arithmetic_on_constants_of_float16_is_refused(kind: str) -> None:
    node = op(kind, "l l" if kind == "Mul" else "l", "w")
    content = build([node, op("Add", "x w")], {"l": np.ones((1, 1))}, (1, 1), dtype=np.float16, inferred=False)
    with pytest.raises(InputError, match=f"of float16 must be moved or converted alone, .*got {kind}"):
        read_onnx(content)
    moved = build([op("Transpose", "l", "w"), op("Add", "x w")], {"l": np.ones((1, 1))}, (1, 1), dtype=np.float16)
    assert read_onnx(moved).graph.value(np.ones((1, 1))) == 2.0


TOGETHER: dict[str, tuple[list[NodeProto], Arrays, int]] = {  # nodes, constants, values besides the nodes' own
    "values": ([op("Expand", "half s", f"w{k}") for k in range(9)], {"s": integers(10**4)}, 90_000),
    "products": ([op("Expand", "half s", "m"), op("MatMul", "m m", "w")], {"s": integers(200, 200)}, 500_000),
    "nodes": ([op("Identity", "half", f"w{k}") for k in range(5)], {}, 1),
}


@pytest.mark.parametrize("name", TOGETHER)
def test_all_constants_of_a_file_have_one_limit(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    nodes, constants, more = TOGETHER[name]
    content = build([*nodes, op("Add", "x half")], {**constants, "half": ONE}, (1, 4), inferred=False)
    read_onnx(content)
    monkeypatch.setattr(constant_folding, "MOST_WORK", len(nodes) * constant_folding.NODE + more)
    with pytest.raises(InputError, match="computing the constants must handle at most"):
        read_onnx(content)
    assert MOST_WORK // constant_folding.NODE < 10_000  # at about 1 ms each


# --- one meaning -------------------------------------------------------------------------------------------


def twice(change: Callable[[onnx.ModelProto], Any]) -> bytes:
    content = build([op("LeakyRelu", "x", "t", "bad", alpha=0.5), op("Add", "t w")], {"w": np.ones(4)}, (1, 4))
    model = onnx.load_model_from_string(content)
    change(model)
    return model.SerializeToString()


TWICE: dict[str, tuple[Callable[[onnx.ModelProto], Any], str]] = {
    "attribute": (lambda m: m.graph.node[0].attribute.append(helper.make_attribute("alpha", 0.1)),
                  r"attribute must be given once, got \['alpha', 'alpha'\] \(node 'bad', LeakyRelu\)"),
    "weights": (lambda m: m.graph.initializer.append(numpy_helper.from_array(np.zeros(4, np.float32), "w")),
                "name must be given to one value, got 'w' twice"),
    "opsets": (lambda m: m.opset_import.append(helper.make_opsetid("ai.onnx", 11)), r"in one version, got \[11, 17\]"),
    "shape": (lambda m: m.graph.output[0].type.tensor_type.shape.dim.add(dim_value=3), "must be a valid ONNX file"),
}


@pytest.mark.parametrize("name", TWICE)
def test_what_each_reader_would_take_in_its_own_way_is_refused(name: str) -> None:
    change, message = TWICE[name]
    with pytest.raises(InputError, match=message) as caught:
        read_onnx(twice(change))
    assert "\n" not in str(caught.value)
