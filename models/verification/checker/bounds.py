"""Bounds of the checker: what a network's rows can reach over boxes, plain NumPy in float64, rounding included.

Behind an affine layer z = W v + b stands v', an activation of z or its derivative times z, between two lines for z in
its interval (relaxations.py): below_slope z + below <= v' <= above_slope z + above. Forward: linear bounds in the
inputs, in coordinates in which the box is the unit cube, intersected with intervals. Backward (CROWN, Zhang et al.
2018): what is undecided then, and in the end the rows asked for, are carried through the lines to the inputs. For the
first two layers both are the same. The rows asked for may end at any layer, at the intervals of its v', all or the open
ones alone (`_cut_backward`): what clips its outputs keeps the limits.

Rounding. u = 2^-53. A product of k terms, in any order and with or without fused operations, is off by at most
g(k) = k u / (1 - k u) times the product of the absolute values (Higham, Accuracy and Stability, section 3.1).
  1. Forward: all that z adds up from is at most size = |W| total + |b|, with `total` the sum of the absolute values of
     all numbers that describe v; slopes count once, for the cube's coordinates are at most 1. So every number of z is
     off by at most g(k) size; the errors of a bound's slopes go to its constant.
  2. Backward: a coefficient that is off by e on v moves a bound by at most e |v|, and |v| <= total, |z| <= size. With c
     on z, the step c z = (c W) v + c b costs at most g(k) |c| size.
eps(k) = (4 k + 64) u is more than three times what the few operations around a product, the sums of constants and
the rounding of the bounds themselves add to g(k), and leaves room for weights that are off by u of themselves (the
reciprocals of divisors): by items 1 and 2 they cost another u size, u |c| size. An underflow is off by at
most 2^-1075; `floor` and TINY cover it.
Overflow makes infinities and NaNs: a neuron with such bounds counts as undecided, and they stay in every bound.

Symbols: B boxes, n inputs, w neurons of a layer, o outputs, Q rows a box, P rows of a backward pass.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.verification.checker.archive import TINY, UNIT, Array, Mask
from models.verification.checker.relaxations import Lines, Relaxation, eps, identity, relu
from models.verification.checker.time_limit import require_time

Numbers = NDArray[np.signedinteger[Any]]
# Neurons that are open for a smaller share of their interval are not cut: values that are carried along, for example.
CUT = 1e-3
# Places between two combinations of rows that are tried.
LINE = np.arange(17) / 16
# Elements of one temporary array of the backward passes: about ten of these stay in the cache.
PIECE = 2**16


class Box(NamedTuple):
    """Walls (B, n) of boxes."""

    lower: Array
    upper: Array


class Rows(NamedTuple):
    """rows (P, w) @ v + constant (P,) + direct (P, n) @ x over the boxes numbered (P,); direct None: none."""

    rows: Array
    constant: Array
    box: Numbers
    direct: Array | None

    def of(self, chosen: Numbers) -> "Rows":
        """Those with these numbers."""
        return Rows(self.rows[chosen], self.constant[chosen], self.box[chosen],
                    None if self.direct is None else self.direct[chosen])


class Functions(NamedTuple):
    """Linear bounds of v in the cube's coordinates: low, high (B, inputs that vary + 2, w).

    Rows: a slope for each input that varies, the constant, the interval's end. total (B, w): sum of the absolute values
    of all numbers that describe v, the lifts of lines included.
    """

    low: Array
    high: Array
    total: Array


class Cube(NamedTuple):
    """Inputs as coordinates in [-1, 1]: x = centre + radius * u (B, n); varying: the inputs that do.

    given (B, C, inputs that vary + 1): linear functions of u, constants last, that are >= 0 wherever it matters.
    """

    centre: Array
    radius: Array
    varying: Numbers
    given: Array

    @classmethod
    def of(cls, boxes: Box, given: Array | None = None) -> "Cube":
        """given (B, C, n + 1): of x, constants last; None: none."""
        centre = (boxes.lower + boxes.upper) / 2
        radius = np.maximum(boxes.upper - centre, centre - boxes.lower) * (1 + 4 * UNIT) + TINY
        varying = np.flatnonzero((boxes.lower < boxes.upper).any(axis=0))
        if given is None:
            return cls(centre, radius, varying, np.zeros((len(centre), 0, len(varying) + 1)))
        on_x, offset = given[..., :-1], given[..., -1]
        size = np.abs(on_x) @ (np.abs(centre) + radius)[..., None]
        constant = offset + (on_x * centre[:, None]).sum(axis=2) + eps(on_x.shape[2]) * (size[..., 0] + np.abs(offset))
        slopes = (on_x * radius[:, None])[..., varying]
        return cls(centre, radius, varying, np.concatenate([slopes, constant[..., None]], axis=2))

    def least(self, slopes: Array, constant: Array) -> Array:
        """Lower bounds (B, w) of slopes (B, inputs that vary, w) @ u + constant (B, w) where it matters.

        Of a function f and one g >= 0, f >= f - m g for every m >= 0: tried are those m that cancel one slope of f.
        """
        best = constant - np.abs(slopes).sum(axis=1)
        for c in range(self.given.shape[1]):
            on_u, offset = self.given[:, c, :-1, None], self.given[:, c, -1:]
            for i in np.flatnonzero((on_u[..., 0] != 0).any(axis=0)):
                with np.errstate(divide="ignore", invalid="ignore"):
                    times = slopes[:, i] / on_u[:, i]
                times = np.where(np.isfinite(times) & (times > 0), times, 0.0)
                moved, shift = times[:, None] * on_u, times * offset
                charge = eps(len(self.varying)) * (np.abs(moved).sum(axis=1) + np.abs(slopes).sum(axis=1)
                                                    + np.abs(shift) + np.abs(constant))
                best = np.fmax(best, constant - shift - np.abs(slopes - moved).sum(axis=1) - charge)
        return best


@dataclass(frozen=True)
class Layer:
    """z = weight @ v + bias, in [low, high] (B, w), and what it becomes.

    error (B, w): what rounding costs per unit of a coefficient on z; floor (B,): what underflow costs in any case.
    behind: what is known of v'.
    """

    weight: Array
    bias: Array
    low: Array
    high: Array
    lines: Lines
    error: Array
    floor: Array
    behind: "Functions"

    def through(self, on_z: Array, constant: Array, box: Numbers) -> tuple[Array, Array]:
        """Coefficients (P, .) on v and constant (P,) for coefficients (P, w) on z over the boxes numbered (P,)."""
        charge = _dots(np.abs(on_z), self.error[box]) + self.floor[box] + eps(8) * np.abs(constant)
        return on_z @ self.weight, constant + on_z @ self.bias - charge


def bound_rows(weights: Sequence[Array], biases: Sequence[Array], boxes: Box, relaxations: Sequence[Relaxation],
               coefficients: Array, constants: Array, tight: bool = True) -> Array:
    """Lower bounds (B, Q) of coefficients (B, Q, o) @ y + constants (B, Q); a relaxation for each hidden layer."""
    *layers, last = bound_layers(weights, biases, boxes, [*relaxations, identity], tight)
    asked = _rows_behind(last, coefficients, constants, None)
    return _backward(layers, boxes, asked.rows, asked.constant, asked.box, ends=True).reshape(constants.shape)


def bound_largest(weights: Sequence[Array], biases: Sequence[Array], boxes: Box, relaxations: Sequence[Relaxation],
                  coefficients: Array, constants: Array, on_inputs: Array | None = None) -> Array:
    """Lower bounds (B, K) of the largest of M rows, coefficients (B, K, M, o) @ y + constants (B, K, M), over a box.

    Bounds above 0 are not improved. on_inputs (B, K, M, n): coefficients on x, added to that; None: none.

    Where no row alone is above 0 throughout, a combination of them with weights >= 0 whose sum is 1 may be: it is never
    above the largest. So a property under linear conditions is proved, each point of the box by the property or by a
    condition that does not hold there. Combined are the rows' linear lower bounds in the inputs (`_combined`).
    Then, of alternatives with rows of inputs alone, the other rows are bounded where none of those is above 0. Last,
    linear bounds are carried through open ReLUs as 0: whatever a network does, a limit behind it is kept, and lost
    where a ReLU before it counts as its input.
    """
    *layers, last = bound_layers(weights, biases, boxes, [*relaxations, identity])
    direct = None if on_inputs is None else on_inputs.reshape(constants.size, -1)
    asked = _rows_behind(last, coefficients, constants, direct)
    bounds = _backward(layers, boxes, asked.rows, asked.constant, asked.box, direct, ends=True)
    if len(short := np.flatnonzero(~(bounds > 0))):
        bounds[short] = np.fmax(bounds[short], _forward(layers, Cube.of(boxes), asked.of(short)))
    if len(short := np.flatnonzero(~(bounds > 0))):
        bounds[short] = np.fmax(bounds[short], _cut_backward(layers, boxes, asked.of(short)))
    largest = np.nan_to_num(bounds, nan=-np.inf).reshape(-1, constants.shape[2]).max(axis=1)
    left = np.flatnonzero(~(largest > 0)) if constants.shape[2] > 1 else np.zeros(0, dtype=np.intp)
    if len(left):
        chosen = (left[:, None] * constants.shape[2] + np.arange(constants.shape[2])).ravel()
        rows, constant = _at_inputs(layers, asked.of(chosen))
        owner = np.repeat(np.arange(len(constants)), constants.shape[1])[left]
        largest[left] = np.fmax(largest[left], _combined(
            rows.reshape(len(left), constants.shape[2], -1), constant.reshape(len(left), -1), boxes.lower[owner],
            boxes.upper[owner]))
    if on_inputs is not None:
        for number in np.flatnonzero(~(largest > 0)):
            b, k = divmod(int(number), constants.shape[1])
            on_x = (coefficients[b, k] == 0).all(axis=1) & (on_inputs[b, k] != 0).any(axis=1)
            if on_x.any() and not on_x.all():
                given = -np.concatenate([on_inputs[b, k, on_x], constants[b, k, on_x, None]], axis=1)[None]
                largest[number] = np.fmax(largest[number], _under_conditions(
                    weights, biases, Box(boxes.lower[b : b + 1], boxes.upper[b : b + 1]), relaxations, given,
                    coefficients[b, k, ~on_x], constants[b, k, ~on_x], on_inputs[b, k, ~on_x]))
    largest = largest.reshape(constants.shape[:2])
    if relu in relaxations and len(rest := np.flatnonzero(~(largest > 0).all(axis=1))):
        some = Box(boxes.lower[rest], boxes.upper[rest])
        *layers, last = bound_layers(weights, biases, some, [*relaxations, identity], tight=False,
                                     flat=[Box(layer.low[rest], layer.high[rest]) for layer in [*layers, last]])
        asked = _rows_behind(last, coefficients[rest], constants[rest], None if on_inputs is None else
                             on_inputs[rest].reshape(constants[rest].size, -1))
        bounds = np.nan_to_num(_forward(layers, Cube.of(some), asked), nan=-np.inf)
        largest[rest] = np.fmax(largest[rest], bounds.reshape(constants[rest].shape).max(axis=2))
    return largest


def _under_conditions(weights: Sequence[Array], biases: Sequence[Array], box: Box, relaxations: Sequence[Relaxation],
                      given: Array, coefficients: Array, constants: Array, on_inputs: Array) -> float:
    """The largest lower bound of the rows (M, ...) in one box where the functions `given` (1, C, n + 1) are >= 0."""
    kinds: list[Relaxation] = [*relaxations, identity]
    *layers, last = bound_layers(weights, biases, box, kinds, tight=False, given=given)
    asked = _rows_behind(last, coefficients[None], constants[None], on_inputs)
    return float(np.nan_to_num(_forward(layers, Cube.of(box, given), asked), nan=-np.inf).max())


def _forward(layers: Sequence[Layer], cube: Cube, asked: Rows) -> Array:
    """Lower bounds (P,) of rows of the last layer's v' from its linear bounds: what was clipped kept its relations."""
    if not layers:  # the rows are of the inputs: a backward pass is exact
        return np.full(len(asked.rows), -np.inf)
    rows, constant, box, direct = asked
    positive, behind = np.maximum(rows, 0), layers[-1].behind
    found = (np.einsum("pw,piw->pi", positive, behind.low[box]) +
             np.einsum("pw,piw->pi", rows - positive, behind.high[box]))
    slopes, offset = found[:, :-2], constant + found[:, -2]
    size = _dots(np.abs(rows), behind.total[box]) + np.abs(constant)
    if direct is not None:
        slopes = slopes + (direct * cube.radius[box])[:, cube.varying]
        offset = offset + _dots(direct, cube.centre[box])
        size = size + _dots(np.abs(direct), np.abs(cube.centre[box]) + cube.radius[box])
    charge = 2 * eps(rows.shape[1] + cube.centre.shape[1]) * size + TINY
    return cube._replace(given=cube.given[box]).least(slopes[..., None], offset[:, None])[:, 0] - charge


def _rows_behind(last: Layer, coefficients: Array, constants: Array, direct: Array | None) -> Rows:
    """Rows of outputs, any number a box in any shape, as rows of what is before the last layer."""
    box = np.repeat(np.arange(len(constants)), constants[0].size)
    return Rows(*last.through(coefficients.reshape(len(box), -1), constants.reshape(-1), box), box, direct)


def bound_layers(weights: Sequence[Array], biases: Sequence[Array], boxes: Box, relaxations: Sequence[Relaxation],
                 tight: bool = True, given: Array | None = None, flat: Sequence[Box] | None = None) -> list[Layer]:
    """Bounds of every layer over the boxes; tight: with a backward pass for each neuron that is left open.

    given (B, C, n + 1): functions of x, constants last, that are >= 0 wherever it matters; None: none. flat: intervals
    of each layer's z that are known; then the linear lower bound of each ReLU is 0 but of those that are hardly open.
    """
    cube = Cube.of(boxes, given)
    varying = cube.varying
    slopes = np.eye(len(cube.radius.T))[varying] * cube.radius[:, None, :]
    low, high = (np.concatenate([slopes, cube.centre[:, None], wall[:, None]], axis=1) for wall in boxes)
    summed = np.zeros_like(cube.radius)
    layers: list[Layer] = []
    for k, (weight, bias, relaxation) in enumerate(zip(weights, biases, relaxations, strict=True)):
        require_time()
        total = np.abs(low).sum(axis=1) + np.abs(high).sum(axis=1) + summed + TINY
        middle = _times((low + high) / 2, weight.T)
        half = _times(np.concatenate([(high - low) / 2, total[:, None]], axis=1), np.abs(weight).T)
        size = half[:, -1] + np.abs(bias)
        # forward the sums are over the columns, in a backward step (`through`) over the rows
        error = 2 * eps(max(weight.shape) + len(varying)) * size + TINY
        low, high = middle - half[:, :-1], middle + half[:, :-1]
        low[:, -2:] += (bias - error)[:, None]
        high[:, -2:] += (bias + error)[:, None]
        linear_low = cube.least(low[:, :-2], low[:, -2]) - error
        linear_high = -cube.least(-high[:, :-2], -high[:, -2]) + error
        z_low, z_high = np.maximum(linear_low, low[:, -1]), np.minimum(linear_high, high[:, -1])
        if flat is not None:
            z_low, z_high = np.fmax(z_low, flat[k].lower), np.fmin(z_high, flat[k].upper)
        lines = relaxation(z_low, z_high)
        if tight and k > 1:
            _tighten(layers, boxes, weight, bias, z_low, z_high, lines.below != lines.above)
            lines = relaxation(z_low, z_high)
        floor = TINY * (1 + total.sum(-1) + size.sum(-1))
        carried = lines
        if relaxation is relu:
            reach_low, reach_high = np.abs(low[:, :-2]).sum(axis=1), np.abs(high[:, :-2]).sum(axis=1)
            carried = _own_lines(lines, low[:, -2] + reach_low + error, linear_low,
                                 np.fmax(-reach_high + high[:, -2], cube.least(high[:, :-2], high[:, -2])) - error,
                                 linear_high, high[:, -2])
            if flat is not None:
                carried = carried._replace(below_slope=np.where(
                    (lines.below != lines.above) & (-z_low > CUT * z_high), 0.0, carried.below_slope))
        low, high = low * carried.below_slope[:, None], high * carried.above_slope[:, None]
        low[:, -2] += carried.below
        high[:, -2] += carried.above
        low[:, -1], high[:, -1] = carried.least, carried.most
        summed = np.abs(carried.above) + np.abs(carried.below)
        behind = Functions(low, high, np.abs(low).sum(axis=1) + np.abs(high).sum(axis=1) + summed + TINY)
        layers.append(Layer(weight, bias, z_low, z_high, lines, error, floor, behind))
    return layers


def _own_lines(lines: Lines, low_most: Array, low_least: Array, high_least: Array, high_most: Array,
               high_centre: Array) -> Lines:
    """Lines for the linear bounds l <= z <= h of a ReLU's input, each in the interval that it has itself.

    relu(l) <= relu(z) <= relu(h): where h is never below 0, relu(h) is h, whatever z does. So what a clip bounds keeps
    its relation to the inputs. (Symbolic intervals: Wang et al., Efficient formal safety analysis, NeurIPS 2018.)
    low_least, low_most; high_least, high_most: the intervals of l and h (B, w); high_centre: h in the box's centre.
    """
    open_ = lines.below != lines.above
    own = relu(high_least, np.maximum(high_most, high_least))
    better = open_ & (own.above_slope * high_centre + own.above < lines.above_slope * high_centre + lines.above)
    return lines._replace(
        below_slope=np.where(open_, (low_most > -low_least).astype(np.float64), lines.below_slope),
        above_slope=np.where(better, own.above_slope, lines.above_slope),
        above=np.where(better, own.above, lines.above))


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
              direct: Array | None = None, ends: bool = False) -> Array:
    """Lower bounds (P,) of rows (P, w) @ v + constant (P,), v behind the layers, over the boxes numbered (P,).

    direct (P, n): coefficients on x beside those; the sum of both rounds once, which the charge at the end covers.
    ends: whether to end at the intervals of every layer as well; the largest bound counts.
    """
    best = np.full(len(box), -np.inf)
    beside = np.zeros(len(box))
    if direct is not None and ends:
        beside = _at_ends(direct, boxes.lower[box], boxes.upper[box], beside)
    for layer in reversed(layers):
        if ends:
            here = _at_ends(rows, layer.lines.least[box], layer.lines.most[box], constant)
            best = np.fmax(best, here + beside - eps(8) * (np.abs(here) + np.abs(beside)))
        rows, constant = _through(layer, rows, constant, box)
    rows = rows if direct is None else rows + direct
    return np.fmax(best, _at_ends(rows, boxes.lower[box], boxes.upper[box], constant))


def _through(layer: Layer, rows: Array, constant: Array, box: Numbers) -> tuple[Array, Array]:
    """Coefficients (P, .) on the v before the layer and constants (P,), of rows (P, w) on the v' behind it."""
    require_time()
    lines, positive = layer.lines, np.maximum(rows, 0)
    negative = rows - positive
    lifts = _dots(positive, lines.below[box]) + _dots(negative, lines.above[box])  # rounding: relaxations.py
    positive *= lines.below_slope[box]
    negative *= lines.above_slope[box]
    return layer.through(positive + negative, constant + (1 + eps(rows.shape[1])) * lifts, box)


