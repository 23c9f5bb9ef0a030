"""Differentiable bounds of partial derivatives from the input on, for training: along the input's tangent.

models/training/derivative_penalty.py bounds the same derivatives from the output back. A network that is trained on the
bounds from one end is one that bounds from that end prove; the campaign has networks of both.

Symbols: B boxes, F queries (feature, sign), w width of a layer; z_lower, z_upper (B, w) pre-activation bounds.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def tangent_bounds(weights: Sequence[Tensor], layers: Sequence[tuple[Tensor, Tensor]],
                   queries: Sequence[tuple[int, int]]) -> Tensor:
    """Lower bounds (B, F) of sign * dy/dx[feature]: intervals of dz/dx from the input on, then chords from the output.

    weights: of all layers and the output; layers: z_lower, z_upper of every hidden layer. Not rigorous in rounding.
    """
    signs = torch.tensor([float(sign) for _, sign in queries])
    low = high = (weights[0][:, [feature for feature, _ in queries]] * signs).T.expand(len(layers[0][0]), -1, -1)
    intervals = [(low, high)]
    for (z_low, z_high), weight in zip(layers[:-1], weights[1:-1], strict=True):
        active, possible = (z_low >= 0)[:, None], (z_high > 0)[:, None]
        zero = torch.zeros_like(low)
        t_low = torch.where(active, low, torch.where(possible, low.clamp_max(0), zero))
        t_high = torch.where(active, high, torch.where(possible, high.clamp_min(0), zero))
        middle, half = (t_low + t_high) / 2 @ weight.T, (t_high - t_low) / 2 @ weight.abs().T
        low, high = middle - half, middle + half
        intervals.append((low, high))
    multiplier = weights[-1].expand(*low.shape[:2], -1)  # coefficients of d * u
    constant = torch.zeros(low.shape[:2])
    for k in range(len(layers) - 1, -1, -1):
        (z_low, z_high), (u_low, u_high) = layers[k], intervals[k]
        ends = multiplier * u_low, multiplier * u_high
        q_low, q_high = torch.minimum(*ends), torch.maximum(*ends)
        unstable, active = ((z_low < 0) & (z_high > 0))[:, None], (z_low >= 0)[:, None]
        crossing = unstable & (q_low < 0) & (q_high > 0)
        width = (q_high - q_low).clamp_min(1e-30)
        share = torch.where(crossing, -q_low / width, (active | (unstable & (q_low < 0))).to(q_low.dtype))
        constant = constant + torch.where(crossing, q_low * q_high / width, 0.0).sum(-1)
        multiplier = share * multiplier
        if k:
            multiplier = multiplier @ weights[k]
    return constant + (multiplier * intervals[0][0]).sum(-1)
