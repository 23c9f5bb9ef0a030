"""Networks of any author mean in normal form what onnxruntime computes, and stored weights are as exact as stated.

Oracles: onnxruntime for values; the file's own nodes in rational arithmetic for the affine maps.
"""

import gzip
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import NodeProto, TensorProto, helper, numpy_helper
from torch import nn

from feature_store.errors import InputError
from feature_store.scaling import FeatureScaling, MinMaxScaling
from models.export.onnx_model import build_onnx
from models.verification.checker.time_limit import time_limit
from models.verification.decide import decide
from models.verification.network import affine_expression
from models.verification.network.graph import Affine
from models.verification.network.onnx_reader import KINDS, OnnxNetwork, read_onnx
from models.verification.proof_file import check_proof
from tests.models.verification.networks import random_network

DATA = Path(os.environ.get("ASSAY_DATA", Path(__file__).parents[5] / "shared" / "data"), "vnnlib")
PUBLIC = [*sorted(DATA.glob("acasxu/*.onnx"))[::9], *sorted(DATA.glob("lindex/*.onnx"))]
# relative to the largest value on the way: execution in the type itself, a few hundred roundings
TOLERANCE = {np.float16: 1e-2, np.float32: 1e-5, np.float64: 1e-12}
# stored weights of a few composed maps: a bound that were not small would prove nothing
SHARP = 1e-12
few = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
RNG = np.random.default_rng(7)

Arrays = dict[str, np.ndarray]
Case = tuple[list[NodeProto], Arrays, tuple[int | str, ...]]


def op(kind: str, operands: str, outputs: str = "y", name: str = "", **attributes: Any) -> NodeProto:
    """A node; operands and outputs are separated by spaces, "-" is one that is left out."""
    names = [[name.replace("-", "") for name in text.split()] for text in (operands, outputs)]
    return helper.make_node(kind, *names, name or None, **attributes)


def build(nodes: Sequence[NodeProto], constants: Arrays, shape: Sequence[int | str | None], *, opset: int = 17,
          dtype: type = np.float32, listed: bool = False, ir: int = 8, inferred: bool = True) -> bytes:
    """A file with input x and output y.

    Float constants become `dtype`; listed: weights are also graph inputs; inferred: the output's shape is, so that it
    has to fit.
    """
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    stored = [numpy_helper.from_array(a.astype(dtype) if a.dtype.kind == "f" else a, k) for k, a in constants.items()]
    inputs = [helper.make_tensor_value_info("x", kind, shape)]
    if listed:
        inputs += [helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in stored]
    output = helper.make_tensor_value_info("y", kind, None if inferred else ["p", "q"])
    model = helper.make_model(helper.make_graph(nodes, "g", inputs, [output], stored),
                              opset_imports=[helper.make_opsetid("", opset)], ir_version=ir)
    if inferred:
        model = onnx.shape_inference.infer_shapes(model, data_prop=True)
    if not model.graph.output[0].type.tensor_type.HasField("shape"):
        model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", kind, ["p", "q"]))
    return model.SerializeToString()


