"""The normal form in which every network is verified: affine maps and elementwise activations in a row.

A layer k takes the sources before it, x and the outputs of earlier layers, so that skips, concatenations and
slices are sums of matrices:

    z[k] = sum over s of W[k, s] v[s] + b[k],   v[0] = x,   v[k + 1] = activation[k](z[k]),   y = output(v)

Matrices are float64. Where composing two affine operations into one matrix had to round, `Affine.error` bounds
how far the stored entries are from the exact ones, and every rigorous bound accounts for it.

Symbols: n inputs, o outputs, w[k] neurons of layer k; x (batch, n), y (batch, o).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from feature_store.errors import InputError
from models.verification.checker.time_limit import require_time

FloatArray = NDArray[np.float64]
Kind = Literal["relu", "leaky_relu", "tanh", "sigmoid"]
# A smaller slope of a leaky ReLU is lost in float32, where the bounds have to account for it.
LEAST_LEAK = 1e-30
# Unit roundoff and smallest normal number of float64: smaller ones may be flushed to zero.
UNIT, TINY = 2.0**-53, 2.0**-1022


class Function(Protocol):
    """What a property may be asked of: a network in normal form, or a forest (models/verification/trees)."""

    @property
    def inputs(self) -> int:
        """n."""

    @property
    def outputs(self) -> int:
        """o."""

    @property
    def products(self) -> int:
        """Multiplications, or comparisons, of one evaluation."""

    @property
    def widest(self) -> int:
        """Numbers that are held at a time for each point that is evaluated."""

    def value(self, x: FloatArray) -> FloatArray:
        """y (m, o) at x (m, n), in float64."""

    def rounding(self, x: FloatArray) -> FloatArray:
        """Upper bound of |value(x) - exact value|: (m, o)."""


@dataclass(frozen=True)
class Affine:
    """sum over s of matrices[s] @ v[s] + offset.

    matrices: source -> (rows, size of the source); offset: (rows,); error: source -> entrywise bound of
    |exact - stored|, absent where the stored matrix is exact; offset_error: the same of the offset.
    """

    matrices: Mapping[int, FloatArray]
    offset: FloatArray
    error: Mapping[int, FloatArray] = field(default_factory=dict)
    offset_error: FloatArray | None = None

    @property
    def rows(self) -> int:
        """Number of values."""
        return len(self.offset)


@dataclass(frozen=True)
class Layer:
    """One affine map and its elementwise activation.

    leak: the slope of leaky_relu below zero, 0 or LEAST_LEAK <= leak < 1; 0 for all other kinds.
    """

    affine: Affine
    kind: Kind = "relu"
    leak: float = 0.0


@dataclass(frozen=True)
class Graph:
    """A network in normal form. Raises InputError on NaN, infinity, or matrices that do not fit."""

    inputs: int
    layers: tuple[Layer, ...]
    output: Affine

    def __post_init__(self) -> None:
        sizes = [self.inputs, *(layer.affine.rows for layer in self.layers)]
        for k, affine in enumerate(self.affines):
            where = "output" if k == len(self.layers) else f"layer {k}"
            for source, matrix in affine.matrices.items():
                if not 0 <= source <= min(k, len(self.layers)) or matrix.shape != (affine.rows, sizes[source]):
                    raise InputError(f"matrix must fit its source, got shape {matrix.shape} on source {source} "
                                     f"({where})")
            if not all(np.isfinite(values).all() for values in (*affine.matrices.values(), affine.offset)):
                raise InputError(f"weights must be finite, got NaN or infinity ({where})")
            bounds = [(affine.error[s], affine.matrices.get(s)) for s in affine.error]
            if affine.offset_error is not None:
                bounds.append((affine.offset_error, affine.offset))
            if not all(of is not None and e.shape == of.shape and (e >= 0).all() and np.isfinite(e).all()
                       for e, of in bounds):
                raise InputError(f"error bounds must be finite, >= 0 and fit their weights ({where})")
            if not affine.matrices:
                raise InputError(f"layer must depend on a source, got none ({where})")
            if affine.rows == 0:
                raise InputError(f"layer must have at least one neuron, got none ({where})")
        for k, layer in enumerate(self.layers):
            if not 0 <= layer.leak < 1:
                raise InputError(f"leak must be in [0, 1), got {layer.leak} (layer {k})")
            if 0 < layer.leak < LEAST_LEAK:
                raise InputError(f"leak must be 0 or at least {LEAST_LEAK:g}, got {layer.leak:g} (layer {k})")
            if layer.leak and layer.kind != "leaky_relu":
                raise InputError(f"leak must be 0 for {layer.kind}, got {layer.leak} (layer {k})")

    @property
    def affines(self) -> tuple[Affine, ...]:
        """The affine maps of all layers, then the output's."""
        return (*(layer.affine for layer in self.layers), self.output)

    @property
    def outputs(self) -> int:
        """o, the number of outputs."""
        return self.output.rows

    @property
    def widths(self) -> tuple[int, ...]:
        """Neurons of each layer."""
        return tuple(layer.affine.rows for layer in self.layers)

    @cached_property
    def products(self) -> int:
        """Multiplications of one evaluation."""
        return sum(matrix.size for affine in self.affines for matrix in affine.matrices.values())

    @property
    def widest(self) -> int:
        """The largest number of neurons, inputs or outputs of a layer."""
        return max((self.inputs, self.outputs, *self.widths))

    def value(self, x: NDArray[np.floating]) -> FloatArray:
        """y at x (batch, n), in float64: (batch, o)."""
        values = [np.asarray(x, dtype=np.float64)]
        with np.errstate(over="ignore", invalid="ignore"):
            for k, affine in enumerate(self.affines):
                require_time()
                z = sum((values[s] @ m.T for s, m in sorted(affine.matrices.items())), affine.offset)
                values.append(_activated(self.layers[k], z) if k < len(self.layers) else z)
        return values[-1]

    def rounding(self, x: NDArray[np.floating]) -> FloatArray:
        """Upper bound of |value(x) - exact value| at x (batch, n): (batch, o). Higham, section 3.1, layer by layer.

        What underflows, in a factor or in a product, is off by at most TINY.
        """
        sizes, errors = [np.abs(np.asarray(x, dtype=np.float64))], [np.zeros(np.shape(x))]
        for k, affine in enumerate(self.affines):
            require_time()
            terms = sum(m.shape[1] for m in affine.matrices.values()) + len(affine.matrices) + 1
            size = sum((sizes[s] @ np.abs(m).T for s, m in affine.matrices.items()), np.abs(affine.offset))
            error = sum((errors[s] @ np.abs(m).T for s, m in affine.matrices.items()), np.zeros(affine.rows))
            error = error + sum((sizes[s] @ e.T for s, e in affine.error.items()), np.zeros(affine.rows))
            if affine.offset_error is not None:
                error = error + affine.offset_error
            factors = sum((sizes[s].sum(axis=1, keepdims=True) + np.abs(m).sum(axis=1)
                           for s, m in affine.matrices.items()), np.zeros(affine.rows))
            error = error + 2 * terms * UNIT * (size + error) + TINY * (4 * terms + factors)
            if k < len(self.layers) and self.layers[k].kind in ("tanh", "sigmoid"):
                size, error = np.ones_like(size), error + 8 * UNIT  # both have slopes of at most 1
            sizes.append(size + error)
            errors.append(error)
        return np.asarray(errors[-1])


def _activated(layer: Layer, z: FloatArray) -> FloatArray:
    """The layer's activation, elementwise; NaN stays NaN."""
    if layer.kind == "relu":
        return np.maximum(z, 0.0)
    if layer.kind == "leaky_relu":
        return np.where(z >= 0, z, layer.leak * z)
    return np.tanh(z) if layer.kind == "tanh" else 0.5 + 0.5 * np.tanh(0.5 * z)


def dense_graph(weights: Sequence[NDArray[np.floating]], biases: Sequence[NDArray[np.floating]],
                kind: Kind = "relu") -> Graph:
    """A fully connected network: weights[k] (w[k], w[k-1]), biases[k] (w[k],), the last pair being the output."""
    affines = [Affine({k: np.asarray(w, dtype=np.float64)}, np.asarray(b, dtype=np.float64))
               for k, (w, b) in enumerate(zip(weights, biases, strict=True))]
    return Graph(affines[0].matrices[0].shape[1], tuple(Layer(a, kind) for a in affines[:-1]), affines[-1])
