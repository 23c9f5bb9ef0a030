"""One budget for falsification and proof, and an end in good order whenever the user interrupts."""

import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from models.verification.attack.falsification import Effort, SlopeFalsifier
from models.verification.attack.output_falsification import OutputFalsifier, OutputWitness
from models.verification.language.unsafe_set import UnsafeSet
from models.verification.network.graph import Affine, Graph, Layer, dense_graph
from models.verification.obligations.slopes import Slopes
from models.verification.search import prove
from models.verification.search.branch_and_bound import Budget, Progress, SearchResult
from models.verification.search.derivative_query import DerivativeQuery
from models.verification.search.output_query import OutputQuery
from models.verification.search.prove import prove_outputs, prove_slopes
from models.verification.verdict import Status, Witness

ROW = np.ones((1, 1))


def hard_graph() -> Graph:
    """Eight inputs, 3 x 40 neurons: no verdict within seconds on slopes up to 1 and outputs down to -0.5."""
    rng, sizes = np.random.default_rng(0), (8, 40, 40, 40, 1)
    weights = [rng.normal(size=(after, before)) / before**0.5 for before, after in pairwise(sizes)]
    return dense_graph(weights, [rng.normal(size=size) * 0.1 for size in sizes[1:]])


def slopes(graph: Graph, budget: Budget = Budget(), allowed: float = 1.0, **options: Any) -> tuple[SearchResult, Any]:
    walls = np.full((1, graph.inputs), -1.0), np.ones((1, graph.inputs))
    return prove_slopes(graph, Slopes((0,), ROW, np.full(1, allowed)), *walls, budget, **options)


def outputs(graph: Graph, budget: Budget = Budget(), limit: float = 0.5, **options: Any) -> tuple[SearchResult, Any]:
    walls = np.full((1, graph.inputs), -1.0), np.ones((1, graph.inputs))
    unsafe = UnsafeSet(*walls, np.ones((1, 1, 1, 1)), np.full((1, 1, 1), -limit))
    return prove_outputs(graph, unsafe, budget, **options)


both = pytest.mark.parametrize("of", [slopes, outputs], ids=["slopes", "outputs"])
# the search that comes before the proof
SEARCHES: dict[Callable[..., Any], tuple[type, str]] = {
    slopes: (SlopeFalsifier, "descend"), outputs: (OutputFalsifier, "search")}


@both
def test_what_is_simple_is_decided(of) -> None:
    line = dense_graph([ROW, -ROW], [np.full(1, 2.0), np.zeros(1)])  # y = -2 - x
    result, found = of(line, allowed=1.1) if of is slopes else of(line)
    assert result.status is Status.PROVED and not found and not result.interrupted
    result, found = of(line, allowed=0.5) if of is slopes else of(line, limit=-1.5)
    assert result.status is Status.REFUTED and found


# --- time --------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("seconds", [0.0, -1.0, 1e-12])
def test_where_no_time_is_left_nothing_is_begun(of, seconds, monkeypatch) -> None:
    def never(*arguments: Any, **options: Any) -> None:
        raise AssertionError("begun")

    monkeypatch.setattr(*SEARCHES[of], never)
    monkeypatch.setattr(prove, "branch_and_bound", never)
    result, found = of(hard_graph(), Budget(seconds=seconds))
    assert result.status is Status.TIMEOUT and "is spent before the proof began" in result.reason
    assert not found and result.boxes == 0 and np.isnan(result.lower_bound)


@both
def test_a_search_that_takes_all_the_time_ends_in_timeout(of, monkeypatch) -> None:
    rounds: list[bool] = []

    def slow(self: Any, *arguments: Any, over: Callable[[], bool], **options: Any) -> Any:
        while not over():
            rounds.append(True)
            time.sleep(0.01)
        return () if of is slopes else None

    monkeypatch.setattr(*SEARCHES[of], slow)
    began = time.monotonic()
    result, _ = of(hard_graph(), Budget(seconds=0.2))
    assert result.status is Status.TIMEOUT and rounds and 0.2 <= time.monotonic() - began < 2


