"""What a certificate is about: the network in an ONNX file, read strictly, and the claim that a contract makes of it.

Accepts one shape of graph, Sub, Mul (scaling), Gemm, Relu, ..., Gemm, Mul, Add (unscaling), in float32 or, between two
Casts, in float64, with every weight in the file itself: what the file's digest does not cover, or what a runtime might
read in another way, is refused. The tolerance is held to the file's own scaled units and to the contract's (share of
the output's range by width of the box), whichever allows less: a network whose derivatives are small only because its
scaling is large has no proof.

Flow: check.py proves what is read here. Symbols: n inputs; raw units are the contract's, scaled ones the network's.
"""

import hashlib
import io
import json
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from models.verification.language.amounts import amount, plain

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
# Unit roundoff of float64, and more than any sum of underflows here comes to.
UNIT, TINY = 2.0**-53, 1e-290
# Largest share of the output's range that execution may add to a violation of an order (checker/rounding.py).
MOST_ROUNDING = 1e-5
# What an archive of leaves may unfold to: 0.8 MB of zeros are 4 GB.
MOST_BYTES = 128_000_000
TRANSPOSED = helper.make_attribute("transB", 1)


class Rejected(Exception):
    """The certificate does not hold; the message says why."""


def check_binding(
    model: bytes, contract: Mapping[str, Any], certificate: Mapping[str, Any], leaves: bytes, leaves_file: str,
) -> None:
    """The certificate is about exactly these files and this claim. Raises Rejected."""
    digest = hashlib.sha256(model).hexdigest()
    if not digest == certificate["model_sha256"] == contract["model"]["sha256"]:
        raise Rejected("model.onnx must be the file that was proved, its SHA-256 differs")
    if hashlib.sha256(leaves).hexdigest() != certificate["leaves_sha256"]:
        raise Rejected("the leaves must be the ones that were proved, their SHA-256 differs")
    claim = {key: contract[key] for key in ("specification", "inputs", "outputs")}
    text = json.dumps(claim, sort_keys=True, separators=(",", ":"))
    if hashlib.sha256(text.encode()).hexdigest() != certificate["specification_sha256"]:
        raise Rejected("specification and box must be the ones that were proved, their SHA-256 differs")
    stated = contract["specification"]
    facts = {"format": "assay-certificate/1", "verdict": "PROVED", "leaves_file": leaves_file,
             "tolerance": stated["tolerance"], "statement": statement(contract)}
    for key, fact in facts.items():
        if certificate[key] != fact:
            raise Rejected(f"certificate's {key} must be {fact!r}, got {certificate[key]!r}")
    if stated["statement"] != facts["statement"]:
        raise Rejected(f"contract's statement must be {facts['statement']!r}, got {stated['statement']!r}")


def require_limited(archive: bytes, what: str) -> None:
    """Raises Rejected where a NumPy archive would unfold to more than MOST_BYTES; looks at its directory alone."""
    with zipfile.ZipFile(io.BytesIO(archive)) as content:
        if (size := sum(entry.file_size for entry in content.infolist())) > MOST_BYTES:
            raise Rejected(f"{what} must unfold to at most {MOST_BYTES:,} bytes, got {size:,}")


def statement(contract: Mapping[str, Any]) -> str:
    """The sentence that a proof of a contract's properties says; people read it instead of the properties.

    What the tolerance comes to over the whole box is in units of the output: see `allowed` of `read_claim`.
    """
    specification, (output,) = contract["specification"], contract["outputs"]
    span, unit = Fraction(output["maximum"]) - Fraction(output["minimum"]), output["unit"]
    features = {name for entry in specification["properties"] for name in entry["monotone"]["features"]}
    each = Fraction(specification["tolerance"]) * span
    rules = "; ".join(f"{entry['monotone']['direction']} in {', '.join(entry['monotone']['features'])}"
                      for entry in specification["properties"])
    return (f"The output is {rules}, for every input in the box, with the other inputs equal: a pair may "
            f"violate the order by at most {amount(len(features) * each, unit)} over the box (for each feature "
            f"{amount(each, unit)}, {plain(specification['tolerance'])} of the training data's range). "
            "It is proved for the network in real arithmetic with the weights stored in the model file; "
            f"execution adds at most {amount(Fraction(str(MOST_ROUNDING)) * span, unit)}, as the checker bounds it.")


