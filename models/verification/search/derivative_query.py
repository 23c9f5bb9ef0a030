"""Bounds of slopes for the search: from which end of the network, and how tight, is learned from a few boxes at a time.

Symbols: B boxes, n inputs, F queries.
"""

from functools import cache

import torch
from torch import Tensor

from models.verification.bounds.derivative_margins import DerivativeMargins, Ends, Walls
from models.verification.bounds.end_choice import BOTH, CHOICES, END_TRIALS, EndChoice, Trial
from models.verification.bounds.refinement import TRIALS, Refinement
from models.verification.network.graph import Graph
from models.verification.network.graph_tensors import GraphTensors
from models.verification.obligations.slopes import Slopes
from models.verification.search.branch_and_bound import Margins, replace_rows


class DerivativeQuery:
    """Bounds the derivatives of one graph on one device.

    ends: from which to bound; None: learned during the search.
    """

    def __init__(self, graph: Graph, slopes: Slopes, device: str = "cpu", ends: Ends | None = None) -> None:
        self.graph, self.device = graph, device
        # most searches need one type only
        self._typed = cache(lambda dtype: DerivativeMargins(graph, slopes, dtype, device))
        self.allowed = torch.as_tensor(slopes.allowed, dtype=torch.float64, device=device)
        self.features, self.rows = slopes.features, torch.as_tensor(slopes.rows, device=device)
        self._exact = GraphTensors(graph, torch.float64, device)
        # of one hidden layer both ends know the same
        self._learns = ends is None and len(graph.layers) > 1
        self._choice, self._refinement = EndChoice(ends or (BOTH if self._learns else BOTH[:1])), Refinement()

    def bound(self, lower: Tensor, upper: Tensor, root: Tensor, dtype: torch.dtype) -> Margins:
        """Margins over boxes with float64 walls (B, n); suspects are the boxes' centres."""
        typed, walls = self._typed(dtype), Walls(lower, upper)
        margins = typed.margins(walls, self._choice.ends, refine=False)
        unproved = (~margins.proved).nonzero()[:, 0]
        if self._learns and self._choice.trial(len(lower), len(unproved)):
            self._try_ends(typed, walls.pick(unproved[:END_TRIALS]))
        # the intervals of two layers' derivatives are exact as they are
        if len(self.graph.layers) > 2 and len(unproved):
            self._refine(typed, walls, margins, unproved)
        return margins

    def _refine(self, typed: DerivativeMargins, walls: Walls, margins: Margins, unproved: Tensor) -> None:
        """Bounds the boxes once more for which that may suffice, where it pays, and learns whether it does."""
        trial, ends = self._refinement.trial(len(unproved)), self._choice.ends
        if not (self._refinement.pays or trial):
            return
        some = walls.pick(unproved)
        reach = (self._exact.slopes(some.centre, self.features, self.rows) + self.allowed).min(dim=1).values
        hoped = reach - self._refinement.left * (reach - margins.margin[unproved].double())
        near = (~(hoped < 0)).nonzero()[:, 0]
        if not self._refinement.pays:
            near = near[:TRIALS]
        if not len(near):
            return
        again = unproved[near]
        better = typed.margins(walls.pick(again), ends, refine=True)
        if trial:
            tried = again[:TRIALS]
            boxes = walls.pick(tried)
            halves = [typed.margins(half, ends, refine=False).margin
                      for half in boxes.parts(margins.split_score[tried])]
            self._refinement.learn(margins.margin[tried], better.margin[:TRIALS], (halves[0] + halves[1]) / 2,
                                   reach[near[:TRIALS]], typed.refinement_cost(boxes, ends))
        replace_rows(margins, again, better)

    def _try_ends(self, typed: DerivativeMargins, walls: Walls) -> None:
        """Bounds the boxes, and the parts that each would be split into, from either end and from both."""
        found = {}
        for ends in CHOICES:
            margins = typed.margins(walls, ends, refine=False)
            left, right = walls.parts(margins.split_score, margins.split_share)
            parts = typed.margins(Walls(torch.cat([left.lower, right.lower]), torch.cat([left.upper, right.upper])),
                                  ends, refine=False)
            # a proof is a proof, whatever its margin
            lacking, later = (float(of.margin.clamp_max(0).mean()) for of in (margins, parts))
            found[ends] = Trial(lacking, later, typed.cost(ends))
        if self._choice.learn(found):
            self._refinement = Refinement()  # what was learned is of other bounds
