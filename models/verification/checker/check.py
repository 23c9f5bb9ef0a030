"""What a proof is checked with: plain NumPy in float64 with outward rounding, no code of the search.

Rebuilds the leaf boxes from a split tree (a tree of splits covers its root by construction), and bounds the signed
partial derivatives, or combinations of outputs and inputs, over every leaf (bounds.py, which derives what rounding
costs). Linear in the number of leaves. proof_file.py asks of each leaf what its part of the property demands; the
network comes from the file itself (chain.py).

A partial derivative is the value of a network without biases, with the activations' derivatives in their place: started
from the feature's direction towards the output, or transposed, from the output towards the feature. Relaxed, the two
differ, and neither is always better: the better bound counts.

Symbols: m leaves, n inputs, F queries (feature, sign), o outputs, Q rows a leaf.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from models.verification.checker.archive import Array, Rejected
from models.verification.checker.bounds import (
    Box,
    Numbers,
    bound_largest,
    bound_layers,
    bound_rows,
)
from models.verification.checker.relaxations import ACTIVATIONS, Activation, Kind, scaled
from models.verification.checker.time_limit import require_time

# Elements of one temporary array, 2 MB.
BATCH = 2**18
# Leaves that come at a time, at most; splits between two looks at the clock.
LEAVES, LOOKS = 4096, 4096


def leaf_boxes(dimension: Any, value: Any, lower: Array, upper: Array, together: int = LEAVES
               ) -> Iterator[tuple[Array, Array, Numbers]]:
    """Leaves: walls (m, n) each and the root (m,) they are part of; of the trees over roots (R, n), each in preorder.

    A dimension of -1 is a leaf. At most `together` come at a time: what is held besides is one box and the way to it,
    so that a small file cannot ask for more. Rejects what is not a tree for each root, the last leaf included, where it
    meets it; before anything takes room: an array of shape (2^24, 0) is a few bytes in a file, and 2^24 lists.
    """
    if not dimension.ndim == value.ndim == 1 or (dimension.dtype.kind, value.dtype.kind) != ("i", "f"):
        raise Rejected(f"split tree must be a list of integers and one of floats, got {dimension.dtype} of shape "
                       f"{dimension.shape} and {value.dtype} of shape {value.shape}")
    return _leaves(dimension, value, lower, upper, together)


def _leaves(dimension: Any, value: Any, lower: Array, upper: Array, together: int
            ) -> Iterator[tuple[Array, Array, Numbers]]:
    root, lows, highs, owners = -1, list[Array](), list[Array](), list[int]()
    low = high = np.empty(0)
    # splits on the way to the box: dimension, place, the wall that gave way, whether this is the upper side
    way: list[tuple[int, float, float, bool]] = []
    for d, v in _splits(dimension, value):
        if not way:
            root += 1
            if root == len(lower):
                raise Rejected("split tree must end with its last leaf")
            low, high = lower[root].copy(), upper[root].copy()
        if d != -1:
            if not (0 <= d < len(low) and low[d] <= v <= high[d]):
                raise Rejected("splits must lie within their box")
            way.append((d, v, float(high[d]), False))
            high[d] = v
            continue
        lows.append(low.copy())
        highs.append(high.copy())
        owners.append(root)
        while way and way[-1][3]:  # both sides are done
            at, _, wall, _ = way.pop()
            low[at] = wall
        if way:
            at, place, wall, _ = way.pop()
            way.append((at, place, float(low[at]), True))
            high[at], low[at] = wall, place
        if len(lows) == together:
            yield np.stack(lows), np.stack(highs), np.array(owners)
            lows, highs, owners = [], [], []
    if way or root + 1 < len(lower) or root < 0:
        raise Rejected("leaves must cover the box")
    if lows:
        yield np.stack(lows), np.stack(highs), np.array(owners)


def _splits(dimension: Any, value: Any) -> Iterator[tuple[int, float]]:
    for first in range(0, max(len(dimension), len(value)), LOOKS):
        require_time()
        some = slice(first, first + LOOKS)
        yield from zip(dimension[some].tolist(), value[some].tolist(), strict=True)


def leaf_bounds(weights: Sequence[Array], biases: Sequence[Array], lower: Array, upper: Array,
                queries: Sequence[tuple[int, int]], batch: int | None = None,
                kinds: Sequence[Kind] | None = None, enough: Array | None = None) -> Array:
    """Rigorous lower bounds (m, F) of sign * dy/dx[feature] over the leaves (m, n), `batch` of them at a time.

    kinds: what stands behind each layer but the last; None: ReLUs. enough (F,): leaves whose plain bounds reach it are
    not bounded again, more tightly; None: all are. A bound is -inf or NaN where a number left float64's range: no
    proof.
    """
    directions = np.zeros((len(queries), lower.shape[1]))
    for row, (feature, sign) in zip(directions, queries, strict=True):
        row[feature] = sign
    parts, activations = [], _activations(weights, kinds)
    with np.errstate(over="ignore", invalid="ignore"):
        for now in _batches(weights, len(lower), len(queries), batch):
            require_time()
            boxes = Box(lower[now], upper[now])
            bounds = np.fmax(*_derivatives(weights, biases, boxes, activations, directions, tight=enough is None))
            rest = np.flatnonzero(~(bounds >= (np.inf if enough is None else enough)).all(axis=1))
            if enough is not None and len(rest):
                left = Box(*(wall[rest] for wall in boxes))
                bounds[rest] = np.fmax(*_derivatives(weights, biases, left, activations, directions, tight=True))
            parts.append(bounds)
    return np.concatenate(parts)


def leaf_margins(weights: Sequence[Array], biases: Sequence[Array], lower: Array, upper: Array, coefficients: Array,
                 constants: Array, batch: int | None = None, kinds: Sequence[Kind] | None = None,
                 on_inputs: Array | None = None) -> Array:
    """Rigorous lower bounds (m, K) of the largest of M rows, coefficients (m, K, M, o) @ y + constants (m, K, M).

    Over the leaves (m, n), `batch` of them at a time. on_inputs (m, K, M, n): coefficients on x, which are added to
    that; None: none. kinds: what stands behind each layer but the last; None: ReLUs. A bound is -inf where a number
    left float64's range: no proof.
    """
    parts, lines = [], [activation.lines for activation in _activations(weights, kinds)]
    with np.errstate(over="ignore", invalid="ignore"):
        for now in _batches(weights, len(lower), constants[0].size, batch):
            require_time()
            parts.append(bound_largest(weights, biases, Box(lower[now], upper[now]), lines, coefficients[now],
                                       constants[now], None if on_inputs is None else on_inputs[now]))
    return np.concatenate(parts)


def _activations(weights: Sequence[Array], kinds: Sequence[Kind] | None) -> list[Activation]:
    behind: Sequence[Kind] = ["relu"] * (len(weights) - 1) if kinds is None else kinds
    return [ACTIVATIONS[kind] for kind in behind]


def _batches(weights: Sequence[Array], leaves: int, rows: int, batch: int | None) -> list[slice]:
    """Leaves that are bounded together, so that memory does not depend on their number."""
    inputs = weights[0].shape[1]  # bounds of a layer are functions of them, and begin with their identity
    step = batch or max(BATCH // (max(inputs, *(len(weight) for weight in weights)) * (inputs + 2 + rows)), 1)
    return [slice(i, i + step) for i in range(0, leaves, step)]


def _derivatives(weights: Sequence[Array], biases: Sequence[Array], boxes: Box,
                 activations: Sequence[Activation], directions: Array, tight: bool) -> tuple[Array, Array]:
    """Two lower bounds (B, F) of the derivatives in the directions (F, n) over the boxes."""
    count, queries = len(boxes.lower), len(directions)
    layers = bound_layers(weights[:-1], biases[:-1], boxes, [activation.lines for activation in activations], tight)
    slopes = [activation.slopes(layer.low, layer.high) for layer, activation in zip(layers, activations, strict=True)]
    start, one = np.tile(directions, (count, 1)), np.ones((count * queries, 1))
    up = bound_rows(weights, _without_biases(weights), Box(start, start),
                    [partial(scaled, least.repeat(queries, axis=0), most.repeat(queries, axis=0))
                     for least, most in slopes],
                    one[:, None], 0 * one, tight).reshape(count, queries)
    turned, end = [weight.T for weight in reversed(weights)], np.ones((count, 1))
    down = bound_rows(turned, _without_biases(turned), Box(end, end),
                      [partial(scaled, *pair) for pair in reversed(slopes)],
                      np.tile(directions, (count, 1, 1)), np.zeros((count, queries)), tight)
    return up, down


def _without_biases(weights: Sequence[Array]) -> list[Array]:
    return [np.zeros(len(weight)) for weight in weights]