@both
def test_the_time_of_the_search_is_taken_from_that_of_the_proof(of, monkeypatch) -> None:
    budgets: list[Budget] = []
    real = prove.branch_and_bound

    def noted(query: Any, lower: Any, upper: Any, budget: Budget, *more: Any) -> SearchResult:
        budgets.append(budget)
        return real(query, lower, upper, budget, *more)

    monkeypatch.setattr(prove, "branch_and_bound", noted)
    search = getattr(*SEARCHES[of])
    monkeypatch.setattr(*SEARCHES[of],
                        lambda *arguments, **options: time.sleep(0.1) or search(*arguments, **options))
    result, _ = of(hard_graph(), Budget(seconds=3.0))
    assert result.status is Status.TIMEOUT and 0 < budgets[-1].seconds <= 2.9


def test_the_descent_is_repeated_with_more_effort_and_stops_with_the_time(monkeypatch) -> None:
    taken: list[float] = []
    efforts: list[Effort] = []
    descend = SlopeFalsifier.descend

    def timed(self: SlopeFalsifier, effort: Effort, *arguments: Any, **options: Any) -> Any:
        began = time.monotonic()
        efforts.append(effort)
        found = descend(self, effort if len(efforts) < 4 else replace(effort, steps=10**6), *arguments, **options)
        taken.append(time.monotonic() - began)
        return found

    searched: list[int] = []
    monkeypatch.setattr(SlopeFalsifier, "search", lambda *arguments, **options: searched.append(len(efforts)) or ())
    monkeypatch.setattr(SlopeFalsifier, "near", lambda self, *arguments: ())
    monkeypatch.setattr(SlopeFalsifier, "descend", timed)
    monkeypatch.setattr(prove, "ATTACK_SHARE", 0.0)  # in every round
    result, _ = slopes(hard_graph(), Budget(seconds=4), allowed=0.3)
    assert result.status is Status.TIMEOUT and len(efforts) == 4 and 0.1 < max(taken) < 5
    assert all(a.climbers < b.climbers and a.samples < b.samples for a, b in pairwise(efforts))
    assert searched == [3]  # pairs are searched for once


def test_as_many_witnesses_as_are_wanted_are_sought() -> None:
    def accept(witness: Witness) -> bool:
        asked.append(witness)
        return True

    counts = []
    for wanted in (1, 64):
        asked: list[Witness] = []
        result, found = slopes(hard_graph(), allowed=0.01, accept=accept, wanted=wanted)
        assert result.status is Status.REFUTED and 0 < len(found) <= wanted
        assert [w.excess for w in found] == sorted((w.excess for w in found), reverse=True)
        counts.append(len(asked))
    assert counts[0] < counts[1]
    points = np.full((1, 8), 0.5)
    _, few = slopes(hard_graph(), allowed=0.01, points=points, wanted=64)
    assert len(few) > 1


# --- interrupts --------------------------------------------------------------------------------------------


def interrupt(*arguments: Any, **options: Any) -> None:
    raise KeyboardInterrupt


@both
def test_an_interrupt_during_the_search_for_counterexamples_is_unknown(of, monkeypatch) -> None:
    monkeypatch.setattr(*SEARCHES[of], interrupt)
    result, found = of(hard_graph())
    assert result.status is Status.UNKNOWN and result.interrupted and "interrupted" in result.reason and not found


def test_an_interrupt_after_a_witness_keeps_it(monkeypatch) -> None:
    monkeypatch.setattr(SlopeFalsifier, "search", interrupt)
    result, found = slopes(hard_graph(), allowed=0.0)
    assert result.status is Status.REFUTED and result.interrupted and found


def test_an_interrupt_during_the_first_bound_is_unknown(monkeypatch) -> None:
    monkeypatch.setattr(prove.DerivativeQuery, "bound", interrupt)
    result, found = slopes(hard_graph())
    assert result.status is Status.UNKNOWN and result.interrupted and not found


@both
def test_an_interrupt_during_the_replay_of_a_witness_is_unknown(of) -> None:
    result, found = of(hard_graph(), accept=interrupt, **({"allowed": 0.0} if of is slopes else {"limit": -9.0}))
    assert result.status is Status.UNKNOWN and result.interrupted and not found


@both
def test_an_interrupt_during_the_proof_is_unknown(of) -> None:
    seen: list[Progress] = []

    def stop(state: Progress) -> None:
        seen.append(state)
        if len(seen) == 2:
            raise KeyboardInterrupt

    result, found = of(hard_graph(), Budget(seconds=30.0), on_progress=stop)
    assert result.status is Status.UNKNOWN and result.interrupted and result.boxes > 0 and not found


