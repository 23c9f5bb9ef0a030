"""Margins of slopes over boxes, bounded from one end of the network or from both, and where to split what is open.

Bounds from the second end are made of those boxes alone that the first leaves unproved; the better one counts, for each
slope.

Symbols: B boxes, n inputs, F queries.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from models.verification.bounds.box_splits import Stakes, choose_splits
from models.verification.bounds.derivative_bounds import DerivativeBounder
from models.verification.bounds.derivative_graph import End
from models.verification.bounds.linear_bounds import Bounder
from models.verification.bounds.relaxation import derivative_interval
from models.verification.network.graph import Graph
from models.verification.obligations.slopes import Slopes
from models.verification.search.branch_and_bound import Margins

Ends = tuple[End, ...]


@dataclass(frozen=True)
class Walls:
    """Walls of boxes: lower, upper (B, n), float64."""

    lower: Tensor
    upper: Tensor

    @property
    def centre(self) -> Tensor:
        """(B, n)."""
        return (self.lower + self.upper) / 2

    def pick(self, rows: Tensor) -> "Walls":
        """These of the boxes."""
        return Walls(self.lower[rows], self.upper[rows])

    def parts(self, score: Tensor, share: Tensor | None = None) -> tuple["Walls", "Walls"]:
        """Each box's two parts across its best input, at that share (B, n) of its side; None: in the middle."""
        at = torch.arange(len(score), device=score.device), score.argmax(dim=1)
        left, right = self.upper.clone(), self.lower.clone()
        cut = 0.5 if share is None else share[at]
        left[at] = right[at] = torch.lerp(self.lower[at], self.upper[at], cut)
        return Walls(self.lower, left), Walls(right, self.upper)


class DerivativeMargins:
    """Margins of one graph's slopes in one floating-point type on one device."""

    def __init__(self, graph: Graph, slopes: Slopes, dtype: torch.dtype, device: str) -> None:
        self.graph, self.bounder = graph, (bounder := Bounder(graph, dtype, device))
        self.allowed = torch.as_tensor(slopes.allowed, dtype=torch.float64, device=device)
        # most searches need one end only; no reference to self, which would keep all tensors until they are collected
        self._from = cache(lambda end: DerivativeBounder(bounder, slopes, end))

    def margins(self, walls: Walls, ends: Ends, refine: bool) -> Margins:
        """Margins over boxes from one or two ends; suspects are the boxes' centres."""
        boxes = self.bounder.boxes(walls.lower, walls.upper)
        found = self.bounder.layers(boxes, refine)
        spans = [derivative_interval(layer, bound.z_low, bound.z_high)
                 for layer, bound in zip(self.graph.layers, found, strict=True)]
        first = self._from(ends[0]).derivatives(spans, refine)
        # without hidden layers one bound serves all boxes
        shape = len(boxes.centre), len(self.allowed)
        bounds, charges = first.bounds.expand(shape), first.charge.expand(shape)
        unproved = self._unproved(bounds)
        if len(ends) == 1 or not len(unproved):
            stakes = first.stakes(unproved)
        else:
            second = self._from(ends[1]).derivatives([(low[unproved], high[unproved]) for low, high in spans], refine)
            better = (second.bounds > bounds[unproved]) | bounds[unproved].isnan()
            bounds, charges = bounds.clone(), charges.clone()
            bounds[unproved] = torch.where(better, second.bounds, bounds[unproved])
            charges[unproved] = torch.where(better, second.charge, charges[unproved])
            left = self._unproved(bounds[unproved])
            unproved = unproved[left]
            stakes = _of_the_better(better[left], first.stakes(unproved), second.stakes(left))
        margins = bounds.double() + self.allowed
        margin, worst = margins.min(dim=1)
        charge = charges.gather(1, worst[:, None])[:, 0].double()
        score, share = torch.zeros_like(boxes.radius), torch.full_like(walls.lower, 0.5)
        score[unproved], share[unproved] = choose_splits(
            self.graph.layers, found, stakes, unproved, margins[unproved], boxes.radius[unproved])
        return Margins(margin, margin >= 0, charge, score, walls.centre, share)

    def _unproved(self, bounds: Tensor) -> Tensor:
        """Numbers of the boxes with a bound (B, F) that is not enough, or none."""
        return (~(bounds.double() + self.allowed >= 0)).any(dim=1).nonzero()[:, 0]

    def cost(self, ends: Ends) -> float:
        """Operations of a plain bound of one box from these ends."""
        return ((2 * self.graph.inputs + 5) * sum(self._layer_sizes())
                + sum(self._from(end).plain_products() for end in ends))

    def refinement_cost(self, walls: Walls, ends: Ends) -> float:
        """Operations of a refined bound of these boxes in those of a plain one, from the neurons that are open."""
        found = self.bounder.layers(self.bounder.boxes(walls.lower, walls.upper), refine=False)
        open_ = [float(((bound.z_low < 0) & (bound.z_high > 0)).sum(1).double().mean()) for bound in found]
        sizes = self._layer_sizes()
        refined = sum(2 * count * sum(sizes[:k]) for k, count in enumerate(open_) if k > 1)
        refined += sum(self._from(end).refinement_products(open_) for end in ends)
        return 1 + refined / self.cost(ends)

    def _layer_sizes(self) -> list[int]:
        return [sum(m.numel() for m in matrices.values()) for matrices in self.bounder.tensors.matrices[:-1]]


def _of_the_better(second: Tensor, a: Sequence[Stakes], b: Sequence[Stakes]) -> list[Stakes]:
    """Each layer's stakes (B, F, w), from b where `second` (B, F)."""
    chosen = second[..., None]
    return [Stakes(torch.where(chosen, y.cost, x.cost), torch.where(chosen, y.on, x.on),
                   torch.where(chosen, y.off, x.off)) for x, y in zip(a, b, strict=True)]
