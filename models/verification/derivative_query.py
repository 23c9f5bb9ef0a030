"""Margins of slopes over boxes: the bounds of derivative_bounds.py, refined where that pays, and where to split.

Symbols: B boxes, n inputs, F queries.
"""

from functools import cache

import torch
from torch import Tensor

from models.verification.box_splits import Stakes, choose_splits
from models.verification.branch_and_bound import Margins, replace_rows
from models.verification.derivative_bounds import DerivativeBounder, DerivativeBounds
from models.verification.derivative_graph import End
from models.verification.graph import Graph
from models.verification.linear_bounds import Bounder
from models.verification.refinement import TRIALS, Refinement
from models.verification.relaxation import derivative_interval
from models.verification.slopes import Slopes

ENDS = ("output", "input")

class DerivativeQuery:
    """Bounds the derivatives of one graph on one device."""

    def __init__(self, graph: Graph, slopes: Slopes, device: str = "cpu", ends=None) -> None:
        self.graph, self.device = graph, device
        # most searches need one type only, and one end
        self._bounder = cache(lambda dtype: Bounder(graph, dtype, device))
        self._from = cache(lambda dtype, end: DerivativeBounder(self._bounder(dtype), slopes, end))
        self.allowed = torch.as_tensor(slopes.allowed, dtype=torch.float64, device=device)
        self.features, self.rows = slopes.features, torch.as_tensor(slopes.rows, device=device)
        self._exact = graph.tensors(torch.float64, device)
        self._refinement = Refinement()
        self.ends = ends or ENDS

    def bound(self, lower: Tensor, upper: Tensor, root: Tensor, dtype: torch.dtype) -> Margins:
        """Margins over boxes with float64 walls (B, n); suspects are the boxes' centres."""
        centre = (lower + upper) / 2
        margins = self._margins(dtype, lower, upper, centre, refine=False)
        if len(self.graph.layers) < 3:  # the intervals of two layers' derivatives are exact as they are
            return margins
        trial = self._refinement.trial(int((~margins.proved).sum()))
        if not (self._refinement.pays or trial):
            return margins
        reach = (self._exact.slopes(centre, self.features, self.rows) + self.allowed).min(dim=1).values
        hoped = reach - self._refinement.left * (reach - margins.margin.double())
        again = (~margins.proved & ~(hoped < 0)).nonzero()[:, 0]
        if not self._refinement.pays:
            again = again[:TRIALS]
        if not len(again):
            return margins
        better = self._margins(dtype, lower[again], upper[again], centre[again], refine=True)
        if trial:
            some = again[:TRIALS]
            halves = [self._margins(dtype, *walls, (walls[0] + walls[1]) / 2, refine=False).margin.double()
                      for walls in _halves(lower[some], upper[some], margins.split_score[some])]
            self._refinement.learn(margins.margin[some].double(), better.margin[:len(some)].double(),
                                   (halves[0] + halves[1]) / 2, reach[some],
                                   self._refinement_cost(dtype, lower[some], upper[some]))
        replace_rows(margins, again, better)
        return margins

    def _margins(self, dtype, lower: Tensor, upper: Tensor, centre: Tensor, refine: bool) -> Margins:
        bounder = self._bounder(dtype)
        boxes = bounder.boxes(lower, upper)
        found = bounder.layers(boxes, refine)
        spans = [derivative_interval(layer, bound.z_low, bound.z_high)
                 for layer, bound in zip(self.graph.layers, found, strict=True)]
        parts = [self._from(dtype, end).derivatives(spans, refine) for end in self.ends]
        part = parts[0] if len(parts) == 1 else merge(*parts)
        # without hidden layers one bound serves all boxes
        bounds, charges = (of_box.expand(len(lower), -1) for of_box in (part.bounds, part.charge))
        margins = bounds.double() + self.allowed
        margin, worst = margins.min(dim=1)
        here = torch.arange(len(lower), device=lower.device)
        score, share = choose_splits(self.graph.layers, found, part.stakes, worst, margins.to(bounds.dtype), boxes.radius)
        return Margins(margin, margin >= 0, charges[here, worst].double(), score, centre, share)

    def _refinement_cost(self, dtype, lower: Tensor, upper: Tensor) -> float:
        """Operations of a refined bound of these boxes in those of a plain one, from the neurons that are open."""
        bounder = self._bounder(dtype)
        found = bounder.layers(bounder.boxes(lower, upper), refine=False)
        open_ = [float(((bound.z_low < 0) & (bound.z_high > 0)).sum(1).double().mean()) for bound in found]
        sizes = [sum(m.numel() for m in matrices.values()) for matrices in bounder.tensors.matrices[:-1]]
        refined = sum(2 * count * sum(sizes[:k]) for k, count in enumerate(open_) if k > 1)
        plain = (2 * lower.shape[1] + 5) * sum(sizes)
        for end in self.ends:
            one = self._from(dtype, end)
            refined += one.refinement_products(open_)
            plain += one.plain_products()
        return 1 + refined / plain


def merge(a: DerivativeBounds, b: DerivativeBounds) -> DerivativeBounds:
    second = (b.bounds > a.bounds) | a.bounds.isnan()
    stakes = [Stakes(*(torch.where(second[..., None], y, x) for x, y in ((p.cost, q.cost), (p.on, q.on), (p.off, q.off)))) for p, q in zip(a.stakes, b.stakes, strict=True)]
    return DerivativeBounds(torch.where(second, b.bounds, a.bounds), torch.where(second, b.charge, a.charge), stakes)


def _halves(lower: Tensor, upper: Tensor, score: Tensor) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Walls of the two halves across each box's best input."""
    at = torch.arange(len(lower), device=lower.device), score.argmax(dim=1)
    left, right = upper.clone(), lower.clone()
    left[at] = right[at] = (lower[at] + upper[at]) / 2
    return (lower, left), (right, upper)
