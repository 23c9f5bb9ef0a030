"""Lines that hold what stands behind an affine layer, over an interval of it: plain NumPy, rounded outward.

Behind z = W v + b stands v' = activation(z), or v' = d z with the activation's derivative d, of which an interval is
known. Two lines hold it for z in [low, high]: below_slope z + below <= v' <= above_slope z + above. bounds.py carries
them through the network, and check.py makes networks of derivatives.

A slope may be rounded at will, for the constant is taken from the rounded one: the distance from a line to a convex or
concave function is largest at an end of the interval, and to one that rises along the line it is at an end, too.

Tanh and the sigmoid 0.5 + 0.5 tanh(z / 2) bend one way on each side of 0. There the chord is one of the lines. The
other one, and both where 0 lies inside, have a slope s that the derivative never falls below: it falls off on either
side of 0, so s is the smaller one of the ends, and activation - s z rises from end to end. NumPy's tanh is taken to be
within CURVE u of the true one (u = 2^-53), absolutely; a test measures it to be within a quarter of that. The
derivatives 1 - a^2 and a (1 - a), computed of such a value a, are then within (2 CURVE + 8) u.

Sums of constants. Backward passes add up w constants, times coefficients, and multiply the sum by 1 + eps(w). Where
below <= 0 <= above no term of that sum is above 0, and the factor covers its rounding. A curve's constants may have
either sign: they carry 2 eps(w) of themselves, for the rounding and for the factor.

Symbols: B boxes, w neurons; arrays (B, w).
"""

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

import numpy as np

from models.verification.checker.archive import TINY, UNIT, Array

Kind = Literal["identity", "relu", "tanh", "sigmoid"]
# Units u, absolute, that NumPy's tanh may be off by: generously above the 2 that it is.
CURVE = 32


class Lines(NamedTuple):
    """below_slope z + below <= v' <= above_slope z + above, least <= v' <= most: (B, w); slopes >= 0."""

    below_slope: Array
    below: Array
    above_slope: Array
    above: Array
    least: Array
    most: Array


Relaxation = Callable[[Array, Array], Lines]


class Activation(NamedTuple):
    """lines: of its values; slopes: least and largest derivative, of z between low and high."""

    lines: Relaxation
    slopes: Callable[[Array, Array], tuple[Array, Array]]


def eps(terms: int) -> float:
    """What a sum of so many products and the few operations around it lose, relatively (bounds.py)."""
    return (4 * terms + 64) * UNIT


def identity(low: Array, high: Array) -> Lines:
    """z itself: a layer without an activation."""
    one, zero = np.ones_like(low), np.zeros_like(low)
    return Lines(one, zero, one, zero, low, high)


def relu(low: Array, high: Array) -> Lines:
    """relu(z): below, z or 0, whichever is nearer to the larger side; above, the chord."""
    active, unstable = low >= 0, ~(low >= 0) & ~(high <= 0)
    ground = np.where(unstable, high > -low, active).astype(np.float64)
    chord = np.where(unstable, high / np.where(unstable, high - low, 1.0), active)
    lift = np.maximum(-chord * low, high - chord * high) + 16 * UNIT * (np.abs(low) + np.abs(high)) + TINY
    zero = np.zeros_like(low)
    return Lines(ground, zero, chord, np.where(unstable, lift, zero), np.maximum(low, 0), np.maximum(high, 0))


def tanh(low: Array, high: Array) -> Lines:
    """tanh(z)."""
    return _curve(np.tanh(low), np.tanh(high), _slopes_of_tanh, low, high)


def sigmoid(low: Array, high: Array) -> Lines:
    """1 / (1 + exp(-z))."""
    return _curve(_sigmoid(low), _sigmoid(high), _slopes_of_sigmoid, low, high)