# --- what is accepted --------------------------------------------------------------------------------------


def test_a_witness_that_does_not_replay_does_not_hide_the_next_one() -> None:
    offered: list[OutputWitness] = []

    def second(witness: OutputWitness) -> bool:
        offered.append(witness)
        return len(offered) == 2

    result, found = outputs(hard_graph(), limit=0.0, accept=second)
    assert result.status is Status.REFUTED and found is offered[1]
    assert offered[0].violation >= offered[1].violation and offered[0].x.tolist() != offered[1].x.tolist()


# --- on another device -------------------------------------------------------------------------------------

on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")


@on_a_gpu
@pytest.mark.parametrize("allowed", [0.05, 8.0])
def test_slopes_are_decided_on_a_gpu_as_on_the_cpu(allowed: float) -> None:
    graph = hard_graph()
    claim = Slopes((0,), ROW, np.full(1, allowed))
    budget = Budget(seconds=20)
    here, _ = slopes(graph, budget, allowed)
    there, _ = slopes(graph, budget, allowed, query=DerivativeQuery(graph, claim, "cuda"))
    assert there.status is here.status is not Status.UNKNOWN
    assert (there.tree is None) == (here.tree is None)


@on_a_gpu
@pytest.mark.parametrize("limit", [0.1, 20.0])
def test_outputs_are_decided_on_a_gpu_as_on_the_cpu(limit: float) -> None:
    graph = hard_graph()
    walls = np.full((1, graph.inputs), -1.0), np.ones((1, graph.inputs))
    unsafe = UnsafeSet(*walls, np.ones((1, 1, 1, 1)), np.full((1, 1, 1), -limit))
    here, _ = outputs(graph, Budget(seconds=20), limit)
    there, _ = prove_outputs(graph, unsafe, Budget(seconds=20), query=OutputQuery(graph, unsafe, "cuda"))
    assert there.status is here.status is not Status.UNKNOWN


@pytest.mark.parametrize("eps", [0.0, 1e-4, 0.05, 0.3])
def test_splits_follow_every_row_of_a_conjunction_not_the_nearest_alone(eps: float) -> None:
    """Unsafe: |x1| <= eps and f(x0) >= 0.25, f a saw of 16 teeth between 0 and 0.2. Only x0 has to be split, and the
    row that is nearest to its proof knows nothing of it."""
    ends, slopes = np.linspace(-1, 1, 17)[:-1], np.where(np.arange(16) % 2 == 0, 1.6, -1.6)
    hidden, offset, out = np.zeros((18, 2)), np.zeros(18), np.zeros((2, 18))
    hidden[:16, 0], offset[:16], hidden[16:, 1] = 1, -ends, (1, -1)
    out[0, 16:], out[1, :16] = -1, np.diff(np.concatenate([[0], slopes]))
    graph = Graph(2, (Layer(Affine({0: hidden}, offset), "relu", 0.0),), Affine({1: out}, np.array([0.0, -0.25])))
    unsafe = UnsafeSet(np.full((1, 2), -1.0), np.ones((1, 2)), np.eye(2)[None, None], np.array([[[eps, 0.0]]]))
    result, witness = prove_outputs(graph, unsafe, Budget(seconds=30.0, boxes=2000))
    assert (result.status, witness) == (Status.PROVED, None)


def test_where_rounding_keeps_boxes_from_a_proof_attacks_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    found = OutputFalsifier.search

    def search(self: OutputFalsifier, points: Any, samples: int = 2000, *more: Any, **named: Any) -> Any:
        asked.append(samples)
        return found(self, points, samples, *more, **named) if len(asked) == 4 else None

    monkeypatch.setattr(OutputFalsifier, "search", search)
    monkeypatch.setattr(prove, "branch_and_bound", lambda *arguments: SearchResult(
        Status.UNKNOWN, "rounding leaves a box", -1.0, 0.5, 3, aside=1))
    unsafe = UnsafeSet(np.zeros((1, 1)), np.ones((1, 1)), np.ones((1, 1, 1, 1)), np.zeros((1, 1, 1)))
    graph = Graph(1, (), Affine({0: np.ones((1, 1))}, np.zeros(1)))
    result, witness = prove_outputs(graph, unsafe, Budget(seconds=30.0))
    assert result.status is Status.REFUTED and witness is not None
    assert asked == [2000, 4000, 8000, 16000]
