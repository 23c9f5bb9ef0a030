"""Linear bounds of an activation over an interval, and the interval of its derivative.

    lower_slope z + lower_offset <= activation(z) <= upper_slope z + upper_offset   for z in [low, high]

ReLU (and leaky ReLU): exact where the sign is fixed; otherwise the chord above and a line through the origin below
(CROWN, Zhang et al. 2018), of any slope between leak and 1. Tanh and sigmoid: the chord where the curve lies on one
side of it; elsewhere lines with the smaller of the derivatives at the ends, which the derivative never falls below
between them. All offsets carry slack for the rounding of this computation (symbol u: unit roundoff of the type).

Symbols: B boxes, w neurons; every tensor (B, w).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from models.verification.graph import Layer, activate

# what torch's tanh and sigmoid, and 1 - a^2, may be off by: generously above the 1 to 2 units that they are
CURVE_ULPS = 32


@dataclass(frozen=True)
class Lines:
    """Coefficients of the two bounding lines, lower_offset None where it is zero.

    freedom: by how much the lower slope may exceed `least` and stay valid: 1 - leak for an unstable ReLU, else 0.
    """

    lower_slope: Tensor
    lower_offset: Tensor | None
    upper_slope: Tensor
    upper_offset: Tensor
    least: Tensor
    freedom: Tensor


def lines(layer: Layer, low: Tensor, high: Tensor) -> Lines:
    """The bounding lines of the layer's activation over [low, high]."""
    unit = torch.finfo(low.dtype).eps / 2
    if layer.kind in ("relu", "leaky_relu"):
        return _piecewise(layer.leak, low, high, unit)
    return _curve(layer, low, high, unit)


def _piecewise(leak: float, low: Tensor, high: Tensor, unit: float) -> Lines:
    unstable = (low < 0) & (high > 0)
    positive = (low >= 0).to(low.dtype)
    fixed = positive + leak * (1 - positive) if leak else positive
    if leak:
        at_low, at_high = torch.where(low >= 0, low, leak * low), torch.where(high >= 0, high, leak * high)
    else:
        at_low, at_high = low.clamp_min(0), high.clamp_min(0)
    width = torch.where(unstable, high - low, torch.ones_like(low))
    chord = torch.where(unstable, (at_high - at_low) / width, fixed)
    # act(z) - chord z is convex: its maximum over [low, high] is at an end, whatever the chord was rounded to
    lift = torch.maximum(at_low - chord * low, at_high - chord * high) + 16 * unit * (high - low)
    offset = torch.where(unstable, lift, torch.zeros_like(lift))
    ground = (high > -low).to(low.dtype)
    if leak:
        ground = ground + leak * (1 - ground)
    open_ = unstable.to(low.dtype)
    return Lines(torch.where(unstable, ground, fixed), None, chord, offset, fixed + open_ * (leak - fixed),
                 open_ * (1 - leak))


def _curve(layer: Layer, low: Tensor, high: Tensor, unit: float) -> Lines:
    at_low, at_high = activate(layer, low), activate(layer, high)
    slope_low, slope_high = _curve_slope(layer, at_low), _curve_slope(layer, at_high)
    steep = torch.minimum(slope_low, slope_high) * (1 - CURVE_ULPS * unit)  # never above the derivative within
    width = high - low
    slack = CURVE_ULPS * unit * (1 + (low.abs() + high.abs()) * 1.0)
    chord = torch.where(width > 0, ((at_high - at_low) / width.clamp_min(1e-30)).clamp_min(0), steep)
    # where the curve bends one way the chord is one of the bounds; its own rounding shifts it by at most unit x size
    concave, convex = low >= 0, high <= 0
    usable = (width > 1e-6) & torch.isfinite(chord)
    lower_slope = torch.where(concave & usable, chord, steep)
    upper_slope = torch.where(convex & usable, chord, steep)
    lower_offset = torch.minimum(at_low - lower_slope * low, torch.where(
        concave & usable, at_high - lower_slope * high, at_low - lower_slope * low)) - slack
    upper_offset = torch.maximum(at_high - upper_slope * high, torch.where(
        convex & usable, at_low - upper_slope * low, at_high - upper_slope * high)) + slack
    return Lines(lower_slope, lower_offset, upper_slope, upper_offset, lower_slope, torch.zeros_like(low))


def _curve_slope(layer: Layer, value: Tensor) -> Tensor:
    return 1 - value * value if layer.kind == "tanh" else value * (1 - value)


def derivative_interval(layer: Layer, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Bounds (B, w) of the activation's derivative over [low, high]; of a ReLU unstable in it: leak and 1."""
    if layer.kind in ("relu", "leaky_relu"):
        lowest = (low >= 0).to(low.dtype)
        highest = (high > 0).to(low.dtype)
        highest = torch.maximum(highest, lowest)  # a point at 0 counts as active
        return layer.leak + (1 - layer.leak) * lowest, layer.leak + (1 - layer.leak) * highest
    slack = CURVE_ULPS * torch.finfo(low.dtype).eps
    at_low, at_high = _curve_slope(layer, activate(layer, low)), _curve_slope(layer, activate(layer, high))
    peak = torch.full_like(low, 1.0 if layer.kind == "tanh" else 0.25)
    highest = torch.where((low <= 0) & (high >= 0), peak, torch.maximum(at_low, at_high))
    return (torch.minimum(at_low, at_high) - slack).clamp_min(0), torch.minimum(highest + slack, peak)


def largest(layer: Layer, low: Tensor, high: Tensor) -> Tensor:
    """Bound (B, w) of |activation| over [low, high]."""
    if layer.kind == "sigmoid":
        return torch.ones_like(low)
    if layer.kind == "tanh":
        return torch.maximum(low.abs(), high.abs()).clamp_max(1.0)
    return torch.maximum(activate(layer, low).abs(), activate(layer, high).abs())
