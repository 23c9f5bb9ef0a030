"""Branch and bound over input boxes: all open boxes of a round in one tensor operation.

A round takes the open boxes with the worst parents, bounds them (output_query.py, derivative_query.py), closes those
that are proved, and splits the others in two across the input that accounts for most of what the bound lost. Points at
which a box looks worst are tried as counterexamples on the way. Where rounding takes more than what is missing, splits
seldom help: after ROUNDED_SPLITS of them such boxes are put aside. The others may hold a counterexample, so LAST_BOXES
more are bounded, but there will be no proof.

Bounds are rigorous in the type that computed them. Boxes, unless they are few, are bounded in float32 first; where only
the charge for rounding stands between a box and its proof, the box is bounded again in float64, and once that has
happened to many, float64 is used at once.

Symbols: R roots, N open boxes, B boxes of a round, n inputs; lower, upper (N, n), float64.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.verification.memory import is_lack_of_memory
from models.verification.search.open_boxes import Boxes, OpenBoxes, joined
from models.verification.search.search_result import Budget, Progress, SearchResult
from models.verification.verdict import BoxTree, Status

# Narrower sides are not split further, relative to the size of their walls where that is above 1: a bound that fails in
# a box of such sides fails for good, for rounding takes more. Far above float64's spacing, so that halves differ.
NARROWEST = 1e-12
# Rounding also widens the intervals on the way to a bound, by more than the last pass is charged: so many charges, as a
# start; at most; and what is seen of it is multiplied by so much.
DOUBT, MOST_DOUBT, CAUTION = 32.0, 1000.0, 1.5
ROUNDED_SPLITS, LAST_BOXES = 4096, 50_000
# A share of boxes for which float32 did not suffice above which float64 is used at once.
DOUBLE_SHARE = 0.25
# A round of fewer boxes takes about as long as one of so many, so that boxes are split further before they are bounded;
# and in float64, where they are so many times fewer than fill a round.
LEAST_ROUND, FEW = 8, 8


@dataclass(frozen=True)
class Margins:
    """What one round found of its boxes.

    margin (B,): a rigorous lower bound of the distance to a violation; proved (B,): whether it is enough; charge (B,):
    how much of the margin rounding took; split_score (B, n): what splitting an input may gain; suspect (B, n),
    float64: where a violation is most likely; split_share (B, n), float64: at which share of its side to split an
    input, between 0 and 1; None: in the middle.
    """

    margin: Tensor
    proved: Tensor
    charge: Tensor
    split_score: Tensor
    suspect: Tensor
    split_share: Tensor | None = None


def replace_rows(margins: Margins, rows: Tensor, better: Margins) -> None:
    """Puts the margins of these boxes (a mask or numbers) in place of what is there."""
    for field in fields(Margins):
        whole, part = getattr(margins, field.name), getattr(better, field.name)
        if whole is not None:
            whole[rows] = part.to(whole.dtype)


class Query(Protocol):
    """A property of one network that can be bounded over boxes, in float32 or float64, on one device."""

    @property
    def device(self) -> str:
        """Where it bounds: "cpu", "cuda", ..."""
        ...

    def bound(self, lower: Tensor, upper: Tensor, root: Tensor, dtype: torch.dtype) -> Margins:
        """Margins over boxes with walls (B, n), each part of the root numbered (B,)."""
        ...


def branch_and_bound(
    query: Query,
    lower: Tensor,
    upper: Tensor,
    budget: Budget,
    violating: Callable[[Tensor, Tensor], bool],
    on_progress: Callable[[Progress], None] | None = None,
    batch: int = 256,
) -> SearchResult:
    """Proves the query over the boxes with walls (R, n), or says how far it came.

    Args:
        violating: called with suspects (m, n) and their roots (m,); True if one of them is a witness, which ends the
            search with REFUTED.
        batch: boxes of one tensor operation where the budget does not say. Halved whenever memory does not suffice.
    """
    search = _Search(query, lower.double(), upper.double(), budget, violating, on_progress, budget.batch or batch)
    try:
        return search.run()
    except KeyboardInterrupt:
        return replace(search.result(Status.UNKNOWN, f"interrupted, {len(search.open)} boxes open"), interrupted=True)


class _Search:
    def __init__(self, query: Query, lower: Tensor, upper: Tensor, budget: Budget,
                 violating: Callable[[Tensor, Tensor], bool], on_progress: Callable[[Progress], None] | None,
                 batch: int) -> None:
        roots = len(lower)
        self.query, self.budget, self.violating, self.on_progress = query, budget, violating, on_progress
        self.batch, self.roots = batch, roots
        device = lower.device
        count = torch.arange(roots, device=device)
        self.open = OpenBoxes(Boxes(lower, upper, count, count, torch.full((roots,), 1 / roots, device=device),
                                    torch.zeros(roots, dtype=torch.float64, device=device)), batch)
        self.splits: list[tuple[Tensor, Tensor, Tensor, int]] = []  # nodes, dimensions, values, first child
        self.nodes, self.bounded, self.proved, self.lowest = roots, 0, 0.0, float("inf")
        self.single, self.retried, self.doubt = 0, 0, DOUBT
        self.aside, self.rounded = 0, 0  # boxes that cannot be proved; splits of boxes that rounding keeps from a proof
        self.last = float("inf")  # how many boxes are bounded at most: no limit while there may be a proof
        self.started = time.monotonic()

    def result(self, status: Status, reason: str) -> SearchResult:
        """What is known now, under this status."""
        tree = self._preorder() if status is Status.PROVED else None
        lowest = self.lowest if np.isfinite(self.lowest) else float("nan")
        return SearchResult(status, reason, lowest, min(self.proved, 1.0), self.bounded, tree)

    def run(self) -> SearchResult:
        while len(self.open):
            seconds = time.monotonic() - self.started
            if seconds > self.budget.seconds:
                return self.result(Status.TIMEOUT, f"time budget of {self.budget.seconds:g} s is spent, "
                                                   f"{len(self.open)} boxes open")
            if self.bounded >= self.budget.boxes:
                return self.result(Status.UNKNOWN, f"budget of {self.budget.boxes} boxes is spent, "
                                                   f"{len(self.open)} boxes open")
            if self.bounded >= self.last:
                return self._without_proof()
            now = self.open.take(self.batch)
            try:
                margins = self._bound(now)
            except (MemoryError, RuntimeError) as error:
                if self.batch == 1 or not is_lack_of_memory(error):
                    raise
                self.batch = max(self.batch // 2, 1)
                self.open.put(now)
                continue
            self.bounded += len(now)
            # NaN is no bound
            margin = torch.nan_to_num(margins.margin.double(), nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf)
            self.lowest = min(self.lowest, float(margin.min()))
            if self.lowest < self.budget.hope:
                return replace(self.result(Status.UNKNOWN, f"a bound of {self.lowest:g} is too far from a proof"),
                               hopeless=True)
            proved = margins.proved & ~margins.margin.isnan()
            self.proved += float(now.share[proved].sum())
            left = ~proved
            rest = now.pick(left)
            if len(rest):
                if self.violating(margins.suspect[left], rest.root):
                    return self.result(Status.REFUTED, "a counterexample was found")
                wide = _wide(rest.lower, rest.upper)
                by_rounding = margins.margin[left] + margins.charge[left] >= 0  # then in float64, see _bound
                tried, self.rounded = self.rounded >= ROUNDED_SPLITS, self.rounded + int(by_rounding.sum())
                apart = wide.any(dim=1) & ~(by_rounding & tried)
                self.aside += int((~apart).sum())
                if self.aside and self.last == float("inf"):
                    self.last = self.bounded + LAST_BOXES
                left[left.clone()] = apart
                if apart.any():
                    share = None if margins.split_share is None else margins.split_share[left]
                    self._split(rest.pick(apart), margins.split_score[left].double(), share, margin[left], wide[apart])
            if self.on_progress:
                self.on_progress(Progress(self.proved, len(self.open), self.lowest, time.monotonic() - self.started))
        if self.aside:
            return self._without_proof()
        leaves = self.nodes - sum(len(nodes) for nodes, *_ in self.splits)
        cover = "proved box covers" if leaves == 1 else "proved boxes cover"
        return self.result(Status.PROVED, f"{leaves} {cover} all inputs")

    def _without_proof(self) -> SearchResult:
        boxes = "a box" if self.aside == 1 else f"{self.aside} boxes"
        rest = f", {len(self.open)} boxes open" if len(self.open) else ""
        return replace(self.result(Status.UNKNOWN, f"rounding leaves {boxes} without a proof or a witness{rest}"),
                       aside=self.aside)

    def _bound(self, boxes: Boxes) -> Margins:
        """Bounds in float32, and in float64 where rounding is what is missing or float32 saves nothing."""
        few = len(boxes) <= min(LEAST_ROUND, self.batch // FEW)
        if few or (self.single >= 8 and self.retried > DOUBLE_SHARE * self.single):
            return self.query.bound(boxes.lower, boxes.upper, boxes.root, torch.float64)
        margins = self.query.bound(boxes.lower, boxes.upper, boxes.root, torch.float32)
        # the first boxes tell how much rounding takes in this network
        doubt = MOST_DOUBT if self.single == 0 else self.doubt
        self.single += len(boxes)
        again = ~margins.proved & ~(margins.margin + doubt * margins.charge < 0)
        if not again.any():
            return margins
        self.retried += int(again.sum())
        part = boxes.pick(again)
        better = self.query.bound(part.lower, part.upper, part.root, torch.float64)
        least = torch.finfo(torch.double).tiny
        taken = (better.margin - margins.margin[again]) / margins.charge[again].clamp_min(least)
        if len(taken := taken[taken.isfinite()]):
            self.doubt = min(max(self.doubt, CAUTION * float(taken.max())), MOST_DOUBT)
        replace_rows(margins, again, better)
        return margins

    def _split(self, boxes: Boxes, score: Tensor, share: Tensor | None, margin: Tensor, wide: Tensor) -> None:
        """Opens the two parts of each box across its best input; wide (N, n): those that may be split.

        The parts of few boxes are split again, in the middle, as long as that fills a round.
        """
        width = boxes.upper - boxes.lower
        score = torch.nan_to_num(score, nan=0.0, posinf=1e300)
        # an input without width must never be chosen; a vanishing score falls back on the widest input
        score = torch.where(wide, score + 1e-12 * score.amax(1, keepdim=True) * width + 1e-300 * width, -1.0)
        boxes, dimension = self._parts(boxes, score, share, margin)
        while 2 * len(boxes) + len(self.open) <= min(LEAST_ROUND, self.batch):
            # half as wide an input closes a quarter of what it closed
            score = torch.cat([score.scatter(1, dimension[:, None], score.gather(1, dimension[:, None]) / 4)] * 2)
            if not _wide(boxes.lower, boxes.upper).gather(1, score.argmax(1, keepdim=True)).all():
                break
            boxes, dimension = self._parts(boxes, score, None, boxes.parent_margin)
        self.open.put(boxes)

    def _parts(self, boxes: Boxes, score: Tensor, share: Tensor | None, margin: Tensor) -> tuple[Boxes, Tensor]:
        """The lower and then the upper parts across the inputs with the greatest score, and those inputs (N,)."""
        dimension = score.argmax(dim=1)
        rows = torch.arange(len(boxes), device=score.device)
        left = torch.full_like(margin, 0.5) if share is None else share[rows, dimension]
        wall = torch.lerp(boxes.lower[rows, dimension], boxes.upper[rows, dimension], left)
        left_upper, right_lower = boxes.upper.clone(), boxes.lower.clone()
        left_upper[rows, dimension] = right_lower[rows, dimension] = wall
        first = self.nodes
        self.splits.append((boxes.node, dimension, wall, first))
        self.nodes += 2 * len(boxes)
        children = first + 2 * rows
        return joined([Boxes(boxes.lower, left_upper, boxes.root, children, boxes.share * left, margin),
                       Boxes(right_lower, boxes.upper, boxes.root, children + 1, boxes.share * (1 - left), margin)
                       ]), dimension

    def _preorder(self) -> BoxTree:
        dimension = np.full(self.nodes, -1, dtype=np.int16)
        value = np.zeros(self.nodes)
        child = np.zeros(self.nodes, dtype=np.int64)
        for nodes, dimensions, values, first in self.splits:
            at = nodes.cpu().numpy()
            dimension[at], value[at] = dimensions.cpu().numpy(), values.cpu().numpy()
            child[at] = first + 2 * np.arange(len(at))
        order = _preorder(dimension, child, self.roots)
        return BoxTree(dimension[order], value[order])


def _wide(lower: Tensor, upper: Tensor) -> Tensor:
    """Which sides of boxes (N, n) may be split."""
    return upper - lower > NARROWEST * torch.maximum(-lower, upper).clamp_min(1)


def _preorder(dimension: NDArray[np.int16], child: NDArray[np.int64], roots: int) -> NDArray[np.int64]:
    order, stack = [], list(range(roots - 1, -1, -1))
    inner, left = (dimension >= 0).tolist(), child.tolist()
    while stack:
        node = stack.pop()
        order.append(node)
        if inner[node]:
            stack += [left[node] + 1, left[node]]
    return np.array(order, dtype=np.int64)
