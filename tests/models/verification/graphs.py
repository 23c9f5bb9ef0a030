"""Networks in normal form, of every kind, and their exact values: for the tests that attack the verifier's bounds.

Oracle: rational arithmetic on the stored weights, or on any weights within `Affine.error`. tanh and sigmoid are
computed to 40 digits and more, absolute.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import torch
from hypothesis import strategies as st

from models.verification.network.graph import Affine, FloatArray, Graph, Kind, Layer

# Two workers share two cores: more threads would only fight.
torch.set_num_threads(1)

KINDS: tuple[Kind, ...] = ("relu", "leaky_relu", "tanh", "sigmoid")
DTYPES = {"float32": torch.float32, "float64": torch.float64}
Weights = tuple[dict[int, list[list[Fraction]]], list[Fraction]]


@dataclass(frozen=True)
class Exact:
    """Values at one point: z[k] of layer k, v[s] of source s, y."""

    z: list[list[Fraction]]
    v: list[list[Fraction]]
    y: list[Fraction]


def random_graph(
    rng: np.random.Generator, inputs: int, widths: Sequence[int], outputs: int = 1, kinds: Sequence[Kind] = ("relu",),
    skips: float = 0.0, errors: float = 0.0, spread: float = 0.0, scale: float = 1.0, single: bool = True,
) -> Graph:
    """He-initialised times `scale`, rows times 10^(-spread..spread).

    skips: chance of a source that is not the last; errors: share of the maps whose weights are known up to an error;
    single: weights that float32 has.
    """
    sizes = [inputs]
    affines: list[Affine] = []
    for k, rows in enumerate((*widths, outputs)):
        sources = {k} | {s for s in range(k) if rng.random() < skips}
        if k and len(sources) > 1 and rng.random() < 0.2:
            sources.discard(k)
        factor = scale * 10.0 ** rng.uniform(-spread, spread, size=(rows, 1)) if spread else scale
        matrices = {s: rng.normal(size=(rows, sizes[s])) * (2.0 / sizes[s]) ** 0.5 * factor for s in sorted(sources)}
        offset = (rng.normal(size=(rows, 1)) * 0.5 * factor)[:, 0]
        if single:
            matrices = {s: m.astype(np.float32).astype(np.float64) for s, m in matrices.items()}
            offset = offset.astype(np.float32).astype(np.float64)
        if rng.random() < errors:
            blur = 10.0 ** rng.uniform(-9, -2)
            affines.append(Affine(matrices, offset, {s: np.abs(m) * blur * (rng.random(m.shape) < 0.5)
                                                     for s, m in matrices.items() if rng.random() < 0.7},
                                  np.abs(offset) * blur))
        else:
            affines.append(Affine(matrices, offset))
        sizes.append(rows)
    chosen: list[Kind] = [kinds[int(rng.integers(len(kinds)))] for _ in widths]
    layers = [Layer(a, kind, float(np.float32(rng.choice([0.0, 0.01, 0.3]))) if kind == "leaky_relu" else 0.0)
              for a, kind in zip(affines[:-1], chosen, strict=True)]
    return Graph(inputs, tuple(layers), affines[-1])


def random_boxes(rng: np.random.Generator, count: int, inputs: int, size: float, away: float = 1.0,
                 flat: float = 0.2) -> tuple[FloatArray, FloatArray]:
    """Walls (count, n): sides up to about `size`, a share `flat` of them without width, centres up to about `away`."""
    walls = rng.normal(size=(2, count, inputs)) * size + rng.normal(size=(count, inputs)) * away
    walls[1] = np.where(rng.random((count, inputs)) < flat, walls[0], walls[1])
    return walls.min(axis=0), walls.max(axis=0)


@st.composite
def graphs_and_boxes(draw, kinds: Sequence[Kind] = KINDS, spread: float = 0.0, sizes: Sequence[float] = (),
                     errors: float = 0.3, widest: int = 6, deepest: int = 3):
    """(graph, lower (R, n), upper (R, n), rng); `sizes`: of the boxes, which otherwise are 0 to 1e6."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    inputs = draw(st.integers(1, 3))
    widths = [draw(st.integers(1, widest)) for _ in range(draw(st.integers(1, deepest)))]
    graph = random_graph(rng, inputs, widths, draw(st.integers(1, 3)), kinds, draw(st.sampled_from([0.0, 0.5])),
                         draw(st.sampled_from([0.0, errors])), draw(st.sampled_from([0.0, spread])),
                         draw(st.sampled_from([0.1, 1.0, 3.0])), draw(st.booleans()))
    size = draw(st.sampled_from(sizes or (0.0, 1e-9, 1e-3, 0.3, 3.0, 1e6)))
    lower, upper = random_boxes(rng, 3, inputs, size, draw(st.sampled_from([0.0, 1.0, 100.0])))
    return graph, lower, upper, rng