def runtime(content: bytes) -> Callable[[np.ndarray], np.ndarray]:
    """onnxruntime on one example: (n,) -> (o,)."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    # 1.31.1 fuses a float64 Mul into MatMul by a float32 factor, and MatMul, Reshape, BatchNormalization wrongly
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    network = read_onnx(content)

    def run(x: np.ndarray) -> np.ndarray:
        (y,) = session.run([network.output_name], {network.input_name: x.reshape(network.input_shape)})
        return y.ravel()

    return run


def require_agreement(content: bytes, dtype: type = np.float32, scale: float = 1.0) -> OnnxNetwork:
    """Asserts that the normal form and onnxruntime compute the same on random inputs."""
    network, run = read_onnx(content), runtime(content)
    x = (np.random.default_rng(1).normal(size=(6, network.graph.inputs)) * scale).astype(dtype)
    expected = np.array([run(row) for row in x], dtype=np.float64)
    found = network.graph.value(x)
    assert found.shape == expected.shape
    assert np.abs(expected).max() > 0  # or the test would say nothing
    assert np.abs(found - expected).max() <= TOLERANCE[dtype] * max(1.0, np.abs(expected).max())
    return network


def errors(network: OnnxNetwork) -> list[np.ndarray]:
    return [e for affine in network.graph.affines
            for e in (*affine.error.values(), affine.offset_error) if e is not None]


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape)


def integers(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


# name -> nodes, constants, shape of x; the name's number is the opset, 17 without one
OPERATORS: dict[str, Case] = {
    "gemm": ([op("Gemm", "x w b")], {"w": normal(4, 3), "b": normal(3)}, ("batch", 4)),
    "gemm-no-bias": ([op("Gemm", "x w")], {"w": normal(4, 3)}, (1, 4)),
    "gemm-transB": ([op("Gemm", "x w b", transB=1)], {"w": normal(3, 4), "b": normal(1, 3)}, ("batch", 4)),
    "gemm-alpha-beta": ([op("Gemm", "x w b", alpha=0.7, beta=-1.3)], {"w": normal(4, 3), "b": normal(3)}, (1, 4)),
    "gemm-beta-0": ([op("Gemm", "x w b", beta=0.0)], {"w": normal(4, 3), "b": normal(3)}, (1, 4)),
    "gemm-transA": ([op("Gemm", "x w b", transA=1)], {"w": normal(2, 5), "b": normal(3, 1)}, (2, 3)),
    "gemm-right": ([op("Gemm", "w x b", transA=1, transB=1)], {"w": normal(2, 5), "b": normal(5, 1)}, (3, 2)),
    "gemm-scalar-bias": ([op("Gemm", "x w b")], {"w": normal(4, 3), "b": normal()[()] * np.ones(())}, (1, 4)),
    "gemm-variable-bias": ([op("Gemm", "w v x", alpha=0.3)], {"w": normal(2, 4), "v": normal(4, 3)}, (1, 3)),
    "gemm-two-variables": ([op("Gemm", "x w x", beta=0.5)], {"w": normal(3, 3)}, ("batch", 3)),
    "matmul-right": ([op("MatMul", "x w")], {"w": normal(4, 3)}, ("batch", 4)),
    "matmul-left": ([op("MatMul", "w x")], {"w": normal(3, 4)}, (4, 2)),
    "matmul-rows": ([op("MatMul", "x w")], {"w": normal(4, 3)}, (1, 2, 4)),
    "matmul-batches-right": ([op("MatMul", "x w")], {"w": normal(2, 4, 3)}, (1, 5, 4)),
    "matmul-batches-left": ([op("MatMul", "w x")], {"w": normal(2, 1, 3, 4)}, (3, 4, 2)),
    "matmul-vector": ([op("MatMul", "x w")], {"w": normal(4)}, ("batch", 4)),
    "matmul-of-a-vector": ([op("MatMul", "x w")], {"w": normal(4, 3)}, (4,)),
    "matmul-on-a-vector": ([op("MatMul", "w x")], {"w": normal(2, 3, 4)}, (4,)),
    "matmul-vectors": ([op("MatMul", "w x")], {"w": normal(4)}, (4,)),
    "add": ([op("Add", "x b")], {"b": normal(4)}, ("batch", 4)),
    "add-left": ([op("Add", "b x")], {"b": normal(4)}, ("batch", 4)),
    "add-widening": ([op("Add", "x b")], {"b": normal(3, 4)}, ("batch", 4)),
    "add-column": ([op("Add", "x b")], {"b": normal(3, 1)}, (1, 3, 4)),
    "add-itself": ([op("Add", "x x")], {}, ("batch", 3)),
    "add-crosswise": ([op("Transpose", "x", "t"), op("Add", "x t")], {}, (3, 3)),
    "sub": ([op("Sub", "x b")], {"b": normal(4)}, ("batch", 4)),
    "sub-from-constant": ([op("Sub", "b x")], {"b": normal(4)}, ("batch", 4)),
    "sub-variables": ([op("Mul", "x b", "t"), op("Sub", "t x")], {"b": normal(4)}, ("batch", 4)),
    "neg": ([op("Neg", "x")], {}, ("batch", 4)),
    "mul": ([op("Mul", "x b")], {"b": normal(4)}, ("batch", 4)),
    "mul-left": ([op("Mul", "b x")], {"b": normal(2, 1)}, (2, 4)),
    "mul-scalar": ([op("Mul", "x b")], {"b": np.ones(()) * 0.375}, ("batch", 4)),
    "div": ([op("Div", "x b")], {"b": 1 + normal(4) ** 2}, ("batch", 4)),
    "relu": ([op("Relu", "x")], {}, ("batch", 4)),
    "relu-twice": ([op("Relu", "x", "t"), op("Relu", "t")], {}, ("batch", 4)),
    "clip": ([op("Clip", "x lo hi")], {"lo": np.full((), -0.25), "hi": np.full((), 0.5)}, ("batch", 4)),
    "clip-below": ([op("Clip", "x lo")], {"lo": np.full((), -0.25)}, ("batch", 4)),
    "clip-above": ([op("Clip", "x - hi")], {"hi": np.full((), 0.5)}, ("batch", 4)),
    "clip-crossed": ([op("Clip", "x lo hi")], {"lo": np.full((), 0.5), "hi": np.full((), -0.25)}, ("batch", 4)),
    "leaky-relu": ([op("LeakyRelu", "x")], {}, ("batch", 4)),
    "leaky-relu-alpha": ([op("LeakyRelu", "x", alpha=0.3)], {}, ("batch", 4)),
    "tanh": ([op("Tanh", "x")], {}, ("batch", 4)),
    "sigmoid": ([op("Sigmoid", "x")], {}, ("batch", 4)),
    "concat": ([op("Tanh", "x", "t"), op("Concat", "t x b", axis=-1)], {"b": normal(1, 2)}, ("batch", 4)),
    "concat-rows": ([op("Concat", "x x b", axis=0)], {"b": normal(3, 4)}, (2, 4)),
    "split-equal": ([op("Split", "x", "p q", axis=1), op("Sub", "q p")], {}, ("batch", 4)),
    "split-sizes": ([op("Split", "x s", "p q", axis=-1), op("Concat", "q p", axis=1)], {"s": integers(1, 3)}, (1, 4)),
    "split-sizes-11": ([op("Split", "x", "p q", split=[1, 3], axis=1), op("Concat", "q p", axis=1)], {}, (1, 4)),
    "split-number-18": ([op("Split", "x", "p q r", axis=1, num_outputs=3), op("Concat", "q r p", axis=1)], {}, (1, 5)),
    "slice": ([op("Slice", "x a e")], {"a": integers(0, 1), "e": integers(9, -1)}, (1, 5)),
    "slice-axes-steps": ([op("Slice", "x a e i s")],
                         {"a": integers(0, -1), "e": integers(2, 0), "i": integers(2, 1), "s": integers(1, -2)},
                         (1, 5, 3)),
    "slice-backwards": ([op("Slice", "x a e i s")],
                        {"a": integers(2**63 - 1), "e": integers(-2**63), "i": integers(-1), "s": integers(-1)},
                        (1, 5)),
    "slice-steps-alone": ([op("Slice", "x a e - s")],
                          {"a": integers(0, 4), "e": integers(1, 0), "s": integers(1, -3)}, (1, 5)),
    "slice-9": ([op("Slice", "x", starts=[1], ends=[-1], axes=[1])], {}, (1, 5)),
    "gather": ([op("Gather", "x i", axis=1)], {"i": integers(2, 0, -1, 2)}, ("batch", 4)),
    "gather-one": ([op("Gather", "x i", axis=1)], {"i": np.array(2)}, (1, 4, 3)),
    "gather-table": ([op("Gather", "x i")], {"i": integers(1, 0, 3, 3).reshape(2, 2)}, (4,)),
    "reshape": ([op("Reshape", "x s", "t"), op("MatMul", "t w")], {"s": integers(0, -1, 2), "w": normal(2, 3)}, (1, 6)),
    "flatten": ([op("Flatten", "x", "t"), op("MatMul", "t w")], {"w": normal(6, 3)}, ("batch", 1, 2, 3)),
    "flatten-axis": ([op("Flatten", "x", "t", axis=-1), op("MatMul", "t w")], {"w": normal(3, 2)}, (1, 2, 3)),
    "squeeze": ([op("Squeeze", "x i", "t"), op("MatMul", "t w")], {"i": integers(1), "w": normal(3, 2)}, (1, 1, 3)),
    "squeeze-all": ([op("Squeeze", "x", "t"), op("MatMul", "t w")], {"w": normal(3, 2)}, (1, 1, 3)),
    "squeeze-11": ([op("Squeeze", "x", "t", axes=[1]), op("MatMul", "t w")], {"w": normal(3, 2)}, (1, 1, 3)),
    "unsqueeze": ([op("Unsqueeze", "x i", "t"), op("MatMul", "t w")], {"i": integers(-1, 0), "w": normal(1, 2)},
                  (1, 3)),
    "unsqueeze-11": ([op("Unsqueeze", "x", "t", axes=[2]), op("MatMul", "t w")], {"w": normal(1, 2)}, (1, 3)),
    "transpose": ([op("Transpose", "x", "t", perm=[0, 2, 1]), op("MatMul", "t w")], {"w": normal(2, 2)}, (1, 2, 3)),
    "transpose-reversed": ([op("Transpose", "x", "t"), op("MatMul", "t w")], {"w": normal(2, 2)}, (2, 3)),
    "identity": ([op("Identity", "x")], {}, ("batch", 3)),
    "dropout": ([op("Dropout", "x r f", "y m")], {"r": np.ones(()) * 0.5, "f": np.array(False)}, ("batch", 3)),
    "dropout-11": ([op("Dropout", "x", ratio=0.5)], {}, ("batch", 3)),
    "batch-normalization": ([op("BatchNormalization", "x s b m v", epsilon=0.01)],
                            {"s": normal(3), "b": normal(3), "m": normal(3), "v": normal(3) ** 2}, ("batch", 3, 2)),
    "batch-normalization-rows": ([op("BatchNormalization", "x s b m v")],
                                 {"s": normal(3), "b": normal(3), "m": normal(3), "v": 1 + normal(3) ** 2}, (1, 3)),
    "shape-view": ([op("Shape", "x", "s"), op("Gather", "s zero", "n"), op("Unsqueeze", "n axis", "u"),
                    op("Concat", "u rest", "to", axis=0), op("Reshape", "x to")],
                   {"zero": np.array(0), "axis": integers(0), "rest": integers(-1)}, ("batch", 2, 3)),
    "shape-part": ([op("Shape", "x", "s", start=1), op("Reshape", "x s")], {}, (1, 2, 3)),
    "constants": ([op("Constant", "", "two", value_floats=[2.0, 3.0]), op("Sqrt", "two", "root"),
                   op("CastLike", "root w", "cast"), op("Transpose", "w", "t"), op("Mul", "t cast", "u"),
                   op("MatMul", "x u")], {"w": normal(2, 3)}, ("batch", 3)),
    "constant-of-shape": ([op("ConstantOfShape", "s", "o", value=helper.make_tensor("v", 1, [1], [0.5])),
                           op("CastLike", "o w", "c"), op("Add", "x c")],
                          {"s": integers(1, 3), "w": normal(1)}, ("batch", 3)),
    "constant-cast": ([op("Cast", "i", "c", to=TensorProto.DOUBLE), op("CastLike", "c w", "d"), op("Add", "x d")],
                      {"i": integers(1, -2, 3), "w": normal(1)}, ("batch", 3)),
    "sum-of-paths": ([op("Gemm", "x w b", "g"), op("Relu", "g", "r"), op("Add", "r x", "s"), op("Gemm", "s w b", "h"),
                      op("Sub", "h r", "d"), op("Tanh", "d", "t"), op("Concat", "t x r", "c", axis=1),
                      op("Slice", "c a e i", "cut"), op("Gemm", "cut v")],
                     {"w": normal(3, 3), "b": normal(3), "a": integers(2), "e": integers(8), "i": integers(1),
                      "v": normal(6, 2)}, ("batch", 3)),
    "two-branches": ([op("Split", "x", "p q", axis=1), op("Sigmoid", "p", "s"), op("LeakyRelu", "q", "r", alpha=0.25),
                      op("Mul", "s f", "m"), op("Add", "m r", "a"), op("Relu", "a", "z"), op("Neg", "z", "n"),
                      op("Concat", "n x", axis=1)], {"f": normal(2)}, ("batch", 4)),
}


def behind(what: str, case: Case) -> Case:
    """The case's nodes on x, on a dense affine map of x, or on a layer of neurons."""
    nodes, constants, shape = case
    sizes = [size if isinstance(size, int) else 1 for size in shape]
    n = int(np.prod(sizes))
    if what == "input":
        return case
    renamed = []
    for node in nodes:
        copy = NodeProto()
        copy.CopyFrom(node)
        copy.input[:] = ["inner" if name == "x" else name for name in node.input]
        renamed.append(copy)
    mixed = [op("Reshape", "x in_row", "in_a"), op("MatMul", "in_a in_w", "in_b"), op("Add", "in_b in_c", "in_d"),
             op("Tanh" if what == "layer" else "Identity", "in_d", "in_e"), op("Reshape", "in_e in_back", "inner")]
    rng = np.random.default_rng(n)
    return mixed + renamed, constants | {
        "in_row": integers(1, n), "in_back": integers(*sizes), "in_w": rng.normal(size=(n, n)),
        "in_c": rng.normal(size=n)}, shape


