"""Bounds of the checker: what a network's rows can reach over boxes, plain NumPy in float64, rounding included.

Behind an affine layer z = W v + b stands v' = relu(z), or v' = d z with a ReLU's derivative d, which is 1 where the
ReLU is active, 0 where it is off, and anything in [0, 1] where it is unstable. Two lines hold it for z in its interval:
below_slope z + below <= v' <= above_slope z + above. Forward: linear bounds in the inputs, in coordinates in which the
box is the unit cube, intersected with intervals. Backward (CROWN, Zhang et al. 2018): what is undecided then, and in
the end the rows asked for, are carried through the lines to the inputs. For the first two layers both are the same.

Rounding. u = 2^-53. A product of k terms, in any order and with or without fused operations, is off by at most
g(k) = k u / (1 - k u) times the product of the absolute values (Higham, Accuracy and Stability, section 3.1).
  1. Forward: all that z adds up from is at most size = |W| total + |b|, with `total` the sum of the absolute values of
     all numbers that describe v; slopes count once, for the cube's coordinates are at most 1. So every number of z is
     off by at most g(k) size; the errors of a bound's slopes go to its constant.
  2. Backward: a coefficient that is off by e on v moves a bound by at most e |v|, and |v| <= total, |z| <= size. With c
     on z, the step c z = (c W) v + c b costs at most g(k) |c| size.
  3. Lines: a slope may be rounded at will, for the constant is taken from the rounded one: the distance from a line to
     a convex or concave function is largest at an end of the interval.
EPS(k) = (4 k + 64) u is more than three times what the few operations around a product, the sums of constants and
the rounding of the bounds themselves add to g(k). An underflow is off by at most 2^-1075; `floor` and TINY cover it.
Overflow makes infinities and NaNs: a neuron with such bounds counts as undecided, and they stay in every bound.

Symbols: B boxes, n inputs, w neurons of a layer, o outputs, Q rows a box, P rows of a backward pass.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.verification.checker.archive import TINY, UNIT, Array, Mask

Numbers = NDArray[np.signedinteger[Any]]
# Elements of one temporary array of the backward passes: about ten of these stay in the cache.
PIECE = 2**16


class Lines(NamedTuple):
    """below_slope z + below <= v' <= above_slope z + above, least <= v' <= most: (B, w); below <= 0 <= above."""

    below_slope: Array
    below: Array
    above_slope: Array
    above: Array
    least: Array
    most: Array


Relaxation = Callable[[Array, Array], Lines]


class Box(NamedTuple):
    """Walls (B, n) of boxes."""

    lower: Array
    upper: Array


@dataclass(frozen=True)
class Layer:
    """z = weight @ v + bias, in [low, high] (B, w), and what it becomes.

    error (B, w): what rounding costs per unit of a coefficient on z; floor (B,): what underflow costs in any case.
    """

    weight: Array
    bias: Array
    low: Array
    high: Array
    lines: Lines
    error: Array
    floor: Array

    def through(self, on_z: Array, constant: Array, box: Numbers) -> tuple[Array, Array]:
        """Coefficients (P, .) on v and constant (P,) for coefficients (P, w) on z over the boxes numbered (P,)."""
        charge = _dots(np.abs(on_z), self.error[box]) + self.floor[box] + _eps(8) * np.abs(constant)
        return on_z @ self.weight, constant + on_z @ self.bias - charge


def bound_rows(weights: Sequence[Array], biases: Sequence[Array], boxes: Box, relaxations: Sequence[Relaxation],
               coefficients: Array, constants: Array, tight: bool = True, on_inputs: Array | None = None) -> Array:
    """Lower bounds (B, Q) of coefficients (B, Q, o) @ y + constants (B, Q); a relaxation for each hidden layer.

    on_inputs (B, Q, n): coefficients on x, added to that; None: none.
    """
    *layers, last = bound_layers(weights, biases, boxes, [*relaxations, partial(switched, np.True_, np.False_)], tight)
    box = np.repeat(np.arange(len(constants)), constants.shape[1])
    rows, constant = last.through(coefficients.reshape(len(box), -1), constants.reshape(-1), box)
    direct = None if on_inputs is None else on_inputs.reshape(len(box), -1)
    return _backward(layers, boxes, rows, constant, box, direct).reshape(constants.shape)


def bound_layers(weights: Sequence[Array], biases: Sequence[Array], boxes: Box,
                 relaxations: Sequence[Relaxation], tight: bool = True) -> list[Layer]:
    """Bounds of every layer over the boxes; tight: with a backward pass for each neuron that is left open."""
    centre = (boxes.lower + boxes.upper) / 2
    radius = np.maximum(boxes.upper - centre, centre - boxes.lower) * (1 + 4 * UNIT) + TINY
    varying = np.flatnonzero((boxes.lower < boxes.upper).any(axis=0))
    # v between low and high: (B, inputs that vary + 2, w), their slopes, the constant, the interval's end
    slopes = np.eye(len(radius.T))[varying] * radius[:, None, :]
    low, high = (np.concatenate([slopes, centre[:, None], wall[:, None]], axis=1) for wall in boxes)
    summed = np.zeros_like(radius)
    layers: list[Layer] = []
    for k, (weight, bias, relaxation) in enumerate(zip(weights, biases, relaxations, strict=True)):
        total = np.abs(low).sum(axis=1) + np.abs(high).sum(axis=1) + summed + TINY
        middle = _times((low + high) / 2, weight.T)
        half = _times(np.concatenate([(high - low) / 2, total[:, None]], axis=1), np.abs(weight).T)
        size = half[:, -1] + np.abs(bias)
        error = 2 * _eps(weight.shape[1] + len(varying)) * size + TINY
        low, high = middle - half[:, :-1], middle + half[:, :-1]
        low[:, -2:] += (bias - error)[:, None]
        high[:, -2:] += (bias + error)[:, None]
        z_low = np.maximum(low[:, -2] - np.abs(low[:, :-2]).sum(axis=1) - error, low[:, -1])
        z_high = np.minimum(high[:, -2] + np.abs(high[:, :-2]).sum(axis=1) + error, high[:, -1])
        lines = relaxation(z_low, z_high)
        if tight and k > 1:
            _tighten(layers, boxes, weight, bias, z_low, z_high, lines.below != lines.above)
            lines = relaxation(z_low, z_high)
        layers.append(Layer(weight, bias, z_low, z_high, lines, error, TINY * (1 + total.sum(-1) + size.sum(-1))))
        low, high = low * lines.below_slope[:, None], high * lines.above_slope[:, None]
        low[:, -2] += lines.below
        high[:, -2] += lines.above
        low[:, -1], high[:, -1] = lines.least, lines.most
        summed = lines.above - lines.below
    return layers


def _tighten(layers: Sequence[Layer], boxes: Box, weight: Array, bias: Array, low: Array, high: Array,
             wanted: Mask) -> None:
    """Bounds the wanted z = weight @ v + bias behind the layers by a backward pass each: low, high (B, w) in place."""
    box, neuron = np.nonzero(wanted)
    step = max(PIECE // max(layer.weight.shape[0] for layer in layers), 1)
    for i in range(0, len(box), step):
        at, j = box[i : i + step], neuron[i : i + step]
        low[at, j] = np.fmax(low[at, j], _backward(layers, boxes, weight[j], bias[j], at))
        high[at, j] = np.fmin(high[at, j], -_backward(layers, boxes, -weight[j], -bias[j], at))


def _backward(layers: Sequence[Layer], boxes: Box, rows: Array, constant: Array, box: Numbers,
              direct: Array | None = None) -> Array:
    """Lower bounds (P,) of rows (P, w) @ v + constant (P,), v behind the layers, over the boxes numbered (P,).

    direct (P, n): coefficients on x beside those; the sum of both rounds once, which the charge at the end covers.
    """
    for layer in reversed(layers):
        lines, positive = layer.lines, np.maximum(rows, 0)
        negative = rows - positive
        lifts = _dots(positive, lines.below[box]) + _dots(negative, lines.above[box])  # no term is above 0
        positive *= lines.below_slope[box]
        negative *= lines.above_slope[box]
        rows, constant = layer.through(positive + negative, constant + (1 + _eps(rows.shape[1])) * lifts, box)
    rows = rows if direct is None else rows + direct
    ends = rows * np.where(rows > 0, boxes.lower[box], boxes.upper[box])
    return constant + ends.sum(-1) - _eps(rows.shape[1]) * (np.abs(ends).sum(-1) + np.abs(constant)) - TINY


def relu(low: Array, high: Array) -> Lines:
    """relu(z): below, z or 0, whichever is nearer to the larger side; above, the chord."""
    active, unstable = low >= 0, ~(low >= 0) & ~(high <= 0)
    ground = np.where(unstable, high > -low, active).astype(np.float64)
    chord = np.where(unstable, high / np.where(unstable, high - low, 1.0), active)
    lift = np.maximum(-chord * low, high - chord * high) + 16 * UNIT * (np.abs(low) + np.abs(high)) + TINY
    zero = np.zeros_like(low)
    return Lines(ground, zero, chord, np.where(unstable, lift, zero), np.maximum(low, 0), np.maximum(high, 0))


def linear(low: Array, high: Array) -> Lines:
    """z itself: a layer without a ReLU."""
    one, zero = np.ones_like(low), np.zeros_like(low)
    return Lines(one, zero, one, zero, low, high)


def switched(active: Mask | np.bool_, unstable: Mask | np.bool_, low: Array, high: Array) -> Lines:
    """d z: z where active, between min(0, z) (concave) and max(0, z) (convex) where unstable, else 0."""
    crossing = unstable & ~(low >= 0) & ~(high <= 0)
    width = np.where(crossing, high - low, 1.0)
    falling, rising = np.where(unstable, np.minimum(low, 0), 0), np.where(unstable, np.maximum(high, 0), 0)
    below = np.where(crossing, -low / width, active | ~(falling >= 0))
    above = np.where(crossing, high / width, active | ~(rising <= 0))
    slack = 16 * UNIT * (np.abs(low) + np.abs(high)) + TINY
    drop = np.minimum(low - below * low, -below * high) - slack
    lift = np.maximum(-above * low, high - above * high) + slack
    return Lines(below, np.where(crossing, drop, 0), above, np.where(crossing, lift, 0),
                 np.where(active, low, falling), np.where(active, high, rising))


def _eps(terms: int) -> float:
    return (4 * terms + 64) * UNIT


def _times(values: Array, matrix: Array) -> Array:
    """values (B, c, w) @ matrix in one product."""
    return np.asarray(values.reshape(-1, len(matrix)) @ matrix).reshape(*values.shape[:-1], -1)


def _dots(a: Array, b: Array) -> Array:
    """Products of the rows of two (P, w): (P,)."""
    return np.asarray(np.einsum("pw,pw->p", a, b))
