"""Reads a feed-forward ONNX network of any author into the normal form that is verified.

First step of verifying a network from outside: file -> `Graph` -> bounds. The file is executed on symbols: a tensor
is a constant array, or an `Expression`, affine in the network's input and in the outputs of the activations before
it. Each activation makes a layer.

What is read is real arithmetic on the stored weights, for one example: a symbolic batch is 1. Nodes without a
variable operand are weights too: they are folded in the file's own types, as a runtime folds them on loading.

Rounding. u = 2^-53. |computed - exact| <= k u / (1 - k u) |A| |M| for a product of k terms (Higham, Accuracy and
Stability, section 3.1). 2 k u |A| |M|, and a factor 1 + 4 (k + 4) u on each sum of bounds, cover the rounding of the
bounds themselves; TINY covers underflow. The error of a sum of two is computed exactly (Knuth's TwoSum). To select,
to negate and to multiply what is no more than selected rounds nothing, so that plain chains of layers are exact.

Symbols: n inputs, o outputs, both flattened in C order; an expression has s values; source 0 is x, source k + 1 the
output of layer k.
"""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, defs, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from feature_store.errors import InputError
from models.verification.graph import Affine, FloatArray, Graph, Kind, Layer

UNIT, TINY = 2.0**-53, 1e-290
OLDEST_OPSET = 7  # before it Add, Mul and Gemm broadcast by attributes
LARGEST = 2**27  # values of an array, 1 GiB: far above what bounds can be computed of, and an end to nonsense
OFFSET = -1  # the source of one value, 1: an expression's offset is its matrix (s, 1)
FLOATS = {TensorProto.FLOAT: np.float32, TensorProto.DOUBLE: np.float64, TensorProto.FLOAT16: np.float16}
KINDS: dict[str, Kind] = {"Relu": "relu", "LeakyRelu": "leaky_relu", "Tanh": "tanh", "Sigmoid": "sigmoid"}

Array = NDArray[Any]
Index = NDArray[np.int64]
Attributes = Mapping[str, Any]
Part = tuple[FloatArray | None, FloatArray | None]


@dataclass(frozen=True)
class OnnxNetwork:
    """A network in normal form and where it is from.

    graph: x (batch, n) -> y (batch, o); input_shape: of one example as a runtime takes it, a symbolic batch being 1,
    n = prod(input_shape); sha256: hex digest of the file; opset: version of ONNX's operators.
    """

    graph: Graph
    input_name: str
    output_name: str
    input_shape: tuple[int, ...]
    sha256: str
    opset: int


@dataclass(frozen=True)
class Expression:
    """A tensor of s values: the sum over its sources of matrix @ v, in C order.

    parts: source -> matrix (s, size of the source), None for the identity, and the entrywise bound of its error,
    None for exact.
    """

    shape: tuple[int, ...]
    parts: Mapping[int, Part]

    def __post_init__(self) -> None:
        _require_room(*self.shape)

    @property
    def index(self) -> Index:
        """Each value's place in C order, in the tensor's shape."""
        return np.arange(math.prod(self.shape)).reshape(self.shape)

    def width(self, source: int) -> int:
        """The size of a source."""
        matrix = self.parts[source][0]
        return math.prod(self.shape) if matrix is None else matrix.shape[1]

    def dense(self, source: int, rows: Index | None = None) -> FloatArray:
        """The matrix (s, size of the source), or these rows of it."""
        matrix, size = self.parts[source][0], math.prod(self.shape)
        _require_room(size if rows is None else len(rows), self.width(source))
        if matrix is not None:
            return matrix if rows is None else matrix[rows]
        if rows is None:
            return np.eye(size)
        chosen = np.zeros((len(rows), size))
        chosen[np.arange(len(rows)), rows] = 1
        return chosen

    def at(self, index: Index) -> "Expression":
        """The values at these places, in the shape of `index`: exact."""
        _require_room(index.size)
        rows = index.ravel()
        if np.array_equal(rows, np.arange(math.prod(self.shape))):
            return Expression(index.shape, self.parts)
        return Expression(index.shape, {source: (self.dense(source, rows), None if error is None else error[rows])
                                        for source, (_, error) in self.parts.items()})


Value = Expression | Array