def opset_of(name: str) -> int:
    last = name.rsplit("-", 1)[-1]
    return int(last) if last.isdigit() and int(last) > 2 else 17


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("where", ["input", "affine", "layer"])
@pytest.mark.parametrize("name", OPERATORS)
def test_each_operator_means_what_onnxruntime_computes(name: str, where: str, dtype: type) -> None:
    require_agreement(build(*behind(where, OPERATORS[name]), opset=opset_of(name), dtype=dtype), dtype)


# One ONNX node in rational arithmetic, on object arrays of Fraction; i is the array of an integer operand.
RATIONAL: dict[str, Callable[..., Any]] = {
    "Add": lambda a, x, y: x + y,
    "Sub": lambda a, x, y: x - y,
    "Mul": lambda a, x, y: x * y,
    "Div": lambda a, x, y: x / y,
    "Neg": lambda a, x: -x,
    "MatMul": lambda a, x, y: np.matmul(x, y),
    "Gemm": lambda a, x, y, c: (Fraction(a.get("alpha", 1)) * np.matmul(x.T if a.get("transA") else x,
                                                                         y.T if a.get("transB") else y)
                                + Fraction(a.get("beta", 1)) * c),
    "BatchNormalization": lambda a, x, *of: normalized(
        x, Fraction(a["epsilon"]), *(c.reshape(-1, *[1] * (x.ndim - 2)) for c in of)),
    "Concat": lambda a, *xs: np.concatenate(xs, axis=a["axis"]),
    "Flatten": lambda a, x: x.reshape(int(np.prod(x.shape[:a.get("axis", 1)])), -1),
    "Gather": lambda a, x, i: x.take(i, axis=a.get("axis", 0)),
    "Identity": lambda a, x: x,
    "Reshape": lambda a, x, i: x.reshape(i),
    "Slice": lambda a, x, start, end, axis, step=(1,): np.moveaxis(
        np.moveaxis(x, axis[0], 0)[slice(start[0], end[0], step[0])], 0, axis[0]),
    "Split": lambda a, x, i: np.split(x, np.cumsum(i)[:-1], axis=a["axis"]),
    "Transpose": lambda a, x: x.transpose(a.get("perm")),
}


def fractions(values: np.ndarray) -> np.ndarray:
    return np.vectorize(Fraction, otypes=[object])(np.asarray(values, dtype=np.float64))


def normalized(x: np.ndarray, epsilon: Fraction, s: np.ndarray, b: np.ndarray, m: np.ndarray, v: np.ndarray) -> Any:
    return (x - m) * s / root(v + epsilon) + b


def root(values: np.ndarray) -> np.ndarray:
    """Square roots to 60 digits, far beyond any float64."""
    with localcontext() as context:
        context.prec = 60
        return np.vectorize(lambda v: Fraction((Decimal(v.numerator) / Decimal(v.denominator)).sqrt()),
                            otypes=[object])(values)


