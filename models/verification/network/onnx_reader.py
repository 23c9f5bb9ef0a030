"""Reads a feed-forward ONNX network of any author into the normal form that is verified.

First step of verifying a network from outside: file -> `Graph` -> bounds. The file is executed on symbols: a tensor
is a constant array, or an `Expression`, affine in the network's input and in the outputs of the activations before
it. Each activation makes a layer.

What is read is real arithmetic on the stored weights, for one example: a symbolic batch is 1. Nodes without a
variable operand are weights too: they are folded by onnxruntime (constant_folding.py), in the file's own types.

The arithmetic and its rounding: affine_expression.py; operators that only move values: index_moves.py. That the runtime
computes what was read is checked by runtime_agreement.py, where there is a box.

Symbols: n inputs, o outputs, both flattened in C order.
"""

import gzip
import hashlib
import math
import time
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, defs, helper, numpy_helper

from feature_store.errors import InputError
from models.verification.checker.chain import CLIP_BY_INPUTS, LEARNING, REFUSED
from models.verification.checker.scalar_factors import ScalarFactors
from models.verification.checker.time_limit import require_time
from models.verification.network.affine_expression import (
    ARITHMETIC,
    LEARNED,
    OFFSET,
    VALUE,
    Array,
    Attributes,
    Expression,
    Value,
    require_work,
    work_of,
)
from models.verification.network.constant_folding import ConstantFolder
from models.verification.network.graph import Affine, Graph, Kind, Layer
from models.verification.network.index_moves import MOVES, split

MOST_MODEL = 2**31  # bytes: no ONNX file has more
PIECE = 2**24  # bytes that are unpacked between two looks at the clock
OLDEST_OPSET = 7  # before it Add, Mul and Gemm broadcast by attributes
FLOATS = {TensorProto.FLOAT: np.float32, TensorProto.DOUBLE: np.float64, TensorProto.FLOAT16: np.float16}
NO_CHANGE = ("Cast", "Split")  # beside MOVES: what may go before a fusion is looked for
KINDS: dict[str, Kind] = {"Relu": "relu", "LeakyRelu": "leaky_relu", "Tanh": "tanh", "Sigmoid": "sigmoid"}


@dataclass(frozen=True)
class OnnxNetwork:
    """A network in normal form and where it is from.

    graph: x (batch, n) -> y (batch, o); input_shape: of one example as a runtime takes it, a symbolic batch being 1,
    n = prod(input_shape); number: its type; executed: the type that the file computes in; sha256: hex digest of the
    file; opset: version of ONNX's operators.
    """

    graph: Graph
    input_name: str
    output_name: str
    input_shape: tuple[int, ...]
    number: np.dtype[Any]
    executed: np.dtype[Any]
    sha256: str
    opset: int


def model_bytes(path: Path) -> bytes:
    """The content of an ONNX file, also of one that is packed (`.onnx.gz`). Raises InputError."""
    if path.suffix != ".gz":
        return path.read_bytes()
    try:
        content = bytearray()
        with gzip.open(path) as file:
            while len(content) <= MOST_MODEL and (part := file.read(PIECE)):
                require_time()
                content += part
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"model must be packed by gzip, as its name says, got {error} ({path})") from error
    if len(content) > MOST_MODEL:
        raise InputError(f"model must have at most {MOST_MODEL:,} bytes, got more when it was unpacked ({path})")
    return bytes(content)


def read_onnx(source: Path | bytes, seconds: float = math.inf) -> OnnxNetwork:
    """Reads an ONNX file, or its content.

    It may be any acyclic network with one input and one output, of float16, float32 or float64, of these operators:
    Gemm, MatMul, Mul, Div and BatchNormalization by constants, Add, Sub, Neg; Relu, LeakyRelu, Clip, Tanh, Sigmoid;
    what moves values about (Concat, Split, Slice, Gather, Reshape, Flatten, Squeeze, Unsqueeze, Transpose, Identity,
    Dropout); of ONNX-ML Scaler and LinearRegressor; and whatever depends on constants and shapes alone. Raises
    InputError where the file is not such a network, is more work than MOST_WORK or takes longer than `seconds`; the
    message names the node.
    """
    where = "bytes" if isinstance(source, bytes) else source
    try:
        deadline = time.monotonic() + seconds
        return _network(source if isinstance(source, bytes) else model_bytes(source), deadline)
    except InputError:
        raise
    except Exception as error:  # a malformed file of any kind is a refusal, not a crash
        said = " ".join(str(error).split())
        raise InputError(f"model must be a valid ONNX file, got {type(error).__name__}: {said} ({where})") from error


