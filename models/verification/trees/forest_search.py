"""Decides a part of a claim about a forest by branch and bound: boxes are split at thresholds until each is known.

The worst boxes come first, which finds counterexamples early. A box is split at a wall of a box of the tree whose
values differ most in it; where every tree has one box left, the outputs are known, and a box that is not safe then
has a counterexample in any of its points, or rounding keeps it from a proof.

Symbols: n inputs, R roots, B boxes.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from models.verification.attack.output_witness import OutputWitness, output_witnesses
from models.verification.search.search_result import Progress, SearchResult
from models.verification.trees.forest import Floats, Integers, rounded_inward
from models.verification.trees.forest_query import ForestQuery, margins
from models.verification.verdict import BoxTree, Status

BATCH = 64
LEAF = -1


@dataclass
class _Splits:
    """The trees of boxes: dimension and value of each split, -1 where there is none (yet), and both boxes below."""

    dimension: list[int] = field(default_factory=list)
    value: list[float] = field(default_factory=list)
    below: list[tuple[int, int] | None] = field(default_factory=list)

    def new(self) -> int:
        self.dimension.append(LEAF)
        self.value.append(0.0)
        self.below.append(None)
        return len(self.dimension) - 1

    def split(self, node: int, dimension: int, value: float) -> tuple[int, int]:
        self.dimension[node], self.value[node] = dimension, value
        halves = self.new(), self.new()
        self.below[node] = halves
        return halves

    def tree(self, roots: int) -> BoxTree:
        """In preorder, one root after the other."""
        order, pending = list[int](), list(range(roots))[::-1]
        while pending:
            order.append(node := pending.pop())
            if (below := self.below[node]) is not None:
                pending += below[::-1]
        return BoxTree(np.array([self.dimension[node] for node in order], dtype=np.int16),
                       np.array([self.value[node] for node in order], dtype=np.float64))


@dataclass(frozen=True)
class _Box:
    """low, high: (n,) walls; share: of all that is to be proved."""

    low: Floats
    high: Floats
    root: int
    share: float


def decide_part(query: ForestQuery, lower: Floats, upper: Floats, accept: Callable[[OutputWitness], bool],
                report: Callable[[Progress], None] | None = None) -> tuple[SearchResult, OutputWitness | None]:
    """How the search over the roots lower, upper (R, n) ended, and the counterexample that was accepted, if one was.

    The time is limited by time_limit.py.
    """
    splits = _Splits()
    boxes = {splits.new(): _Box(lower[r], upper[r], r, 1.0 / len(lower)) for r in range(len(lower))}
    waiting = [(-np.inf, node) for node in boxes]
    share, looked, aside, worst = 0.0, 0, 0, np.inf
    while waiting:
        nodes = [heapq.heappop(waiting)[1] for _ in range(min(BATCH, len(waiting)))]
        some = [boxes.pop(node) for node in nodes]
        low, high, root = np.stack([box.low for box in some]), np.stack([box.high for box in some]), np.array(
            [box.root for box in some])
        bounds = query.bounds(low, high, root)
        margin = margins(bounds)
        looked, worst = looked + len(nodes), min(worst, float(margin.min()))
        for witness in _witnesses(query, low, high, root, np.flatnonzero(margin <= 0)):
            if accept(witness):
                return SearchResult(Status.REFUTED, "a counterexample was found", worst, share, looked), witness
        for place, (node, box) in enumerate(zip(nodes, some, strict=True)):
            if margin[place] > 0:
                share += box.share
                continue
            cut = _split(query, box, bounds[place])
            if cut is None:
                aside += 1
                continue
            left, right = splits.split(node, *cut)
            dimension, value = cut
            below, above = box.high.copy(), box.low.copy()
            below[dimension] = above[dimension] = value
            boxes[left] = _Box(box.low, below, box.root, box.share / 2)
            boxes[right] = _Box(above, box.high, box.root, box.share / 2)
            for half in (left, right):
                heapq.heappush(waiting, (float(margin[place]), half))
        if report is not None:
            report(Progress(share, len(waiting), worst, 0.0))
    if aside:
        return SearchResult(Status.UNKNOWN, f"rounding leaves {aside} boxes without a proof", worst, share, looked,
                            aside=aside), None
    return SearchResult(Status.PROVED, "every box is proved", worst, 1.0, looked, splits.tree(len(lower))), None


def _witnesses(query: ForestQuery, low: Floats, high: Floats, root: Integers, wanted: Integers) -> list[OutputWitness]:
    """Of the wanted boxes' middles and lower corners those that are unsafe for certain; the worst first."""
    found = list[OutputWitness]()
    bottom, top = rounded_inward(low[wanted], high[wanted])
    some = (bottom <= top).all(axis=1)
    bottom, top, root = bottom[some], top[some], root[wanted[some]]
    middle = np.clip((bottom / 2 + top / 2).astype(np.float32).astype(np.float64), bottom, top)
    for points in (middle, bottom):
        for k in np.unique(query.of[root]):
            of = query.of[root] == k
            violation = query.unsafe.violation(root[of], query.forests[k].value(points[of]))
            found += output_witnesses(query.forests[k], query.unsafe, points[of], root[of], violation)
    return sorted(found, key=lambda witness: -witness.violation)


def _split(query: ForestQuery, box: _Box, bounds: Floats) -> tuple[int, float] | None:
    """Dimension and value of the split: between two neighbouring float32 numbers at a wall, so that as few boxes of the
    tree as possible are left on the side that has more; None where every tree is known in the box.
    """
    forest = query.forests[query.of[box.root]]
    met = np.flatnonzero(forest.met(box.low[None], box.high[None])[0])
    if not len(met):
        return None
    alternative = int((-bounds).max(axis=1).argmin())
    scores = forest.values[met] @ query.unsafe.coefficients[box.root, alternative].T  # (met, M)
    starts = np.flatnonzero(np.diff(forest.tree[met], prepend=-1))
    spread = (np.maximum.reduceat(scores, starts) - np.minimum.reduceat(scores, starts)).sum(axis=1)
    if not spread.max() > 0:
        return None
    tree = int(spread.argmax())
    own = met[starts[tree]:starts[tree + 1] if tree + 1 < len(starts) else None]
    bottom, _ = rounded_inward(box.low, box.high)
    best = len(own), 0, 0.0
    for feature in range(forest.inputs):
        begin, end = np.sort(forest.low[own, feature]), np.sort(forest.high[own, feature])
        walls = np.unique(begin[begin > bottom[feature]])
        if not len(walls):
            continue
        more = np.maximum(np.searchsorted(begin, walls, "left"), len(own) - np.searchsorted(end, walls, "left"))
        least = int(more.argmin())
        best = min(best, (int(more[least]), feature, float(walls[least])))
    if best[0] == len(own):
        return None
    _, feature, wall = best
    return feature, (wall + float(np.nextafter(np.float32(wall), np.float32(-np.inf)))) / 2
