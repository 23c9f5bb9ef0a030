"""Bounds of a network's pre-activations on a box, float64: intervals intersected with CROWN's backward bounds.

Zhang et al. 2018: each unstable ReLU is bounded from above by its chord and from below by 0 or z, whichever leaves
the smaller triangle; a layer's bounds are carried back to the input in one pass. They serve the encodings (big-M
constants, stable neurons), which are only as good as these bounds.

Symbols: l[k], u[k] (width of layer k,): bounds of z[k] = W[k] a[k-1] + b[k]; A (rows, width): coefficients of z[k].
"""

import numpy as np

from models.verification.language.specification import FloatArray
from models.verification.network.fully_connected import ReluNetwork

Bounds = list[tuple[FloatArray, FloatArray]]
# Outward slack against rounding: far above it (1e-15 of the sizes summed), far below any violation that counts.
SLACK = 1e-9


def preactivation_bounds(network: ReluNetwork, lower: FloatArray, upper: FloatArray) -> Bounds:
    """(l, u) of every layer, the output's last."""
    weights = [weight.astype(np.float64) for weight in network.weights]
    biases = [bias.astype(np.float64) for bias in network.biases]
    bounds: Bounds = []
    a_low, a_high = lower, upper
    for k, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        centre, radius = weight @ ((a_low + a_high) / 2) + bias, np.abs(weight) @ ((a_high - a_low) / 2)
        before = weights[:k], biases[:k], bounds, lower, upper
        z_low = np.maximum(centre - radius, _lower(weight, *before) + bias) - SLACK
        z_high = np.minimum(centre + radius, -_lower(-weight, *before) + bias) + SLACK
        bounds.append((z_low, np.maximum(z_low, z_high)))
        a_low, a_high = np.maximum(bounds[-1][0], 0.0), np.maximum(bounds[-1][1], 0.0)
    return bounds


def _lower(
    matrix: FloatArray, weights: list[FloatArray], biases: list[FloatArray], bounds: Bounds,
    lower: FloatArray, upper: FloatArray,
) -> FloatArray:
    """Lower bounds (rows,) of matrix @ (the activations behind the given layers)."""
    constant = np.zeros(len(matrix))
    for weight, bias, (low, high) in zip(reversed(weights), reversed(biases), reversed(bounds), strict=True):
        unstable = (low < 0) & (high > 0)
        width = np.where(unstable, high - low, 1.0)
        chord = np.where(unstable, high / width, (low >= 0).astype(float))
        ground = np.where(unstable, (high > -low).astype(float), (low >= 0).astype(float))
        positive, negative = np.maximum(matrix, 0.0), np.minimum(matrix, 0.0)
        constant += negative @ np.where(unstable, -low * high / width, 0.0)
        matrix = positive * ground + negative * chord
        constant += matrix @ bias
        matrix = matrix @ weight
    centre, radius = (lower + upper) / 2, (upper - lower) / 2
    return np.asarray(constant + matrix @ centre - np.abs(matrix) @ radius)
