"""Margins of slopes over boxes: the bounds of derivative_bounds.py, refined where that pays, and where to split.

Symbols: B boxes, n inputs, F queries.
"""

from functools import cache

import torch
from torch import Tensor

from models.verification.box_splits import choose_splits
from models.verification.branch_and_bound import Margins, replace_rows
from models.verification.derivative_bounds import DerivativeBounder
from models.verification.graph import Graph
from models.verification.graph_tensors import GraphTensors
from models.verification.refinement import TRIALS, Refinement
from models.verification.slopes import Slopes


class DerivativeQuery:
    """Bounds the derivatives of one graph on one device."""

    def __init__(self, graph: Graph, slopes: Slopes, device: str = "cpu") -> None:
        self.graph, self.device = graph, device
        # most searches need one type only
        self._bounder = cache(lambda dtype: DerivativeBounder(graph, slopes, dtype, device))
        self.allowed = torch.as_tensor(slopes.allowed, dtype=torch.float64, device=device)
        self.features, self.rows = slopes.features, torch.as_tensor(slopes.rows, device=device)
        self._exact = GraphTensors(graph, torch.float64, device)
        self._refinement = Refinement()

    def bound(self, lower: Tensor, upper: Tensor, root: Tensor, dtype: torch.dtype) -> Margins:
        """Margins over boxes with float64 walls (B, n); suspects are the boxes' centres."""
        typed = self._bounder(dtype)
        centre = (lower + upper) / 2
        margins = self._margins(typed, lower, upper, centre, refine=False)
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
        better = self._margins(typed, lower[again], upper[again], centre[again], refine=True)
        if trial:
            some = again[:TRIALS]
            halves = [self._margins(typed, *walls, (walls[0] + walls[1]) / 2, refine=False).margin.double()
                      for walls in _halves(lower[some], upper[some], margins.split_score[some])]
            self._refinement.learn(margins.margin[some].double(), better.margin[:len(some)].double(),
                                   (halves[0] + halves[1]) / 2, reach[some],
                                   typed.refinement_cost(lower[some], upper[some]))
        replace_rows(margins, again, better)
        return margins

    def _margins(self, typed: DerivativeBounder, lower: Tensor, upper: Tensor, centre: Tensor, refine: bool) -> Margins:
        boxes = typed.bounder.boxes(lower, upper)
        found = typed.bounder.layers(boxes, refine)
        bounds, charges, stakes = typed.derivatives(found, refine)
        # without hidden layers one bound serves all boxes
        bounds, charges = (of_box.expand(len(lower), -1) for of_box in (bounds, charges))
        margins = bounds.double() + self.allowed
        margin, worst = margins.min(dim=1)
        here = torch.arange(len(lower), device=lower.device)
        score, share = choose_splits(self.graph.layers, found, stakes, worst, margins.to(bounds.dtype), boxes.radius)
        return Margins(margin, margin >= 0, charges[here, worst].double(), score, centre, share)


def _halves(lower: Tensor, upper: Tensor, score: Tensor) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Walls of the two halves across each box's best input."""
    at = torch.arange(len(lower), device=lower.device), score.argmax(dim=1)
    left, right = upper.clone(), lower.clone()
    left[at] = right[at] = (lower[at] + upper[at]) / 2
    return (lower, left), (right, upper)
