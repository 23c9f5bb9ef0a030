"""The search: its trees cover the box, its budgets end it, and its verdicts agree with exact enumeration (cells.py)."""

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from models.verification.language.unsafe_set import UnsafeSet
from models.verification.obligations.slopes import Slopes
from models.verification.search.branch_and_bound import Budget, Margins, Progress, SearchResult, branch_and_bound
from models.verification.search.derivative_query import DerivativeQuery
from models.verification.search.output_query import OutputQuery
from models.verification.verdict import BoxTree, Status
from tests.models.verification.cells import cells, is_reached, least_slope
from tests.models.verification.graphs import random_graph

ENOUGH = Budget(seconds=20.0, boxes=50_000)
Walls = list[tuple[list[float], list[float]]]


class Sizes:
    """A query that proves boxes whose sides are at most `widest`; counts calls by type and batch."""

    def __init__(self, widest: float, charge: float = 0.0, tallest: int = 10**9,
                 error: Callable[[], BaseException] | None = None) -> None:
        self.widest, self.charge, self.tallest, self.error = widest, charge, tallest, error
        self.calls: list[tuple[int, torch.dtype]] = []
        self.proved: Walls = []

    def bound(self, lower: Tensor, upper: Tensor, root: Tensor, dtype: torch.dtype) -> Margins:
        if self.error is not None and len(lower) > self.tallest:
            raise self.error()
        self.calls.append((len(lower), dtype))
        charge = self.charge if dtype == torch.float32 else 0.0
        margin = self.widest - (upper - lower).amax(1) - charge
        self.proved += [(a.tolist(), b.tolist()) for a, b, m in zip(lower, upper, margin, strict=True) if m >= 0]
        return Margins(margin, margin >= 0, torch.full_like(margin, charge), upper - lower, (lower + upper) / 2)


def search(query, lower, upper, budget: Budget = ENOUGH, violating=lambda suspects, root: False, on_progress=None,
           batch: int = 256) -> SearchResult:
    walls = (torch.as_tensor(np.atleast_2d(np.asarray(wall, dtype=np.float64))) for wall in (lower, upper))
    return branch_and_bound(query, *walls, budget, violating, on_progress, batch)


def leaves(tree: BoxTree, lower, upper) -> Walls:
    """The leaves of all roots, read in preorder."""
    nodes = iter(zip(tree.split_dimension.tolist(), tree.split_value.tolist(), strict=True))

    def below(low: list[float], high: list[float]) -> Walls:
        dimension, value = next(nodes)
        if dimension < 0:
            return [(low, high)]
        assert low[dimension] <= value <= high[dimension]
        left, right = list(high), list(low)
        left[dimension] = right[dimension] = value
        return below(low, left) + below(right, high)

    found = [leaf for low, high in zip(lower, upper, strict=True) for leaf in below(list(low), list(high))]
    assert next(nodes, None) is None
    return found


# --- trees and shares --------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 3, 256])
def test_the_tree_in_preorder_has_exactly_the_proved_boxes_of_all_roots(batch) -> None:
    lower, upper = [[0.0, 0.0], [5.0, -1.0], [2.0, 2.0]], [[1.0, 2.0], [5.5, 0.0], [2.0, 2.0]]
    query = Sizes(0.3)
    result = search(query, lower, upper, batch=batch)
    assert result.status is Status.PROVED and result.tree is not None
    found = leaves(result.tree, lower, upper)
    assert sorted(found) == sorted(query.proved)
    assert len(found) == result.tree.leaves <= result.boxes <= 2 * len(found) - 3
    assert f"{len(found)} proved boxes" in result.reason
    area = sum(float(np.prod(np.subtract(high, low))) for low, high in found)
    assert area == pytest.approx(2.0 + 0.5)
    assert result.proved_share == pytest.approx(1.0)


def test_progress_is_monotone_and_ends_at_the_whole() -> None:
    states: list[Progress] = []
    result = search(Sizes(0.1), [[0.0, 0.0]], [[1.0, 1.0]], on_progress=states.append, batch=7)
    assert result.status is Status.PROVED
    shares, seconds = [state.proved_share for state in states], [state.seconds for state in states]
    assert shares == sorted(shares) and seconds == sorted(seconds)
    assert shares[-1] == pytest.approx(1.0) and states[-1].open_boxes == 0 and states[0].open_boxes == 4
    assert states[-1].worst_bound == result.lower_bound == pytest.approx(-0.9)