def read_onnx(source: Path | bytes) -> OnnxNetwork:
    """Reads an ONNX file, or its content.

    It may be any acyclic network with one input and one output, of float16, float32 or float64, of these operators:
    Gemm, MatMul, Mul, Div and BatchNormalization by constants, Add, Sub, Neg; Relu, LeakyRelu, Tanh, Sigmoid; what
    moves values about (Concat, Split, Slice, Gather, Reshape, Flatten, Squeeze, Unsqueeze, Transpose, Identity,
    Dropout); and whatever depends on constants and shapes alone. Raises InputError where the file is not such a
    network; the message names the node.
    """
    where = "bytes" if isinstance(source, bytes) else source
    try:
        return _network(source if isinstance(source, bytes) else source.read_bytes())
    except InputError:
        raise
    except Exception as error:  # a malformed file of any kind is a refusal, not a crash
        raise InputError(f"model must be a valid ONNX file, got {type(error).__name__}: {error} ({where})") from error


def _network(content: bytes) -> OnnxNetwork:
    model = onnx.load_model_from_string(content)
    _require_plain(model)
    onnx.checker.check_model(model)
    opset = max(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    if not OLDEST_OPSET <= opset <= defs.onnx_opset_version():
        raise InputError(f"opset must be {OLDEST_OPSET} to {defs.onnx_opset_version()}, got {opset}: "
                         "convert the model by onnx.version_converter")
    reader, name = _Reader(model.graph, opset), model.graph.output[0].name
    with np.errstate(all="ignore"):  # what overflows is refused by its node's name
        for node in model.graph.node:
            reader.run(node)
    y = reader.values.get(name)
    if not isinstance(y, Expression):
        raise InputError(f"output must depend on the input, got a constant or a mask (output {name!r})")
    graph = Graph(reader.input.index.size, tuple(reader.layers), reader.affine(y))
    return OnnxNetwork(graph, reader.input_name, name, reader.input.shape, hashlib.sha256(content).hexdigest(), opset)


class _Reader:
    """The values by name and the layers made so far."""

    def __init__(self, graph: onnx.GraphProto, opset: int) -> None:
        self.opset, self.layers = opset, list[Layer]()
        self.values: dict[str, Value] = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
        for name, array in self.values.items():
            _require_finite(array, f"initializer {name!r}")
        (entry,) = (entry for entry in graph.input if entry.name not in self.values)
        tensor, self.input_name = entry.type.tensor_type, entry.name
        sizes = [d.dim_value if d.HasField("dim_value") else int(k == 0) for k, d in enumerate(tensor.shape.dim)]
        if tensor.elem_type not in FLOATS or min(sizes, default=1) < 1:
            raise InputError("input must be a float tensor of fixed size after the batch, got "
                             f"{TensorProto.DataType.Name(tensor.elem_type)} of sizes "
                             f"{[d.dim_param or d.dim_value for d in tensor.shape.dim]} (input {entry.name!r})")
        self.dtype = np.dtype(FLOATS[tensor.elem_type])
        self.values[entry.name] = self.input = Expression(tuple(sizes), {0: (None, None)})

    def run(self, node: onnx.NodeProto) -> None:
        """Computes the outputs of one node. Raises InputError with its name where it cannot."""
        try:
            results = self._results(node)
        except InputError as error:
            raise InputError(f"{error} ({_where(node)})") from error
        except (ValueError, IndexError, TypeError, ArithmeticError) as error:  # NumPy's
            raise InputError(f"operands must fit the operator, got {error} ({_where(node)})") from error
        for name, value in zip(node.output, results, strict=False):  # Dropout's mask is nobody's
            _require_finite(value, _where(node))
            self.values[name] = value

    def _results(self, node: onnx.NodeProto) -> Sequence[Value]:
        kind, attributes = node.op_type, {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if node.domain not in ("", "ai.onnx"):
            raise InputError(f"operator must be ONNX's own, got the domain {node.domain!r}")
        missing = [name for name in node.input if name and name not in self.values]
        if missing:
            raise InputError(f"operand must be an output that inference has, got {missing[0]!r}")
        operands = [self.values[name] if name else None for name in node.input]
        _require_inference(node, attributes, operands)
        if not any(isinstance(operand, Expression) for operand in operands):
            return self._folded(node)
        supported = sorted({*KINDS, *ARITHMETIC, *MOVES, "Shape", "Split"})
        if kind not in supported:
            raise InputError(f"operator must be one of {', '.join(supported)}, got {kind}")
        if kind in ARITHMETIC:
            types = {operand.dtype for operand in operands if isinstance(operand, np.ndarray)}
            if types - {self.dtype}:
                raise InputError(f"operands must have the input's type {self.dtype}, got {', '.join(map(str, types))}")
            return [ARITHMETIC[kind](attributes, *operands)]
        x, rest = operands[0], [operand for operand in operands[1:] if not isinstance(operand, Expression)]
        if not isinstance(x, Expression) or len(rest) < len(operands) - 1:
            raise InputError("indices and shapes must be constant, got a variable")
        if kind in KINDS:
            return [self._activation(KINDS[kind], attributes, x)]
        if kind == "Shape":
            return [np.array(x.shape[attributes.get("start", 0):attributes.get("end")], dtype=np.int64)]
        if kind == "Split":
            return [x.at(index) for index in _split(x.index, attributes, len(node.output), *rest)]
        return [x.at(MOVES[kind](x.index, attributes, *rest))]

    def _activation(self, kind: Kind, attributes: Attributes, x: Expression) -> Expression:
        leak = attributes.get("alpha", float(np.float32(0.01))) if kind == "leaky_relu" else 0.0
        if not 0 <= leak < 1:
            raise InputError(f"alpha must be in [0, 1), got {leak}")
        self.layers.append(Layer(self.affine(x), kind, leak))
        return Expression(x.shape, {len(self.layers): (None, None)})

    def affine(self, x: Expression) -> Affine:
        """The expression as a map of the sources that it depends on, of x where it depends on none."""
        used = [s for s, (matrix, error) in x.parts.items()
                if s != OFFSET and (matrix is None or error is not None or matrix.any())]
        matrices = {s: x.dense(s) for s in used} or {0: np.zeros((x.index.size, self.input.index.size))}
        errors = {s: error for s in used if (error := x.parts[s][1]) is not None}
        offset, doubt = x.parts.get(OFFSET, (None, None))
        return Affine(matrices, np.zeros(x.index.size) if offset is None else offset[:, 0], errors,
                      None if doubt is None else doubt[:, 0])

    def _folded(self, node: onnx.NodeProto) -> Sequence[Value]:
        """The outputs of a node of constants, by ONNX's own reference."""
        schema = defs.get_schema(node.op_type, self.opset)
        if schema.non_deterministic and node.op_type != "Dropout":  # type: ignore[attr-defined] # missing in its stub
            raise InputError(f"operator of constants must be deterministic, got {node.op_type}")
        given = {name: np.asarray(self.values[name]) for name in node.input if name}
        sizes = {name: array for name, array in given.items() if array.dtype.kind in "iu"}
        inputs = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
                  for name, array in given.items() if name not in sizes]
        stored = [numpy_helper.from_array(array, name) for name, array in sizes.items()]
        outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
        model = helper.make_model(helper.make_graph([node], "constant", inputs, outputs, stored),
                                  opset_imports=[helper.make_opsetid("", self.opset)])
        for output in onnx.shape_inference.infer_shapes(model, data_prop=True).graph.output:
            _require_room(*(size.dim_value for size in output.type.tensor_type.shape.dim))
        try:
            results = iter(ReferenceEvaluator(model).run(None, {n: a for n, a in given.items() if n not in sizes}))
        except Exception as error:  # it has no family of errors
            raise InputError(f"constants must fit the operator, got {error}") from error
        return [np.asarray(next(results)) if name else np.zeros(0) for name in node.output]


def _require_room(*sizes: int) -> None:
    if math.prod(sizes) > LARGEST:
        raise InputError(f"arrays must have at most {LARGEST} values, got {' x '.join(map(str, sizes))}")


def _where(node: onnx.NodeProto) -> str:
    return f"node {node.name or '/'.join(node.output)!r}, {node.op_type}"


def _require_plain(model: onnx.ModelProto) -> None:
    """One input, one output, and nothing outside of the file and of ONNX's own operators."""
    graph = model.graph
    stored = {tensor.name for tensor in graph.initializer}
    for what, names in (("input", [i.name for i in graph.input if i.name not in stored]),
                        ("output", [o.name for o in graph.output])):
        if len(names) != 1:
            raise InputError(f"network must have one {what}, got {len(names)}: {', '.join(names) or 'none'}")
    attributes = [(attribute, _where(node)) for node in graph.node for attribute in node.attribute]
    if model.functions or graph.sparse_initializer or any(a.HasField("sparse_tensor") for a, _ in attributes):
        raise InputError("network must be of ONNX's own operators and dense weights, got functions or sparse weights")
    tensors = [(tensor, f"initializer {tensor.name!r}") for tensor in graph.initializer]
    for tensor, where in tensors + [(a.t, where) for a, where in attributes if a.HasField("t")]:
        if tensor.data_location == TensorProto.EXTERNAL or tensor.external_data:
            raise InputError(f"weights must stand in the file itself, got external data ({where})")


def _require_inference(node: onnx.NodeProto, attributes: Attributes, operands: Sequence[Value | None]) -> None:
    training = bool(attributes.get("training_mode")) or attributes.get("spatial") == 0
    if node.op_type == "Dropout" and len(operands) > 2 and operands[2] is not None:
        training = isinstance(operands[2], Expression) or bool(operands[2].any())
    if training or (node.op_type == "BatchNormalization" and any(node.output[1:])):
        raise InputError("operator must be in inference mode, over channels, got training or spatial=0")


def _require_finite(value: Value, where: str) -> None:
    """Also at least one value, where it is a variable."""
    arrays: list[Array | None] = [value] if isinstance(value, np.ndarray) else [
        array for part in value.parts.values() for array in part]
    if any(a is not None and a.dtype.kind == "f" and not np.isfinite(a).all() for a in arrays):
        raise InputError(f"weights must be finite, got NaN or infinity ({where})")
    if isinstance(value, Expression) and 0 in value.shape:
        raise InputError(f"tensor must have at least one value, got shape {value.shape} ({where})")


def _expression(value: Value) -> Expression:
    if isinstance(value, Expression):
        return value
    return Expression(value.shape, {OFFSET: (value.astype(np.float64).reshape(-1, 1), None)})


def _bound(terms: int, *errors: FloatArray | None) -> FloatArray | None:
    """The sum of error bounds, rounded outward; each was a sum of at most this number of terms."""
    total = np.asarray(sum(error for error in errors if error is not None))
    return total * (1 + 4 * (terms + 4) * UNIT) if total.any() else None


def _added(first: Value, second: Value) -> Expression:
    a, b = _expression(first), _expression(second)
    a, b = (x.at(index) for x, index in zip((a, b), np.broadcast_arrays(a.index, b.index), strict=True))
    parts = {**a.parts, **b.parts}
    for source in set(a.parts) & set(b.parts):
        m, n = a.dense(source), b.dense(source)
        total = m + n
        back = total - m
        lost = np.abs((m - (total - back)) + (n - back))
        parts[source] = total, _bound(1, lost, a.parts[source][1], b.parts[source][1])
    return Expression(a.shape, parts)


def _negative(value: Value) -> Expression:
    x = _expression(value)
    return Expression(x.shape, {source: (-x.dense(source), error) for source, (_, error) in x.parts.items()})


def _scaled(value: Value, factor: Value, apply: np.ufunc = np.multiply, doubt: float = 0.0) -> Expression:
    """np.multiply or np.divide of a value by a factor, whose own relative error is at most `doubt`."""
    if isinstance(factor, Expression) or not isinstance(value, Expression):
        raise InputError("one of two factors, and a divisor, must be constant, got a variable")
    if apply is np.divide and not factor.all():
        raise InputError("divisor must not be 0, got 0")
    index, factors = np.broadcast_arrays(value.index, factor.astype(np.float64))
    x, column, parts = value.at(index), factors.reshape(-1, 1), dict[int, Part]()
    for source, (_, error) in x.parts.items():
        m = x.dense(source)
        plain = (column == 0) | (np.abs(column) == 1) | ((apply is np.multiply) & (np.abs(m) == 1))
        result, exact = apply(m, column), (m == 0) | (plain & (doubt == 0))
        passed = None if error is None else apply(error, np.abs(column)) * (1 + doubt) + TINY
        parts[source] = result, _bound(4, np.where(exact, 0, (UNIT + doubt) * np.abs(result) + TINY), passed)
    return Expression(index.shape, parts)


def _product(a: Value, b: Value) -> Expression:
    """np.matmul with a constant on either side."""
    if isinstance(a, Expression) and isinstance(b, Expression):
        raise InputError("one of two factors must be constant, got two variables")
    if not isinstance(a, Expression) and not isinstance(b, Expression):  # of a Gemm that adds a variable
        a = _expression(a)
    x = a if isinstance(a, Expression) else _expression(b)
    left, right = (v.index if isinstance(v, Expression) else v.astype(np.float64) for v in (a, b))
    left = left.reshape(1, -1) if left.ndim == 1 else left
    right = right.reshape(-1, 1) if right.ndim == 1 else right
    if left.shape[-1] != right.shape[-2]:
        raise InputError(f"inner sizes must be equal, got shapes {a.shape} and {b.shape}")
    left, right = np.broadcast_arrays(left[..., None], right[..., None, :, :])  # (..., m, k, p)
    *batch, m, _, p = left.shape
    _require_room(*batch, m, p, *x.shape)
    rows = np.arange(left[..., 0, :].size).reshape(*batch, m, 1, p)
    matrix = np.zeros((rows.size, x.index.size))
    matrix[rows, left if x is a else right] = right if x is a else left
    return _mapped(matrix, x, (*batch, *[m] * (len(a.shape) > 1), *[p] * (len(b.shape) > 1)))


def _mapped(matrix: FloatArray, x: Expression, shape: tuple[int, ...]) -> Expression:
    """matrix @ x for an exact matrix (values of the shape, s)."""
    parts, size, terms = dict[int, Part](), np.abs(matrix), matrix.shape[1]
    for source, (m, error) in x.parts.items():
        if m is None:
            parts[source] = matrix, None
            continue
        lost = 2 * terms * UNIT * (size @ np.abs(m)) + TINY
        lost[_selects(matrix)] = 0
        lost[:, _selects(m.T)] = 0
        parts[source] = matrix @ m, _bound(terms, lost, None if error is None else size @ error + TINY)
    return Expression(shape, parts)


def _selects(matrix: FloatArray) -> NDArray[np.bool_]:
    """Which rows are of zeros but for at most one entry, 1 or -1."""
    rows: NDArray[np.bool_] = (np.count_nonzero(matrix, axis=1) <= 1) & np.isin(np.abs(matrix).sum(axis=1), (0, 1))
    return rows


def _gemm(attributes: Attributes, a: Value, b: Value, c: Value | None = None) -> Expression:
    a, b = (_transposed(v) if attributes.get(name) else v for v, name in ((a, "transA"), (b, "transB")))
    if len(a.shape) != 2 or len(b.shape) != 2:
        raise InputError(f"operands must be matrices, got shapes {a.shape} and {b.shape}")
    alpha, beta = (np.array(attributes.get(name, 1.0)) for name in ("alpha", "beta"))
    product = _product(a, b) if alpha == 1 else _scaled(_product(a, b), alpha)
    if c is None:
        return product
    total = _added(product, c if beta == 1 else _scaled(_expression(c), beta))
    if total.shape != product.shape:
        raise InputError(f"C must broadcast to {product.shape}, got shape {c.shape}")
    return total


def _transposed(value: Value) -> Value:
    return value.at(value.index.T) if isinstance(value, Expression) else value.T


def _normalized(attributes: Attributes, x: Value, *constants: Value) -> Expression:
    """scale * (x - mean) / sqrt(variance + epsilon) + bias over axis 1; the factor is rounded three times."""
    if not isinstance(x, Expression) or any(isinstance(constant, Expression) for constant in constants):
        raise InputError("scale, bias, mean and variance must be constant, got a variable")
    if any(constant.shape != x.shape[1:2] for constant in constants):
        raise InputError(f"scale, bias, mean and variance must fit the channels, got {[c.shape for c in constants]}")
    scale, bias, mean, variance = (np.asarray(constant, dtype=np.float64).reshape(-1, *[1] * (len(x.shape) - 2))
                                   for constant in constants)
    factor = scale / np.sqrt(variance + attributes.get("epsilon", float(np.float32(1e-5))))
    if not (np.isfinite(factor) & ((scale == 0) | (np.abs(factor) > 2.0**-900))).all():
        raise InputError("scale / sqrt(variance + epsilon) must be a normal number, got NaN, infinity or nearly 0")
    return _added(_scaled(_added(x, -mean), factor, doubt=8 * UNIT), bias)


def _concatenated(attributes: Attributes, *operands: Value) -> Expression:
    values = [_expression(operand) for operand in operands]
    first = np.cumsum([0, *(value.index.size for value in values)])
    index = np.concatenate([v.index + at for v, at in zip(values, first, strict=False)], axis=attributes["axis"])
    parts = dict[int, Part]()
    for source in {source for value in values for source in value.parts}:
        blocks = {int(at): v for at, v in zip(first, values, strict=False) if source in v.parts}
        width = next(iter(blocks.values())).width(source)
        _require_room(int(first[-1]), width)
        matrix = np.zeros((first[-1], width))
        bound = np.zeros_like(matrix)
        for at, value in blocks.items():
            rows, error = slice(at, at + value.index.size), value.parts[source][1]
            matrix[rows], bound[rows] = value.dense(source), 0 if error is None else error
        parts[source] = matrix, _bound(0, bound)
    return Expression((int(first[-1]),), parts).at(index)


def _given(attributes: Attributes, name: str, operand: Array | None) -> list[int] | None:
    """Integers of an attribute in old opsets and of an operand in new ones."""
    if operand is None:
        return attributes.get(name)
    if operand.dtype.kind not in "iu":
        raise InputError(f"{name} must be integers, got {operand.dtype}")
    return [int(value) for value in operand.ravel()]


def _reshape(index: Index, attributes: Attributes, shape: Array) -> Index:
    sizes = _given(attributes, "shape", shape) or []
    kept = [index.shape[k] if size == 0 and not attributes.get("allowzero") else size for k, size in enumerate(sizes)]
    return index.reshape(kept)


def _flatten(index: Index, attributes: Attributes) -> Index:
    axis = attributes.get("axis", 1)
    if not -index.ndim <= axis <= index.ndim:
        raise InputError(f"axis must be in [-{index.ndim}, {index.ndim}], got {axis}")
    return index.reshape(int(np.prod(index.shape[:axis])), -1)


def _squeeze(index: Index, attributes: Attributes, axes: Array | None = None) -> Index:
    given = _given(attributes, "axes", axes)
    return np.squeeze(index, None if given is None else tuple(given))


def _unsqueeze(index: Index, attributes: Attributes, axes: Array | None = None) -> Index:
    return np.expand_dims(index, tuple(_given(attributes, "axes", axes) or ()))


def _slice(index: Index, attributes: Attributes, *operands: Array | None) -> Index:
    names = ("starts", "ends", "axes", "steps")
    starts, ends, axes, steps = (_given(attributes, name, operand) for name, operand in
                                 zip(names, (*operands, *[None] * (4 - len(operands))), strict=True))
    cut = [slice(None)] * index.ndim
    axes = list(range(len(starts or ()))) if axes is None else [axis % index.ndim for axis in axes]
    if len(set(axes)) < len(axes):
        raise InputError(f"axes must be distinct, got {axes}")
    for axis, start, end, step in zip(axes, starts or (), ends or (), steps or [1] * len(axes), strict=True):
        cut[axis] = slice(start, end, step)
    return index[tuple(cut)]


def _split(index: Index, attributes: Attributes, count: int, sizes: Array | None = None) -> list[Index]:
    axis = attributes.get("axis", 0)
    size, parts = index.shape[axis], _given(attributes, "split", sizes)
    if parts is None:
        each = -(-size // count)
        parts = [each] * (count - 1) + [size - each * (count - 1)]
        if "num_outputs" not in attributes and size % count:
            parts = []
    if len(parts) != count or sum(parts) != size or min(parts) < 1:
        raise InputError(f"sizes must be {count} and add up to {size}, got {parts}")
    return np.split(index, np.cumsum(parts)[:-1], axis)


ARITHMETIC: Mapping[str, Callable[..., Expression]] = {
    "Add": lambda _, a, b: _added(a, b),
    "BatchNormalization": _normalized,
    "Concat": _concatenated,
    "Div": lambda _, a, b: _scaled(a, b, np.divide),
    "Gemm": _gemm,
    "MatMul": lambda _, a, b: _product(a, b),
    "Mul": lambda _, a, b: _scaled(a, b) if isinstance(a, Expression) else _scaled(b, a),
    "Neg": lambda _, a: _negative(a),
    "Sub": lambda _, a, b: _added(a, _negative(b)),
}
MOVES: Mapping[str, Callable[..., Index]] = {
    "Dropout": lambda index, *_: index,
    "Flatten": _flatten,
    "Gather": lambda index, attributes, places: np.take(index, places, axis=attributes.get("axis", 0)),
    "Identity": lambda index, _: index,
    "Reshape": _reshape,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Transpose": lambda index, attributes: np.transpose(index, attributes.get("perm")),
    "Unsqueeze": _unsqueeze,
}
