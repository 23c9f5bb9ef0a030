"""Branch and bound over input boxes: all open boxes of a round in one tensor operation.

A round takes the open boxes with the worst parents, bounds their signed partial derivatives
(bounds.py), closes those that are proved, and splits the others at the middle of the input that
accounts for most of what the relaxation lost. The centres of unproved boxes are tried as
counterexamples on the way.

Symbols: B boxes of a round, n inputs, F queries; lower, upper (B, n).
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from models.verification.bounds import derivative_bounds, preactivation_bounds
from models.verification.network import ReluNetwork, gradient
from models.verification.specification import FloatArray, Specification
from models.verification.verdict import BoxTree, Status, Verdict

# The search's float32 bounds are off by some 1e-6 of the derivatives' size; what the search accepts must also
# satisfy the rigorous checker, so it asks for half of the tolerance as reserve.
RESERVE = 0.5


@dataclass(frozen=True)
class Budget:
    """Limits of a verification: wall seconds, boxes bounded, boxes of one tensor operation."""

    seconds: float = 60.0
    boxes: int = 1_000_000
    batch: int = 256


@dataclass(frozen=True)
class Progress:
    """State after a round: share of the box proved (0..1), open boxes, worst bound so far, seconds."""

    proved_share: float
    open_boxes: int
    worst_bound: float
    seconds: float


@dataclass
class _Tree:
    """Splits as they are made: node -> (dimension, value, left child, right child); leaves are absent."""

    splits: dict[int, tuple[int, float, int, int]] = field(default_factory=dict)
    size: int = 1

    def split(self, node: int, dimension: int, value: float) -> tuple[int, int]:
        left, right = self.size, self.size + 1
        self.size += 2
        self.splits[node] = (dimension, value, left, right)
        return left, right

    def preorder(self) -> BoxTree:
        dimensions, values, stack = [], [], [0]
        while stack:
            node = stack.pop()
            if node in self.splits:
                dimension, value, left, right = self.splits[node]
                dimensions.append(dimension)
                values.append(value)
                stack += [right, left]
            else:
                dimensions.append(-1)
                values.append(0.0)
        return BoxTree(np.array(dimensions, dtype=np.int16), np.array(values, dtype=np.float64))


def branch_and_bound(
    network: ReluNetwork,
    specification: Specification,
    budget: Budget,
    violating: Callable[[FloatArray], bool],
    on_progress: Callable[[Progress], None] | None = None,
) -> Verdict:
    """Proves the specification over its box, or says how far it came.

    Args:
        violating: called with points (m, n) at which a partial derivative has the wrong sign; True if the caller
            found a witness there, which stops the search with REFUTED.

    Returns:
        PROVED with the tree of boxes, REFUTED (the caller holds the witness), TIMEOUT or UNKNOWN.
    """
    started = time.monotonic()
    weights, biases = network.tensors()
    lower = torch.as_tensor(specification.lower, dtype=torch.float64)[None]
    upper = torch.as_tensor(specification.upper, dtype=torch.float64)[None]
    nodes, share, worst_parent = torch.zeros(1, dtype=torch.long), torch.ones(1), torch.zeros(1)
    tree, proved, bounded, lowest = _Tree(), 0.0, 0, float("inf")
    target = -specification.tolerance * RESERVE

    def verdict(status: Status, reason: str) -> Verdict:
        return Verdict(status, reason, lowest if bounded else float("nan"), min(proved, 1.0),
                       time.monotonic() - started, bounded, tree=tree.preorder() if status is Status.PROVED else None)

    while len(nodes):
        elapsed = time.monotonic() - started
        if elapsed > budget.seconds:
            return verdict(Status.TIMEOUT, f"time budget of {budget.seconds:g} s is spent, {len(nodes)} boxes open")
        if bounded >= budget.boxes:
            return verdict(Status.UNKNOWN, f"budget of {budget.boxes} boxes is spent, {len(nodes)} boxes open")
        # worst parents first finds counterexamples early; all open boxes must be closed for a proof in any case
        order = torch.argsort(worst_parent)
        now, later = order[: budget.batch], order[budget.batch :]
        low, high = lower[now], upper[now]
        layers = preactivation_bounds(weights, biases, low.float(), high.float())
        bounds = derivative_bounds(weights, layers, specification.queries)
        worst = bounds.lower.min(dim=1).values
        bounded += len(now)
        lowest = min(lowest, float(worst.min()))
        closed = worst >= target
        proved += float(share[now][closed].sum())
        left = ~closed
        if left.any():
            suspects = _wrong_sign(network, specification, ((low + high) / 2)[left])
            if len(suspects) and violating(suspects):
                return verdict(Status.REFUTED, "a counterexample was found")
            if not (high - low)[left].amax(dim=1).min() > 1e-9:
                return verdict(Status.UNKNOWN, "a box shrank to a point without a proof or a witness")
        new = _split(tree, nodes[now][left], low[left], high[left], bounds.split_score[left])
        lower, upper, nodes = (torch.cat([old[later], added])
                               for old, added in zip((lower, upper, nodes), new, strict=True))
        share = torch.cat([share[later], (share[now][left] / 2).repeat(2)])
        worst_parent = torch.cat([worst_parent[later], worst[left].repeat(2)])
        if on_progress:
            on_progress(Progress(proved, len(nodes), lowest, time.monotonic() - started))
    return verdict(Status.PROVED, f"{tree.preorder().leaves} boxes cover the input box, each proved")


def _split(tree: _Tree, nodes: Tensor, low: Tensor, high: Tensor, score: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Halves each box across its best input: (lower, upper, nodes) of the left halves, then of the right ones."""
    width = high - low
    # an input without width must never be chosen; a vanishing score falls back on the widest input
    score = torch.where(width > 0, score.double() + 1e-12 * width, torch.full_like(width, -1.0))
    dimension = score.argmax(dim=1)
    rows = torch.arange(len(nodes))
    middle = (low[rows, dimension] + high[rows, dimension]) / 2
    left_high, right_low = high.clone(), low.clone()
    left_high[rows, dimension] = right_low[rows, dimension] = middle
    pairs = [tree.split(n, d, v) for n, d, v in
             zip(nodes.tolist(), dimension.tolist(), middle.tolist(), strict=True)]
    children = torch.tensor([left for left, _ in pairs] + [right for _, right in pairs], dtype=torch.long)
    return torch.cat([low, right_low]), torch.cat([left_high, high]), children


@torch.no_grad()
def _wrong_sign(network: ReluNetwork, specification: Specification, points: Tensor) -> FloatArray:
    """Those of the points (m, n) at which a signed partial derivative is below -tolerance, in float64."""
    weights, biases = network.tensors(torch.float64)
    slopes = gradient(weights, biases, points)
    features = [feature for feature, _ in specification.queries]
    signs = torch.tensor([float(sign) for _, sign in specification.queries], dtype=torch.float64)
    wrong = (slopes[:, features] * signs < -specification.tolerance).any(dim=1)
    return points[wrong].numpy()
