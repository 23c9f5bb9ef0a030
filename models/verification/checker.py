"""Independent check of a certificate: plain NumPy in float64 with outward rounding, no code of the search.

Reads the ONNX file itself, rebuilds the leaf boxes from the split tree (a tree of splits covers its
root by construction), bounds the signed partial derivatives over every leaf, and accepts only if each
is >= -tolerance. Linear in the number of leaves. The tolerance is held to the file's own scaled units and
to the contract's (share of the output's range by width of the box), whichever allows less: a network
whose derivatives are small only because its scaling is large has no proof.

Rounding. u = 2^-53. For a product of a (w', k) and a (k, .) matrix in any order of summation, with or
without fused operations, |computed - exact| <= g(k) |A| |B| with g(k) = k u / (1 - k u) (Higham,
Accuracy and Stability, section 3.1). EPS(k) = (4 k + 64) u is more than three times what the few
extra operations around each product need; the slack also covers the rounding of the bounds
themselves. TINY covers underflow. Every error is added to the constant term of the bound it belongs to.
Overflow makes infinities and NaNs; a neuron whose bounds are NaN counts as unstable, and a NaN bound of a
derivative is a refusal.

Accepts one shape of graph, Sub, Mul (scaling), Gemm, Relu, ..., Gemm, Mul, Add (unscaling), with every weight in
the file itself: what the file's digest does not cover, or what a runtime might read in another way, is refused.
"""

import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

UNIT, TINY = 2.0**-53, 1e-290
ROUNDING = 1e-9
TRANSPOSED = onnx.helper.make_attribute("transB", 1)


class Rejected(Exception):
    """The certificate does not hold; the message says why."""


@dataclass(frozen=True)
class CheckResult:
    """accepted, the reason if not, number of leaves, and the smallest bound found (scaled units)."""

    accepted: bool
    reason: str
    leaves: int = 0
    lower_bound: float = float("nan")


def check_certificate(
    model_path: Path, contract: Mapping[str, Any], certificate: Mapping[str, Any], leaves_path: Path,
) -> CheckResult:
    """Re-proves the certificate's claim about the file at model_path. Never raises on bad input: rejects."""
    try:
        model, leaves = model_path.read_bytes(), leaves_path.read_bytes()  # once: what is hashed is what is proved
        _check_binding(model, contract, certificate, leaves, leaves_path.name)
        weights, biases, offset, factor, gain = read_model(model)
        lower, upper, queries, allowed = _claim(contract, offset, factor, gain)
        with np.load(io.BytesIO(leaves), allow_pickle=False) as arrays:
            boxes = leaf_boxes(arrays["split_dimension"], arrays["split_value"], lower, upper)
        if len(boxes[0]) != certificate["leaves"]:
            raise Rejected(f"certificate must list its {len(boxes[0])} leaves, got {certificate['leaves']}")
        bounds = leaf_bounds(weights, biases, *boxes, queries)
        worst = float(bounds.min())
        if not (bounds >= -allowed).all():
            raise Rejected(f"every leaf must be proved, got a bound of {worst:g} below -{allowed.min():g}")
        # another machine's matrix products round differently: ROUNDING apart is the same bound
        if not certificate["lower_bound"] <= worst + ROUNDING * (1 + abs(worst)):
            raise Rejected(f"lower_bound must be at most the {worst:g} found, got {certificate['lower_bound']}")
    except Rejected as error:
        return CheckResult(False, str(error))
    except Exception as error:  # a malformed file of any kind is a refusal, not a crash
        return CheckResult(False, f"certificate must be readable, got {type(error).__name__}: {error}")
    return CheckResult(True, "", len(boxes[0]), worst)


def _check_binding(
    model: bytes, contract: Mapping[str, Any], certificate: Mapping[str, Any], leaves: bytes, leaves_file: str,
) -> None:
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
             "tolerance": stated["tolerance"], "statement": stated["statement"]}
    for key, fact in facts.items():
        if certificate[key] != fact:
            raise Rejected(f"certificate's {key} must be {fact!r}, got {certificate[key]!r}")


