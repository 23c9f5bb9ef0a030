"""Reads a forest from an ONNX file: scalers, and conversions that change nothing, before one TreeEnsembleRegressor.

scikit-learn's decision trees, random forests, extra trees and gradient boosting (also by histograms) are exported so by
skl2onnx. A Scaler's arithmetic is pulled into the thresholds, exactly: float32 rounding is monotone, so the inputs
whose scaled value is at most a threshold are all float32 numbers up to one of them, or from one on where the scale is
below zero. The same for Add, Sub, Mul and Div by constants. Shared by the search and the check of a proof, which hold
it against onnxruntime, as for networks.

Symbols: n inputs, o outputs, k nodes.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from models.verification.checker.archive import Rejected
from models.verification.checker.chain import LEARNING, REFUSED
from models.verification.checker.time_limit import require_time
from models.verification.trees.forest import Floats, Forest, Integers

OPERATOR, SCALER = "TreeEnsembleRegressor", "Scaler"
MOST_LEAVES, MOST_INPUTS = 200_000, 10_000
MODES = {b"BRANCH_LEQ", b"BRANCH_LT", b"LEAF"}
IGNORED = {"nodes_hitrates", "nodes_missing_value_tracks_true"}  # of no meaning for numbers
KNOWN = IGNORED | {
    "nodes_treeids", "nodes_nodeids", "nodes_featureids", "nodes_values", "nodes_modes", "nodes_truenodeids",
    "nodes_falsenodeids", "target_treeids", "target_nodeids", "target_ids", "target_weights", "n_targets",
    "base_values", "aggregate_function", "post_transform"}
Scaling = Callable[[np.ndarray[Any, Any], int], np.ndarray[Any, Any]]


def has_forest(content: bytes) -> bool:
    """Whether the file is an ONNX file with such an operator."""
    if OPERATOR.encode() not in content:
        return False
    try:
        model = onnx.load_model_from_string(content)
    except Exception:  # whoever reads it as a network says what is wrong
        return False
    return any(node.op_type == OPERATOR and node.domain == LEARNING for node in model.graph.node)


def read_forest(content: bytes) -> Forest:
    """The forest of a file. Raises Rejected where it is another network, or malformed."""
    try:
        model = onnx.load_model_from_string(content)
        onnx.checker.check_model(model)
    except Exception as error:
        raise Rejected(f"model must be a valid ONNX file, got {type(error).__name__}: {error}") from error
    graph = model.graph
    for weight in graph.initializer:
        if weight.data_location or weight.external_data:  # numpy_helper would look for it in the working folder
            raise Rejected(f"weights must stand in the file itself, got external data (initializer {weight.name!r})")
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    inputs = [one for one in graph.input if one.name not in stored]
    if len(inputs) != 1 or len(graph.output) != 1 or model.functions:
        raise Rejected(f"forest must have one input and one output, got {len(inputs)} and {len(graph.output)}")
    tensor = inputs[0].type.tensor_type
    sizes = [dim.dim_value for dim in tensor.shape.dim]
    if tensor.elem_type != TensorProto.FLOAT or len(sizes) != 2 or not 1 <= sizes[1] <= MOST_INPUTS:
        raise Rejected(f"input of a forest must be float32 rows of a fixed width, {MOST_INPUTS:,} at most, got "
                       f"{TensorProto.DataType.Name(tensor.elem_type)} of sizes {sizes}")
    name, scalings, found = inputs[0].name, list[Scaling](), None
    for node in graph.node:
        constants = [stored[operand] for operand in node.input if operand in stored]
        if [operand for operand in node.input if operand not in stored] != [name] or len(node.output) != 1:
            raise Rejected(f"forest must be a chain of nodes of one variable each, got {_named(node)}")
        first = node.input[0] == name
        attributes = {one.name: helper.get_attribute_value(one) for one in node.attribute}
        if len(attributes) < len(node.attribute):
            raise Rejected(f"attribute must be given once, got {[one.name for one in node.attribute]} ({_named(node)})")
        name = node.output[0]
        match node.domain, node.op_type:
            case ("" | "ai.onnx", "Identity") if not constants:
                pass
            case ("" | "ai.onnx", "Cast") if attributes == {"to": TensorProto.FLOAT}:
                pass
            case ("" | "ai.onnx", "Add" | "Sub" | "Mul" | "Div") if found is None and len(constants) == 1 and (
                    first or node.op_type in ("Add", "Mul")):
                scalings.append(_arithmetic(constants[0], sizes[1], node))
            case (_, "Scaler") if node.domain == LEARNING and found is None:
                scalings.append(_scaling(attributes, sizes[1], node))
            case (_, "TreeEnsembleRegressor") if node.domain == LEARNING and found is None:
                found = _forest(attributes, sizes[1], scalings)
            case _:
                raise Rejected("forest must be made of Identity, Cast to float, Scaler, Add, Sub, Mul and Div by "
                               f"constants, and one {OPERATOR}, got {_named(node)}{REFUSED.get(node.op_type, '')}")
    if found is None or name != graph.output[0].name:
        raise Rejected(f"output must be that of the last node, {name!r}, got {graph.output[0].name!r}")
    return found


def _scaling(attributes: Mapping[str, Any], inputs: int, node: onnx.NodeProto) -> Scaling:
    """(x - offset) * scale, of float32 numbers of one feature."""
    unknown = set(attributes) - {"offset", "scale"}
    offset, scale = (np.array(attributes.get(key, default), dtype=np.float32) for key, default in
                     (("offset", [0.0]), ("scale", [1.0])))
    if unknown or any(one.shape not in ((1,), (inputs,)) or not np.isfinite(one).all() for one in (offset, scale)) \
            or (scale == 0).any():
        raise Rejected(f"Scaler must have finite offsets and scales that are not 0, for each of {inputs} inputs or one "
                       f"for all ({_named(node)})")
    offset, scale = (np.broadcast_to(one, (inputs,)) for one in (offset, scale))

    def scaled(x: np.ndarray[Any, Any], feature: int) -> np.ndarray[Any, Any]:
        with np.errstate(over="ignore"):
            return np.asarray((x - offset[feature]) * scale[feature])

    return scaled


def _arithmetic(constant: np.ndarray[Any, Any], inputs: int, node: onnx.NodeProto) -> Scaling:
    """One operation with a float32 number for each feature, or one for all."""
    values = constant.reshape(-1)
    if constant.dtype != np.float32 or constant.shape not in ((), (1,), (1, 1), (inputs,), (1, inputs)) or \
            not np.isfinite(values).all() or (node.op_type in ("Mul", "Div") and (values == 0).any()):
        raise Rejected(f"constant must be finite float32 numbers, for each of {inputs} inputs or one for all, and no "
                       f"factor be 0 ({_named(node)})")
    operation = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}[node.op_type]
    numbers = np.broadcast_to(values, inputs)

    def applied(x: np.ndarray[Any, Any], feature: int) -> np.ndarray[Any, Any]:
        with np.errstate(over="ignore", under="ignore"):
            return np.asarray(operation(x, numbers[feature]))

    return applied


def _forest(attributes: Mapping[str, Any], inputs: int, scalings: list[Scaling]) -> Forest:
    if unknown := sorted(set(attributes) - KNOWN):
        raise Rejected(f"{OPERATOR} must have float32 attributes alone, got {unknown[0]}")
    if attributes.get("post_transform", b"NONE") != b"NONE":
        raise Rejected(f"post_transform must be NONE, got {attributes['post_transform']!r}")
    aggregate = attributes.get("aggregate_function", b"SUM")
    if aggregate not in (b"SUM", b"AVERAGE"):
        raise Rejected(f"aggregate_function must be SUM or AVERAGE, got {aggregate!r}")
    outputs = attributes.get("n_targets", 1)
    if not 1 <= outputs <= 10_000:
        raise Rejected(f"n_targets must be 1 to 10,000, got {outputs}")
    base = np.array(attributes.get("base_values", [0.0] * outputs), dtype=np.float64)
    if base.shape != (outputs,) or not np.isfinite(base).all():
        raise Rejected(f"base_values must be {outputs} finite numbers, got shape {base.shape}")
    tree, low, high, leaf = _leaves(_Nodes(attributes, inputs, scalings))
    values, named = _values(attributes, leaf, outputs)
    if outputs == 1 and not named.all():
        raise Rejected("leaves must each have a value of the output, got one without, of which onnxruntime takes "
                       "nodes_values")
    if outputs > 1:
        in_all = np.logical_and.reduceat(named, np.flatnonzero(np.diff(tree, prepend=-1)), axis=0)
        if missing := np.flatnonzero((base != 0) & ~in_all.any(axis=0)).tolist():
            raise Rejected("base_values of several outputs must be of such that every leaf of some tree names, for "
                           f"onnxruntime gives 0 without them where none does, got one of output {missing[0]}")
    divisor = int(tree[-1]) + 1 if aggregate == b"AVERAGE" else 1
    return Forest(tree, low, high, values, base, divisor)


class _Nodes:
    """The nodes of all trees: arrays (k,), children as rows; a leaf has -1."""

    def __init__(self, attributes: Mapping[str, Any], inputs: int, scalings: list[Scaling]) -> None:
        columns = {key: attributes.get(f"nodes_{key}", []) for key in (
            "treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids")}
        sizes = {key: len(column) for key, column in columns.items()}
        if len(set(sizes.values())) != 1 or not sizes["modes"]:
            raise Rejected(f"nodes must have as many of each attribute, and at least one, got {sizes}")
        if strange := set(columns["modes"]) - MODES:
            raise Rejected(f"nodes_modes must be BRANCH_LEQ, BRANCH_LT or LEAF, got {sorted(strange)[0]!r}")
        self.inputs = inputs
        self.trees = columns["treeids"]
        runs = [tree for tree, before in zip(self.trees, [None, *self.trees], strict=False) if tree != before]
        if min(self.trees) < 0 or len(set(runs)) < len(runs):
            raise Rejected("nodes of a tree must stand together, with an id from 0 on: onnxruntime begins a tree "
                           f"wherever the id changes; got {runs[:12]}")
        self.row = {key: row for row, key in enumerate(zip(columns["treeids"], columns["nodeids"], strict=True))}
        if len(self.row) < sizes["modes"]:
            raise Rejected("nodes must have different ids in their tree, got one twice")
        self.is_leaf = np.array([mode == b"LEAF" for mode in columns["modes"]])
        self.feature = np.array(columns["featureids"], dtype=np.int64)
        if ((self.feature < 0) | (self.feature >= inputs))[~self.is_leaf].any():
            raise Rejected(f"nodes_featureids must be of {inputs} inputs, got {sorted(set(self.feature.tolist()))}")
        threshold = np.array(columns["values"], dtype=np.float32)
        if not np.isfinite(threshold[~self.is_leaf]).all():
            raise Rejected("thresholds must be finite, got NaN or infinity")
        strict = np.array([mode == b"BRANCH_LT" for mode in columns["modes"]])
        # below a number is up to the one before
        threshold = np.where(strict, np.nextafter(threshold, np.float32(-np.inf)), threshold)
        self.last, self.first = _walls(threshold, self.feature, ~self.is_leaf, scalings)
        self.yes, self.no = ([self.row.get((tree, child), -1) for tree, child in zip(self.trees, column, strict=True)]
                             for column in (columns["truenodeids"], columns["falsenodeids"]))


def _walls(threshold: np.ndarray[Any, Any], feature: Integers, branches: np.ndarray[Any, Any], scalings: list[Scaling]
           ) -> tuple[Floats, Floats]:
    """(k,) twice: where the condition holds up to a number, that number and infinity; where it holds from one on,
    minus infinity and that number. NaN-free; a leaf's mean nothing.

    By bisection over the float32 numbers in their order.
    """
    last, first = threshold.astype(np.float64), np.full(len(threshold), -np.inf)
    if not scalings:
        return last, first
    for row in np.flatnonzero(branches).tolist():
        require_time()

        def holds(number: int, row: int = row) -> bool:
            x = _float32(number)
            for scaling in scalings:
                x = scaling(x, int(feature[row]))
            return bool(x <= threshold[row])

        bottom, top = (_number(sign * float(np.finfo(np.float32).max)) for sign in (-1, 1))
        if holds(bottom) == holds(top):
            last[row], first[row] = (np.inf, -np.inf) if holds(bottom) else (-np.inf, -np.inf)
            continue
        rises = holds(bottom)
        while top - bottom > 1:
            middle = (bottom + top) // 2
            bottom, top = (middle, top) if holds(middle) == rises else (bottom, middle)
        last[row], first[row] = (float(_float32(bottom)), -np.inf) if rises else (np.inf, float(_float32(top)))
    return last, first


def _number(value: float) -> int:
    """The place of a float32 number in their order."""
    bits = int(np.float32(value).view(np.int32))
    return bits if bits >= 0 else -(bits & 0x7FFFFFFF)


def _float32(number: int) -> np.ndarray[Any, Any]:
    """The inverse."""
    value = np.array(abs(number), dtype=np.int32).view(np.float32)
    return np.asarray(-value if number < 0 else value)


def _leaves(nodes: _Nodes) -> tuple[Any, Floats, Floats, list[int]]:
    """Number of the tree, walls, and row of each leaf that some input reaches, tree by tree."""
    trees, lows, highs, rows = list[int](), list[Floats](), list[Floats](), list[int]()
    seen: set[int] = set()
    for number, root in enumerate(_roots(nodes)):
        require_time()
        pending = [(root, np.full(nodes.inputs, -np.inf), np.full(nodes.inputs, np.inf))]
        while pending:
            row, low, high = pending.pop()
            if row in seen:
                raise Rejected("nodes must form trees, got one with two parents, or its own descendant")
            seen.add(row)
            if nodes.is_leaf[row]:
                if (low <= high).all():
                    trees.append(number)
                    lows.append(low)
                    highs.append(high)
                    rows.append(row)
                if len(rows) > MOST_LEAVES:
                    raise Rejected(f"forest must have at most {MOST_LEAVES:,} leaves, got more")
                continue
            if nodes.yes[row] == -1 or nodes.no[row] == -1:
                raise Rejected("branch must have two nodes of its tree below it, got one that is not there")
            pending += _halves(nodes, row, low, high)
    if len(seen) < len(nodes.is_leaf):
        raise Rejected(f"nodes must all be reached from the first of their tree, got {len(nodes.is_leaf) - len(seen)} "
                       "that are not")
    return np.array(trees, dtype=np.int64), np.stack(lows), np.stack(highs), rows


def _halves(nodes: _Nodes, row: int, low: Floats, high: Floats) -> list[tuple[int, Floats, Floats]]:
    """Both sides of a branch, with their walls."""
    feature, (last, first) = nodes.feature[row], (nodes.last[row], nodes.first[row])
    yes_low, yes_high, no_low, no_high = low.copy(), high.copy(), low.copy(), high.copy()
    yes_low[feature], yes_high[feature] = max(low[feature], first), min(high[feature], last)
    if first == -np.inf:  # it holds up to a number
        no_low[feature] = max(low[feature], _after(last, np.inf))
    else:
        no_high[feature] = min(high[feature], _after(first, -np.inf))
    return [(nodes.no[row], no_low, no_high), (nodes.yes[row], yes_low, yes_high)]


def _after(value: float, towards: float) -> float:
    if np.isinf(value):
        return value
    return float(np.nextafter(np.float32(value), np.float32(towards)))


def _roots(nodes: _Nodes) -> list[int]:
    """The first node of each tree, in order of first appearance; it must be nobody's child."""
    firsts: dict[int, int] = {}
    for row, tree in enumerate(nodes.trees):
        firsts.setdefault(tree, row)
    children = {child for is_leaf, *pair in zip(nodes.is_leaf, nodes.yes, nodes.no, strict=True) if not is_leaf
                for child in pair}
    if children & set(firsts.values()):
        raise Rejected("first node of a tree must be its root, got another one's child")
    return list(firsts.values())


