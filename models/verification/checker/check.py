"""What a proof is checked with: plain NumPy in float64 with outward rounding, no code of the search.

Rebuilds the leaf boxes from a split tree (a tree of splits covers its root by construction), and bounds the signed
partial derivatives, or combinations of outputs and inputs, over every leaf (bounds.py, which derives what rounding
costs). Linear in the number of leaves. proof_file.py asks of each leaf what its part of the property demands; the
network comes from the file itself (chain.py).

A partial derivative is the value of a network without biases, with the ReLUs' derivatives in their place: started
from the feature's direction towards the output, or transposed, from the output towards the feature. Relaxed, the two
differ, and neither is always better: the better bound counts.

Symbols: m leaves, n inputs, F queries (feature, sign), o outputs, Q rows a leaf.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from models.verification.checker.archive import Array, Rejected
from models.verification.checker.bounds import (
    Box,
    Numbers,
    Relaxation,
    bound_largest,
    bound_layers,
    bound_rows,
    linear,
    relu,
    switched,
)

# Elements of one temporary array, 2 MB.
BATCH = 2**18


def leaf_boxes(dimension: Any, value: Any, lower: Array, upper: Array) -> tuple[Array, Array, Numbers]:
    """Leaves: walls (m, n) each and the root (m,) they are part of; of the trees over roots (R, n), each in preorder.

    A dimension of -1 is a leaf. Rejects what is not a tree for each root, before it takes room: an array of shape
    (2^24, 0) is a few bytes in a file, and 2^24 lists.
    """
    if not dimension.ndim == value.ndim == 1 or (dimension.dtype.kind, value.dtype.kind) != ("i", "f"):
        raise Rejected(f"split tree must be a list of integers and one of floats, got {dimension.dtype} of shape "
                       f"{dimension.shape} and {value.dtype} of shape {value.shape}")
    open_boxes, leaves = [(lower[r], upper[r], r) for r in reversed(range(len(lower)))], []
    for d, v in zip(dimension.tolist(), value.tolist(), strict=True):
        if not open_boxes:
            raise Rejected("split tree must end with its last leaf")
        low, high, root = open_boxes.pop()
        if d == -1:
            leaves.append((low, high, root))
            continue
        if not (0 <= d < len(low) and low[d] <= v <= high[d]):
            raise Rejected("splits must lie within their box")
        left, right = high.copy(), low.copy()
        left[d] = right[d] = v
        open_boxes += [(right, high, root), (low, left, root)]
    if open_boxes or not leaves:
        raise Rejected("leaves must cover the box")
    lows, highs, owners = zip(*leaves, strict=True)
    return np.stack(lows), np.stack(highs), np.array(owners)


def leaf_bounds(weights: Sequence[Array], biases: Sequence[Array], lower: Array, upper: Array,
                queries: Sequence[tuple[int, int]], batch: int | None = None,
                relus: Sequence[bool] | None = None, enough: Array | None = None) -> Array:
    """Rigorous lower bounds (m, F) of sign * dy/dx[feature] over the leaves (m, n), `batch` of them at a time.

    relus: after which layers but the last a ReLU stands; None: after each. enough (F,): leaves whose plain bounds reach
    it are not bounded again, more tightly; None: all are. A bound is -inf or NaN where a number left float64's range:
    no proof.
    """
    directions = np.zeros((len(queries), lower.shape[1]))
    for row, (feature, sign) in zip(directions, queries, strict=True):
        row[feature] = sign
    parts, kinds = [], _relaxations(weights, relus)
    with np.errstate(over="ignore", invalid="ignore"):
        for now in _batches(weights, len(lower), len(queries), batch):
            boxes = Box(lower[now], upper[now])
            bounds = np.fmax(*_derivatives(weights, biases, boxes, kinds, directions, tight=enough is None))
            rest = np.flatnonzero(~(bounds >= (np.inf if enough is None else enough)).all(axis=1))
            if enough is not None and len(rest):
                left = Box(*(wall[rest] for wall in boxes))
                bounds[rest] = np.fmax(*_derivatives(weights, biases, left, kinds, directions, tight=True))
            parts.append(bounds)
    return np.concatenate(parts)


def leaf_margins(weights: Sequence[Array], biases: Sequence[Array], lower: Array, upper: Array, coefficients: Array,
                 constants: Array, batch: int | None = None, relus: Sequence[bool] | None = None,
                 on_inputs: Array | None = None) -> Array:
    """Rigorous lower bounds (m, K) of the largest of M rows, coefficients (m, K, M, o) @ y + constants (m, K, M).

    Over the leaves (m, n), `batch` of them at a time. on_inputs (m, K, M, n): coefficients on x, which are added to
    that; None: none. relus: after which layers but the last a ReLU stands; None: after each. A bound is -inf where a
    number left float64's range: no proof.
    """
    parts, kinds = [], _relaxations(weights, relus)
    with np.errstate(over="ignore", invalid="ignore"):
        for now in _batches(weights, len(lower), constants[0].size, batch):
            parts.append(bound_largest(weights, biases, Box(lower[now], upper[now]), kinds, coefficients[now],
                                       constants[now], None if on_inputs is None else on_inputs[now]))
    return np.concatenate(parts)


def _relaxations(weights: Sequence[Array], relus: Sequence[bool] | None) -> list[Relaxation]:
    return [relu if follows else linear for follows in relus or [True] * (len(weights) - 1)]


def _batches(weights: Sequence[Array], leaves: int, rows: int, batch: int | None) -> list[slice]:
    """Leaves that are bounded together, so that memory does not depend on their number."""
    step = batch or max(BATCH // (max(len(weight) for weight in weights) * (weights[0].shape[1] + 2 + rows)), 1)
    return [slice(i, i + step) for i in range(0, leaves, step)]


def _derivatives(weights: Sequence[Array], biases: Sequence[Array], boxes: Box, kinds: Sequence[Relaxation],
                 directions: Array, tight: bool) -> tuple[Array, Array]:
    """Two lower bounds (B, F) of the derivatives in the directions (F, n) over the boxes."""
    count, queries = len(boxes.lower), len(directions)
    layers = bound_layers(weights[:-1], biases[:-1], boxes, kinds, tight)
    # (not "low < 0 < high": bounds that overflowed to NaN must not pass for a neuron that is switched off)
    states = [(layer.low >= 0, ~(layer.low >= 0) & ~(layer.high <= 0)) if kind is relu else
              (np.full(layer.low.shape, True), np.full(layer.low.shape, False))
              for layer, kind in zip(layers, kinds, strict=True)]
    start, one = np.tile(directions, (count, 1)), np.ones((count * queries, 1))
    up = bound_rows(weights, _without_biases(weights), Box(start, start),
                    [partial(switched, active.repeat(queries, axis=0), unstable.repeat(queries, axis=0))
                     for active, unstable in states],
                    one[:, None], 0 * one, tight).reshape(count, queries)
    turned, end = [weight.T for weight in reversed(weights)], np.ones((count, 1))
    down = bound_rows(turned, _without_biases(turned), Box(end, end),
                      [partial(switched, *pair) for pair in reversed(states)],
                      np.tile(directions, (count, 1, 1)), np.zeros((count, queries)), tight)
    return up, down


def _without_biases(weights: Sequence[Array]) -> list[Array]:
    return [np.zeros(len(weight)) for weight in weights]
