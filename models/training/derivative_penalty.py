"""Certified training: a loss on bounds of the partial derivatives over boxes, so that the network can be proved.

Over boxes sampled from the specification's box the signed partial derivatives are bounded from below, and what the
bound lacks to a margin is added to the loss (interval training in the sense of Gowal et al. 2019, for derivatives; the
bounds are those of bound propagation on the backward graph, Shi et al. 2022). Boxes start as points and grow to the
whole box, where one bound is the whole proof.

The bounds are differentiable and not rigorous: they train, the verifier proves.

Symbols: B boxes, n inputs, F queries (feature, sign), w width of a layer.
    lower, upper (B, n)   walls;  z_lower, z_upper (B, w)  pre-activation bounds of one hidden layer
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

# Lower bounds (B, F) from all weights, z_lower and z_upper of every hidden layer, and the queries.
DerivativeBound = Callable[[Sequence[Tensor], Sequence[tuple[Tensor, Tensor]], Sequence[tuple[int, int]]], Tensor]


class DerivativePenalty:
    """Mean shortfall of the derivatives' lower bounds from `margin` over `boxes` sampled boxes.

    bound: how derivatives are bounded; default: from the output back, `derivative_bounds`.
    """

    def __init__(self, queries: Sequence[tuple[int, int]], lower: Tensor, upper: Tensor, margin: float, boxes: int,
                 random: torch.Generator, bound: DerivativeBound | None = None) -> None:
        self.queries, self.lower, self.upper = tuple(queries), lower, upper
        self.margin, self.boxes, self.random, self.bound = margin, boxes, random, bound or derivative_bounds

    def __call__(self, layers: Sequence[nn.Linear], size: float) -> Tensor:
        """The penalty, boxes having sides of up to `size` (0..1) of the specification's."""
        width = self.upper - self.lower
        centre = self.lower + width * torch.rand(self.boxes, len(width), generator=self.random)
        reach = size * torch.rand(self.boxes, 1, generator=self.random)
        reach[0] = size
        low = torch.maximum(centre - reach * width, self.lower)
        high = torch.minimum(centre + reach * width, self.upper)
        weights, biases = [layer.weight for layer in layers], [layer.bias for layer in layers]
        bounds = self.bound(weights, preactivation_bounds(weights, biases, low, high), self.queries)
        return torch.relu(self.margin - bounds).mean()


def preactivation_bounds(weights: Sequence[Tensor], biases: Sequence[Tensor], lower: Tensor,
                         upper: Tensor) -> list[tuple[Tensor, Tensor]]:
    """z_lower, z_upper (B, w) of every hidden layer: CROWN's forward mode, intersected with intervals."""
    centre, radius = (lower + upper) / 2, (upper - lower) / 2
    # columns: one slope an input (unit cube), the offset
    low = high = torch.cat([torch.diag_embed(radius), centre[:, None]], 1) @ weights[0].T
    offset = torch.zeros_like(low)
    offset[:, -1] = biases[0]
    low, high = low + offset, high + offset
    layers = [_interval(low, high)]
    for weight, bias in zip(weights[1:-1], biases[1:-1], strict=True):
        z_low, z_high = layers[-1]
        unstable = (z_low < 0) & (z_high > 0)
        active = (z_low >= 0).to(z_low.dtype)
        chord = torch.where(unstable, z_high / (z_high - z_low).clamp_min(1e-30), active)
        ground = torch.where(unstable, (z_high > -z_low).to(z_low.dtype), active)
        lift = torch.zeros_like(high)
        lift[:, -1] = torch.where(unstable, -chord * z_low, 0.0)
        down, up = ground[:, None] * low, chord[:, None] * high + lift
        act_low, act_high = z_low.clamp_min(0)[:, None], z_high.clamp_min(0)[:, None]
        middle = torch.cat([down + up, act_low + act_high], 1) @ weight.T / 2
        half = torch.cat([up - down, act_high - act_low], 1) @ weight.abs().T / 2
        low, high = (middle - half)[:, :-1], (middle + half)[:, :-1]
        offset = torch.zeros_like(low)
        offset[:, -1] = bias
        low, high = low + offset, high + offset
        linear_low, linear_high = _interval(low, high)
        layers.append((torch.maximum(linear_low, (middle - half)[:, -1] + bias),
                       torch.minimum(linear_high, (middle + half)[:, -1] + bias)))
    return layers


def _interval(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    return low[:, -1] - low[:, :-1].abs().sum(1), high[:, -1] + high[:, :-1].abs().sum(1)


def derivative_bounds(weights: Sequence[Tensor], layers: Sequence[tuple[Tensor, Tensor]],
                      queries: Sequence[tuple[int, int]]) -> Tensor:
    """Lower bounds (B, F) of sign * dy/dx[feature]: intervals of dy/da from the output back, then chords forward."""
    boxes = len(layers[0][0])
    low = high = weights[-1].expand(boxes, -1)
    intervals = [(low, high)]
    for k in range(len(layers) - 1, 0, -1):
        active, possible = (layers[k][0] >= 0), (layers[k][1] > 0)
        zero = torch.zeros_like(low)
        p_low = torch.where(active, low, torch.where(possible, low.clamp_max(0), zero))
        p_high = torch.where(active, high, torch.where(possible, high.clamp_min(0), zero))
        middle, half = (p_low + p_high) / 2 @ weights[k], (p_high - p_low) / 2 @ weights[k].abs()
        low, high = middle - half, middle + half
        intervals.append((low, high))
    features = torch.tensor([feature for feature, _ in queries])
    signs = torch.tensor([float(sign) for _, sign in queries])
    multiplier = (weights[0][:, features] * signs).T.expand(boxes, -1, -1)  # (B, F, w): coefficients of d * g
    constant = torch.zeros(boxes, len(queries))
    for k, ((z_low, z_high), (g_low, g_high)) in enumerate(zip(layers, reversed(intervals), strict=True)):
        ends = multiplier * g_low[:, None], multiplier * g_high[:, None]
        q_low, q_high = torch.minimum(*ends), torch.maximum(*ends)
        unstable, active = ((z_low < 0) & (z_high > 0))[:, None], (z_low >= 0)[:, None]
        crossing = unstable & (q_low < 0) & (q_high > 0)
        width = (q_high - q_low).clamp_min(1e-30)
        share = torch.where(crossing, -q_low / width, (active | (unstable & (q_low < 0))).to(q_low.dtype))
        constant = constant + torch.where(crossing, q_low * q_high / width, 0.0).sum(-1)
        multiplier = share * multiplier
        multiplier = multiplier @ weights[k + 1].T
    return constant + multiplier[..., 0]