def _cut_backward(layers: Sequence[Layer], boxes: Box, asked: Rows) -> Array:
    """The best of as many passes as there are layers, in each of which one layer's open neurons end at their intervals.

    What is open there goes no further, what is not keeps its relation to the inputs: in a policy whose change is
    clipped and whose former target passes beside, the change ends at its limits and the former target does not.
    """
    rows, constant, box, direct = asked
    best = np.full(len(box), -np.inf)
    for k in range(len(layers) - 1, -1, -1):
        lines, width = layers[k].lines, layers[k].high - layers[k].low
        open_ = ((lines.below != lines.above) & (np.fmin(-layers[k].low, layers[k].high) > CUT * width))[box]
        if open_.any():
            cut = np.where(open_, rows, 0.0)
            at_ends = _at_ends(cut, lines.least[box], lines.most[box], constant)
            best = np.fmax(best, _backward(layers[: k + 1], boxes, rows - cut, at_ends, box, direct))
        rows, constant = _through(layers[k], rows, constant, box)
    return best


def _at_inputs(layers: Sequence[Layer], asked: Rows) -> tuple[Array, Array]:
    """Linear lower bounds of the rows: coefficients (P, n) on x and constants (P,), less all rounding so far."""
    rows, constant, box, direct = asked
    for layer in reversed(layers):
        rows, constant = _through(layer, rows, constant, box)
    return rows if direct is None else rows + direct, constant


