"""Bounds on the partial derivatives of a ReLU network over boxes, all boxes in one tensor operation.

Two passes. Forward: linear bounds of every pre-activation as functions of the input (CROWN's forward
mode, Zhang et al. 2018), in coordinates in which the box is the unit cube, intersected with
intervals. They say which neurons are active, inactive or unstable in the box. Backward: the
derivative dy/dx[j] = W0[:, j]' D0 W1' D1 ... w is linear in each diagonal D[k] of zeros and ones.
Going from the input's end to the output, each product d * g with d unstable and g in [gl, gu] is
replaced by a linear lower bound in g (bound propagation on the backward graph, Shi et al. 2022):
min over d of d * q is min(0, q), which is concave in q, so its tightest linear lower bound over
[ql, qu] is the chord.

The bounds computed here steer the search and are not rigorous in floating point: a verdict rests on
the independent checker (checker.py), which bounds every leaf again with outward rounding.

Symbols: B boxes, n inputs, F queries (feature, sign), w width of a layer.
    lower, upper (B, n)   walls;  z_lower, z_upper (B, w)  pre-activation bounds of one hidden layer
    slope (B, w, n)       coefficient of the pre-activation by unit-cube coordinate
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Preactivation:
    """Bounds of one hidden layer's pre-activations: z_lower, z_upper (B, w), slope (B, w, n)."""

    z_lower: Tensor
    z_upper: Tensor
    slope: Tensor

    @property
    def unstable(self) -> Tensor:
        """(B, w) bool: neurons whose sign differs within the box."""
        return (self.z_lower < 0) & (self.z_upper > 0)


def preactivation_bounds(
    weights: Sequence[Tensor], biases: Sequence[Tensor], lower: Tensor, upper: Tensor,
) -> list[Preactivation]:
    """Bounds of every hidden layer's pre-activations over the boxes, first layer first."""
    centre, radius = (lower + upper) / 2, (upper - lower) / 2
    slope_low = slope_high = weights[0] * radius[:, None, :]
    offset_low = offset_high = centre @ weights[0].T + biases[0]
    spread = slope_low.abs().sum(-1)
    layers = [Preactivation(offset_low - spread, offset_high + spread, slope_low)]
    for weight, bias in zip(weights[1:-1], biases[1:-1], strict=True):
        before = layers[-1]
        low, high = before.z_lower, before.z_upper
        unstable = before.unstable
        # upper line: the chord; lower line: 0 or z, whichever leaves the smaller triangle
        chord = torch.where(unstable, high / (high - low).clamp_min(1e-30), (low >= 0).to(low.dtype))
        ground = torch.where(unstable, (high > -low).to(low.dtype), (low >= 0).to(low.dtype))
        up_slope, up_offset = chord[..., None] * slope_high, chord * offset_high
        up_offset = up_offset - torch.where(unstable, chord * low, torch.zeros_like(low))
        down_slope, down_offset = ground[..., None] * slope_low, ground * offset_low
        slope_low, slope_high = _affine_pair(weight, down_slope, up_slope)
        offset_low, offset_high = _affine_pair(weight, down_offset[..., None], up_offset[..., None])
        offset_low, offset_high = offset_low[..., 0] + bias, offset_high[..., 0] + bias
        act_low, act_high = low.clamp_min(0)[..., None], high.clamp_min(0)[..., None]
        interval_low, interval_high = _affine_pair(weight, act_low, act_high)
        z_lower = torch.maximum(offset_low - slope_low.abs().sum(-1), interval_low[..., 0] + bias)
        z_upper = torch.minimum(offset_high + slope_high.abs().sum(-1), interval_high[..., 0] + bias)
        layers.append(Preactivation(z_lower, torch.maximum(z_lower, z_upper), (slope_low + slope_high) / 2))
    return layers


def _affine_pair(weight: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Lower and upper image of an elementwise ordered pair (B, w, m) under a matrix (w', w): midpoint and radius."""
    middle, half = weight @ ((low + high) / 2), weight.abs() @ ((high - low) / 2)
    return middle - half, middle + half


@dataclass(frozen=True)
class DerivativeBounds:
    """lower (B, F): lower bounds of sign * dy/dx[feature]; split_score (B, n): what splitting an input may gain."""

    lower: Tensor
    split_score: Tensor


def derivative_bounds(
    weights: Sequence[Tensor], layers: Sequence[Preactivation], queries: Sequence[tuple[int, int]],
) -> DerivativeBounds:
    """Lower bounds of the signed partial derivatives named by `queries` over the boxes of `layers`."""
    intervals = _backward_intervals(weights, layers)
    features = torch.tensor([feature for feature, _ in queries])
    signs = torch.tensor([sign for _, sign in queries], dtype=weights[0].dtype)
    boxes = layers[0].z_lower.shape[0]
    multiplier = (weights[0][:, features] * signs).T.expand(boxes, -1, -1)  # (B, F, w): coefficients of d * g
    constant = torch.zeros(boxes, len(queries), dtype=weights[0].dtype)
    score = torch.zeros_like(layers[0].slope[:, 0, :])
    for k, layer in enumerate(layers):
        g_low, g_high = intervals[k]
        q_a, q_b = multiplier * g_low[:, None, :], multiplier * g_high[:, None, :]
        q_low, q_high = torch.minimum(q_a, q_b), torch.maximum(q_a, q_b)
        unstable, active = layer.unstable[:, None, :], (layer.z_lower >= 0)[:, None, :]
        zero = torch.zeros_like(q_low)
        lost = torch.where(unstable, (-q_low).clamp_min(0), zero)
        weight_of_neuron = lost.sum(1) / (layer.z_upper - layer.z_lower).clamp_min(1e-12)
        score = score + (weight_of_neuron[:, None, :] @ layer.slope.abs())[:, 0, :]
        crossing = unstable & (q_low < 0) & (q_high > 0)
        width = (q_high - q_low).clamp_min(1e-30)
        # (by induction the chords never lose against plain intervals: at q_low the chord is exact)
        share = torch.where(crossing, -q_low / width, (active | (unstable & (q_low < 0))).to(q_low.dtype))
        constant = constant + torch.where(crossing, q_low * q_high / width, zero).sum(-1)
        coefficients = share * multiplier  # of g
        if k + 1 < len(layers):
            multiplier = coefficients @ weights[k + 1].T
    return DerivativeBounds(constant + coefficients @ weights[-1][0], score)


def _backward_intervals(weights: Sequence[Tensor], layers: Sequence[Preactivation]) -> list[tuple[Tensor, Tensor]]:
    """Intervals (B, w) of dy/da for the activations of every hidden layer, first layer first."""
    boxes = layers[0].z_lower.shape[0]
    low = high = weights[-1].expand(boxes, -1)
    intervals = [(low, high)]
    for k in range(len(layers) - 1, 0, -1):
        layer = layers[k]
        unstable, active = layer.unstable, layer.z_lower >= 0
        zero = torch.zeros_like(low)
        p_low = torch.where(active, low, torch.where(unstable, low.clamp_max(0), zero))
        p_high = torch.where(active, high, torch.where(unstable, high.clamp_min(0), zero))
        middle, half = (p_low + p_high) / 2 @ weights[k], (p_high - p_low) / 2 @ weights[k].abs()
        low, high = middle - half, middle + half
        intervals.append((low, high))
    return intervals[::-1]
