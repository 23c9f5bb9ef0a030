"""Where to split a box over which slopes are not proved: across which input, and at which share of its side.

docs/decisions/0008 says what was measured.

Symbols: B boxes, n inputs, F queries, w neurons.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from models.verification.bounds.linear_bounds import LayerBounds
from models.verification.network.graph import Layer

# A box is cut off its middle where that proves so large a part; what is left is never narrower than so much of the
# side, and the wall stands so much inside of the part that shall be proved.
LEAST_CUT, NARROWEST_PART, CUT_SLACK = 0.3, 0.05, 1e-3
# Walls of z nearer to zero count as so far from it.
NEAREST = 1e-30


@dataclass(frozen=True)
class Stakes:
    """What open derivatives of a layer have to do with the bounds, each (B, F, w).

    cost: what they may take away. on, off: what a bound wins at least once d is known to be its largest and its least
    (of a ReLU: once z > 0 and z < 0).
    """

    cost: Tensor
    on: Tensor
    off: Tensor

    def of(self, query: Tensor) -> "Stakes":
        """Those of one query (B,) of each box: (B, w)."""
        here = torch.arange(len(query), device=query.device)
        return Stakes(*(values[here, query if values.shape[1] > 1 else torch.zeros_like(query)]
                        for values in (self.cost, self.on, self.off)))


def choose_splits(layers: Sequence[Layer], found: Sequence[LayerBounds], stakes: Sequence[Stakes], boxes: Tensor,
                  margins: Tensor, radius: Tensor) -> tuple[Tensor, Tensor]:
    """Which input to split, scores (B, n), and where, shares (B, n) of the sides.

    boxes (B,): their numbers among those that `found` is of; margins (B, F); radius (B, n) of the boxes.

    A score is what is at stake for the worst query in every open neuron, for inputs that may close it. A ReLU costs
    the same until its sign is fixed. Halving an input moves a wall of z by |slope|, so what counts is that beside
    the wall's distance from 0. (Measured on certified networks: square, 1.2 to 5 times fewer boxes than shares of
    z's width; beside the widest side 0.6 to 1.2 times.)

    A ReLU whose sign, once it is known, makes up for the margins of all queries proves a part of the box: where one
    input fixes that sign whatever the others are. Moving along the whole side of an input moves z's wall by
    2 |slope|, which tells where that part begins. Where it is large the box is cut there. (Measured on certified
    networks: at three layers half of the boxes, at two three quarters.)
    """
    worst = margins.argmin(dim=1)
    here = torch.arange(len(worst), device=worst.device)
    total = torch.zeros_like(radius)
    best, at = torch.zeros_like(radius[:, 0]), torch.zeros_like(here)
    above = torch.zeros_like(here, dtype=torch.bool)
    need = (-margins).clamp_min(0).to(radius.dtype)[..., None]
    for layer, bound, at_stake in zip(layers, found, stakes, strict=True):
        of_worst, width = at_stake.of(worst), bound.z_low.shape[1]
        z_low, z_high, slope_low, slope_high = (
            values[boxes] for values in (bound.z_low, bound.z_high, bound.slope_low, bound.slope_high))
        if layer.kind not in ("relu", "leaky_relu"):
            slope = ((slope_low + slope_high) / 2).abs_()
            share = slope.div_(((z_high - z_low) / 2).clamp_min(NEAREST)[:, None]).clamp_max_(1)
            total = total + (share.square_() @ of_worst.cost[..., None])[..., 0]
            continue
        open_ = (z_low < 0) & (z_high > 0)
        for gain, value, reach, slope, sign in (
                (at_stake.on, of_worst.on, -z_low, slope_low, 1),
                (at_stake.off, of_worst.cost, z_high, slope_high, -1)):
            share = slope.abs().mul_((open_ / reach.clamp_min(NEAREST))[:, None])
            enough = open_ & (gain >= need).all(dim=1)
            if enough.any():
                most, where = (share * enough[:, None]).flatten(1).max(dim=1)
                better = most > best
                best = torch.where(better, most, best)
                at = torch.where(better, where // width, at)
                above = torch.where(better, sign * slope[here, where // width, where % width] > 0, above)
            total = total + (share.clamp_max_(1).square_() @ value[..., None])[..., 0]
    shares = torch.full_like(total, 0.5, dtype=torch.float64)
    part = (1 - 0.5 / best.double().clamp_min(0.5)) * (1 - CUT_SLACK)
    rows = (part > LEAST_CUT).nonzero()[:, 0]
    part = part[rows].clamp_max(1 - NARROWEST_PART)
    shares[rows, at[rows]] = torch.where(above[rows], 1 - part, part)
    total[rows, at[rows]] = 2 * total[rows].amax(1) + 1
    return total * (radius > 0), shares