def test_the_parts_of_few_boxes_are_split_again_until_they_fill_a_round() -> None:
    query = Sizes(0.3)
    assert search(query, [[0.0, 0.0]], [[1.0, 2.0]]).status is Status.PROVED
    assert [count for count, _ in query.calls[:2]] == [1, 8]
    sides = {tuple(np.subtract(high, low)) for low, high in query.proved}
    assert sides == {(0.25, 0.25)}  # the wider input first, then in turn


def test_a_box_is_split_where_the_query_says() -> None:
    class OffTheMiddle(Sizes):
        """Proves what lies right of 0.2, and has boxes cut there."""

        def bound(self, lower: Tensor, upper: Tensor, root: Tensor, dtype: torch.dtype) -> Margins:
            found = super().bound(lower, upper, root, dtype)
            proved = (lower[:, 0] >= 0.2) | found.proved
            share = ((0.2 - lower) / (upper - lower)).clamp(0.1, 0.9)
            return Margins(torch.where(proved, 1.0, -1.0), proved, found.charge, found.split_score, found.suspect,
                           share)

    states: list[Progress] = []
    result = search(OffTheMiddle(0.25), [[0.0]], [[1.0]], batch=1, on_progress=states.append)
    assert result.status is Status.PROVED and result.tree is not None
    assert [leaf for leaf, _ in leaves(result.tree, [[0.0]], [[1.0]])] == [[0.0], [0.2]]
    assert sorted(round(state.proved_share, 6) for state in states)[-1] == 1.0
    assert {round(state.proved_share, 6) for state in states} <= {0.0, 0.2, 0.8, 1.0}


def test_inputs_without_width_are_never_split() -> None:
    result = search(Sizes(0.1), [[0.0, 3.0, 0.0]], [[1.0, 3.0, 1e-3]])
    assert result.tree is not None and set(result.tree.split_dimension.tolist()) == {-1, 0}


# --- how it ends -------------------------------------------------------------------------------------------


def test_a_budget_of_boxes_ends_it_with_what_was_proved() -> None:
    result = search(Sizes(0.3), [[0.0, 0.0], [0.0, 0.0]], [[1.0, 1.0], [0.2, 0.2]], Budget(boxes=5), batch=2)
    assert result.status is Status.UNKNOWN and "budget of 5 boxes is spent" in result.reason and result.tree is None
    assert 5 <= result.boxes <= 6 and result.proved_share >= 0.5


def test_a_budget_of_seconds_ends_it() -> None:
    result = search(Sizes(1e-9), [[0.0]], [[1.0]], Budget(seconds=0.05))
    assert result.status is Status.TIMEOUT and "0.05 s is spent" in result.reason and result.tree is None


def test_an_interrupt_is_unknown_with_what_was_proved() -> None:
    seen: list[float] = []

    def stop(state: Progress) -> None:
        seen.append(state.proved_share)
        if state.proved_share >= 0.5:
            raise KeyboardInterrupt

    result = search(Sizes(0.3), [[0.0], [5.0]], [[0.2], [6.0]], on_progress=stop, batch=1)
    assert result.status is Status.UNKNOWN and "interrupted" in result.reason and result.tree is None
    assert result.interrupted and not search(Sizes(0.3), [[0.0]], [[1.0]]).interrupted
    assert result.proved_share == pytest.approx(seen[-1]) and result.proved_share >= 0.5


def test_a_counterexample_ends_it_at_once() -> None:
    calls = []

    def violating(suspects: Tensor, root: Tensor) -> bool:
        calls.append((suspects.clone(), root.clone()))
        return len(calls) == 2

    result = search(Sizes(0.3), [[0.0], [5.0]], [[1.0], [6.0]], violating=violating, batch=2)
    assert result.status is Status.REFUTED and result.tree is None
    assert calls[0][1].tolist() == [0, 1]
    assert all(0 <= x <= 1 if r == 0 else 5 <= x <= 6 for x, r in zip(calls[1][0][:, 0], calls[1][1], strict=True))