def read_claim(
    contract: Mapping[str, Any], offset: Array, factor: Array, gain: float,
) -> tuple[Array, Array, list[tuple[int, int]], Array]:
    """Scaled box (outward rounded), (feature, sign) queries and what the tolerance allows each, scaled units."""
    names = [entry["name"] for entry in contract["inputs"]]
    raw = np.array([[entry["minimum"], entry["maximum"]] for entry in contract["inputs"]], dtype=np.float64)
    if len(names) != len(offset) or not np.isfinite(raw).all() or (raw[:, 0] > raw[:, 1]).any():
        raise Rejected("contract must give every input of the model a bounded box")
    raw = _with_what_is_fed(raw)
    if len(set(names)) < len(names):
        raise Rejected(f"names of the inputs must be distinct, got {names}")
    scaled = (raw - offset[:, None]) * factor[:, None]
    slack = 8 * UNIT * (np.abs(raw) + np.abs(offset[:, None])) * factor[:, None] + 8 * UNIT * np.abs(scaled) + TINY
    queries = set()
    for entry in contract["specification"]["properties"]:
        if set(entry) != {"monotone"} or set(entry["monotone"]) != {"features", "direction"} or \
                not entry["monotone"]["features"]:
            raise Rejected(f"property must be monotone with features and direction and nothing else, got {entry}")
        sign = {"increasing": 1, "decreasing": -1}[entry["monotone"]["direction"]]
        queries |= {(names.index(feature), sign) for feature in entry["monotone"]["features"]}
    if not queries:
        raise Rejected("specification must have a property")
    tolerance = float(contract["specification"]["tolerance"])
    if not 0 <= tolerance < 1:
        raise Rejected(f"tolerance must be in [0, 1), got {tolerance}")
    (output,) = contract["outputs"]
    span = float(output["maximum"]) - float(output["minimum"])
    if not 0 < span < np.inf:
        raise Rejected(f"output must have a finite range, got {span}")
    features = [feature for feature, _ in sorted(queries)]
    widths = ((raw[:, 1] - raw[:, 0]) * factor)[features]
    allowed = tolerance / np.maximum(widths, 1) / max(gain / span, 1)
    return scaled[:, 0] - slack[:, 0], scaled[:, 1] + slack[:, 1], sorted(queries), allowed


def _with_what_is_fed(raw: Array) -> Array:
    """The box (n, 2), larger where a side has no float32: of such a side the nearest to its minimum is fed.

    Elsewhere a controller feeds float32 inside of the box: see serving/inputs.py.
    """
    with np.errstate(over="ignore"):
        near = raw[:, 0].astype(np.float32)
        above = np.where(near < raw[:, 0], np.nextafter(near, np.float32(np.inf)), near)
    none = above > raw[:, 1]
    if not np.isfinite(near[none]).all():
        raise Rejected("box must hold numbers that float32 reaches, got one beyond it")
    low, high = np.minimum(raw[:, 0], near), np.maximum(raw[:, 1], near)
    return np.where(none[:, None], np.stack([low, high], axis=1).astype(np.float64), raw)


@dataclass(frozen=True)
class ModelFile:
    """The network in a bundle's ONNX file: x -> gain * network((x - offset) * factor) + shift, raw units.

    weights[k] (w[k], w[k - 1]), biases[k] (w[k],): float64 copies of what is stored; offset, factor (n,);
    dtype: the type that all of it is stored and executed in, float32 or float64.
    """

    weights: list[Array]
    biases: list[Array]
    offset: Array
    factor: Array
    gain: float
    shift: float
    dtype: type[np.floating]

    @property
    def chain(self) -> tuple[list[Array], list[Array], list[bool]]:
        """Weights and biases of every operation that is executed, scaling included, and after which a ReLU stands."""
        n = len(self.offset)
        weights = [np.eye(n), np.diag(self.factor), *self.weights, np.array([[self.gain]]), np.eye(1)]
        biases = [-self.offset, np.zeros(n), *self.biases, np.zeros(1), np.array([self.shift])]
        return weights, biases, [False, False] + [True] * (len(self.weights) - 1) + [False, False]