def box_points(rng: np.random.Generator, lower: FloatArray, upper: FloatArray, count: int) -> FloatArray:
    """(count, n) points of one box (n,): its corners first, then its walls and its inside; never outside."""
    n = len(lower)
    share = np.concatenate([rng.integers(0, 2, size=(count // 2, n)).astype(float), rng.random((count, n))])[:count]
    share[count // 2 :] = np.where(rng.random((count - count // 2, n)) < 0.2, 1.0, share[count // 2 :])
    return np.clip(lower * (1 - share) + upper * share, lower, upper)


def exact_weights(graph: Graph, rng: np.random.Generator | None = None) -> list[Weights]:
    """The stored weights; with a generator any that the errors allow, mostly at their ends."""
    found = []
    for affine in graph.affines:
        matrices = {s: [[Fraction(w) for w in row] for row in m.tolist()] for s, m in affine.matrices.items()}
        offset = [Fraction(b) for b in affine.offset.tolist()]
        if rng is not None:
            for s, error in affine.error.items():
                matrices[s] = [[w + Fraction(e) * int(rng.integers(-1, 2)) for w, e in zip(row, by, strict=True)]
                               for row, by in zip(matrices[s], error.tolist(), strict=True)]
            if affine.offset_error is not None:
                offset = [b + Fraction(e) * int(rng.integers(-1, 2))
                          for b, e in zip(offset, affine.offset_error.tolist(), strict=True)]
        found.append((matrices, offset))
    return found


def exact(graph: Graph, weights: Sequence[Weights], x: Sequence[float]) -> Exact:
    """All values at x."""
    v, zs = [[Fraction(float(value)) for value in x]], []
    for k, (matrices, offset) in enumerate(weights):
        z = [b + sum((w * a for s, m in matrices.items() for w, a in zip(m[i], v[s], strict=True) if w and a),
                     Fraction(0)) for i, b in enumerate(offset)]
        if k == len(graph.layers):
            return Exact(zs, v, z)
        zs.append(z)
        v.append([exact_activation(graph.layers[k], value) for value in z])
    raise AssertionError("a graph has an output")


def exact_gradient(graph: Graph, weights: Sequence[Weights], at: Exact, feature: int) -> list[Fraction] | None:
    """dy/dx[feature] (o,) at a point; None where it stands on a kink."""
    t = [[Fraction(int(i == feature)) for i in range(graph.inputs)]]
    for k, (matrices, offset) in enumerate(weights):
        u = [sum((w * a for s, m in matrices.items() for w, a in zip(m[i], t[s], strict=True) if w and a), Fraction(0))
             for i in range(len(offset))]
        if k == len(graph.layers):
            return u
        layer = graph.layers[k]
        if layer.kind in ("relu", "leaky_relu") and any(z == 0 and d for z, d in zip(at.z[k], u, strict=True)):
            return None
        t.append([exact_slope(layer, z, a) * d for z, a, d in zip(at.z[k], at.v[k + 1], u, strict=True)])
    raise AssertionError("a graph has an output")


def exact_activation(layer: Layer, z: Fraction) -> Fraction:
    """activation(z)."""
    if layer.kind in ("relu", "leaky_relu"):
        return z if z >= 0 else z * Fraction(layer.leak)
    return exact_tanh(z) if layer.kind == "tanh" else (1 + exact_tanh(z / 2)) / 2


def exact_slope(layer: Layer, z: Fraction, a: Fraction) -> Fraction:
    """The derivative at z, where a = activation(z)."""
    if layer.kind in ("relu", "leaky_relu"):
        return Fraction(1) if z > 0 else Fraction(layer.leak)
    return 1 - a * a if layer.kind == "tanh" else a * (1 - a)


def exact_tanh(z: Fraction) -> Fraction:
    """tanh(z), off by less than 1e-40."""
    if abs(z) > 60:
        return Fraction(1 if z > 0 else -1)
    if abs(z) < Fraction(1, 10**12):
        return z - z**3 / 3
    with localcontext() as context:
        context.prec = 70
        e = (2 * Decimal(z.numerator) / Decimal(z.denominator)).exp()
        return Fraction((e - 1) / (e + 1))