@pytest.mark.parametrize("error", [
    lambda: RuntimeError("[enforce fail] DefaultCPUAllocator: not enough memory: you tried to allocate 9 bytes"),
    lambda: RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), MemoryError, torch.OutOfMemoryError],
    ids=["cpu", "cuda", "python", "torch"])
def test_where_memory_does_not_suffice_the_batch_is_halved(error) -> None:
    query = Sizes(0.02, tallest=3, error=error)
    result = search(query, [[0.0]], [[1.0]], batch=64)
    assert result.status is Status.PROVED and result.tree is not None
    assert max(count for count, _ in query.calls) <= 3
    assert len(leaves(result.tree, [[0.0]], [[1.0]])) == len(query.proved)


def test_memory_that_does_not_suffice_for_one_box_and_other_errors_are_raised() -> None:
    with pytest.raises(RuntimeError, match="out of memory"):
        search(Sizes(0.1, tallest=0, error=lambda: RuntimeError("out of memory")), [[0.0]], [[1.0]])
    with pytest.raises(RuntimeError, match="shapes"):
        search(Sizes(0.1, tallest=0, error=lambda: RuntimeError("shapes")), [[0.0]], [[1.0]])


def test_a_box_that_shrinks_to_a_point_is_unknown() -> None:
    result = search(Sizes(0.0), [[0.0]], [[1e-9]])
    assert result.status is Status.UNKNOWN and result.aside > 0
    assert "without a proof or a witness" in result.reason


class Rounded:
    """A query over [0, 1] that proves boxes of at most 1/64. Of those of at most 1/8 that touch a third rounding takes
    more than what is missing. Suspects are centres."""

    def bound(self, lower: Tensor, upper: Tensor, root: Tensor, dtype: torch.dtype) -> Margins:
        touches = ((lower <= 1 / 3) & (upper >= 1 / 3)).any(1)
        width = (upper - lower).amax(1)
        margin = torch.where(touches & (width <= 1 / 8), -1e-17, 1 / 64 - width)
        return Margins(margin, margin >= 0, torch.full_like(margin, 1e-16), upper - lower, (lower + upper) / 2)


@pytest.mark.parametrize("batch", [1, 256])
def test_a_box_that_rounding_leaves_is_put_aside_and_the_others_are_searched(batch) -> None:
    asked: list[float] = []

    def violating(suspects: Tensor, root: Tensor) -> bool:
        asked.extend(suspects[:, 0].tolist())
        return any(0.734 < one < 0.735 for one in asked)  # of a box of 1/32

    found = search(Rounded(), [[0.0]], [[1.0]], violating=violating, batch=batch)
    assert found.status is Status.REFUTED
    unproved = search(Rounded(), [[0.0]], [[1.0]], batch=batch)
    assert (unproved.status, unproved.aside, unproved.tree) == (Status.UNKNOWN, 1, None)
    assert unproved.reason == "rounding leaves a box without a proof or a witness"
    assert 0.8 < unproved.proved_share < 1


def test_two_neighbouring_floats_are_not_split_for_ever() -> None:
    wall = 1e10
    query = Sizes(0.0)  # proves the point, never the pair
    result = search(query, [[wall]], [[float(np.nextafter(wall, np.inf))]], Budget(seconds=1.0, boxes=500))
    assert result.status is Status.UNKNOWN and result.aside > 0
    assert "without a proof or a witness" in result.reason


@pytest.mark.parametrize("scale", [1.0, 1e6, 1e12, 1e300])
def test_how_far_boxes_are_split_goes_by_the_size_of_their_walls(scale) -> None:
    for share, status in ((1e-10, Status.PROVED), (1e-13, Status.UNKNOWN)):
        wall, upper = scale, scale * (1 + 8 * share)
        result = search(Sizes(1.5 * scale * share), [[wall]], [[upper]], Budget(seconds=20.0, boxes=500))
        assert result.status is status
    assert search(Sizes(2e-11), [[0.0]], [[1e-10]]).status is Status.PROVED  # near zero absolutely