def exact_preactivations(content: bytes, sources: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What each activation of the file is given, and y, if x and the activations' outputs were these: (w,) each."""
    graph = onnx.load_model_from_string(content).graph
    stored = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    values = {name: fractions(a) if a.dtype.kind == "f" else a for name, a in stored.items()}
    shape = [d.dim_value or 1 for d in graph.input[0].type.tensor_type.shape.dim]
    values["x"], given, found = sources[0].reshape(shape), iter(sources[1:]), []
    for node in graph.node:
        operands = [values[name] for name in node.input]
        if node.op_type in KINDS:
            found.append(operands[0].ravel())
            values[node.output[0]] = next(given).reshape(operands[0].shape)
            continue
        result = RATIONAL[node.op_type]({a.name: helper.get_attribute_value(a) for a in node.attribute}, *operands)
        values |= dict(zip(node.output, result if isinstance(result, list) else [result], strict=True))
    return [*found, values["y"].ravel()]


def exact_columns(content: bytes, network: OnnxNetwork) -> Iterator[tuple[Affine, int | None, int, np.ndarray]]:
    """Each affine map's offset (source None) and columns (source, number) in rational arithmetic."""
    sizes = [network.graph.inputs, *network.graph.widths]
    zero = [fractions(np.zeros(size)) for size in sizes]
    offsets = exact_preactivations(content, zero)
    yield from ((affine, None, 0, offset) for affine, offset in zip(network.graph.affines, offsets, strict=True))
    for source, size in enumerate(sizes):
        for j in range(size):
            unit = [*zero[:source], fractions(np.eye(size)[j]), *zero[source + 1:]]
            values = exact_preactivations(content, unit)
            for affine, value, offset in zip(network.graph.affines, values, offsets, strict=True):
                yield affine, source, j, value - offset


def require_sound(content: bytes) -> int:
    """Asserts that no stored weight is further from the exact one than its bound. Returns how many are rounded."""
    network, rounded = read_onnx(content), 0
    for affine, source, j, exact in exact_columns(content, network):
        if source is None:
            stored = affine.offset
            bound = np.zeros(affine.rows) if affine.offset_error is None else affine.offset_error
        else:
            stored = affine.matrices.get(source, np.zeros((affine.rows, j + 1)))[:, j]
            bound = affine.error.get(source, np.zeros((affine.rows, j + 1)))[:, j]
        off = np.abs(fractions(stored) - exact)
        assert (off <= fractions(bound)).all(), (source, j, off.max(), bound.max())
        largest = max(np.abs(values).max() for values in (affine.offset, *affine.matrices.values()))
        assert bound.max() <= SHARP * max(1.0, largest)
        rounded += np.count_nonzero(off)
    return rounded


BUNDLE = ([op("Sub", "x low", "c"), op("Mul", "c factor", "h"), op("Gemm", "h w b", "g", transB=1),
           op("Relu", "g", "r"), op("Gemm", "r v c0", "o", transB=1), op("Mul", "o gain", "s"), op("Add", "s base")],
          {"low": normal(3), "factor": normal(3), "w": normal(4, 3), "b": normal(4), "v": normal(2, 4), "c0": normal(2),
           "gain": normal(1), "base": normal(1)}, ("batch", 3))
COMPOSED: dict[str, Case] = {
    "scaling": BUNDLE,
    "two-gemms": ([op("Gemm", "x w b", "t"), op("Gemm", "t v b", alpha=0.3, beta=1.7)],
                  {"w": normal(3, 3), "v": normal(3, 3), "b": normal(3)}, ("batch", 3)),
    "both-sides": ([op("MatMul", "x w", "t"), op("MatMul", "v t", "s"),
                    op("MatMul", "s u")], {"w": normal(3, 2), "v": normal(2, 4) / 3, "u": normal(2, 1)}, (4, 3)),
    "paths": ([op("MatMul", "x w", "t"), op("Relu", "t", "r"), op("MatMul", "r v", "s"), op("Add", "s x", "a"),
               op("Concat", "a r", "c", axis=1), op("Div", "c d", "q"), op("Add", "q q", "e"), op("Sub", "e c", "f"),
               op("Tanh", "f", "h"), op("Add", "h f")],
              {"w": normal(3, 3), "v": normal(3, 3), "d": 1 + normal(6) ** 2}, ("batch", 3)),
    "normalized": ([op("MatMul", "x w", "t"), op("BatchNormalization", "t s b m v", epsilon=0.1)],
                   {"w": normal(3, 3), "s": normal(3), "b": normal(3), "m": normal(3), "v": normal(3) ** 2}, (1, 3)),
    "moved": ([op("Mul", "x f", "s"), op("Mul", "s f", "t"), op("MatMul", "t w", "m"), op("Neg", "m", "n"),
               op("Gather", "n i", "g", axis=1), op("Concat", "x g", axis=1)],
              {"f": normal(3), "w": normal(3, 3), "i": integers(2, 0)}, (1, 3)),
    "gemm-of-constants": ([op("Gemm", "w v x", alpha=0.3)], {"w": normal(2, 4), "v": normal(4, 3)}, (1, 3)),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", COMPOSED)
def test_weights_that_were_composed_are_within_their_bounds_of_the_exact_ones(name: str, dtype: type) -> None:
    content = build(*COMPOSED[name], dtype=dtype)
    require_agreement(content, dtype)
    assert require_sound(content) > 0  # with no error at all the bounds would not be tested


def test_what_a_cancellation_leaves_is_within_its_bound() -> None:
    nodes = [op("Mul", "x third", "t"), op("Mul", "x big", "u"), op("Add", "t u", "a"), op("Sub", "a u", "b"),
             op("Sub", "b t", "c"), op("Add", "c offset", "d"), op("Sub", "d offset", "e"), op("MatMul", "e w")]
    constants = {"third": np.full(3, 1 / 3), "big": normal(3) * 1e3, "offset": normal(3), "w": normal(3, 2)}
    content = build(nodes, constants, (1, 3), dtype=np.float64)
    assert require_sound(content) > 0  # all weights are 0 in truth
    assert 0 < np.abs(read_onnx(content).graph.output.matrices[0]).max() < 1e-12


def test_what_underflows_is_within_its_bound() -> None:
    tiny = {"s": np.array([1e-200, 1.0]), "w": np.array([[1e-200, 1.0], [1e-120, 1.0]]), "n": np.array([1e200, 3.0])}
    for nodes in ([op("Mul", "x s", "t"), op("Mul", "t s")], [op("Mul", "x s", "t"), op("MatMul", "t w")],
                  [op("Mul", "x s", "t"), op("Div", "t n")]):
        content = build(nodes, tiny, ("batch", 2), dtype=np.float64)
        assert require_sound(content) > 0


PLAIN: dict[str, Case] = {
    "gemms": ([op("Flatten", "x", "f"), op("Gemm", "f w b", "g"), op("Relu", "g", "r"), op("Gemm", "r v", "h"),
               op("Tanh", "h", "t"), op("Neg", "t")],
              {"w": normal(6, 4), "b": normal(4), "v": normal(4, 3)}, ("batch", 2, 3)),
    "matmul-add": ([op("Sub", "x zero", "d"), op("MatMul", "d w", "m"), op("Add", "b m", "a"), op("Relu", "a", "r"),
                    op("MatMul", "r v")],
                   {"zero": np.zeros(3), "w": normal(3, 4), "b": normal(4), "v": normal(4, 2)}, ("batch", 3)),
    "skips": ([op("Gemm", "x w b", "g"), op("Relu", "g", "r"), op("Add", "r x", "s"), op("Concat", "s x", "c", axis=1),
               op("Slice", "c a e i s1", "z"), op("Gather", "z p", axis=1)],
              {"w": normal(3, 3), "b": normal(3), "a": integers(5), "e": integers(0), "i": integers(1),
               "s1": integers(-1), "p": integers(3, 0, 0)}, ("batch", 3)),
    "selection": ([op("Slice", "x a e i", "s"), op("Gemm", "s w b")],
                  {"a": integers(1), "e": integers(3), "i": integers(1), "w": normal(2, 2), "b": normal(2)}, (1, 4)),
    "permutation": ([op("Gemm", "x w b", "g"), op("MatMul", "g p")],
                    {"w": normal(3, 3), "b": normal(3), "p": np.array([[0, -1.0, 0], [0, 0, 1], [1, 0, 0]])},
                    (1, 3)),
    "doubled": ([op("Add", "x x", "t"), op("Mul", "t one", "m"), op("Relu", "m")], {"one": np.ones(1)}, (1, 3)),
}


@pytest.mark.parametrize("name", [name for name in PLAIN if name != "skips"])
def test_plain_networks_are_stored_exactly(name: str) -> None:
    content = build(*PLAIN[name])
    assert errors(require_agreement(content)) == []
    if name != "gemms":  # the oracle knows no Flatten of a batch
        assert require_sound(content) == 0


def test_skips_and_selections_are_stored_exactly() -> None:
    nodes, constants, shape = PLAIN["skips"]
    assert errors(require_agreement(build(nodes, constants, shape))) == []


def test_a_scaling_layer_before_the_weights_is_stored_with_a_bound() -> None:
    network = read_onnx(build(*BUNDLE))
    assert set(network.graph.layers[0].affine.error) == {0}
    assert network.graph.layers[0].affine.offset_error is not None
    assert set(network.graph.output.error) == {1}


class Chain:
    """A random network, step by step: each takes the last value, some also an earlier one."""

    def __init__(self, seed: int, shape: tuple[int, ...]) -> None:
        self.rng, self.nodes, self.constants = np.random.default_rng(seed), list[NodeProto](), Arrays()
        self.shapes: dict[str, tuple[int, ...]] = {"x": shape}

    def node(self, kind: str, operands: str, shape: Sequence[int], **attributes: Any) -> None:
        name = f"t{len(self.shapes)}"
        self.nodes.append(op(kind, operands, name, **attributes))
        self.shapes[name] = tuple(shape)

    def constant(self, *shape: int, low: float = 0.0) -> str:
        """Random weights, some of them 0, 1 and -1; of at least `low` where that is positive."""
        values = self.rng.normal(size=shape) / np.sqrt(max(shape, default=1))
        values = np.where(self.rng.random(shape) < 0.3, self.rng.integers(-1, 2, size=shape), values)
        return self.add(np.abs(values) + low if low else values)

    def add(self, values: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(values)
        return name

    def step(self, kind: str) -> None:
        x, shape = next(reversed(self.shapes.items()))
        rng, axis = self.rng, int(self.rng.integers(len(shape)))
        earlier = [name for name, other in self.shapes.items() if other == shape]
        if kind in ("Relu", "LeakyRelu", "Tanh", "Sigmoid", "Neg", "Identity"):
            self.node(kind, x, shape, **({"alpha": 0.25} if kind == "LeakyRelu" else {}))
        elif kind == "Add":
            self.node(kind, f"{x} {self.constant(*shape[axis:])}", shape)
        elif kind in ("Mul", "Div"):
            sizes = shape[axis:] if kind == "Mul" else shape
            factor = self.constant(*sizes, low=0.5 if kind == "Div" else 0.0)
            if np.prod(sizes) == 1 and self.constants[factor].any():  # a scalar must be one of float32
                value = self.constants[factor]
                self.constants[factor] = np.copysign(np.exp2(np.round(np.log2(np.abs(value)))), value)
            self.node(kind, f"{x} {factor}", shape)
        elif kind == "Sub":
            self.node(kind, f"{self.constant(*shape)} {x}", shape)
        elif kind == "Skip":
            self.node(str(rng.choice(["Add", "Sub"])), f"{x} {rng.choice(earlier)}", shape)
        elif kind == "Right":
            self.node("MatMul", f"{x} {self.constant(shape[-1], 3)}", (*shape[:-1], 3))
        elif kind == "Left" and len(shape) > 1:
            self.node("MatMul", f"{self.constant(2, shape[-2])} {x}", (*shape[:-2], 2, shape[-1]))
        elif kind == "Gemm" and len(shape) == 2:
            flips = {"transA": int(rng.integers(2)), "transB": int(rng.integers(2))}
            rows, inner = shape[::-1] if flips["transA"] else shape
            weight = self.constant(*((3, inner) if flips["transB"] else (inner, 3)))
            self.node(kind, f"{x} {weight} {self.constant(3)}", (rows, 3), alpha=0.5, beta=0.7, **flips)
        elif kind == "BatchNormalization" and len(shape) > 1 and not self.turned:
            scale, bias, mean = (self.constant(shape[1]) for _ in range(3))
            self.node(kind, f"{x} {scale} {bias} {mean} {self.constant(shape[1], low=0.5)}", shape, epsilon=0.125)
        elif kind == "Concat" and np.prod(shape) <= 6:
            other = rng.choice(earlier)
            self.node(kind, f"{x} {other}", [2 * s if k == axis else s for k, s in enumerate(shape)], axis=axis)
        elif kind == "Split" and shape[axis] > 1:
            sizes = (1, shape[axis] - 1)
            self.nodes.append(op(kind, f"{x} {self.add(integers(*sizes))}", f"{x}_p {x}_q", axis=axis))
            for part, size in zip("pq", sizes, strict=True):
                self.shapes[f"{x}_{part}"] = (*shape[:axis], size, *shape[axis + 1:])
        elif kind == "Slice":
            start, end, step = (0, 2**31, 2) if rng.random() < 0.5 else (-1, -2**31, -1)
            cut = [self.add(integers(value)) for value in (start, end, axis, step)]
            self.node(kind, f"{x} {' '.join(cut)}", np.empty(shape).swapaxes(0, axis)[start:end:step].swapaxes(
                0, axis).shape)
        elif kind == "Gather":
            places = rng.integers(-shape[axis], shape[axis], size=2)
            self.node(kind, f"{x} {self.add(places)}", (*shape[:axis], 2, *shape[axis + 1:]), axis=axis)
        elif kind == "Reshape":
            n = int(np.prod(shape))
            sizes = [(n,), (1, n), (n, 1), (1, n // 2, 2) if n % 2 == 0 else (n,)][rng.integers(4)]
            self.node(kind, f"{x} {self.add(integers(*sizes))}", sizes)
        elif kind == "Transpose":
            order = [int(k) for k in rng.permutation(len(shape))]
            self.node(kind, x, [shape[k] for k in order], perm=order)

    @property
    def turned(self) -> bool:
        """Whether a product may have been transposed or reshaped since the last activation; fused wrongly."""
        since = list[str]()
        for node in self.nodes:
            since = [] if node.op_type in KINDS else [*since, node.op_type]
        return "MatMul" in since and bool({"Transpose", "Reshape"} & set(since))

    def build(self) -> bytes:
        self.nodes.append(op("Identity", next(reversed(self.shapes))))
        return build(self.nodes, self.constants, self.shapes["x"], dtype=np.float64)


STEPS = ["Relu", "LeakyRelu", "Tanh", "Sigmoid", "Neg", "Add", "Mul", "Sub", "Div", "Skip", "Right", "Left", "Gemm",
         "BatchNormalization", "Concat", "Split", "Slice", "Gather", "Reshape", "Transpose"]


@st.composite
def chains(draw: Callable[..., Any], longest: int) -> bytes:
    chain = Chain(draw(st.integers(0, 2**32 - 1)), draw(st.sampled_from([(1, 3), (1, 2, 2), (4,), (2, 3)])))
    for kind in draw(st.lists(st.sampled_from(STEPS), min_size=1, max_size=longest)):
        chain.step(kind)
    return chain.build()


IDENTITY = np.eye(4)
FACTORS = {"w": IDENTITY, "s": np.array([1e-3, 1000.0, 1.0, 1.0]), "o": np.zeros(4), "v": np.ones(4)}
NORMALISED = op("BatchNormalization", "t s o o v")
FUSED_WRONGLY: dict[str, list[NodeProto]] = {
    "transposed": [op("MatMul", "x w", "m"), op("Transpose", "m", "t", perm=[1, 0])],
    "reshaped": [op("MatMul", "x w", "m"), op("Reshape", "m to", "t")],
    "after what changes nothing": [op("MatMul", "x w", "m"), op("Mul", "m v1", "n"), op("Identity", "n", "p"),
                                   op("Transpose", "p", "t", perm=[1, 0])],
}


@pytest.mark.parametrize("name", FUSED_WRONGLY)
def test_a_normalisation_that_onnxruntime_fuses_with_another_axis_is_refused(name: str) -> None:
    constants = FACTORS | {"to": integers(4, 4), "v1": np.ones(1)}
    with pytest.raises(InputError, match="BatchNormalization must not stand behind a MatMul whose result is trans"):
        read_onnx(build([*FUSED_WRONGLY[name], NORMALISED], constants, (4, 4)))


@pytest.mark.parametrize("nodes", [
    [op("MatMul", "x w", "t")], [op("Transpose", "x", "t", perm=[1, 0])],
    [op("MatMul", "x w", "m"), op("Relu", "m", "r"), op("Transpose", "r", "t", perm=[1, 0])],
    [op("Gemm", "x w o", "m"), op("Transpose", "m", "t", perm=[1, 0])],
], ids=["product", "turned", "activation between", "gemm"])
def test_a_normalisation_that_onnxruntime_keeps_is_read(nodes: list[NodeProto]) -> None:
    content = build([*nodes, NORMALISED], FACTORS, (4, 4))
    optimised = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    x = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
    (y,) = optimised.run(None, {"x": x})
    np.testing.assert_allclose(read_onnx(content).graph.value(x.reshape(1, -1))[0], y.ravel(), rtol=1e-4)


@few
@given(chains(longest=12))
def test_random_networks_mean_what_onnxruntime_computes(content: bytes) -> None:
    network, run = read_onnx(content), runtime(content)
    x = np.random.default_rng(1).normal(size=(4, network.graph.inputs))
    expected = np.array([run(row) for row in x])
    # values on the way reach about 1e3 where paths are added, and may cancel
    allowed = 1e3 * TOLERANCE[np.float64] * max(1.0, np.abs(expected).max())
    assert np.abs(network.graph.value(x) - expected).max() <= allowed


@few
@given(chains(longest=6))
def test_weights_of_random_networks_are_within_their_bounds(content: bytes) -> None:
    require_sound(content)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_every_float_type_is_read_as_it_is_stored(dtype: type) -> None:
    nodes, constants, shape = PLAIN["gemms"]
    network = require_agreement(build(nodes, constants, shape, dtype=dtype), dtype)
    stored = network.graph.layers[0].affine.matrices[0]
    np.testing.assert_array_equal(stored, constants["w"].T.astype(dtype))
    assert stored.dtype == np.float64


def test_weights_that_are_also_listed_as_inputs_are_constants() -> None:
    content = build(*PLAIN["matmul-add"], listed=True, opset=8, ir=3)
    assert len(onnx.load_model_from_string(content).graph.input) > 1
    assert require_agreement(content).input_name == "x"


def test_the_file_s_facts_come_with_the_graph(tmp_path: Path) -> None:
    content = build(*PLAIN["gemms"], opset=13)
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    network = read_onnx(path)
    assert (network.input_name, network.output_name, network.input_shape, network.opset) == ("x", "y", (1, 2, 3), 13)
    assert network.sha256 == hashlib.sha256(content).hexdigest()
    assert (network.graph.inputs, network.graph.widths, network.graph.outputs) == (6, (4, 3), 3)
    assert [layer.kind for layer in network.graph.layers] == ["relu", "tanh"]
    assert network.graph.layers[1].affine.matrices.keys() == {1}


def test_an_activation_of_an_activation_is_a_layer_of_the_identity() -> None:
    network = read_onnx(build(*OPERATORS["relu-twice"]))
    np.testing.assert_array_equal(network.graph.layers[1].affine.matrices[1], np.eye(4))


def test_a_map_names_only_the_sources_that_it_depends_on() -> None:
    nodes = [op("Relu", "x", "r"), op("Concat", "r x", "c", axis=1), op("Slice", "c a e i", "s"), op("Tanh", "s", "t"),
             op("Concat", "t x", axis=1)]
    content = build(nodes, {"a": integers(3), "e": integers(9), "i": integers(1)}, (1, 3))
    graph = require_agreement(content).graph
    assert [set(affine.matrices) for affine in graph.affines] == [{0}, {0}, {0, 2}]


def test_a_part_that_is_constant_still_has_the_batch_of_x() -> None:
    nodes = [op("Concat", "x c", "t", axis=1), op("Slice", "t a e i")]
    content = build(nodes, {"c": np.ones((1, 2)), "a": integers(3), "e": integers(5), "i": integers(1)}, (1, 3))
    np.testing.assert_array_equal(read_onnx(content).graph.value(np.zeros((4, 3))), np.ones((4, 2)))


def test_a_wide_network_is_read_and_stored_exactly() -> None:
    rng, wide, nodes, constants, last = np.random.default_rng(2), [300, 1024, 1024, 1024, 10], [], Arrays(), "x"
    for k in range(4):
        constants[f"w{k}"] = rng.normal(size=(wide[k + 1], wide[k])) / wide[k] ** 0.5
        constants[f"b{k}"] = rng.normal(size=wide[k + 1])
        nodes.append(op("Gemm", f"{last} w{k} b{k}", f"g{k}" if k < 3 else "y", transB=1))
        if k < 3:
            nodes.append(op("Relu", f"g{k}", f"r{k}"))
        last = f"r{k}"
    network = require_agreement(build(nodes, constants, ("batch", 300)))
    assert network.graph.widths == (1024, 1024, 1024)
    assert errors(network) == []


@pytest.mark.skipif(not PUBLIC, reason=f"the public networks are not at {DATA} (set ASSAY_DATA)")
@pytest.mark.parametrize("path", PUBLIC, ids=lambda path: path.stem)
def test_public_networks_are_stored_exactly_and_agree_with_onnxruntime(path: Path) -> None:
    network = require_agreement(path.read_bytes(), scale=0.5)
    assert errors(network) == []
    assert (network.graph.inputs, network.graph.outputs) == ((5, 5) if "ACAS" in path.name else (1, 1))
    assert len(network.graph.layers) == sum(n.op_type == "Relu" for n in onnx.load(path).graph.node)


def test_the_project_s_own_files_agree_with_onnxruntime_in_raw_units() -> None:
    scaling = FeatureScaling(MinMaxScaling(("a", "b", "c"), (0.0, -5.0, 10.0), (1.0, 5.0, 1000.0)),
                             MinMaxScaling(("latency_ms",), (2.0,), (90.0,)))
    content = build_onnx(random_network(np.random.default_rng(3), 3, [8, 8]), scaling, "latency_ms", {})
    network = require_agreement(content, scale=3.0)
    assert (network.input_name, network.output_name) == ("telemetry", "latency_ms")
    assert set(network.graph.layers[0].affine.error) == {0}
    assert set(network.graph.layers[1].affine.error) == set()


def torch_network(opset: int = 20) -> nn.Module:
    torch.manual_seed(5)
    reshaped = (nn.Unflatten(1, (3, 1)), nn.Flatten(1)) if opset >= 13 else ()  # torch's own limit
    module = nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4), nn.Tanh(), nn.BatchNorm1d(4),
                           nn.Dropout(0.5), nn.Linear(4, 3), nn.Sigmoid(), nn.Linear(3, 3), nn.LeakyReLU(0.2),
                           *reshaped, nn.Linear(3, 2))
    module[5].running_mean.normal_()
    return module.eval()


def require_torch_agreement(content: bytes, module: nn.Module) -> None:
    network = require_agreement(content)
    x = torch.randn(6, 6)
    with torch.no_grad():
        expected = module(x.reshape(6, 2, 3)).numpy()
    assert np.abs(network.graph.value(x.numpy()) - expected).max() <= TOLERANCE[np.float32] * np.abs(expected).max()
    assert [layer.kind for layer in network.graph.layers] == ["relu", "tanh", "sigmoid", "leaky_relu"]


# torch's own exporters warn of each other and of torch's internals
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("opset", [9, 11, 13, 17])
@pytest.mark.parametrize("batch", ["fixed", "dynamic"])
def test_networks_that_torch_wrote_are_read(tmp_path: Path, opset: int, batch: str) -> None:
    module, path = torch_network(opset), tmp_path / "model.onnx"
    torch.onnx.export(module, (torch.zeros(1, 2, 3),), path, dynamo=False, opset_version=opset, input_names=["x"],
                      dynamic_axes={"x": {0: "batch"}} if batch == "dynamic" else None)
    require_torch_agreement(path.read_bytes(), module)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_networks_that_torch_s_new_exporter_wrote_are_read(tmp_path: Path) -> None:
    pytest.importorskip("onnxscript", reason="torch's exporter needs onnxscript")
    module, path = torch_network(), tmp_path / "model.onnx"
    torch.onnx.export(module, (torch.zeros(1, 2, 3),), path, dynamo=True, external_data=False, verbose=False)
    require_torch_agreement(path.read_bytes(), module)


BAD = {"name": "bad"}
REFUSED: dict[str, tuple[Case, str]] = {
    "operator": (([op("Softmax", "x", **BAD)], {}, (1, 3)), "operator must be one of .*, got Softmax"),
    "convolution": (([op("Conv", "x w", **BAD)], {"w": normal(1, 1, 2)}, (1, 1, 3)), "operator must be .* got Conv"),
    "product": (([op("Mul", "x x", **BAD)], {}, (1, 3)), "must be constant, got a variable"),
    "quotient": (([op("Div", "c x", **BAD)], {"c": normal(3)}, (1, 3)), "must be constant, got a variable"),
    "matrices": (([op("MatMul", "x x", **BAD)], {}, (3, 3)), "must be constant, got two variables"),
    "gemm-of-matrices": (([op("Gemm", "x x", **BAD)], {}, (3, 3)), "must be constant, got two variables"),
    "gemm-of-stacks": (([op("Gemm", "x w", **BAD)], {"w": normal(3, 3)}, (1, 1, 3)), "operands must be matrices"),
    "gemm-bias": (([op("Gemm", "x w b", **BAD)], {"w": normal(3, 2), "b": normal(4, 2)}, (1, 3)),
                  "C must broadcast to"),
    "division-by-0": (([op("Div", "x c", **BAD)], {"c": np.array([1.0, 0.0, 2.0])}, (1, 3)), "divisor must not be 0"),
    "sizes": (([op("MatMul", "x w", **BAD)], {"w": normal(4, 2)}, (1, 3)), "inner sizes must be equal"),
    "sizes-of-one": (([op("MatMul", "x w", **BAD)], {"w": normal(1, 2)}, (1, 3)), "inner sizes must be equal"),
    "scalar-factor": (([op("MatMul", "x w", **BAD)], {"w": np.ones(())}, (1, 3)), "must fit the operator"),
    "broadcast": (([op("Add", "x c", **BAD)], {"c": normal(2)}, (1, 3)), "must fit the operator"),
    "integer-weights": (([op("Add", "x c", **BAD)], {"c": integers(1, 2, 3)}, (1, 3)), "must have the input's type"),
    "variable-indices": (([op("Gather", "c x", **BAD)], {"c": normal(3)}, (1, 3)), "indices and shapes must be const"),
    "variable-shape": (([op("Reshape", "x x", **BAD)], {}, (1, 3)), "indices and shapes must be constant"),
    "float-shape": (([op("Reshape", "x s", **BAD)], {"s": np.array([1.0, 3.0])}, (1, 3)), "shape must be integers"),
    "reshape": (([op("Reshape", "x s", **BAD)], {"s": integers(2, 2)}, (1, 3)), "must fit the operator"),
    "gather": (([op("Gather", "x s", axis=1, **BAD)], {"s": integers(3)}, (1, 3)), "must fit the operator"),
    "nothing": (([op("Slice", "x a e i", "t", **BAD), op("Concat", "t x", axis=1)],
                 {"a": integers(2), "e": integers(1), "i": integers(1)}, (1, 3)), "must have at least one value"),
    "slice-axes": (([op("Slice", "x a a a", **BAD)], {"a": integers(1, 1)}, (1, 3)), "axes must be distinct"),
    "split": (([op("Split", "x s", "y z", axis=1, **BAD)], {"s": integers(1, 1)}, (1, 3)), "must be 2 and add up to 3"),
    "split-unequal": (([op("Split", "x", "y z", axis=1, **BAD)], {}, (1, 3)), "must be 2 and add up to 3"),
    "flatten": (([op("Flatten", "x", axis=3, **BAD)], {}, (1, 3)), r"axis must be in \[-2, 2\], got 3"),
    "squeeze": (([op("Squeeze", "x i", **BAD)], {"i": integers(0)}, (2, 3)), "must fit the operator"),
    "alpha": (([op("LeakyRelu", "x", alpha=1.5, **BAD)], {}, (1, 3)), r"alpha must be in \[0, 1\), got 1.5"),
    "overflow": (([op("Mul", "x c", "t"), op("Mul", "t c", **BAD)], {"c": np.array([1e200])}, (1, 3)),
                 "must be finite"),
    "folded-infinity": (([op("Log", "c", "t", **BAD), op("Add", "x t")], {"c": np.array([0.0])}, (1, 3)),
                        "must be finite"),
    "folded-nonsense": (([op("MatMul", "c d", "t", **BAD), op("Add", "x t")], {"c": normal(2), "d": normal(3)}, (1, 3)),
                        "constants must fit the operator"),
    "huge-constant": (([op("ConstantOfShape", "s", "t", **BAD), op("Add", "x t")], {"s": integers(1, 2**31)}, (1, 3)),
                      "arrays must have at most 134217728 values, got 1 x 2147483648"),
    "huge-expansion": (([op("Expand", "c s", "t", **BAD), op("Add", "x t")], {"c": normal(1), "s": integers(2**40)},
                        (1, 3)), "arrays must have at most"),
    "huge-sum": (([op("Add", "c d", "t"), op("Reshape", "t s", "u"), op("Add", "x u", **BAD)],
                  {"c": normal(2**12, 1), "d": normal(1, 2), "s": integers(2**13, 1)}, (1, 2**15)),
                 "arrays must have at most"),
    "huge-product": (([op("MatMul", "w x", **BAD)], {"w": normal(2**14, 1)}, (1, 2**14)), "arrays must have at most"),
    "huge-identity": (([op("Mul", "x c", **BAD)], {"c": normal(1)}, (1, 2**15)), "arrays must have at most"),
    "random": (([op("RandomNormal", "", "t", shape=[3], **BAD), op("Add", "x t")], {}, (1, 3)),
               "operator on constants must be one that can be folded"),
    "training-dropout": (([op("Dropout", "x r f", **BAD)], {"r": np.ones(()) * 0.5, "f": np.array(True)}, (1, 3)),
                         "inference mode"),
    "mask": (([op("Dropout", "x", "t m"), op("Cast", "m", to=TensorProto.FLOAT, **BAD)], {}, (1, 3)),
             "must be an output that inference has, got 'm'"),
    "channels": (([op("BatchNormalization", "x c c c d", **BAD)], {"c": normal(3), "d": np.ones(1)}, (1, 3)),
                 "must fit the channels"),
    "variance": (([op("BatchNormalization", "x c c c v", **BAD)], {"c": normal(3), "v": -np.ones(3)}, (1, 3)),
                 "must be a normal number"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_is_refused_by_the_node_s_name_and_operator(name: str) -> None:
    (nodes, constants, shape), message = REFUSED[name]
    (node,) = (node for node in nodes if node.name == "bad")
    with pytest.raises(InputError, match=rf"{message}.*\(node 'bad', {node.op_type}\)$"):
        read_onnx(build(nodes, constants, shape, dtype=np.float64, inferred=False))


def test_a_node_without_a_name_is_called_by_its_output() -> None:
    with pytest.raises(InputError, match=r"\(node 'y', Softmax\)$"):
        read_onnx(build([op("Softmax", "x")], {}, (1, 3)))


def changed(change: Callable[[onnx.ModelProto], Any], nodes: Sequence[NodeProto] | None = None) -> bytes:
    """A small valid file, changed."""
    model = onnx.load_model_from_string(build(nodes or [op("Add", "x w", name="bad")], {"w": np.ones(3)}, ("batch", 3)))
    change(model)
    return model.SerializeToString()


def extra_input(model: onnx.ModelProto) -> None:
    model.graph.input.append(helper.make_tensor_value_info("z", 1, [1, 3]))
    model.graph.node[0].input[1] = "z"


def input_of(kind: int, *sizes: int | str | None) -> Callable[[onnx.ModelProto], Any]:
    return lambda model: model.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", kind, sizes))


def weight_of(value: float) -> Callable[[onnx.ModelProto], Any]:
    return lambda model: model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.full(3, value, "f4"), "w"))


def external(tensor: TensorProto) -> None:
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="weights.bin")


def sparse(model: onnx.ModelProto) -> None:
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(
        numpy_helper.from_array(np.ones(1, "f4"), "s"), numpy_helper.from_array(integers(0), "i"), [3]))


CONSTANT = [op("Constant", "", "c", "bad", value=numpy_helper.from_array(np.ones(3, "f4"))), op("Add", "x c")]
SPARSE = [op("Constant", "", "c", "bad", sparse_value=helper.make_sparse_tensor(
    numpy_helper.from_array(np.ones(1, "f4")), numpy_helper.from_array(integers(0)), [3])), op("Add", "x c")]
FILES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "must have one input, got 0"),
    "text": (b"not a model", r"must be a valid ONNX file, got DecodeError: Error parsing.* \(bytes\)"),
    "two-inputs": (changed(extra_input), "must have one input, got 2: x, z"),
    "no-input": (changed(lambda m: m.graph.initializer.append(numpy_helper.from_array(np.ones((1, 3), "f4"), "x"))),
                 "must have one input, got 0: none"),
    "two-outputs": (changed(lambda m: m.graph.output.append(helper.make_tensor_value_info("z", 1, [1]))),
                    "must have one output, got 2: y, z"),
    "integer-input": (changed(input_of(TensorProto.INT64, "batch", 3)), r"float tensor .* got INT64 .*\(input 'x'\)"),
    "huge-input": (changed(input_of(1, "batch", 2**40)), "arrays must have at most 134217728 values, got 1 x 109951"),
    "symbolic-size": (changed(input_of(1, "batch", "width")), r"got FLOAT of sizes \['batch', 'width'\] \(input 'x'"),
    "unknown-size": (changed(input_of(1, "batch", None)), "of fixed size after the batch"),
    "size-0": (changed(input_of(1, "batch", 0)), "of fixed size after the batch"),
    "nan": (changed(weight_of(np.nan)), r"must be finite, got NaN or infinity \(initializer 'w'\)"),
    "infinity": (changed(weight_of(-np.inf)), r"must be finite, got NaN or infinity \(initializer 'w'\)"),
    "external": (changed(lambda m: external(m.graph.initializer[0])), r"external data \(initializer 'w'\)"),
    "external-node": (changed(lambda m: external(m.graph.node[0].attribute[0].t), CONSTANT),
                      r"external data \(node 'bad', Constant\)"),
    "sparse": (changed(sparse), "must be of ONNX's own operators and dense weights"),
    "sparse-node": (changed(lambda m: None, SPARSE), "must be of ONNX's own operators and dense weights"),
    "functions": (changed(lambda m: m.functions.append(helper.make_function(
        "own", "F", ["a"], ["b"], [op("Relu", "a", "b")], [helper.make_opsetid("", 17)]))),
        "must be of ONNX's own operators and dense weights"),
    "domain": (changed(lambda m: (m.opset_import.append(helper.make_opsetid("own", 1)),
                                  setattr(m.graph.node[0], "domain", "own"))),
               r"must be ONNX's own, got the domain 'own' \(node 'bad', Add\)"),
    "opset-6": (changed(lambda m: setattr(m.opset_import[0], "version", 6)), "opset must be 7 to .*, got 6"),
    "opset-99": (changed(lambda m: setattr(m.opset_import[0], "version", 99)), "opset must be 7 to .*, got 99"),
    "unsorted": (changed(lambda m: None, [op("Relu", "t"), op("Relu", "x", "t")]), "topologically sorted"),
    "constant-output": (changed(lambda m: None, [op("Relu", "x", "t"), op("Relu", "w")]), "output must depend on the"),
    "training": (build([op("BatchNormalization", "x c c c c", "y p q", "bad", training_mode=1)], {"c": np.ones(3)},
                       (1, 3)), r"inference mode.*\(node 'bad', BatchNormalization\)"),
    "training-8": (build([op("BatchNormalization", "x c c c c", "y p q r s", "bad")], {"c": np.ones(3)}, (1, 3),
                         opset=8), r"inference mode.*\(node 'bad', BatchNormalization\)"),
}


