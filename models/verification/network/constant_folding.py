"""What a node of constants computes: a weight, by onnxruntime itself, for that is what will compute it again.

onnx.reference means something else by a number of operators (Softmax before opset 13, an LSTM's clip, the order of
Unique), and a proof about weights that the runtime does not use says nothing. So each such node is run alone, as a
file of one node, in the session that counterexamples are replayed in.

Alone and in its file a node must mean the same, so two families are refused: a result of float16 that is not merely
moved or converted (onnxruntime computes a chain of them in float32 and rounds once, or never), and numbers that are
quantised (before a matrix product it leaves them so, and rounds the other factor to 8 bits).

A file from anybody must not hang or fill the memory. Only operators whose work is known from the sizes before they run
are folded: no loops, no branches, no recurrent cells, no convolutions, nothing whose size depends on data. All work on
constants of one file has a limit together, MOST_WORK.
"""

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from feature_store.errors import InputError
from models.verification.network.affine_expression import require_room
from models.verification.network.runtime_session import open_session

Array = NDArray[Any]

# Values read and written; products made, PRODUCTS of which count as one; and for every node NODE, since the runtime
# takes about a millisecond to start: some seconds on one core in all.
MOST_WORK, PRODUCTS, NODE = 2**28, 16, 2**15
# Arrays of at most so many values stand in the file of one node, where the sizes of its results are inferred from them.
SMALL = 1024
IR_VERSION = 8  # the same for every opset: onnxruntime takes it with all of them
TYPES = frozenset(map(np.dtype, (np.float16, np.float32, np.float64, np.bool_, np.int8, np.int16, np.int32, np.int64,
                                 np.uint8, np.uint16, np.uint32, np.uint64)))