def scaled(least: Array, most: Array, low: Array, high: Array) -> Lines:
    """d z with 0 <= least <= d <= most <= 1: between the smaller (concave) and the larger (convex) of both products."""
    # (not "low < 0 < high": bounds that overflowed to NaN must stay)
    crossing = (least < most) & ~(low >= 0) & ~(high <= 0)
    width = np.where(crossing, high - low, 1.0)
    low_least, low_most, high_least, high_most = least * low, most * low, least * high, most * high
    below = np.where(crossing, (high_least - low_most) / width, np.where(low >= 0, least, most))
    above = np.where(crossing, (high_most - low_least) / width, np.where(high <= 0, least, most))
    slack = 16 * UNIT * (np.abs(low) + np.abs(high)) + TINY
    drop = np.minimum(low_most - below * low, high_least - below * high) - slack
    lift = np.maximum(low_least - above * low, high_most - above * high) + slack
    # products with 0 and 1 are exact; of others the bounds' sums charge what rounding costs, but not what underflows
    lost = TINY * ((least * (1 - least) > 0) | (most * (1 - most) > 0))
    return Lines(below, np.where(crossing, drop, 0), above, np.where(crossing, lift, 0),
                 np.where(low >= 0, low_least, low_most) - lost, np.where(high <= 0, high_least, high_most) + lost)


def _sigmoid(z: Array) -> Array:
    return np.asarray(0.5 + 0.5 * np.tanh(0.5 * z))


def _slopes_of_tanh(a: Array) -> Array:
    return 1 - a * a


def _slopes_of_sigmoid(a: Array) -> Array:
    return a * (1 - a)


def _curve(at_low: Array, at_high: Array, slopes: Callable[[Array], Array], low: Array, high: Array) -> Lines:
    """Lines of a curve with these values at the ends, its derivative given as a function of its value."""
    steep, _ = _between(slopes(at_low), slopes(at_high))
    width = high - low
    chord = np.clip((at_high - at_low) / np.where(width > 0, width, 1.0), 0.0, 1.0)
    below_slope, above_slope = np.where(low >= 0, chord, steep), np.where(high <= 0, chord, steep)
    reach = np.maximum(np.abs(low), np.abs(high))
    share = (CURVE + 8) * UNIT + 2 * eps(low.shape[-1])
    below = np.minimum(at_low - below_slope * low, at_high - below_slope * high)
    above = np.maximum(at_low - above_slope * low, at_high - above_slope * high)
    return Lines(below_slope, below - share * (1 + below_slope * reach) - TINY,
                 above_slope, above + share * (1 + above_slope * reach) + TINY,
                 at_low - CURVE * UNIT, at_high + CURVE * UNIT)


def _between(at_low: Array, at_high: Array) -> tuple[Array, Array]:
    """Never above the derivatives between two points with these, and never below them where 0 is not in between."""
    slack = (2 * CURVE + 8) * UNIT
    return np.maximum(np.minimum(at_low, at_high) - slack, 0.0), np.maximum(at_low, at_high) + slack


def _curve_slopes(at_low: Array, at_high: Array, peak: float, low: Array, high: Array) -> tuple[Array, Array]:
    least, most = _between(at_low, at_high)
    return least, np.where((low <= 0) & (high >= 0), peak, np.minimum(most, peak))


ACTIVATIONS: Mapping[Kind, Activation] = {
    "identity": Activation(identity, lambda low, high: (np.ones_like(low), np.ones_like(low))),
    "relu": Activation(relu, lambda low, high: ((low >= 0).astype(np.float64),
                                                ((low >= 0) | ~(high <= 0)).astype(np.float64))),
    "tanh": Activation(tanh, lambda low, high: _curve_slopes(
        _slopes_of_tanh(np.tanh(low)), _slopes_of_tanh(np.tanh(high)), 1.0, low, high)),
    "sigmoid": Activation(sigmoid, lambda low, high: _curve_slopes(
        _slopes_of_sigmoid(_sigmoid(low)), _slopes_of_sigmoid(_sigmoid(high)), 0.25, low, high)),
}