@pytest.mark.parametrize("name", FILES)
def test_files_that_are_no_plain_network_are_refused(name: str) -> None:
    content, message = FILES[name]
    with pytest.raises(InputError, match=message):
        read_onnx(content)


def test_a_file_that_is_not_there_is_refused_by_its_path(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"must be a valid ONNX file, .*missing\.onnx\)"):
        read_onnx(tmp_path / "missing.onnx")


def test_scrambled_files_are_refused_or_read_but_never_crash() -> None:
    rng, refused = np.random.default_rng(0), 0
    files = [build(*case, opset=opset_of(name)) for name, case in OPERATORS.items()]
    for _ in range(20):
        for file in files:
            content = bytearray(file)
            content[rng.integers(len(content))] = rng.integers(256)
            try:
                read_onnx(bytes(content))
            except InputError:
                refused += 1
    assert refused > 10 * len(files)


def products(size: int, count: int) -> bytes:
    """A small file: the input times one matrix of 1s again and again."""
    names = [f"v{k}" for k in range(count)]
    nodes = [op("ConstantOfShape", "s", "w", value=helper.make_tensor("v", 1, [1], [1 / size]))]
    nodes += [op("MatMul", f"{a} w", b) for a, b in pairwise(["x", *names])]
    return build([*nodes, op("Identity", names[-1])], {"s": integers(size, size)}, (1, size), dtype=np.float32)


