"""One kind of obligation at a time: falsification and proof of slopes, and of unsafe sets of outputs.

Of slopes a first look comes first: branch and bound with few boxes, which is all that networks need that are monotone
by construction or trained to be proved; it ends at the first point that looks like a violation. (Of outputs it took
longer than it saved.) Then the search for counterexamples (milliseconds for ordinary networks), then branch and bound,
during which every box's most suspicious point is tried and, once the proof has taken as long as the first search, the
slow, thorough descent. All of it shares one budget of seconds; an interrupt (Ctrl-C) at any moment ends in UNKNOWN with
`interrupted` set.

Symbols: R boxes, n inputs; lower, upper (R, n).
"""

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from models.verification.branch_and_bound import Budget, Progress, Query, SearchResult, branch_and_bound
from models.verification.derivative_query import DerivativeQuery, Slopes
from models.verification.falsification import SlopeFalsifier, SlopeQuery
from models.verification.graph import FloatArray, Graph
from models.verification.output_falsification import OutputFalsifier, OutputWitness
from models.verification.output_query import OutputQuery
from models.verification.unsafe_set import UnsafeSet
from models.verification.verdict import Status, Witness

OnProgress = Callable[[Progress], None] | None

# Numbers of one tensor of a round: large enough to use the machine, small enough for its caches.
ROUND_ELEMENTS = 1_000_000
SMALLEST_ROUND, LARGEST_ROUND = 16, 2048
# A first look bounds so many boxes at most, and does about so many multiplications: less than the search takes.
FIRST_LOOK, LOOK_PRODUCTS = 64, 1_000_000_000
SUSPECTS = 64


class _Clock:
    """The seconds of a budget, from now on."""

    def __init__(self, budget: Budget) -> None:
        self.budget, self.started = budget, time.monotonic()

    def spent(self) -> float:
        return time.monotonic() - self.started

    def over(self) -> bool:
        return self.spent() >= self.budget.seconds

    def left(self) -> Budget:
        """What is left of the budget; 0 seconds end a search before its first round."""
        return replace(self.budget, seconds=max(self.budget.seconds - self.spent(), 0.0))


