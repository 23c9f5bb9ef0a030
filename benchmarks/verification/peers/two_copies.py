"""Monotonicity as a question about one larger network: two copies that share every input but the monotone one.

    x (n,), u: inputs; the second copy reads x with u in place of x[i], and g = u - x[i] >= 0
    z[c,k] = W[k] a[c,k-1] + b[k],  a[c,k] = relu(z[c,k])  for the copies c = 0, 1
    v = sign * w (a[0,last] - a[1,last]) - tolerance * g  >=  SMALLEST_VIOLATION

A solution is a counterexample; if there is none, the network is monotone up to violations below the threshold.
Left at that, each copy is bounded alone and a solver must enumerate. How far the copies can differ is therefore
added as implied rows (a differential encoding, in the manner of Paulsen et al., ReluDiff, ICSE 2020): the differences
dz = z[1,k] - z[0,k] lie in [s g, t g] for slopes s <= t that follow layer by layer, and da = a[1,k] - a[0,k]
lies between 0 and dz:

    s >= 0: 0 <= da <= dz,   t <= 0: dz <= da <= 0,   else: s (t g - dz) <= (t - s) da <= t (dz - s g)

Variables are numbered in one list: x, u, then z and a of every layer of the first copy, of the second, then v.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.verification.peers.preactivation import Bounds, preactivation_bounds
from benchmarks.verification.peers.question import SMALLEST_VIOLATION, Question
from models.verification.language.specification import FloatArray

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Row:
    """coefficients @ variables[indices] = constant, or >= constant where `at_least`."""

    indices: Indices
    coefficients: FloatArray
    constant: float
    at_least: bool = False


@dataclass(frozen=True)
class TwoCopies:
    """A network twice, as a mixed-integer program.

    Attributes:
        lower, upper (m,): bounds of the variables.
        relus (p, 2): numbers of z and a.
        violation: number of v.
    """

    lower: FloatArray
    upper: FloatArray
    rows: tuple[Row, ...]
    relus: Indices
    inputs: int
    feature: int
    violation: int

    def points(self, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The pair (low, high), each (n,), of a solution: at least its first n + 1 values."""
        low = np.array(values[: self.inputs])
        high = low.copy()
        high[self.feature] = values[self.inputs]
        return low, high

    def scaled(self, factor: float) -> "TwoCopies":
        """The same question with every variable `factor` times as large: ReLU is positively homogeneous."""
        rows = tuple(replace(row, constant=row.constant * factor) for row in self.rows)
        return replace(self, lower=self.lower * factor, upper=self.upper * factor, rows=rows)


def two_copies(question: Question, smallest_gap: float = 0.0) -> TwoCopies:
    """The encoding with g >= smallest_gap; bounds of the pre-activations are those of preactivation.py."""
    builder = _Builder()
    n, feature = question.network.inputs, question.feature
    x = builder.variables(question.lower, question.upper)
    u = builder.variables(question.lower[[feature]], question.upper[[feature]])
    gap = np.array([u[0], x[feature]])
    builder.row(gap, [1.0, -1.0], smallest_gap, at_least=True)
    bounds = preactivation_bounds(question.network, question.lower, question.upper)
    copies = [builder.copy(question, inputs, bounds) for inputs in (x, np.where(np.arange(n) == feature, u[0], x))]
    for first, second, slopes in zip(*copies, _slopes(question, bounds), strict=True):
        for (z0, a0), (z1, a1), s, t in zip(first, second, *slopes, strict=True):
            builder.difference(np.array([a1, a0]), np.array([z1, z0]), gap, s, t)
    weight = question.sign * question.network.weights[-1][0].astype(np.float64)
    most = max(float(bounds[-1][1][0] - bounds[-1][0][0]), SMALLEST_VIOLATION)
    v = builder.variables(np.array([SMALLEST_VIOLATION]), np.array([most]))
    last = [layers[-1][:, 1] for layers in copies]
    builder.row(np.concatenate([v, *last, gap]),
                np.concatenate([[-1.0], weight, -weight, [-question.tolerance, question.tolerance]]), 0.0)
    return TwoCopies(np.concatenate(builder.lower), np.concatenate(builder.upper), tuple(builder.rows),
                     np.concatenate([layer for layers in copies for layer in layers]), n, feature, int(v[0]))


def _slopes(question: Question, bounds: Bounds) -> list[tuple[FloatArray, FloatArray]]:
    """(s, t) of every hidden layer: bounds of its pre-activations' differences by unit of the gap."""
    low = high = np.eye(question.network.inputs)[question.feature]
    slopes = []
    for weight, (z_low, z_high) in zip(question.network.weights[:-1], bounds[:-1], strict=True):
        matrix = weight.astype(np.float64)
        centre, radius = matrix @ ((low + high) / 2), np.abs(matrix) @ ((high - low) / 2)
        low, high = centre - radius, centre + radius
        slopes.append((low, high))
        low = np.where(z_low >= 0, low, np.where(z_high <= 0, 0.0, np.minimum(low, 0.0)))
        high = np.where(z_low >= 0, high, np.where(z_high <= 0, 0.0, np.maximum(high, 0.0)))
    return slopes


class _Builder:
    """Collects variables and rows."""

    def __init__(self) -> None:
        self.lower: list[FloatArray] = []
        self.upper: list[FloatArray] = []
        self.rows: list[Row] = []
        self._count = 0

    def variables(self, lower: FloatArray, upper: FloatArray) -> Indices:
        self.lower.append(lower)
        self.upper.append(upper)
        numbers = np.arange(self._count, self._count + len(lower))
        self._count += len(lower)
        return numbers

    def row(self, indices: Indices, coefficients: list[float] | FloatArray, constant: float,
            at_least: bool = False) -> None:
        self.rows.append(Row(indices, np.asarray(coefficients, dtype=np.float64), constant, at_least))

    def copy(self, question: Question, inputs: Indices, bounds: Bounds) -> list[Indices]:
        """One copy of the network; numbers of (z, a), (width, 2), of every hidden layer."""
        a, layers = inputs, []
        hidden = zip(question.network.weights[:-1], question.network.biases[:-1], bounds[:-1], strict=True)
        for weight, bias, (low, high) in hidden:
            z = self.variables(low, high)
            for j, number in enumerate(z):
                used = np.flatnonzero(weight[j])
                self.row(np.append(a[used], number), np.append(weight[j, used].astype(np.float64), -1.0),
                         -float(bias[j]))
            a = self.variables(np.maximum(low, 0.0), np.maximum(high, 0.0))
            layers.append(np.stack([z, a], axis=1))
        return layers

    def difference(self, a: Indices, z: Indices, gap: Indices, s: float, t: float) -> None:
        """The implied rows of one neuron; a, z and gap hold the numbers of (second, first)."""
        minus = np.array([1.0, -1.0])
        if s >= 0 or t <= 0:
            direction = 1.0 if s >= 0 else -1.0
            self.row(a, direction * minus, 0.0, at_least=True)
            self.row(np.concatenate([z, a]), direction * np.concatenate([minus, -minus]), 0.0, at_least=True)
        else:
            share = t / (t - s)
            self.row(np.concatenate([z, gap, a]), np.concatenate([share * minus, -share * s * minus, -minus]), 0.0,
                     at_least=True)
            share = s / (t - s)
            self.row(np.concatenate([a, z, gap]), np.concatenate([minus, share * minus, -share * t * minus]), 0.0,
                     at_least=True)
