"""The network in anybody's ONNX file as the checker sees it: a chain of affine maps, some followed by an activation.

Reads one shape of graph: a chain of Flatten, Reshape, Identity, Gemm, MatMul, Add, Sub, Mul, Div by constants of the
file, Relu, Clip, Tanh, Sigmoid, and ONNX-ML's Scaler and LinearRegressor, from the one input to the one output; or such
a chain in float64 between two conversions, Cast and Cast, of an input and to an output of float32. Nothing is
multiplied out, so that nothing is rounded: a Sub is a layer of its own, with the identity as its matrix, and a Clip has
a ReLU for each limit. A Div by c is one of 1 / c, off by a relative u = 2^-53 at most, which the bounds' charge for the
layer covers (64 u of it are to spare, bounds.py). Whatever else a file holds is refused: its proof cannot be checked
here.

Flow: proof_file.py checks proofs about what is read here, of bundles and of anybody's files.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from models.verification.checker.archive import Array, Rejected
from models.verification.checker.relaxations import Kind
from models.verification.checker.scalar_factors import ScalarFactors
from models.verification.checker.time_limit import require_time

FLOATS = {onnx.TensorProto.FLOAT: np.float32, onnx.TensorProto.DOUBLE: np.float64, onnx.TensorProto.FLOAT16: np.float16}
Type = np.dtype[Any]
FLOAT64: Type = np.dtype(np.float64)
CURVES: dict[str, Kind] = {"Tanh": "tanh", "Sigmoid": "sigmoid"}
LEARNING = "ai.onnx.ml"  # the domain of ONNX-ML's operators
# What a refusal of the operator says besides its name: it is neither affine nor monotone in one input at a time.
REFUSED = {"Normalizer": ", whose division by a norm is not read: export the steps behind it, and give the box of what "
                         "it gives"}
CLIP_BY_INPUTS = 11  # opset from which on its limits are operands; attributes before


@dataclass(frozen=True)
class Chain:
    """v[k + 1] = activation[k](weights[k] @ v[k] + biases[k]), v[0] = x; y is the last, without an activation.

    weights[k] (w[k], w[k - 1]) and biases[k] (w[k],) in float64; kinds[k]: what follows layer k; fed, executed: the
    types that the file takes and gives, and that it computes in; exact: whether the weights are the file's own, none of
    them a rounded 1 / c.
    """

    weights: tuple[Array, ...]
    biases: tuple[Array, ...]
    kinds: tuple[Kind, ...]
    fed: Type = FLOAT64
    executed: Type = FLOAT64
    exact: bool = True

    @property
    def relus(self) -> tuple[bool, ...]:
        """After which layers a ReLU stands. Raises Rejected where there is another activation."""
        if others := set(self.kinds) - {"identity", "relu"}:
            raise Rejected(f"activations must be ReLUs, got {', '.join(sorted(others))}")
        return tuple(kind == "relu" for kind in self.kinds)

    def row(self, output: int) -> "Chain":
        """The chain to one of its outputs."""
        one = slice(output, output + 1)
        return replace(self, weights=(*self.weights[:-1], self.weights[-1][one]),
                       biases=(*self.biases[:-1], self.biases[-1][one]))

    def step(self, feature: int, output: int, low: float, high: float) -> "Chain":
        """x -> y[output] at x[feature] = high minus that at low, whatever x[feature] is: two copies side by side."""
        inputs = self.weights[0].shape[1]
        held = np.eye(inputs)
        held[feature] = 0
        point = np.zeros(2 * inputs)
        point[[feature, inputs + feature]] = low, high
        one = self.row(output)
        weights = [np.block([[w, np.zeros_like(w)], [np.zeros_like(w), w]]) for w in one.weights]
        return replace(self, weights=(np.vstack([held, held]), *weights, np.array([[-1.0, 1.0]])),
                       biases=(point, *(np.tile(b, 2) for b in one.biases), np.zeros(1)),
                       kinds=("identity", *one.kinds, "identity"))


def read_chain(file: bytes, curves: bool = False) -> Chain:
    """The chain in an ONNX file, with Tanh and Sigmoid where asked. Raises Rejected for any other, naming the node."""
    model = onnx.load_model_from_string(file)
    graph = model.graph
    names = {tensor.name for tensor in graph.initializer}
    variables = [entry for entry in graph.input if entry.name not in names]  # old files list the weights too
    _require_plain(model, variables)
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    (source,) = variables
    if len(graph.output) != 1 or source.type.tensor_type.elem_type not in FLOATS:
        raise Rejected(f"network must have one input of floats and one output, got {len(graph.output)} outputs")
    sizes = [d.dim_value if d.HasField("dim_value") else int(k == 0)
             for k, d in enumerate(source.type.tensor_type.shape.dim)]
    fed = executed = np.dtype(FLOATS[source.type.tensor_type.elem_type])
    nodes, first, last = list(graph.node), source.name, graph.output[0].name
    if nodes and nodes[0].op_type == "Cast" and not _same_type(nodes[0], executed):
        nodes, first, last = _between_casts(graph, source.name, last)
        executed = FLOAT64
    opset = max((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=0)
    reader = _Reader(first, tuple(sizes), executed, any(node.op_type == "MatMul" for node in nodes), opset,
                     {"Relu": "relu", **(CURVES if curves else {})})
    for node in nodes:
        require_time()
        if node.op_type == "Constant":
            stored[node.output[0]] = _constant(node)
            continue
        try:
            reader.run(node, stored)
        except (ValueError, IndexError) as error:
            raise Rejected(f"operands must fit, got {error} (node {node.name!r}, {node.op_type})") from error
    if reader.flowing != last:
        raise Rejected("nodes must form a chain from the input to the output")
    return replace(reader.chain(), fed=fed, executed=executed)


def _constant(node: onnx.NodeProto) -> NDArray[Any]:
    """A Constant's value, by the name of its one attribute."""
    for attribute in node.attribute if len(node.attribute) == 1 else ():
        match attribute.name:
            case "value":
                return numpy_helper.to_array(attribute.t)
            case "value_float" | "value_floats":
                return np.array(helper.get_attribute_value(attribute), dtype=np.float32)
            case "value_int" | "value_ints":
                return np.array(helper.get_attribute_value(attribute), dtype=np.int64)
    raise Rejected(f"Constant must hold numbers as one dense tensor, got {', '.join(a.name for a in node.attribute)} "
                   f"(node {node.name or node.output[0]!r})")