def _values(attributes: Mapping[str, Any], leaves: list[int], outputs: int) -> tuple[Floats, NDArray[np.bool_]]:
    """(L, o) what a leaf adds to each output, and whether it names it."""
    columns = {key: attributes.get(f"target_{key}", []) for key in ("treeids", "nodeids", "ids", "weights")}
    if len({len(column) for column in columns.values()}) != 1:
        raise Rejected("targets must have as many of each attribute, got "
                       f"{({key: len(column) for key, column in columns.items()})}")
    nodes = list(zip(attributes["nodes_treeids"], attributes["nodes_nodeids"], strict=True))
    place = {nodes[row]: number for number, row in enumerate(leaves)}
    is_leaf = {key for key, mode in zip(nodes, attributes["nodes_modes"], strict=True) if mode == b"LEAF"}
    values, given = np.zeros((len(leaves), outputs)), set[tuple[int, int, int]]()
    named = np.zeros(values.shape, dtype=bool)
    for tree, node, target, weight in zip(*columns.values(), strict=True):
        key = (tree, node)
        if key not in is_leaf or not 0 <= target < outputs or (*key, target) in given or not np.isfinite(weight):
            raise Rejected(f"target must be a finite number of a leaf and an output, given once, got {weight} for node "
                           f"{node} of tree {tree} and output {target}")
        given.add((*key, target))
        if key in place:  # else no input reaches it
            values[place[key], target] = np.float32(weight)
            named[place[key], target] = True
    return values, named


def _named(node: onnx.NodeProto) -> str:
    return f"node {node.name or '/'.join(node.output)!r}, {node.op_type}"
