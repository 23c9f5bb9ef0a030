"""Exact oracle for small piecewise linear graphs of two inputs: the cells of a box in which they are linear.

Rational arithmetic throughout. A form (a, b, c) is a x0 + b x1 + c.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from models.verification.language.unsafe_set import UnsafeSet
from models.verification.network.graph import Affine, FloatArray, Graph
from tests.models.verification.regions import Polygon, _area, _clip

Form = tuple[Fraction, Fraction, Fraction]


@dataclass(frozen=True)
class Cell:
    """A polygon and the outputs' forms in it."""

    corners: Polygon
    outputs: list[Form]


def cells(graph: Graph, lower: Sequence[float], upper: Sequence[float]) -> list[Cell]:
    """All cells of a box with an area."""
    (left, right), (bottom, top) = ((Fraction(float(a)), Fraction(float(b))) for a, b in zip(lower, upper, strict=True))
    zero, one = Fraction(0), Fraction(1)
    whole: Polygon = [(left, bottom), (right, bottom), (right, top), (left, top)]
    found: list[tuple[Polygon, list[list[Form]]]] = [(whole, [[(one, zero, zero), (zero, one, zero)]])]
    for layer in graph.layers:
        found = [(part, [*forms, active]) for polygon, forms in found
                 for part, active in _split(polygon, _forms(layer.affine, forms), Fraction(layer.leak))]
    return [Cell(polygon, _forms(graph.output, forms)) for polygon, forms in found]


def least_slope(parts: Sequence[Cell], feature: int, row: Sequence[float]) -> Fraction:
    """The smallest derivative of row @ y by an input over all cells."""
    return min(sum((Fraction(float(c)) * form[feature] for c, form in zip(row, cell.outputs, strict=True)), Fraction(0))
               for cell in parts)


def is_reached(graph: Graph, unsafe: UnsafeSet) -> bool:
    """Whether an input of one of the boxes has unsafe outputs."""
    for r in range(len(unsafe.lower)):
        parts = cells(graph, unsafe.lower[r], unsafe.upper[r])
        for matrix, constants in zip(unsafe.coefficients[r], unsafe.constants[r], strict=True):
            if any(_meets(cell, matrix, constants) for cell in parts):
                return True
    return False


def _meets(cell: Cell, matrix: FloatArray, constants: FloatArray) -> bool:
    corners = cell.corners
    for row, constant in zip(matrix.tolist(), constants.tolist(), strict=True):
        values = [Fraction(constant) + sum((Fraction(c) * _at(form, corner) for c, form in
                                            zip(row, cell.outputs, strict=True)), Fraction(0)) for corner in corners]
        corners = _clip(corners, values)
        if not corners:
            return False
    return True


def _at(form: Form, corner: tuple[Fraction, Fraction]) -> Fraction:
    return form[0] * corner[0] + form[1] * corner[1] + form[2]


def _forms(affine: Affine, forms: Sequence[Sequence[Form]]) -> list[Form]:
    found = []
    for i in range(affine.rows):
        total = [Fraction(0), Fraction(0), Fraction(float(affine.offset[i]))]
        for source, matrix in affine.matrices.items():
            for w, form in zip(matrix[i].tolist(), forms[source], strict=True):
                total = [t + Fraction(w) * part for t, part in zip(total, form, strict=True)]
        found.append((total[0], total[1], total[2]))
    return found


def _split(polygon: Polygon, z: Sequence[Form], leak: Fraction) -> list[tuple[Polygon, list[Form]]]:
    """The parts into which one layer's kinks cut a polygon, with the forms of the activations there."""
    parts: list[tuple[Polygon, list[Form]]] = [(polygon, [])]
    for form in z:
        below = (leak * form[0], leak * form[1], leak * form[2])
        new = []
        for part, active in parts:
            values = [_at(form, corner) for corner in part]
            if min(values) >= 0:
                new.append((part, [*active, form]))
            elif max(values) <= 0:
                new.append((part, [*active, below]))
            else:
                sides = ((_clip(part, values), form), (_clip(part, [-v for v in values]), below))
                new += [(side, [*active, chosen]) for side, chosen in sides if _area(side) > 0]
        parts = new
    return parts