def _combined(rows: Array, constant: Array, low: Array, high: Array) -> Array:
    """Lower bounds (G,) of combinations of rows (G, M, n) @ x + constant (G, M) for x between low and high (G, n).

    The weights are climbed to: from the best row along the lines to the others, for what is bounded is concave in them.
    Whatever they are, each bound holds. A weighted sum of M numbers that are known exactly is off by less than
    eps(M) times the sum of the absolute terms; so is the sum `direct` that the rows may have rounded.
    """
    count, size = constant.shape
    largest = np.maximum(np.abs(low), np.abs(high))
    terms = np.abs(constant) + (np.abs(rows) * largest[:, None]).sum(axis=2)
    weights = np.eye(size)[np.argmax(np.nan_to_num(constant - terms, nan=-np.inf), axis=1)]
    best = np.full(count, -np.inf)
    for other in (*range(size), *range(size)):
        moved = weights[:, None] + LINE[:, None] * (np.eye(size)[other] - weights[:, None])  # (G, T, M), all >= 0
        on_x, offset = moved @ rows, (moved * constant[:, None]).sum(axis=2)
        ends = np.where(on_x == 0, 0.0, on_x * np.where(on_x > 0, low[:, None], high[:, None]))
        doubt = eps(2 * size + rows.shape[2]) * (moved @ terms[..., None])[..., 0]
        bound = np.nan_to_num(offset + ends.sum(axis=2) - doubt - TINY, nan=-np.inf)
        at = bound.argmax(axis=1)
        best = np.fmax(best, bound[np.arange(count), at])
        weights = moved[np.arange(count), at]
    return best


def _at_ends(rows: Array, low: Array, high: Array, constant: Array) -> Array:
    """Lower bounds (P,) of rows @ v + constant for v between low and high (P, w)."""
    ends = np.where(rows == 0, 0.0, rows * np.where(rows > 0, low, high))
    return np.asarray(constant + ends.sum(-1) - eps(rows.shape[1]) * (np.abs(ends).sum(-1) + np.abs(constant)) - TINY)


def _times(values: Array, matrix: Array) -> Array:
    """values (B, c, w) @ matrix in one product."""
    return np.asarray(values.reshape(-1, len(matrix)) @ matrix).reshape(*values.shape[:-1], -1)


def _dots(a: Array, b: Array) -> Array:
    """Products of the rows of two (P, w): (P,)."""
    return np.asarray(np.einsum("pw,pw->p", a, b))