def _claim(
    contract: Mapping[str, Any], offset: np.ndarray, factor: np.ndarray, gain: float,
) -> tuple[np.ndarray, np.ndarray, list[tuple[int, int]], np.ndarray]:
    """Scaled box (outward rounded), (feature, sign) queries and what the tolerance allows each, scaled units."""
    names = [entry["name"] for entry in contract["inputs"]]
    raw = np.array([[entry["minimum"], entry["maximum"]] for entry in contract["inputs"]], dtype=np.float64)
    if len(names) != len(offset) or not np.isfinite(raw).all() or (raw[:, 0] > raw[:, 1]).any():
        raise Rejected("contract must give every input of the model a bounded box")
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


def read_model(file: bytes) -> tuple[list[np.ndarray], list[np.ndarray], np.ndarray, np.ndarray, float]:
    """Weights, biases (float64 copies of the stored float32), scaling offset and factor of the inputs, output gain."""
    model = onnx.load_model_from_string(file)
    _require_plain(model)
    graph = model.graph
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    if any(a.dtype != np.float32 or not np.isfinite(a).all() for a in stored.values()):
        raise Rejected("weights must be finite float32")
    layers, odd = divmod(len(graph.node) - 3, 2)
    kinds = ["Sub", "Mul"] + ["Gemm", "Relu"] * (layers - 1) + ["Gemm", "Mul", "Add"]
    if odd or layers < 2 or [node.op_type for node in graph.node] != kinds:
        raise Rejected("graph must be Sub, Mul, Gemm, Relu, ..., Gemm, Mul, Add")
    if len(graph.input) != 1 or len(graph.output) != 1:
        raise Rejected("graph must have one input and one output")
    flowing, constants = graph.input[0].name, []
    for node in graph.node:
        names = [node.input[0]] + [name for name in node.input[1:] if name not in stored]
        if names != [flowing] or len(node.output) != 1 or node.domain not in ("", "ai.onnx"):
            raise Rejected(f"nodes must form a chain (node {node.name!r})")
        if node.op_type == "Gemm":
            if list(node.attribute) != [TRANSPOSED] or len(node.input) != 3:
                raise Rejected(f"Gemm must have transB=1, a bias and nothing else (node {node.name!r})")
        elif node.attribute or len(node.input) != (1 if node.op_type == "Relu" else 2):
            raise Rejected(f"node must have no attributes and a constant (node {node.name!r})")
        constants.append([stored[name].astype(np.float64) for name in node.input[1:]])
        flowing = node.output[0]
    (offset,), (factor,), (gain,), (shift,) = constants[0], constants[1], constants[-2], constants[-1]
    linear = constants[2:-2:2]
    # shapes to the letter: a column where a row is meant is broadcast into another function
    wide = [len(offset)] + [len(bias) for _, bias in linear]
    shapes = [offset.shape, factor.shape, gain.shape, shift.shape] + [array.shape for pair in linear for array in pair]
    fitting = [(wide[0],), (wide[0],), (1,), (1,)] + [shape for n, w in pairwise(wide) for shape in ((w, n), (w,))]
    if flowing != graph.output[0].name or wide[-1] != 1 or min(wide) < 1 or shapes != fitting:
        raise Rejected(f"weights must fit each other and a single output, got shapes {shapes}")
    if not ((factor > 0).all() and gain > 0).all():
        raise Rejected("scaling must be positive, or the order would turn")
    return [w for w, _ in linear], [b for _, b in linear], offset, factor, float(gain[0])


def _require_plain(model: onnx.ModelProto) -> None:
    """One meaning a name, and nothing outside of the file: no functions, no sparse and no external weights."""
    graph = model.graph
    names = [item.name for item in (*graph.initializer, *graph.input)]
    names += [name for node in graph.node for name in node.output]
    if "" in names or len(set(names)) < len(names):
        raise Rejected("every input, weight and node output must have a name of its own")
    elsewhere = any(tensor.data_location or tensor.external_data for tensor in graph.initializer)
    if elsewhere or model.functions or graph.sparse_initializer:
        raise Rejected("weights must stand in the file itself, as dense tensors, and operators must be ONNX's own")
    onnx.checker.check_model(model)