def _network(content: bytes, deadline: float) -> OnnxNetwork:
    model = onnx.load_model_from_string(content)
    _require_plain(model)
    onnx.checker.check_model(model)
    versions = sorted({entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")})
    if len(versions) != 1:
        raise InputError(f"file must import ONNX's operators in one version, got {versions}")
    (opset,) = versions
    if not OLDEST_OPSET <= opset <= defs.onnx_opset_version():
        raise InputError(f"opset must be {OLDEST_OPSET} to {defs.onnx_opset_version()}, got {opset}: "
                         "convert the model by onnx.version_converter")
    reader, name = _Reader(model.graph, opset), model.graph.output[0].name
    with np.errstate(all="ignore"):  # what overflows is refused by its node's name
        for node in model.graph.node:
            if time.monotonic() > deadline:
                raise InputError(f"network must be read within the time limit, got no further ({_where(node)})")
            reader.run(node)
    y = reader.values.get(name)
    if not isinstance(y, Expression):
        raise InputError(f"output must depend on the input, got a constant or a mask (output {name!r})")
    require_time()
    onnx.checker.check_model(model, full_check=True)  # after the reader, which names the node
    graph = Graph(reader.input.index.size, tuple(reader.layers), reader.affine(y))
    return OnnxNetwork(graph, reader.input_name, name, reader.input.shape, reader.number, reader.dtype,
                       hashlib.sha256(content).hexdigest(), opset)


class _Reader:
    """The values by name and the layers made so far."""

    def __init__(self, graph: onnx.GraphProto, opset: int) -> None:
        self.opset, self.folder, self.layers, self.work = opset, ConstantFolder(opset), list[Layer](), 0
        self.factors = ScalarFactors() if any(node.op_type == "MatMul" for node in graph.node) else None
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
        self.number = self.dtype = np.dtype(FLOATS[tensor.elem_type])
        self.output_name, self.narrowed = graph.output[0].name, False
        self.made_by = {name: node for node in graph.node for name in node.output}
        self.values[entry.name] = self.input = Expression(tuple(sizes), {0: (None, None)})

    def run(self, node: onnx.NodeProto) -> None:
        """Computes the outputs of one node. Raises InputError with its name where it cannot."""
        try:
            results = self._results(node)
            self._count(node, results)
        except InputError as error:
            raise InputError(f"{error} ({_where(node)})") from error
        except (ValueError, IndexError, TypeError, ArithmeticError) as error:  # NumPy's
            raise InputError(f"operands must fit the operator, got {error} ({_where(node)})") from error
        for name, value in zip(node.output, results, strict=False):  # Dropout's mask is nobody's
            _require_finite(value, _where(node))
            self.values[name] = value

    def _count(self, node: onnx.NodeProto, results: Sequence[Value]) -> None:
        made = [value for value in results if isinstance(value, Expression)]
        self.work += VALUE * sum(m.size for value in made for m, _ in value.parts.values() if m is not None)
        if made and node.op_type in ("Gemm", "MatMul"):
            self.work += sum(work_of(x, math.prod(made[0].shape)) for name in node.input[:2]
                             if isinstance(x := self.values[name], Expression))
        require_work(self.work)

    def _results(self, node: onnx.NodeProto) -> Sequence[Value]:
        kind, attributes = node.op_type, {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if node.domain not in ("", "ai.onnx", LEARNING):
            raise InputError(f"operator must be ONNX's own, got the domain {node.domain!r}")
        missing = [name for name in node.input if name and name not in self.values]
        if missing:
            raise InputError(f"operand must be an output that inference has, got {missing[0]!r}")
        operands = [self.values[name] if name else None for name in node.input]
        _require_inference(node, attributes, operands)
        if not any(isinstance(operand, Expression) for operand in operands):
            return self._folded(node)
        if kind == "Cast":
            return [self._cast(node, attributes, operands)]
        if self.narrowed:
            raise InputError("output must be converted last, got a node after it")
        if node.domain == LEARNING:
            return [self._learning(kind, attributes, operands)]
        supported = sorted({*KINDS, *ARITHMETIC, *MOVES, "Clip", "Shape", "Split"})
        if kind not in supported:
            raise InputError(f"operator must be one of {', '.join(supported)}, got {kind}")
        if kind in ARITHMETIC:
            types = {operand.dtype for operand in operands if isinstance(operand, np.ndarray)}
            if types - {self.dtype}:
                raise InputError(f"operands must have the input's type {self.dtype}, got {', '.join(map(str, types))}")
            self._require_factors(kind, operands)
            if kind == "BatchNormalization":
                self._require_channels(node)
            return [ARITHMETIC[kind](attributes, *operands)]
        x, rest = operands[0], [operand for operand in operands[1:] if not isinstance(operand, Expression)]
        if not isinstance(x, Expression) or len(rest) < len(operands) - 1:
            raise InputError("indices and shapes must be constant, got a variable")
        if kind in KINDS:
            return [self._activation(KINDS[kind], attributes, x)]
        if kind == "Clip":
            return [self._clip(attributes, x, *rest)]
        if kind == "Shape":
            return [np.array(x.shape[attributes.get("start", 0):attributes.get("end")], dtype=np.int64)]
        if kind == "Split":
            return [x.at(index) for index in split(x.index, attributes, len(node.output), *rest)]
        return [x.at(MOVES[kind](x.index, attributes, *rest))]

    def _cast(self, node: onnx.NodeProto, attributes: Attributes, operands: Sequence[Value | None]) -> Value:
        """The conversions of a file that computes in float64: of its input of float32, and of its output back to it."""
        x = operands[0]
        assert isinstance(x, Expression)  # or it would have been folded
        if set(attributes) == {"to"} and FLOATS.get(attributes["to"]) == self.dtype and not self.narrowed:
            return x
        widens = x is self.input and self.number == self.dtype == np.float32 and not self.layers and self.work == 0
        narrows = self.number != self.dtype and list(node.output) == [self.output_name]
        to = attributes.get("to")
        if len(operands) != 1 or set(attributes) != {"to"} or not (
                (widens and to == TensorProto.DOUBLE) or (narrows and to == TensorProto.FLOAT)):
            raise InputError("Cast of a variable must convert an input of float32 to float64, before anything else, or "
                             "the output back to it, or to the type that it has")
        if widens:
            self.dtype = np.dtype(np.float64)
        else:
            self.narrowed = True
        return x

    def _learning(self, kind: str, attributes: Attributes, operands: Sequence[Value | None]) -> Expression:
        """ONNX-ML's operators, which compute in float32."""
        x = operands[0]
        if kind not in LEARNED or len(operands) != 1 or not isinstance(x, Expression):
            raise InputError(f"operator of ONNX-ML must be one of {', '.join(LEARNED)}, got {kind}"
                             f"{REFUSED.get(kind, '')}")
        if self.dtype != np.float32:
            raise InputError(f"{kind} must be of float32, in which onnxruntime computes it, got {self.dtype}")
        found = LEARNED[kind](attributes, x)
        self.work += VALUE * found.index.size
        return found

    def _require_factors(self, kind: str, operands: Sequence[Value | None]) -> None:
        if self.factors is None or kind not in ("Mul", "Div"):
            return
        for operand in operands:
            if isinstance(operand, np.ndarray) and operand.size == 1 and \
                    (objection := self.factors.objection(operand.item(), kind == "Div", operand.dtype)):
                raise InputError(objection)

    def _require_channels(self, node: onnx.NodeProto) -> None:
        """onnxruntime 1.31.1 multiplies the columns of a matrix by the factors of a BatchNormalization after its
        product, also where a Transpose between the two has made the rows its channels."""
        above, turned = self.made_by.get(node.input[0]), False
        while above is not None and (above.op_type in MOVES or above.op_type in NO_CHANGE or self._does_nothing(above)):
            turned |= above.op_type in ("Transpose", "Reshape")
            variable = [name for name in above.input if isinstance(self.values.get(name), Expression)]
            above = self.made_by.get(variable[0]) if variable else None
        if turned and above is not None and above.op_type == "MatMul":
            raise InputError("BatchNormalization must not stand behind a MatMul whose result is transposed or "
                             "reshaped, which onnxruntime fuses to something else: export the file with its factors in "
                             "the matrix")

    def _does_nothing(self, node: onnx.NodeProto) -> bool:
        neutral = {"Add": 0, "Sub": 0, "Mul": 1, "Div": 1}.get(node.op_type)
        constants = [value for name in node.input if isinstance(value := self.values.get(name), np.ndarray)]
        return neutral is not None and len(constants) == 1 and bool((constants[0] == neutral).all())

    def _activation(self, kind: Kind, attributes: Attributes, x: Expression) -> Expression:
        leak = attributes.get("alpha", float(np.float32(0.01))) if kind == "leaky_relu" else 0.0
        if not 0 <= leak < 1:
            raise InputError(f"alpha must be in [0, 1), got {leak}")
        self.layers.append(Layer(self.affine(x), kind, leak))
        return Expression(x.shape, {len(self.layers): (None, None)})

    def _clip(self, attributes: Attributes, x: Expression, least: Value | None = None, most: Value | None = None
              ) -> Expression:
        """max(x, least) as a ReLU of what x is above it, then the same from above."""
        add, subtract = (partial(ARITHMETIC[name], {}) for name in ("Add", "Sub"))
        if self.opset < CLIP_BY_INPUTS:
            least, most = (np.asarray(attributes[key], self.dtype) if key in attributes else None
                           for key in ("min", "max"))
        limits = list[Array | None]()
        for limit in (least, most):
            if limit is not None and (isinstance(limit, Expression) or limit.size != 1 or limit.dtype != self.dtype):
                raise InputError(f"limit must be one number of the input's type {self.dtype}")
            limits.append(None if limit is None else np.reshape(limit, ()))
        low, high = limits
        if low is not None:
            x = add(self._activation("relu", {}, subtract(x, low)), low)
        return x if high is None else subtract(high, self._activation("relu", {}, subtract(high, x)))

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
        given = {name: np.asarray(self.values[name]) for name in node.input if name}
        return self.folder.fold(node, given)


def _where(node: onnx.NodeProto) -> str:
    return f"node {node.name or '/'.join(node.output)!r}, {node.op_type}"


def _require_plain(model: onnx.ModelProto) -> None:
    """One input, one output, and nothing outside of the file and of ONNX's own operators."""
    graph = model.graph
    stored = {tensor.name for tensor in graph.initializer}
    for what, names in (("input", [i.name for i in graph.input if i.name not in stored]),
                        ("output", [o.name for o in graph.output])):
        if len(names) != 1:
            advice = "; onnx.utils.extract_model makes a file of one" if what == "output" and names else ""
            raise InputError(f"network must have one {what}, got {len(names)}: {', '.join(names) or 'none'}{advice}")
    named = [i.name for i in graph.input if i.name not in stored] + [tensor.name for tensor in graph.initializer]
    named += [name for node in graph.node for name in node.output if name]
    if repeated := [name for name, count in Counter(named).items() if count > 1]:
        raise InputError(f"name must be given to one value, got {repeated[0]!r} twice")
    for node in graph.node:
        if len({a.name for a in node.attribute}) < len(node.attribute):
            raise InputError(f"attribute must be given once, got {[a.name for a in node.attribute]} ({_where(node)})")
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