def _same_type(node: onnx.NodeProto, dtype: Type) -> bool:
    """Whether a Cast converts to the type that its operand has."""
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    return set(attributes) == {"to"} and FLOATS.get(attributes["to"]) == dtype


def _between_casts(graph: onnx.GraphProto, source: str, result: str) -> tuple[list[onnx.NodeProto], str, str]:
    """The nodes between the conversions to float64 and back to float32, what the first takes, what the last gives."""
    first, *nodes, last = graph.node
    elements = [value.type.tensor_type.elem_type for value in graph.input if value.name == source]
    for node, kind in ((first, onnx.TensorProto.DOUBLE), (last, onnx.TensorProto.FLOAT)):
        if node.op_type != "Cast" or list(node.attribute) != [helper.make_attribute("to", kind)] or \
                len(node.input) != 1 or len(node.output) != 1 or node.domain not in ("", "ai.onnx"):
            raise Rejected(f"a graph in float64 must stand between a Cast to it and one to float32 ({node.name!r})")
    if not nodes or list(first.input) != [source] or list(last.output) != [result] or \
            elements != [onnx.TensorProto.FLOAT]:
        raise Rejected("a graph in float64 must stand between a Cast of its input of float32 and one of its output")
    return nodes, first.output[0], last.input[0]


