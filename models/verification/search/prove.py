"""One kind of obligation at a time: falsification and proof of slopes, and of unsafe sets of outputs.

Of slopes, the cheapest comes first: the slopes at a few random points; then branch and bound, during which every box's
most suspicious points are tried. After a few boxes, which are all that networks need that are monotone by construction
or trained to be proved, or at once where the bounds are far from a proof, a quick descent on the slopes comes between,
and is repeated with more effort whenever the proof has taken ATTACK_SHARE times as long as all attacks so far. (Of
outputs, boxes before the attack took longer than they saved.) Where only boxes are left that rounding keeps from a
proof, the time that is left goes to attacks, up to LAST_ATTACKS. All of it shares one budget of seconds; an interrupt
(Ctrl-C) at any moment ends in UNKNOWN with `interrupted` set.

Symbols: R boxes, n inputs; lower, upper (R, n).
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from models.verification.attack.falsification import REPLAY_MARGIN, SUSPECTS, Effort, SlopeFalsifier, SlopeQuery
from models.verification.attack.output_falsification import OutputFalsifier
from models.verification.attack.output_witness import OutputWitness
from models.verification.language.unsafe_set import UnsafeSet
from models.verification.network.graph import FloatArray, Graph
from models.verification.network.graph_tensors import GraphTensors
from models.verification.obligations.slopes import Slopes
from models.verification.search.branch_and_bound import Budget, Progress, Query, SearchResult, branch_and_bound
from models.verification.search.derivative_query import DerivativeQuery
from models.verification.search.output_query import OutputQuery
from models.verification.verdict import Status, Witness

OnProgress = Callable[[Progress], None] | None

# Numbers of one tensor of a round: large enough to use the machine, small enough for its caches. Outputs are bounded by
# more passes over less each.
SLOPE_ELEMENTS, OUTPUT_ELEMENTS = 250_000, 1_000_000
SMALLEST_ROUND, LARGEST_ROUND = 16, 2048
# So many boxes stay open at most, after about so many multiplications, before the first descent: it takes longer.
FIRST_BOXES, FIRST_PRODUCTS = 64, 1_000_000_000
# Witnesses that are sought of a network that is refuted.
WITNESSES = 64
# The quick descent, the largest one, and how many times as long as all descents the proof takes until the next one.
QUICK, MOST, ATTACK_SHARE = Effort(256, 16, 30), Effort(16384, 1024, 90), 8.0
# A bound so many times the mean size of the slopes below 0 is far from a proof. (Measured on the networks of
# benchmarks/verification/networks.py: at most 0.2 times where a proof was found, at least 7 where there is none.)
FAR = 2.0
# While only boxes are left that rounding keeps from a proof: attacks at most, each of twice the effort of the one
# before, of outputs from so many points.
LAST_ATTACKS, FIRST_SAMPLES = 6, 2000


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


def round_size(graph: Graph, elements: int = SLOPE_ELEMENTS) -> int:
    """Boxes of one tensor operation for a network of this size."""
    of_box = max(graph.widths, default=1) * (graph.inputs + 3)
    return int(np.clip(elements // of_box, SMALLEST_ROUND, LARGEST_ROUND))


def prove_slopes(
    graph: Graph, slopes: Slopes, lower: FloatArray, upper: FloatArray, budget: Budget,
    points: FloatArray | None = None, seed: int = 0, on_progress: OnProgress = None, query: Query | None = None,
    accept: Callable[[Witness], bool] | None = None, wanted: int = WITNESSES,
    proved: tuple[FloatArray, FloatArray] | None = None,
) -> tuple[SearchResult, tuple[Witness, ...]]:
    """Proves the slopes over the boxes, or finds pairs in the wrong order, most violated first.

    Args:
        points: starting points (m, n) for the counterexample search, for example training rows.
        query: bounds to search with, on the query's device; default: DerivativeQuery's on the CPU.
        accept: whether a witness counts (it must replay where the network will run); None: every one that exceeds
            what the tolerance allows by a margin for float32's rounding.
        wanted: witnesses sought once there is one, at most; 1: the first one ends the search, however small its fall.
        proved: walls of larger boxes (fed_numbers.py) that are proved, while witnesses are sought in the given ones.
    """
    clock = _Clock(budget)
    if clock.over():
        return _timeout(budget), ()
    query = query or DerivativeQuery(graph, slopes)
    low, high = (_on(query, walls) for walls in proved or (lower, upper))
    try:
        attack = _Attack(graph, slopes, lower, upper, points, seed, accept, clock)

        def search(hope: float) -> SearchResult:
            return branch_and_bound(query, low, high, replace(clock.left(), hope=hope), attack.near_or_again,
                                    on_progress, round_size(graph))

        found = attack.glance() or (len(lower) > attack.few and attack.again())
        result = _refuted() if found else search(hope=-FAR * attack.scale)
        if result.hopeless:
            result = _refuted() if attack.again() or attack.again() else search(hope=-math.inf)
        for _ in range(LAST_ATTACKS):
            if result.aside and not clock.over() and attack.again():
                result = _refuted()
    except KeyboardInterrupt:
        return _interrupted(), ()
    if result.status is not Status.REFUTED:
        return result, ()
    try:
        attack.more(wanted)
    except KeyboardInterrupt:
        result = replace(result, interrupted=True)
    return result, tuple(attack.witnesses[:wanted])


class _Attack:
    """The searches for a counterexample of slopes, each more thorough than the one before; witnesses: those found."""

    def __init__(self, graph: Graph, slopes: Slopes, lower: FloatArray, upper: FloatArray, points: FloatArray | None,
                 seed: int, accept: Callable[[Witness], bool] | None, clock: _Clock) -> None:
        self.points, self.seed, self.accept, self.clock = points, seed, accept, clock
        queries = [_order(slopes, f) for f in range(len(slopes.features))]
        self.falsifier = SlopeFalsifier(graph, queries, slopes.allowed, lower, upper,
                                        REPLAY_MARGIN if accept is None else 0.0)
        self.witnesses: list[Witness] = []
        self.slopes, self.rows, self.allowed = slopes, torch.as_tensor(slopes.rows), torch.as_tensor(slopes.allowed)
        self.tensors, self.scale, self.seconds, self.effort, self.descents = GraphTensors(graph), 0.0, 0.0, QUICK, 0
        products = sum(m.size for affine in graph.affines for m in affine.matrices.values()) * (2 * graph.inputs + 5)
        self.few, self.met = int(np.clip(FIRST_PRODUCTS // products, 1, FIRST_BOXES)), 0

    def glance(self) -> bool:
        """Looks at a few random points."""
        found, self.scale = self.falsifier.glance(seed=self.seed)
        return self._take(found)

    def near(self, suspects: Tensor, root: Tensor) -> bool:
        """Looks around the suspects (m, n) of boxes (m,) with the worst slopes."""
        suspects, root = suspects.cpu(), root.cpu()
        self.met += len(suspects)
        excess = self.tensors.slopes(suspects, self.slopes.features, self.rows) + self.allowed
        worst, which = excess.min(dim=1)
        wrong = torch.where(worst < 0, worst, torch.inf).argsort()[: min(SUSPECTS, int((worst < 0).sum()))]
        return bool(len(wrong)) and self._take(self.falsifier.near(
            suspects[wrong].numpy(), which[wrong].numpy(), root[wrong].numpy()))

    def near_or_again(self, suspects: Tensor, root: Tensor) -> bool:
        """Looks around the suspects and, when it is time, everywhere."""
        return self.near(suspects, root) or (
            self.met > self.few and self.clock.spent() > (1 + ATTACK_SHARE) * self.seconds and self.again())

    def again(self) -> bool:
        """Descends from random points, every time from more; the third time pairs are searched for as well."""
        began, effort = self.clock.spent(), self.effort
        found = self._take(self.falsifier.descend(effort, self.seed, over=self.clock.over))
        if self.descents == 2 and not found:
            found = self._take(self.falsifier.search(self.points, seed=self.seed, over=self.clock.over))
        self.effort = Effort(min(2 * effort.samples, MOST.samples), min(2 * effort.climbers, MOST.climbers),
                             min(effort.steps + 10, MOST.steps))
        self.descents, self.seed = self.descents + 1, self.seed + 1
        self.seconds += self.clock.spent() - began
        return found

    def more(self, wanted: int) -> None:
        """Searches for `wanted` witnesses in all, also around those that there are; most violated first."""
        if len(self.witnesses) >= wanted:
            return
        known = np.array([side for witness in self.witnesses for side in (witness.low, witness.high)])
        points = known if self.points is None else np.concatenate([known, self.points])
        self._take(self.falsifier.search(points, wanted, seed=self.seed, over=self.clock.over))
        self.witnesses.sort(key=lambda witness: -witness.excess)

    def _take(self, found: Sequence[Witness]) -> bool:
        accepted = [witness for witness in found if self.accept is None or self.accept(witness)]
        self.witnesses += accepted
        return bool(accepted)


def _order(slopes: Slopes, f: int) -> SlopeQuery:
    (output,) = np.flatnonzero(slopes.rows[f])
    return SlopeQuery(slopes.features[f], int(np.sign(slopes.rows[f, output])), int(output))


def prove_outputs(
    graph: Graph, unsafe: UnsafeSet, budget: Budget, points: FloatArray | None = None, seed: int = 0,
    on_progress: OnProgress = None, accept: Callable[[OutputWitness], bool] = lambda witness: True,
    query: Query | None = None, proved: tuple[FloatArray, FloatArray] | None = None,
) -> tuple[SearchResult, OutputWitness | None]:
    """Proves that the outputs never enter the unsafe set, or finds an input for which they do.

    Args as of `prove_slopes`; query: bounds to search with; default: OutputQuery's.
    """
    clock = _Clock(budget)
    if clock.over():
        return _timeout(budget), None
    query = query or OutputQuery(graph, unsafe)
    low, high = (_on(query, walls) for walls in proved or (unsafe.lower, unsafe.upper))
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

    result = branch_and_bound(query, low, high, clock.left(), violating, on_progress,
                              round_size(graph, OUTPUT_ELEMENTS))
    try:
        for number in range(1, LAST_ATTACKS + 1):
            if result.aside and not clock.over():
                witness = falsifier.search(points, FIRST_SAMPLES * 2**number, seed + number, accept, clock.over)
                result = result if witness is None else _refuted()
    except KeyboardInterrupt:
        result = replace(result, interrupted=True)
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
