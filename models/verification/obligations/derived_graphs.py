"""Networks that obligations are about, made of the one that was read: of differences, and of outputs beside inputs.

What float64 does not have of an exact number is in the error of the map that holds it.

Symbols: n inputs, o outputs; low < high values of an input.
"""

import math
from fractions import Fraction

import numpy as np

from feature_store.errors import InputError
from models.verification.network.graph import Affine, FloatArray, Graph, Layer


def related_graph(graph: Graph) -> Graph:
    """x (n,) -> (y, x), (o + n,)."""
    last, n = graph.output, graph.inputs
    matrices = {s: np.vstack([m, np.zeros((n, m.shape[1]))]) for s, m in last.matrices.items()}
    matrices[0] = np.vstack([last.matrices.get(0, np.zeros((graph.outputs, n))), np.eye(n)])
    error = {s: np.vstack([e, np.zeros((n, e.shape[1]))]) for s, e in last.error.items()}
    offset_error = None if last.offset_error is None else np.concatenate([last.offset_error, np.zeros(n)])
    return Graph(n, graph.layers, Affine(matrices, np.concatenate([last.offset, np.zeros(n)]), error, offset_error))


def pair_graph(graph: Graph, output: int, feature: int, low: float, high: float) -> Graph:
    """x (n,) -> y[output] at x[feature] = high minus that at low, (1,): both copies in every layer, low first.

    The column of the feature is zero and its products are in the offsets, what these rounded in their errors.
    """
    layers = tuple(Layer(_doubled(layer.affine, feature, low, high), layer.kind, layer.leak) for layer in graph.layers)
    last, row = graph.output, slice(output, output + 1)
    matrices = {s: np.hstack([-m[row], m[row]]) for s, m in last.matrices.items() if s > 0}
    error = {s: np.hstack([e[row], e[row]]) for s, e in last.error.items() if s > 0}
    change = Fraction(0)  # what x itself and the offset add to both copies cancels
    slack = Fraction(0)
    if 0 in last.matrices:
        step = Fraction(high) - Fraction(low)
        change = Fraction(float(last.matrices[0][output, feature])) * step
        slack = Fraction(float(last.error[0][output, feature])) * step if 0 in last.error else slack
    offset, offset_error = _nearest([change], [slack])
    affine = Affine(matrices or {0: np.zeros((1, graph.inputs))}, offset, error, offset_error)
    return Graph(graph.inputs, layers, affine)


def _doubled(affine: Affine, feature: int, low: float, high: float) -> Affine:
    """Both copies of a layer's map, from sources that hold both copies."""
    def both(source: int, matrix: FloatArray) -> FloatArray:
        if source > 0:
            empty = np.zeros_like(matrix)
            return np.block([[matrix, empty], [empty, matrix]])
        kept = matrix.copy()
        kept[:, feature] = 0
        return np.vstack([kept, kept])

    exact: list[Fraction] = []
    slack: list[Fraction] = []
    for value in (low, high):
        held, known = [Fraction(b) for b in affine.offset.tolist()], [Fraction(0)] * affine.rows
        if affine.offset_error is not None:
            known = [Fraction(e) for e in affine.offset_error.tolist()]
        if 0 in affine.matrices:
            column = affine.matrices[0][:, feature].tolist()
            held = [b + Fraction(w) * Fraction(value) for b, w in zip(held, column, strict=True)]
        if 0 in affine.error:
            column = affine.error[0][:, feature].tolist()
            known = [e + Fraction(w) * abs(Fraction(value)) for e, w in zip(known, column, strict=True)]
        exact, slack = exact + held, slack + known
    offset, offset_error = _nearest(exact, slack)
    return Affine({s: both(s, m) for s, m in affine.matrices.items()}, offset,
                  {s: both(s, e) for s, e in affine.error.items()}, offset_error)


def _nearest(exact: list[Fraction], slack: list[Fraction]) -> tuple[FloatArray, FloatArray | None]:
    """The float64 nearest to each number, and how far each may be from it, `slack` included; None: nowhere off."""
    rounded = [nearest_float(value) for value in exact]
    off = [above(abs(value - Fraction(near)) + known)
           for value, near, known in zip(exact, rounded, slack, strict=True)]
    return np.array(rounded), np.array(off) if any(off) else None


def above(exact: Fraction) -> float:
    """The smallest float64 >= exact."""
    near = nearest_float(exact)
    return near if near >= exact else math.nextafter(near, math.inf)


def nearest_float(exact: Fraction) -> float:
    """The float64 nearest to a number. Raises InputError beyond the largest."""
    try:
        return float(exact)
    except OverflowError as error:
        raise InputError("weights times values must fit float64, got a number beyond 1.8e308") from error