def read_model(file: bytes) -> ModelFile:
    """The network in the file. Raises Rejected for any other graph than the one that bundles have.

    In float32: Sub, Mul, Gemm, Relu, ..., Gemm, Mul, Add. In float64 the same between two conversions, Cast and Cast.
    """
    model = onnx.load_model_from_string(file)
    require_plain(model, model.graph.input)
    graph = model.graph
    wide = bool(graph.node) and graph.node[0].op_type == "Cast"
    dtype: type[np.floating] = np.float64 if wide else np.float32
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    if any(a.dtype != dtype or not np.isfinite(a).all() for a in stored.values()):
        raise Rejected(f"weights must be finite {np.dtype(dtype).name}")
    nodes = _between_casts(graph) if wide else list(graph.node)
    layers, odd = divmod(len(nodes) - 3, 2)
    kinds = ["Sub", "Mul"] + ["Gemm", "Relu"] * (layers - 1) + ["Gemm", "Mul", "Add"]
    if odd or layers < 2 or [node.op_type for node in nodes] != kinds:
        raise Rejected("graph must be Sub, Mul, Gemm, Relu, ..., Gemm, Mul, Add")
    if len(graph.input) != 1 or len(graph.output) != 1:
        raise Rejected("graph must have one input and one output")
    flowing, constants = graph.input[0].name, []
    for node in graph.node:
        names = [node.input[0]] + [name for name in node.input[1:] if name not in stored]
        if names != [flowing] or len(node.output) != 1 or node.domain not in ("", "ai.onnx"):
            raise Rejected(f"nodes must form a chain (node {node.name!r})")
        flowing = node.output[0]
        if node.op_type == "Cast":
            continue
        if node.op_type == "Gemm":
            if list(node.attribute) != [TRANSPOSED] or len(node.input) != 3:
                raise Rejected(f"Gemm must have transB=1, a bias and nothing else (node {node.name!r})")
        elif node.attribute or len(node.input) != (1 if node.op_type == "Relu" else 2):
            raise Rejected(f"node must have no attributes and a constant (node {node.name!r})")
        constants.append([stored[name].astype(np.float64) for name in node.input[1:]])
    (offset,), (factor,), (gain,), (shift,) = constants[0], constants[1], constants[-2], constants[-1]
    linear = constants[2:-2:2]
    # shapes to the letter: a column where a row is meant is broadcast into another function
    wide = [len(offset)] + [len(bias) for _, bias in linear]
    shapes = [offset.shape, factor.shape, gain.shape, shift.shape] + [array.shape for pair in linear for array in pair]
    fitting = [(wide[0],), (wide[0],), (1,), (1,)] + [shape for n, w in pairwise(wide) for shape in ((w, n), (w,))]
    require_rows(graph.input[0], wide[0])
    if flowing != graph.output[0].name or wide[-1] != 1 or min(wide) < 1 or shapes != fitting:
        raise Rejected(f"weights must fit each other and a single output, got shapes {shapes}")
    with np.errstate(over="ignore"):
        if any((array != array.astype(np.float32)).any() for pair in linear for array in pair):
            raise Rejected("weights must be numbers of float32, also where they are stored in float64")
    if not ((factor > 0).all() and gain > 0).all():
        raise Rejected("scaling must be positive, or the order would turn")
    return ModelFile([w for w, _ in linear], [b for _, b in linear], offset, factor, float(gain[0]), float(shift[0]),
                     dtype)


def _between_casts(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """The nodes between the conversions to float64 and back to float32."""
    first, *nodes, last = graph.node
    for node, kind in ((first, TensorProto.DOUBLE), (last, TensorProto.FLOAT)):
        to = [helper.make_attribute("to", kind)]
        if node.op_type != "Cast" or list(node.attribute) != to or len(node.input) != 1:
            raise Rejected(f"a graph in float64 must stand between a Cast to it and one to float32 ({node.name!r})")
    return nodes


def require_rows(value: onnx.ValueInfoProto, width: int) -> None:
    """The input is float32 [any, width]: rows of any number, as controllers feed it. Raises Rejected otherwise."""
    kind = value.type.tensor_type
    found = [size.dim_value if size.HasField("dim_value") else "any" for size in kind.shape.dim]
    if kind.elem_type != onnx.TensorProto.FLOAT or found != ["any", width]:
        name = onnx.TensorProto.DataType.Name(kind.elem_type)
        raise Rejected(f"input {value.name!r} must be FLOAT ['any', {width}], got {name} {found}")


def require_plain(model: onnx.ModelProto, inputs: Iterable[onnx.ValueInfoProto]) -> None:
    """One meaning a name, and nothing outside of the file: no functions, no sparse and no external weights.

    Raises Rejected where it is not so.
    """
    graph = model.graph
    names = [item.name for item in (*graph.initializer, *inputs)]
    names += [name for node in graph.node for name in node.output]
    if "" in names or len(set(names)) < len(names):
        raise Rejected("every input, weight and node output must have a name of its own")
    elsewhere = any(tensor.data_location or tensor.external_data for tensor in graph.initializer)
    if elsewhere or model.functions or graph.sparse_initializer:
        raise Rejected("weights must stand in the file itself, as dense tensors, and operators must be ONNX's own")
    onnx.checker.check_model(model)