# Each value of a result takes at most a few operations on each value read. Not GatherND and its kin: fed with nonsense,
# it ended the process or took 50 s (onnxruntime 1.31.1); the operators here stood 40,000 random nodes.
FOLDED = frozenset((
    *("Abs", "Add", "And", "Cast", "CastLike", "Ceil", "Clip", "Cos", "Div", "Equal", "Erf", "Exp", "Floor", "Greater"),
    *("GreaterOrEqual", "HardSigmoid", "Identity", "LeakyRelu", "Less", "LessOrEqual", "Log", "Max", "Mean", "Min"),
    *("Mod", "Mul", "Neg", "Not", "Or", "Pow", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Softplus"),
    *("Sqrt", "Sub", "Sum", "Tanh", "Where", "Xor"),
    *("Concat", "ConstantOfShape", "Dropout", "Expand", "EyeLike", "Flatten", "Gather", "Pad"),
    *("Range", "Reshape", "Shape", "Size", "Slice", "Split", "Squeeze", "Tile", "Transpose", "Trilu", "Unsqueeze"),
    *("ArgMax", "ArgMin", "CumSum", "ReduceL1", "ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd"),
    *("ReduceSum", "ReduceSumSquare"),
    *("BatchNormalization", "Gemm", "Hardmax", "LogSoftmax", "MatMul", "Softmax"),
))
# What gives float16 numbers as they were, or rounds each once.
MOVED = frozenset(("Cast", "CastLike", "Concat", "Dropout", "Expand", "Flatten", "Gather", "Identity", "Reshape",
                   "Shape", "Size", "Slice", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"))
HALF = np.dtype(np.float16)


class ConstantFolder:
    """Folds the nodes of one file, of one opset, until its work is done."""

    def __init__(self, opset: int) -> None:
        self.opset, self.work = opset, 0

    def fold(self, node: onnx.NodeProto, operands: Mapping[str, Array]) -> list[Array]:
        """The outputs of a node, in the file's own types; an output without a name is empty.

        Args:
            operands: by name, of those inputs that the node gives.

        Raises:
            InputError: another operator; operands that do not fit; a type other than floats, integers and bool;
                more work than MOST_WORK in all.
        """
        if node.op_type == "Constant":
            return [_stored(node)]
        if node.op_type not in FOLDED:
            raise InputError("operator on constants must be one that can be folded (docs/reference/assay-verify.md), "
                             f"got {node.op_type}: export the file with its result in its place")
        for array in operands.values():
            _require_type(array)
        if node.op_type not in MOVED and any(array.dtype == HALF for array in operands.values()):
            raise InputError("constants of float16 must be moved or converted alone, for onnxruntime need not round "
                             f"what it computes of them to float16, got {node.op_type}: export the file with its "
                             "result in its place")
        _require_defined(node, [operands[name] for name in node.input if name])
        small = {name: array for name, array in operands.items() if array.size <= SMALL}
        model = self._model(node, operands, small)
        sizes = [_sizes(output) for output in model.graph.output]
        for size in sizes:
            require_room(*size)
        self._spend(node, operands, sizes)
        found = iter(_run(model, {name: array for name, array in operands.items() if name not in small}))
        results = [next(found) if name else np.zeros(0) for name in node.output]
        for array in results:
            _require_type(array)
        return results

    def _model(self, node: onnx.NodeProto, operands: Mapping[str, Array],
               small: Mapping[str, Array]) -> onnx.ModelProto:
        """A file of this node, with the sizes of its outputs."""
        inputs = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
                  for name, array in operands.items() if name not in small]
        stored = [numpy_helper.from_array(array, name) for name, array in small.items()]
        outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
        model = helper.make_model(helper.make_graph([node], "constant", inputs, outputs, stored),
                                  opset_imports=[helper.make_opsetid("", self.opset)], ir_version=IR_VERSION)
        try:
            return onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
        except Exception as error:  # it has no family of errors
            raise InputError(f"constants must fit the operator, got {_line(error)}") from error

    def _spend(self, node: onnx.NodeProto, operands: Mapping[str, Array], sizes: list[tuple[int, ...]]) -> None:
        values = NODE + sum(array.size for array in operands.values()) + sum(map(prod, sizes))
        if node.op_type in ("Gemm", "MatMul"):
            first = next(iter(operands.values()))
            inner = first.shape[0 if any(a.name == "transA" and a.i for a in node.attribute) else -1]
            values += prod(sizes[0]) * inner // PRODUCTS
        self.work += values
        if self.work > MOST_WORK:
            raise InputError(f"computing the constants must handle at most {MOST_WORK:,} values, got {self.work:,}: "
                             "export the file with the results in their place")


def _stored(node: onnx.NodeProto) -> Array:
    """A Constant's value. With two attributes its meaning would depend on the reader."""
    if len(node.attribute) != 1:
        raise InputError(f"Constant must have one attribute, got {len(node.attribute)}: "
                         + (", ".join(a.name for a in node.attribute) or "none"))
    (attribute,) = node.attribute
    value = helper.get_attribute_value(attribute)
    match attribute.name:
        case "value":
            array = numpy_helper.to_array(value)
        case "value_float" | "value_floats":
            array = np.array(value, dtype=np.float32)
        case "value_int" | "value_ints":
            array = np.array(value, dtype=np.int64)
        case name:
            raise InputError(f"Constant must hold numbers as a dense tensor, got {name}")
    return _require_type(array)


def _require_type(array: Array) -> Array:
    if array.dtype not in TYPES:
        raise InputError(f"constants must be floats of 16 to 64 bits, integers of 8 to 64 or bool, got {array.dtype}")
    return array


def _require_defined(node: onnx.NodeProto, operands: list[Array]) -> None:
    """A processor stops a program that divides an integer by 0, or the smallest one by -1."""
    if node.op_type.startswith(("Reduce", "Arg")) and not operands[0].size:
        raise InputError("constant must have a value to be reduced, got none")
    if node.op_type in ("Div", "Mod") and operands[1].dtype.kind in "iu":
        over, by = operands
        smallest = over.dtype.kind == "i" and bool((over == np.iinfo(over.dtype).min).any() and (by == -1).any())
        if smallest or not by.all():
            what = "of the smallest one by -1" if smallest else "by 0"
            raise InputError(f"integers must have a quotient, got a division {what}")


def _sizes(output: onnx.ValueInfoProto) -> tuple[int, ...]:
    tensor = output.type.tensor_type
    if not tensor.HasField("shape") or any(not size.HasField("dim_value") for size in tensor.shape.dim):
        raise InputError("size of a constant must be known before it is computed, got one that depends on data")
    return tuple(size.dim_value for size in tensor.shape.dim)


def _run(model: onnx.ModelProto, fed: Mapping[str, Array]) -> list[Array]:
    try:
        session = open_session(model.SerializeToString(), optimised=False)
        return [np.asarray(array) for array in session.run(None, dict(fed))]
    except Exception as error:  # it has no family of errors
        raise InputError(f"constants must fit the operator, got {_line(error)}") from error


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