@pytest.mark.parametrize(("size", "count"), [(700, 2), (60, 900)], ids=["one", "many"])
def test_composing_maps_has_an_end(monkeypatch: pytest.MonkeyPatch, size: int, count: int) -> None:
    monkeypatch.setattr(affine_expression, "MOST_WORK", 2**27)
    read_onnx(products(60, 90))
    with pytest.raises(InputError, match=r"must be composed in at most .*: give more time, or .*\(node .*MatMul"):
        read_onnx(products(size, count))


def test_the_more_time_there_is_the_more_maps_are_composed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(affine_expression, "A_SECOND", 2**20)
    monkeypatch.setattr(affine_expression, "MOST_WORK", 1)
    file = products(60, 90)  # of some 2^25 multiplications
    with time_limit(3600.0):
        read_onnx(file)
    with time_limit(10.0), pytest.raises(InputError, match=r"must be composed in at most .* multiplications"):
        read_onnx(file)


def test_a_packed_file_is_read_by_its_name(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.onnx", tmp_path / "a.onnx.gz"
    plain.write_bytes(build([op("MatMul", "x w")], {"w": np.full((3, 3), 0.5, dtype=np.float32)}, (1, 3)))
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert read_onnx(packed).sha256 == read_onnx(plain).sha256
    specification, proof = tmp_path / "spec.yaml", tmp_path / "proof.npz"
    box = {f"x{k}": [0, 1] for k in range(3)}
    specification.write_text(json.dumps({"box": box, "properties": [{"range": {"output": "y0", "maximum": 2}}]}))
    assert decide(packed, specification, certificate=proof).verdict == "PROVED"
    assert check_proof(proof, plain, specification).accepted and check_proof(proof, packed, specification).accepted
    packed.write_bytes(gzip.compress(plain.read_bytes())[:-9])
    with pytest.raises(InputError, match="model must be packed by gzip, as its name says"):
        read_onnx(packed)


def test_reading_ends_with_the_time_limit() -> None:
    with pytest.raises(InputError, match=r"network must be read within the time limit, got no further \(node"):
        read_onnx(products(300, 300), seconds=0.05)