def leaf_boxes(
    dimension: np.ndarray, value: np.ndarray, lower: np.ndarray, upper: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Leaves (m, n) of the split tree stored in preorder (-1: leaf). Rejects a tree that is not one."""
    open_boxes, leaves = [(lower, upper)], []
    for d, v in zip(dimension.tolist(), value.tolist(), strict=True):
        if not open_boxes:
            raise Rejected("split tree must end with its last leaf")
        low, high = open_boxes.pop()
        if d == -1:
            leaves.append((low, high))
            continue
        if not (0 <= d < len(lower) and low[d] <= v <= high[d]):
            raise Rejected("splits must lie within their box")
        left, right = high.copy(), low.copy()
        left[d] = right[d] = v
        open_boxes += [(right, high), (low, left)]
    if open_boxes or not leaves:
        raise Rejected("leaves must cover the box")
    return np.stack([low for low, _ in leaves]), np.stack([high for _, high in leaves])


def leaf_bounds(weights: Any, biases: Any, lower: Any, upper: Any, queries: Any, batch: int = 32) -> np.ndarray:
    """Rigorous lower bounds (m, F) of sign * dy/dx[feature] over the leaves (m, n), `batch` leaves at a time.

    A bound is -inf or NaN where a number left float64's range: no proof.
    """
    parts = []
    with np.errstate(over="ignore", invalid="ignore"):
        for i in range(0, len(lower), batch):
            layers = _preactivations(weights, biases, lower[i : i + batch], upper[i : i + batch])
            parts.append(_derivatives(weights, layers, queries))
    return np.concatenate(parts)


def _eps(terms: int) -> float:
    return (4 * terms + 64) * UNIT


def _preactivations(weights: Any, biases: Any, lower: Any, upper: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    """z_lower, z_upper (B, w) of each hidden layer, from linear bounds in unit-cube coordinates."""
    centre = (lower + upper) / 2
    radius = np.maximum(upper - centre, centre - lower) * (1 + 4 * UNIT) + TINY
    n = lower.shape[1]
    s_low = s_high = weights[0] * radius[:, None, :]
    o = centre @ weights[0].T + biases[0]
    error = _eps(n) * ((np.abs(centre) + radius) @ np.abs(weights[0]).T + np.abs(biases[0])) + TINY
    o_low, o_high = o - error, o + error
    spread = np.abs(s_low).sum(-1) * (1 + _eps(n))
    layers = [(o_low - spread - error, o_high + spread + error)]
    for weight, bias in zip(weights[1:-1], biases[1:-1], strict=True):
        low, high = layers[-1]
        unstable = (low < 0) & (high > 0)
        ground = np.where(unstable, high > -low, low >= 0).astype(np.float64)
        chord = np.where(unstable, high / np.where(unstable, high - low, 1.0), low >= 0)
        # relu(z) - chord z is convex: its maximum over [low, high] is at an end, whatever chord was rounded to
        lift = np.maximum(np.maximum(low, 0) - chord * low, np.maximum(high, 0) - chord * high)
        lift = lift + 16 * UNIT * (np.abs(low) + np.abs(high)) + TINY
        s_low, o_low = ground[..., None] * s_low, ground * o_low
        s_high, o_high = chord[..., None] * s_high, chord * o_high + lift
        size = np.abs(s_low).sum(-1) + np.abs(s_high).sum(-1) + np.abs(o_low) + np.abs(o_high) + lift
        plus, minus, k = np.maximum(weight, 0), np.minimum(weight, 0), weight.shape[1] + n
        error = 2 * _eps(k) * (size @ np.abs(weight).T + np.abs(bias)) + TINY
        s_low, s_high = plus @ s_low + minus @ s_high, plus @ s_high + minus @ s_low
        o_low, o_high = o_low @ plus.T + o_high @ minus.T + bias, o_high @ plus.T + o_low @ minus.T + bias
        a_low, a_high = np.maximum(low, 0), np.maximum(high, 0)
        i_low, i_high = a_low @ plus.T + a_high @ minus.T + bias, a_high @ plus.T + a_low @ minus.T + bias
        i_error = 2 * _eps(k) * ((a_low + a_high) @ np.abs(weight).T + np.abs(bias)) + TINY
        o_low, o_high = o_low - error, o_high + error
        layers.append((np.maximum(o_low - np.abs(s_low).sum(-1) - error, i_low - i_error),
                       np.minimum(o_high + np.abs(s_high).sum(-1) + error, i_high + i_error)))
    return layers


def _derivatives(weights: Any, layers: Any, queries: Any) -> np.ndarray:
    """Lower bounds (B, F): intervals of dy/da from the output down, then chords from the input up."""
    # (not "low < 0 < high": bounds that overflowed to NaN must not pass for a neuron that is switched off)
    states = [(low >= 0, ~(low >= 0) & ~(high <= 0)) for low, high in layers]
    g_low = g_high = np.broadcast_to(weights[-1], layers[-1][0].shape)
    g, p = [(g_low, g_high)], []
    for k in range(len(layers) - 1, -1, -1):
        active, unstable = states[k]
        p_low = np.where(active, g_low, np.where(unstable, np.minimum(g_low, 0), 0))
        p_high = np.where(active, g_high, np.where(unstable, np.maximum(g_high, 0), 0))
        p.append((p_low, p_high))
        if k:
            plus, minus = np.maximum(weights[k], 0), np.minimum(weights[k], 0)
            error = 2 * _eps(len(weights[k])) * ((np.abs(p_low) + np.abs(p_high)) @ np.abs(weights[k])) + TINY
            g_low, g_high = p_low @ plus + p_high @ minus - error, p_high @ plus + p_low @ minus + error
            g.append((g_low, g_high))
    g, p = g[::-1], p[::-1]
    multiplier = np.stack([sign * weights[0][:, feature] for feature, sign in queries])[None]
    constant = np.zeros((len(layers[0][0]), len(queries)))
    for k, (active, unstable) in enumerate(states):
        (low, high), active, unstable = g[k], active[:, None, :], unstable[:, None, :]
        ends = multiplier * low[:, None, :], multiplier * high[:, None, :]
        # TINY by the size of g: a multiplier that underflowed may meet a large one
        reach = (np.abs(ends[0]) + np.abs(ends[1])) * 16 * UNIT + TINY * (1 + np.abs(low) + np.abs(high))[:, None, :]
        q_low, q_high = np.minimum(*ends) - reach, np.maximum(*ends) + reach
        crossing = unstable & (q_low < 0) & (q_high > 0)
        share = np.where(crossing, -q_low / np.where(crossing, q_high - q_low, 1), active | (unstable & (q_low < 0)))
        # min(0, q) - share q is concave: its minimum is at an end of [q_low, q_high], whatever share was rounded to
        drop = np.minimum(np.minimum(q_low, 0) - share * q_low, np.minimum(q_high, 0) - share * q_high)
        constant = constant + (np.where(unstable, drop, 0) - 2 * reach).sum(-1) * 1.0
        coefficients = share * multiplier
        constant -= _eps(multiplier.shape[-1]) * (np.abs(constant) + reach.sum(-1) + np.abs(drop).sum(-1))
        if k + 1 < len(states):
            size = np.maximum(np.abs(p[k + 1][0]), np.abs(p[k + 1][1]))[:, None, :]
            spread = np.abs(coefficients) @ np.abs(weights[k + 1]).T + TINY
            lost = _eps(multiplier.shape[-1]) * (spread * size).sum(-1)
            constant = constant - 2 * lost - TINY
            multiplier = coefficients @ weights[k + 1].T
    last = np.abs(coefficients) @ np.abs(weights[-1][0])
    return constant + coefficients @ weights[-1][0] - 2 * _eps(weights[-1].shape[1]) * (last + np.abs(constant)) - TINY
