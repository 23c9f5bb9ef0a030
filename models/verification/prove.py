"""One kind of obligation at a time: falsification and proof of slopes, and of unsafe sets of outputs.

A quick look at the boxes as they are comes first (networks that are monotone by construction need no more), then the
search for counterexamples (milliseconds for ordinary networks), then branch and bound, during which every box's most
suspicious point is tried and, once the proof has taken as long as the first search, the slow, thorough descent. All of
it shares one budget of seconds; an interrupt (Ctrl-C) at any moment ends in UNKNOWN with `interrupted` set.

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
# Boxes up to which a first look at all of them is cheap.
FIRST_LOOK = 64
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
    roots = _on(query, lower), _on(query, upper)
    try:
        if len(lower) <= FIRST_LOOK:
            look = branch_and_bound(query, *roots, replace(budget, boxes=1), lambda suspects, root: False)
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
    tensors = graph.tensors()
    rows = torch.as_tensor(slopes.rows)

    def violating(suspects: Tensor, root: Tensor) -> bool:
        nonlocal descended
        found: tuple[Witness, ...] = ()
        suspects, root = suspects.cpu(), root.cpu()
        wrong = torch.zeros(len(suspects), dtype=torch.bool)
        for f, feature in enumerate(slopes.features):
            wrong |= tensors.gradient(suspects, rows[f])[:, feature] < -slopes.allowed[f]
        if wrong.any():
            found = falsifier.near(suspects[wrong][:SUSPECTS].numpy(), root[wrong][:SUSPECTS].numpy())
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

    query = query or OutputQuery(graph, unsafe)
    result = branch_and_bound(query, _on(query, unsafe.lower), _on(query, unsafe.upper), clock.left(), violating,
                              on_progress, round_size(graph))
    return result, witness if result.status is Status.REFUTED else None


def _on(query: Query, walls: FloatArray) -> Tensor:
    return torch.as_tensor(walls, device=query.device)


def _refuted() -> SearchResult:
    return SearchResult(Status.REFUTED, "a counterexample was found", float("nan"), 0.0, 0)


def _timeout(budget: Budget) -> SearchResult:
    return SearchResult(Status.TIMEOUT, f"time budget of {budget.seconds:g} s is spent before the proof began",
                        float("nan"), 0.0, 0)


def _interrupted() -> SearchResult:
    return SearchResult(Status.UNKNOWN, "interrupted before the proof began", float("nan"), 0.0, 0, interrupted=True)
