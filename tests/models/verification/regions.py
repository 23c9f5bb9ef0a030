"""Exact oracles by enumeration: all activation regions in a plane, all linear pieces along a line.

Pure Python arithmetic, so that `number` may be Fraction (exact) or float (fast).
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

from models.verification.network.fully_connected import ReluNetwork
from tests.models.verification.networks import exact_gradient, exact_preactivations

Polygon = list[tuple[Any, Any]]
# Cells of a float enumeration smaller than this share of the box are rounding, not regions.
SLIVER = 1e-12


def activation_regions(
    network: ReluNetwork, lower: Sequence[Any], upper: Sequence[Any], number: Callable[[Any], Any] = float,
) -> list[tuple[Any, Any]]:
    """The gradient (dy/dx0, dy/dx1) of every activation region that a box of two inputs with an area meets."""
    (left, right), (bottom, top) = ((number(a), number(b)) for a, b in zip(lower, upper, strict=True))
    least = (right - left) * (top - bottom) * number(SLIVER if number is float else 0)
    zero, one = number(0), number(1)
    cells: list[tuple[Polygon, list[tuple[Any, Any, Any]]]] = [
        ([(left, bottom), (right, bottom), (right, top), (left, top)], [(one, zero, zero), (zero, one, zero)])]
    for weight, bias in zip(network.weights[:-1], network.biases[:-1], strict=True):
        rows = [([number(float(w)) for w in row], number(float(b))) for row, b in zip(weight, bias, strict=True)]
        cells = [cell for polygon, before in cells for cell in _split(polygon, before, rows, least)]
    last = [number(float(w)) for w in network.weights[-1][0]]
    return [(sum((w * a[0] for w, a in zip(last, acts, strict=True)), zero),
             sum((w * a[1] for w, a in zip(last, acts, strict=True)), zero)) for _, acts in cells]


def _split(polygon: Polygon, before: list[Any], rows: list[Any], least: Any) -> list[tuple[Polygon, list[Any]]]:
    """The cells into which one layer's kinks cut a polygon, with the layer's activations as (x, y, 1) rows."""
    parts: list[tuple[Polygon, list[Any]]] = [(polygon, [])]
    for row, b in rows:
        z = [sum(w * a[i] for w, a in zip(row, before, strict=True)) for i in range(3)]
        z[2] += b
        new = []
        for cell, acts in parts:
            values = [z[0] * x + z[1] * y + z[2] for x, y in cell]
            if all(value >= 0 for value in values):
                new.append((cell, acts + [tuple(z)]))
            elif all(value <= 0 for value in values):
                new.append((cell, acts + [(0 * z[0],) * 3]))
            else:
                sides = ((_clip(cell, values), tuple(z)), (_clip(cell, [-v for v in values]), (0 * z[0],) * 3))
                new += [(side, acts + [form]) for side, form in sides if _area(side) > least]
        parts = new
    return parts


def _clip(polygon: Polygon, values: list[Any]) -> Polygon:
    """The part of a convex polygon in which a linear function with these values at the corners is >= 0."""
    kept = []
    for i, (corner, value) in enumerate(zip(polygon, values, strict=True)):
        following, next_value = polygon[(i + 1) % len(polygon)], values[(i + 1) % len(polygon)]
        if value >= 0:
            kept.append(corner)
        if (value > 0) != (next_value > 0) and value != next_value and value != 0 and next_value != 0:
            t = value / (value - next_value)
            kept.append((corner[0] + t * (following[0] - corner[0]), corner[1] + t * (following[1] - corner[1])))
    return kept


def _area(polygon: Polygon) -> Any:
    if len(polygon) < 3:
        return 0
    return abs(sum(polygon[i - 1][0] * polygon[i][1] - polygon[i][0] * polygon[i - 1][1]
                   for i in range(len(polygon)))) / 2


def exact_slopes_on_line(
    network: ReluNetwork, start: Sequence[Fraction], end: Sequence[Fraction],
) -> list[list[Fraction]]:
    """The gradient inside every linear piece of f on the segment from start to end, exact: one list of n a piece."""
    def at(t: Fraction) -> list[Fraction]:
        return [a + t * (b - a) for a, b in zip(start, end, strict=True)]

    breaks = [Fraction(0), Fraction(1)]
    for layer in range(len(network.weights) - 1):
        new = [breaks[0]]
        values = [exact_preactivations(network, at(t))[layer] for t in breaks]
        for (t0, t1), (z0, z1) in zip(pairwise(breaks), pairwise(values), strict=True):
            kinks = {t0 + (t1 - t0) * a / (a - b) for a, b in zip(z0, z1, strict=True) if (a > 0) != (b > 0) and a != b}
            new += [*sorted(t for t in kinks if t0 < t < t1), t1]
        breaks = new
    return [exact_gradient(network, at((a + b) / 2)) for a, b in pairwise(breaks)]