def round_size(graph: Graph) -> int:
    """Boxes of one tensor operation for a network of this size."""
    elements = max(graph.widths, default=1) * (graph.inputs + 3)
    return int(np.clip(ROUND_ELEMENTS // elements, SMALLEST_ROUND, LARGEST_ROUND))


def prove_slopes(
    graph: Graph, slopes: Slopes, lower: FloatArray, upper: FloatArray, budget: Budget,
    points: FloatArray | None = None, seed: int = 0, on_progress: OnProgress = None, query: Query | None = None,
    accept: Callable[[Witness], bool] = lambda witness: True,
) -> tuple[SearchResult, tuple[Witness, ...]]:
    """Proves the slopes over the boxes, or finds pairs in the wrong order, most violated first.

    Args:
        points: starting points (m, n) for the counterexample search, for example training rows.
        query: bounds to search with, on the query's device; default: DerivativeQuery's on the CPU.
        accept: whether a witness counts (it must replay where the network will run).
    """
    clock = _Clock(budget)
    witnesses: list[Witness] = []
    if clock.over():
        return _timeout(budget), ()
    query = query or DerivativeQuery(graph, slopes)
    roots, tensors, rows = (_on(query, lower), _on(query, upper)), graph.tensors(), torch.as_tensor(slopes.rows)

    def wrong(points: Tensor) -> Tensor:
        """Which points (m, n) have a slope that must not be."""
        found = torch.zeros(len(points), dtype=torch.bool)
        for f, feature in enumerate(slopes.features):
            found |= tensors.gradient(points, rows[f])[:, feature] < -slopes.allowed[f]
        return found

    try:
        look = _look(query, *roots, graph, clock, lambda suspects, root: bool(wrong(suspects.cpu()).any()), on_progress)
        if look.status is Status.PROVED or look.interrupted:
            return look, ()
        orders = [_order(slopes, f) for f in range(len(slopes.features))]
        falsifier = SlopeFalsifier(graph, orders, float(slopes.allowed.max()), lower, upper)
        witnesses += (w for w in falsifier.search(points, seed=seed, over=clock.over) if accept(w))
    except KeyboardInterrupt:
        return _interrupted(), ()
    if witnesses:
        return _refuted(), tuple(witnesses)
    if clock.over():
        return _timeout(budget), ()
    searched, descended = clock.spent(), False

    def violating(suspects: Tensor, root: Tensor) -> bool:
        nonlocal descended
        found: tuple[Witness, ...] = ()
        suspects, root = suspects.cpu(), root.cpu()
        here = wrong(suspects)
        if here.any():
            found = falsifier.near(suspects[here][:SUSPECTS].numpy(), root[here][:SUSPECTS].numpy())
        if not found and not descended and clock.spent() > 2 * searched:
            descended, found = True, falsifier.descend(seed=seed, over=clock.over)
        witnesses.extend(witness for witness in found if accept(witness))
        return bool(witnesses)

    result = branch_and_bound(query, *roots, clock.left(), violating, on_progress, round_size(graph))
    return result, tuple(witnesses) if result.status is Status.REFUTED else ()


def _order(slopes: Slopes, f: int) -> SlopeQuery:
    (output,) = np.flatnonzero(slopes.rows[f])
    return SlopeQuery(slopes.features[f], int(np.sign(slopes.rows[f, output])), int(output))


def prove_outputs(
    graph: Graph, unsafe: UnsafeSet, budget: Budget, points: FloatArray | None = None, seed: int = 0,
    on_progress: OnProgress = None, accept: Callable[[OutputWitness], bool] = lambda witness: True,
    query: Query | None = None,
) -> tuple[SearchResult, OutputWitness | None]:
    """Proves that the outputs never enter the unsafe set, or finds an input for which they do.

    Args as of `prove_slopes`; query: bounds to search with; default: OutputQuery's.
    """
    clock = _Clock(budget)
    if clock.over():
        return _timeout(budget), None
    query = query or OutputQuery(graph, unsafe)
    roots = _on(query, unsafe.lower), _on(query, unsafe.upper)
    try:
        falsifier = OutputFalsifier(graph, unsafe)
        witness = falsifier.search(points, seed=seed, accept=accept, over=clock.over)
    except KeyboardInterrupt:
        return _interrupted(), None
    if witness is not None:
        return _refuted(), witness
    if clock.over():
        return _timeout(budget), None

    def violating(suspects: Tensor, root: Tensor) -> bool:
        nonlocal witness
        witness = falsifier.confirm(suspects.cpu(), root.cpu(), accept)
        return witness is not None

    result = branch_and_bound(query, *roots, clock.left(), violating, on_progress, round_size(graph))
    return result, witness if result.status is Status.REFUTED else None


def _look(query: Query, lower: Tensor, upper: Tensor, graph: Graph, clock: _Clock,
          suspicious: Callable[[Tensor, Tensor], bool], on_progress: OnProgress) -> SearchResult:
    """Branch and bound with few boxes, until a point looks like a violation: REFUTED then means no more than that."""
    products = sum(m.size for affine in graph.affines for m in affine.matrices.values()) * (2 * graph.inputs + 5)
    boxes = min(int(np.clip(LOOK_PRODUCTS // products, 1, FIRST_LOOK)), clock.budget.boxes)
    if len(lower) > FIRST_LOOK:
        return SearchResult(Status.UNKNOWN, "too many boxes for a first look", float("nan"), 0.0, 0)
    return branch_and_bound(query, lower, upper, replace(clock.left(), boxes=boxes), suspicious, on_progress)


def _on(query: Query, walls: FloatArray) -> Tensor:
    return torch.as_tensor(walls, device=query.device)


def _refuted() -> SearchResult:
    return SearchResult(Status.REFUTED, "a counterexample was found", float("nan"), 0.0, 0)


def _timeout(budget: Budget) -> SearchResult:
    return SearchResult(Status.TIMEOUT, f"time budget of {budget.seconds:g} s is spent before the proof began",
                        float("nan"), 0.0, 0)


def _interrupted() -> SearchResult:
    return SearchResult(Status.UNKNOWN, "interrupted before the proof began", float("nan"), 0.0, 0, interrupted=True)