def test_only_sides_that_may_be_split_are() -> None:
    class Second(Sizes):
        """Proves what is small in the second input, and recommends the first."""

        def bound(self, lower: Tensor, upper: Tensor, root: Tensor, dtype: torch.dtype) -> Margins:
            found = super().bound(lower[:, 1:], upper[:, 1:], root, dtype)
            return Margins(found.margin, found.proved, found.charge, torch.tensor([[1e9, 1.0]]).expand(len(lower), 2),
                           (lower + upper) / 2)

    result = search(Second(0.3), [[1e10, 0.0]], [[float(np.nextafter(1e10, np.inf)), 1.0]], Budget(boxes=500))
    assert result.status is Status.PROVED and result.tree is not None
    assert set(result.tree.split_dimension.tolist()) == {-1, 1}


def test_bounds_that_are_nan_are_no_proof_and_leave_no_bound() -> None:
    class Nothing(Sizes):
        def bound(self, *arguments) -> Margins:
            found = super().bound(*arguments)
            nan = torch.full_like(found.margin, torch.nan)
            return Margins(nan, nan > 0, nan, found.split_score, found.suspect)

    result = search(Nothing(0.5), [[0.0]], [[1.0]], Budget(boxes=10))
    assert result.status is not Status.PROVED
    assert not result.lower_bound > 0


def test_one_box_without_a_bound_is_no_proof_and_leaves_no_bound() -> None:
    class Half(Sizes):
        """Says that all is proved, with no bound right of 0.5."""

        def bound(self, lower: Tensor, *arguments) -> Margins:
            found = super().bound(lower, *arguments)
            margin = torch.where(lower[:, 0] >= 0.5, torch.nan, found.margin)
            return Margins(margin, found.proved, found.charge, found.split_score, found.suspect)

    states: list[Progress] = []
    result = search(Half(0.5), [[0.0]], [[1.0]], Budget(boxes=20), on_progress=states.append)
    assert result.status is Status.UNKNOWN and result.proved_share == pytest.approx(0.5)
    assert np.isnan(result.lower_bound) and states[-1].worst_bound == -np.inf
    assert search(Half(0.5), [[0.0]], [[0.4]]).lower_bound == pytest.approx(0.1)


# --- float32 and float64 -----------------------------------------------------------------------------------


def test_float64_is_used_where_the_charge_of_float32_is_too_large_and_soon_at_once() -> None:
    query = Sizes(0.01, charge=0.005)
    result = search(query, [[0.0]], [[1.0]], batch=4)
    assert result.status is Status.PROVED
    types = [dtype for _, dtype in query.calls]
    assert types[0] is torch.float32 and torch.float64 in types
    assert set(types[10:]) == {torch.float64}


def test_float32_alone_does_where_it_suffices() -> None:
    query = Sizes(0.1, charge=1e-6)
    assert search(query, [[0.0]], [[1.0]], batch=4).status is Status.PROVED
    assert {dtype for _, dtype in query.calls} == {torch.float32}


def test_boxes_that_are_few_beside_a_round_are_bounded_in_float64() -> None:
    query = Sizes(0.001, charge=1e-6)
    assert search(query, [[0.0]], [[1.0]], batch=256).status is Status.PROVED
    assert {dtype for count, dtype in query.calls if count <= 8} == {torch.float64}
    assert {dtype for count, dtype in query.calls if count > 8} == {torch.float32}


@pytest.mark.parametrize(("widest", "boxes"), [(1.0, 1), (0.5, 3)])
def test_the_first_boxes_tell_how_many_charges_rounding_takes(widest: float, boxes: int) -> None:
    class Loses(Sizes):
        """Rounding on the way to the bound takes 200 times what the last pass is charged."""

        def bound(self, lower: Tensor, upper: Tensor, root: Tensor, dtype: torch.dtype) -> Margins:
            found = super().bound(lower, upper, root, dtype)
            margin = found.margin - (200 * found.charge if dtype == torch.float32 else 0)
            return Margins(margin, margin >= 0, found.charge, found.split_score, found.suspect)

    result = search(Loses(widest, charge=1e-3), [[0.0]], [[1.0]], batch=2)
    assert result.status is Status.PROVED and result.boxes == boxes