class _Reader:
    def __init__(self, name: str, shape: tuple[int, ...], dtype: Type, fused: bool, opset: int,
                 activations: Mapping[str, Kind]) -> None:
        self.flowing, self.shape, self.dtype, self.opset, self.activations = name, shape, dtype, opset, activations
        self.factors = ScalarFactors() if fused else None
        self.exact = True
        self.layers: list[tuple[Array, Array]] = []
        self.kinds: list[Kind] = []

    def run(self, node: onnx.NodeProto, stored: dict[str, NDArray[Any]]) -> None:
        """One node of the chain."""
        where = f"node {node.name or node.output[0]!r}, {node.op_type}"
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        left_out = {""} if node.op_type == "Clip" else set()
        variables = [name for name in node.input if name not in stored and name not in left_out]
        if variables != [self.flowing] or len(node.output) != 1 or node.domain not in ("", "ai.onnx", LEARNING):
            raise Rejected(f"nodes must form a chain of one variable each ({where})")
        self.flowing, first = node.output[0], node.input[0] == self.flowing
        if node.domain == LEARNING:
            self._learning(node, attributes, where)
            return
        if node.op_type == "Reshape" and first and len(node.input) == 2 and not attributes.get("allowzero"):
            self._reshape(stored[node.input[1]], where)
            return
        if node.op_type == "Clip" and first:
            self._clip(node, attributes, stored, where)
            return
        constants = [np.asarray(stored[name], dtype=np.float64) for name in node.input if name in stored]
        if not all(np.isfinite(c).all() and stored[name].dtype == self.dtype for c, name in zip(
                constants, (name for name in node.input if name in stored), strict=True)):
            raise Rejected(f"weights must be finite numbers of {self.dtype} ({where})")
        size = prod(self.shape)
        match node.op_type:
            case kind if kind in self.activations and len(node.input) == 1 and not attributes:
                self._activation(self.activations[kind])
            case "Flatten" if not constants and attributes.get("axis", 1) == 1:
                self.shape = (self.shape[0], prod(self.shape[1:]))
            case "Identity" if not constants:
                pass
            case "Cast" if not constants and _same_type(node, self.dtype):
                pass
            case "Add" | "Sub" | "Mul" | "Div" if len(constants) == 1 and not attributes and (
                    first or node.op_type in ("Add", "Mul")):
                if np.broadcast_shapes(self.shape, constants[0].shape) != self.shape:
                    raise Rejected(f"constant must keep the shape {self.shape}, got {constants[0].shape} ({where})")
                values = np.broadcast_to(constants[0], self.shape).reshape(-1)
                if node.op_type in ("Mul", "Div"):
                    self._require_factor(constants[0], node.op_type == "Div", where)
                    self._affine(np.diag(self._inverse(values, where) if node.op_type == "Div" else values),
                                 np.zeros(size))
                    if node.op_type == "Div":  # room for a runtime that multiplies by 1 / c: it rounds once more
                        self._affine(np.eye(size), np.zeros(size))
                else:
                    self._shift(values if node.op_type == "Add" else -values)
            case "MatMul" if len(constants) == 1 and first and constants[0].ndim == 2:
                self._linear(constants[0].T, np.zeros(constants[0].shape[1]), where)
            case "Gemm" if 1 <= len(constants) <= 2 and first and len(self.shape) == 2 and constants[0].ndim == 2 and \
                    {k: v for k, v in attributes.items() if k != "transB"}.items() <= {
                        "alpha": 1.0, "beta": 1.0, "transA": 0}.items():
                weight = constants[0] if attributes.get("transB") else constants[0].T
                bias = np.broadcast_to(constants[1], (1, len(weight))) if len(constants) == 2 else np.zeros(len(weight))
                self._linear(weight, bias.reshape(-1), where)
            case _:
                raise Rejected(f"a network that can be checked is a chain of {', '.join(self.activations)}, Clip, "
                               "Flatten, Reshape, Identity, Scaler, LinearRegressor, and Gemm, MatMul, Add, Sub, Mul, "
                               f"Div by constants ({where})")

    def _activation(self, kind: Kind) -> None:
        if not self.kinds or self.kinds[-1] != "identity":
            size = prod(self.shape)
            self._affine(np.eye(size), np.zeros(size))
        self.kinds[-1] = kind

    def _clip(self, node: onnx.NodeProto, attributes: dict[str, Any], stored: dict[str, NDArray[Any]], where: str
              ) -> None:
        """max(v, least) is relu(v - least) + least, and min(v, most) is most - relu(most - v)."""
        names = [*node.input[1:], "", ""]
        if self.opset < CLIP_BY_INPUTS:
            limits = [np.array(attributes[key], dtype=self.dtype) if key in attributes else None
                      for key in ("min", "max")]
            fits = set(attributes) <= {"min", "max"} and len(node.input) == 1
        else:
            limits = [stored[name] if name else None for name in names[:2]]
            fits = not attributes and not any(names[2:])
        if not fits or any(one is not None and (one.dtype != self.dtype or one.size != 1 or not np.isfinite(one).all())
                           for one in limits):
            raise Rejected(f"limits must be finite numbers of {self.dtype}, one each ({where})")
        size = prod(self.shape)
        least, most = (None if one is None else np.full(size, float(one.item())) for one in limits)
        if least is not None:
            self._shift(-least)
            self._activation("relu")
            self._affine(np.eye(size), least)
        if most is not None:
            self._affine(-np.eye(size), most)
            self._activation("relu")
            self._affine(-np.eye(size), most)

    def _learning(self, node: onnx.NodeProto, attributes: dict[str, Any], where: str) -> None:
        """An operator of ONNX-ML, whose constants are attributes, and which computes in float32."""
        arrays = {name: np.array(value, dtype=np.float64) for name, value in attributes.items() if name in (
            "offset", "scale", "coefficients", "intercepts")}
        size, known = prod(self.shape), set(arrays) | {"targets", "post_transform"}
        plain = self.dtype == np.float32 and self.shape == (1, size) and set(attributes) <= known and \
            attributes.get("post_transform", b"NONE") == b"NONE" and all(np.isfinite(a).all() for a in arrays.values())
        match node.op_type:
            case "Scaler" if plain and set(attributes) == {"offset", "scale"} and all(
                    len(a) in (1, size) for a in arrays.values()):
                self._shift(np.broadcast_to(-arrays["offset"], size))
                self._affine(np.diag(np.broadcast_to(arrays["scale"], size)), np.zeros(size))
            case "LinearRegressor" if plain and "coefficients" in arrays:
                weight = arrays["coefficients"].reshape(attributes.get("targets", 1), size)
                bias = arrays.get("intercepts", np.zeros(len(weight)))
                if bias.shape != (len(weight),):
                    raise Rejected(f"intercepts must fit the targets, got {len(bias)} for {len(weight)} ({where})")
                self._linear(weight, bias, where)
            case _:
                raise Rejected("of ONNX-ML a network that can be checked has Scaler and LinearRegressor alone, of "
                               f"float32, on one row, without a transformation after it ({where})")

    def _reshape(self, target: NDArray[Any], where: str) -> None:
        """Another shape of one example, whose values stay in their order."""
        if target.dtype != np.int64 or target.ndim != 1 or (target < -1).any():
            raise Rejected(f"shape must be a list of whole numbers ({where})")
        sizes = [self.shape[k] if size == 0 else int(size) for k, size in enumerate(target)]
        self.shape = np.empty(self.shape).reshape(sizes).shape

    def _inverse(self, values: Array, where: str) -> Array:
        """1 / values; both normal numbers of the type that the file computes in, so that neither may be flushed."""
        of_type = np.finfo(self.dtype)
        with np.errstate(divide="ignore", over="ignore"):
            inverse = 1 / values
        if any(not ((np.abs(v) >= of_type.tiny) & (np.abs(v) <= of_type.max)).all() for v in (values, inverse)):
            raise Rejected(f"divisors must be normal numbers of {self.dtype}, and so must their inverses ({where})")
        self.exact = self.exact and bool((np.abs(np.frexp(values)[0]) == 0.5).all())  # powers of 2
        return np.asarray(inverse)

    def _require_factor(self, values: Array, divides: bool, where: str) -> None:
        if self.factors is not None and values.size == 1 and \
                (objection := self.factors.objection(values.item(), divides, self.dtype)):
            raise Rejected(f"{objection} ({where})")

    def _linear(self, weight: Array, bias: Array, where: str) -> None:
        if prod(self.shape[:-1]) != 1:
            raise Rejected(f"one example must be one row, got shape {self.shape} ({where})")
        if weight.shape[1] != self.shape[-1]:
            raise Rejected(f"inner sizes must be equal, got {self.shape[-1]} and {weight.shape[1]} ({where})")
        self._affine(weight, bias)
        self.shape = (*self.shape[:-1], len(weight))

    def _shift(self, values: Array) -> None:
        if self.layers and self.kinds[-1] == "identity" and not self.layers[-1][1].any():
            # MatMul, Add: one layer, exactly
            self.layers[-1] = self.layers[-1][0], values.copy()
        elif values.any():
            self._affine(np.eye(len(values)), values.copy())

    def _affine(self, weight: Array, bias: Array) -> None:
        self.layers.append((weight, bias))
        self.kinds.append("identity")

    def chain(self) -> Chain:
        if not self.layers or self.kinds[-1] != "identity":
            size = prod(self.shape)
            self._affine(np.eye(size), np.zeros(size))
        return Chain(tuple(w for w, _ in self.layers), tuple(b for _, b in self.layers), tuple(self.kinds[:-1]),
                     exact=self.exact)


def _require_plain(model: onnx.ModelProto, inputs: Iterable[onnx.ValueInfoProto]) -> None:
    """One meaning a name, and nothing outside of the file: no functions, no sparse and no external weights.

    Raises Rejected where it is not so.
    """
    graph = model.graph
    names = [item.name for item in (*graph.initializer, *inputs)]
    names += [name for node in graph.node for name in node.output]
    if "" in names or len(set(names)) < len(names):
        raise Rejected("every input, weight and node output must have a name of its own")
    tensors = (*graph.initializer, *(attribute.t for node in graph.node for attribute in node.attribute))
    elsewhere = any(tensor.data_location or tensor.external_data for tensor in tensors)
    if elsewhere or model.functions or graph.sparse_initializer:
        raise Rejected("weights must stand in the file itself, as dense tensors, and operators must be ONNX's own")
    onnx.checker.check_model(model)
