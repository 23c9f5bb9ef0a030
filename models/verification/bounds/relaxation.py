"""Linear bounds of an activation over an interval, and the interval of its derivative.

    lower_slope z + lower_offset <= activation(z) <= upper_slope z + upper_offset   for z in [low, high]

ReLU (and leaky ReLU): exact where the sign is fixed; otherwise the chord above and a line through the origin below
(CROWN, Zhang et al. 2018), of any slope between leak and 1. Tanh and sigmoid: the chord where the curve lies on one
side of it; elsewhere lines with the smaller of the derivatives at the ends, which the derivative never falls below
between them.

Rounding (symbols u: unit roundoff of the type, f: its smallest normal number). A line is valid for the slope that was
computed, whatever it should have been: its offset comes from the ends of the interval, where the distance to the
activation is largest, and carries slack for the rounding of slope times end, for the curve's own, and f for what
underflows. Slopes are zero or at least f, so that no use of them flushes them to zero. Where a processor flushes, an
end of an interval that is smaller than f may count as zero: bounds of z have more slack than that.

Symbols: B boxes, w neurons; every tensor (B, w).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from models.verification.network.graph import Layer
from models.verification.network.graph_tensors import activate

# Units u, relative, that torch's tanh and sigmoid may be off by: generously above the 2 to 4 that they are.
CURVE_ULPS = 32
# Share of an interval.
SETTLED = 1e-6
# Numbers f that the few operations of an offset lose at most where they underflow.
LOST = 16


@dataclass(frozen=True)
class Lines:
    """Coefficients of the two bounding lines, lower_offset None where it is zero.

    freedom: by how much the lower slope may exceed `least` and stay valid: 1 - leak for a ReLU that is unstable in more
    than SETTLED of its interval, else 0.
    """

    lower_slope: Tensor
    lower_offset: Tensor | None
    upper_slope: Tensor
    upper_offset: Tensor
    least: Tensor
    freedom: Tensor


def lines(layer: Layer, low: Tensor, high: Tensor) -> Lines:
    """The bounding lines of the layer's activation over [low, high]."""
    of_type = torch.finfo(low.dtype)
    if layer.kind in ("relu", "leaky_relu"):
        return _piecewise(layer.leak, low, high, of_type.eps / 2, of_type.tiny)
    return _curve(layer, low, high, of_type.eps / 2, of_type.tiny)


def _piecewise(leak: float, low: Tensor, high: Tensor, unit: float, floor: float) -> Lines:
    unstable = (low < 0) & (high > 0)
    positive = (low >= 0).to(low.dtype)
    fixed = positive + leak * (1 - positive) if leak else positive
    if leak:
        at_low, at_high = torch.where(low >= 0, low, leak * low), torch.where(high >= 0, high, leak * high)
    else:
        at_low, at_high = low.clamp_min(0), high.clamp_min(0)
    width = torch.where(unstable, high - low, torch.ones_like(low))
    chord = torch.threshold(torch.where(unstable, (at_high - at_low) / width, fixed), floor, 0.0)
    # act(z) - chord z is convex: its maximum over [low, high] is at an end, whatever the chord was rounded to
    lift = torch.maximum(at_low - chord * low, at_high - chord * high) + (16 * unit * (high - low) + LOST * floor)
    offset = torch.where(unstable, lift, torch.zeros_like(lift))
    ground = (high > -low).to(low.dtype)
    if leak:
        ground = ground + leak * (1 - ground)
    lower = torch.where(unstable, ground, fixed)
    # a slope of a value that is carried along, and below zero by rounding alone, is not to be chosen
    free = unstable & (torch.minimum(-low, high) > SETTLED * (high - low))
    return Lines(lower, None, chord, offset, torch.where(free, leak, lower), free.to(low.dtype) * (1 - leak))


def _curve(layer: Layer, low: Tensor, high: Tensor, unit: float, floor: float) -> Lines:
    at_low, at_high = activate(layer, low), activate(layer, high)
    steep = _least_derivative(layer, at_low, at_high, unit)
    chord = torch.threshold((at_high - at_low) / (high - low).clamp_min(floor), floor, 0.0).clamp_max(1.0)
    # where the curve bends one way any line from end to end will do; elsewhere curve - steep z rises, end to end
    lower_slope, upper_slope = torch.where(low >= 0, chord, steep), torch.where(high <= 0, chord, steep)
    reach, top = torch.maximum(-low, high), torch.maximum(at_low.abs(), at_high.abs())

    def slack(slope: Tensor) -> Tensor:
        # at an end: the curve's CURVE_ULPS u |activation|, of the product u |slope z|, of the difference both once more
        return (CURVE_ULPS + 8) * unit * (top + slope * reach) + LOST * floor

    lower_offset = torch.minimum(at_low - lower_slope * low, at_high - lower_slope * high) - slack(lower_slope)
    upper_offset = torch.maximum(at_low - upper_slope * low, at_high - upper_slope * high) + slack(upper_slope)
    return Lines(lower_slope, lower_offset, upper_slope, upper_offset, lower_slope, torch.zeros_like(low))


def _least_derivative(layer: Layer, at_low: Tensor, at_high: Tensor, unit: float) -> Tensor:
    """Never above the derivative between two points at which the curve has these values.

    It falls away from 0 to either side, so that it is smallest at an end. 1 - a^2 and a (1 - a) are off by at most
    2 CURVE_ULPS u from a, and 3 u from their own rounding.
    """
    least = torch.minimum(_curve_slope(layer, at_low), _curve_slope(layer, at_high))
    return (least - _slope_slack(unit)).clamp_min(0)


def _slope_slack(unit: float) -> float:
    return (2 * CURVE_ULPS + 8) * unit


def _curve_slope(layer: Layer, value: Tensor) -> Tensor:
    return 1 - value * value if layer.kind == "tanh" else value * (1 - value)


def derivative_interval(layer: Layer, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Bounds (B, w) of the activation's derivative over [low, high]; of a ReLU unstable in it: leak and 1."""
    if layer.kind in ("relu", "leaky_relu"):
        lowest = (low >= 0).to(low.dtype)
        highest = (high > 0).to(low.dtype)
        highest = torch.maximum(highest, lowest)  # a point at 0 counts as active
        return layer.leak + (1 - layer.leak) * lowest, layer.leak + (1 - layer.leak) * highest
    unit = torch.finfo(low.dtype).eps / 2
    at_low, at_high = activate(layer, low), activate(layer, high)
    peak = torch.full_like(low, 1.0 if layer.kind == "tanh" else 0.25)
    highest = torch.where((low <= 0) & (high >= 0), peak,
                          torch.maximum(_curve_slope(layer, at_low), _curve_slope(layer, at_high)))
    return _least_derivative(layer, at_low, at_high, unit), torch.minimum(highest + _slope_slack(unit), peak)


def largest(layer: Layer, low: Tensor, high: Tensor) -> Tensor:
    """Bound (B, w) of |activation| over [low, high], up to f where it underflows."""
    if layer.kind == "sigmoid":
        return torch.ones_like(low)
    if layer.kind == "tanh":
        return torch.maximum(low.abs(), high.abs()).clamp_max(1.0)
    return torch.maximum(activate(layer, low).abs(), activate(layer, high).abs())