def test_a_search_is_given_up_where_a_bound_is_below_its_hope() -> None:
    for hope, given_up in ((-0.5, True), (-0.95, False)):
        result = search(Sizes(0.1), [[0.0]], [[1.0]], Budget(boxes=1000, hope=hope))
        assert (result.status is Status.UNKNOWN and "too far from a proof" in result.reason) is given_up
        assert result.status is (Status.UNKNOWN if given_up else Status.PROVED)


def test_a_box_within_float64s_own_rounding_is_unknown() -> None:
    class Level(Sizes):
        def bound(self, *arguments) -> Margins:
            found = super().bound(*arguments)
            margin = torch.full_like(found.margin, -1e-12)
            return Margins(margin, margin >= 0, 2 * margin.abs(), found.split_score, found.suspect)

    query = Level(0.1)
    result = search(query, [[0.0]], [[1.0]])
    assert result.status is Status.UNKNOWN and "rounding" in result.reason
    assert query.calls[-1][1] is torch.float64


# --- verdicts against enumeration --------------------------------------------------------------------------


def unsafe_case(seed: int):
    """A small network, boxes, and a conjunction of two constraints near what its outputs reach."""
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, 2, (5, 4)[: 1 + seed % 2], 2, ("relu", "leaky_relu"), skips=0.3)
    walls = np.sort(rng.normal(size=(2, 2, 2)), axis=0)
    y = graph.value(walls[0, 0] + (walls[1, 0] - walls[0, 0]) * rng.random((500, 2)))
    rows = rng.normal(size=(2, 1, 2, 2))
    constants = -np.quantile(y @ rows[0, 0].T, rng.choice([0.7, 0.95, 1.0]), axis=0) - rng.choice([0.0, 0.01, 0.3])
    return graph, UnsafeSet(walls[0], walls[1], rows, np.broadcast_to(constants, (2, 1, 2)).copy())


def hit(graph, unsafe: UnsafeSet, suspects: Tensor, root: Tensor) -> bool:
    return bool((unsafe.violation(root.numpy(), graph.value(suspects.numpy())) >= 0).any())


def test_no_verdict_on_outputs_disagrees_with_exact_enumeration_in_any_batch() -> None:
    counts: Counter[Status] = Counter()
    for seed in range(40):
        graph, unsafe = unsafe_case(seed)
        reached = is_reached(graph, unsafe)
        for batch in (1, 64):
            result = search(OutputQuery(graph, unsafe), unsafe.lower, unsafe.upper, Budget(seconds=5.0, boxes=2000),
                            lambda x, r, of=graph, against=unsafe: hit(of, against, x, r), batch=batch)
            counts[result.status] += 1
            assert not (result.status is Status.PROVED and reached), seed
            assert not (result.status is Status.REFUTED and not reached), seed
    assert counts[Status.PROVED] > 20 and counts[Status.REFUTED] > 20
    assert counts[Status.UNKNOWN] + counts[Status.TIMEOUT] < 6


def test_no_verdict_on_slopes_disagrees_with_exact_enumeration_in_any_batch() -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        graph = random_graph(rng, 2, (4, 3, 3)[: 1 + seed % 3], 2, ("relu", "leaky_relu"), skips=0.3)
        low, high = np.sort(rng.normal(size=(2, 2)), axis=0)
        row = rng.normal(size=(1, 2)).astype(np.float32).astype(np.float64)
        least = least_slope(cells(graph, low, high), 0, row[0])

        def decide(room: float, budget: Budget, batch: int) -> Status:
            allowed = np.array([room - float(least)])  # noqa: B023
            return search(DerivativeQuery(graph, Slopes((0,), row, allowed)), low, high, budget, batch=batch).status  # noqa: B023

        assert decide(-1e-4, Budget(boxes=100), 64) is not Status.PROVED, seed
        assert {decide(0.2, Budget(boxes=1000), batch) for batch in (1, 64)} == {Status.PROVED}, seed
