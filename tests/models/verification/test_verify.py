"""Verdicts: PROVED and REFUTED are never wrong, and whatever else happens has a name."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch

from feature_store.errors import InputError
from models.verification.attack.falsification import SlopeFalsifier
from models.verification.checker.check import leaf_bounds
from models.verification.language.specification import Monotonicity, Specification
from models.verification.network.fully_connected import ReluNetwork
from models.verification.search.branch_and_bound import Budget, Margins, Progress
from models.verification.search.derivative_query import DerivativeQuery
from models.verification.verdict import Status, Verdict, Witness
from models.verification.verify import verify
from tests.models.verification.certified import network_with_many_leaves
from tests.models.verification.checker.leaves import all_leaves
from tests.models.verification.networks import (
    as_float64,
    exact_value,
    monotone_network,
    network_of,
    passage,
    random_network,
    sampled_slopes,
    specification,
)
from tests.models.verification.regions import activation_regions

# What a float enumeration of regions may be off by, in slopes of size 1 to 10.
ENUMERATION = 1e-9
SOON = Budget(seconds=10.0, boxes=20_000)


def assert_violates(network: ReluNetwork, claim: Specification, witness: Witness) -> None:
    """The pair lies in the box exactly, differs in one feature, and breaks the order in rational arithmetic."""
    assert (witness.feature, witness.sign) in claim.queries
    for point in (witness.low, witness.high):
        assert point.dtype == np.float64
        assert (point >= claim.lower).all() and (point <= claim.upper).all()
    others = np.arange(network.inputs) != witness.feature
    assert (witness.low[others] == witness.high[others]).all()
    assert witness.low[witness.feature] < witness.high[witness.feature]
    low, high = (exact_value(network, point.tolist()) for point in (witness.low, witness.high))
    distance = Fraction(float(witness.high[witness.feature])) - Fraction(float(witness.low[witness.feature]))
    assert witness.sign * (low - high) > Fraction(claim.tolerance) * distance
    assert witness.excess > 0
    for stated, exact, point in ((witness.output_low, low, witness.low), (witness.output_high, high, witness.high)):
        assert abs(Fraction(stated) - exact) <= Fraction(float(network.rounding(point[None])[0]))


def assert_proof(network: ReluNetwork, claim: Specification, verdict: Verdict) -> None:
    """The tree's leaves cover the box, and each is proved by the checker's bounds."""
    assert verdict.tree is not None and not verdict.witnesses
    *boxes, _ = all_leaves(verdict.tree.split_dimension, verdict.tree.split_value, claim.lower[None], claim.upper[None])
    assert len(boxes[0]) == verdict.tree.leaves
    bounds = leaf_bounds(*as_float64(network), *boxes, claim.queries,
                         enough=np.full(len(claim.queries), -claim.tolerance))
    assert (bounds >= -claim.tolerance).all()
    assert verdict.lower_bound == pytest.approx(bounds.min(), abs=1e-9)  # products round by their batch
    assert verdict.proved_share == pytest.approx(1.0)


# --- PROVED ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hidden", [(300, 300), (300, 300, 300), (512, 512, 512)], ids=["redis", "nginx", "search"])
def test_networks_of_the_papers_sizes_that_are_monotone_by_construction_need_one_leaf(hidden: tuple[int, ...]) -> None:
    queries = [(0, 1), (1, 1), (2, 1)]
    network, claim = monotone_network(10, hidden, queries), specification(10, queries)
    verdict = verify(network, claim, Budget(seconds=30))
    assert verdict.status is Status.PROVED
    assert verdict.tree is not None and verdict.tree.leaves == 1
    assert_proof(network, claim, verdict)


def test_both_directions_and_several_features_are_proved_together() -> None:
    queries = [(0, 1), (1, -1), (3, 1)]
    network = monotone_network(4, (20, 20), queries)
    claim = Specification(("a", "b", "c", "d"), np.zeros(4), np.ones(4),
                          (Monotonicity((0, 3), "increasing"), Monotonicity((1,), "decreasing")))
    verdict = verify(network, claim, SOON)
    assert verdict.status is Status.PROVED
    assert_proof(network, claim, verdict)
    turned = specification(4, [(1, 1)])
    assert verify(network, turned, SOON).status is Status.REFUTED


def test_splitting_proves_what_one_box_cannot() -> None:
    network, claim = network_with_many_leaves(), specification(3, [(0, 1)])
    states: list[Progress] = []
    verdict = verify(network, claim, SOON, on_progress=states.append)
    assert verdict.status is Status.PROVED
    assert verdict.tree is not None and verdict.tree.leaves > 20
    assert verdict.tree.leaves < verdict.boxes < 2 * verdict.tree.leaves
    assert_proof(network, claim, verdict)
    shares = [state.proved_share for state in states]
    assert shares == sorted(shares) and shares[-1] == pytest.approx(1.0)
    assert states[-1].open_boxes == 0 and states[0].open_boxes > 0
    assert all(0 <= state.seconds <= verdict.seconds for state in states)


@pytest.mark.parametrize("seed", range(4))
def test_splitting_proves_networks_of_four_inputs_in_hundreds_of_leaves(seed: int) -> None:
    network = random_network(np.random.default_rng(seed), 4, (12, 10, 8))
    slopes = sampled_slopes(network, np.random.default_rng(1).random((5000, 4)), [(0, 1)])
    network, claim = passage(network, 0, float(0.2 - slopes.min())), specification(4, [(0, 1)])
    verdict = verify(network, claim, SOON)
    assert verdict.status is Status.PROVED
    assert verdict.tree is not None and verdict.tree.leaves > 10
    assert_proof(network, claim, verdict)


def test_a_smaller_box_can_be_proved_where_the_larger_is_refuted() -> None:
    # f = |x|
    network = network_of(([[1.0], [-1.0]], [0.0, 0.0]), ([[1.0, 1.0]], [0.0]))
    assert verify(network, specification(1, [(0, 1)], -1.0, 1.0), SOON).status is Status.REFUTED
    assert verify(network, specification(1, [(0, -1)], -1.0, 1.0), SOON).status is Status.REFUTED
    assert verify(network, specification(1, [(0, 1)], 0.25, 1.0), SOON).status is Status.PROVED
    assert verify(network, specification(1, [(0, -1)], -1.0, -0.25), SOON).status is Status.PROVED


def test_a_feature_without_width_is_proved_only_on_its_slope_and_never_refuted() -> None:
    network = network_of(([[1.0, 0.0], [0.0, 1.0]], [5.0, 5.0]), ([[-1.0, 1.0]], [0.0]))
    flat = specification(2, [(0, 1)], np.array([0.5, 0.0]), np.array([0.5, 1.0]))
    verdict = verify(network, flat, SOON)
    assert verdict.status in (Status.UNKNOWN, Status.TIMEOUT) and not verdict.witnesses
    point = specification(2, [(1, 1)], 0.5, 0.5)
    assert verify(network, point, SOON).status is Status.PROVED


def test_a_constant_network_is_proved_in_both_directions() -> None:
    network = network_of(([[0.0], [0.0]], [1.0, -1.0]), ([[2.0, 3.0]], [1.0]))
    for sign in (1, -1):
        assert verify(network, specification(1, [(0, sign)]), SOON).status is Status.PROVED


# --- REFUTED -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("hidden", [(16,), (16, 16), (64, 64)])
def test_witnesses_of_ordinary_networks_violate_exactly(seed: int, hidden: tuple[int, ...]) -> None:
    network = random_network(np.random.default_rng(seed), 4, hidden)
    rng = np.random.default_rng(seed)
    walls = np.sort(rng.normal(size=(2, 4)), axis=0)
    claim = specification(4, [(0, 1), (1, -1), (2, 1)], walls[0], walls[1])
    verdict = verify(network, claim, SOON)
    if verdict.status is Status.PROVED:
        assert_proof(network, claim, verdict)
        return
    assert verdict.status is Status.REFUTED and verdict.tree is None
    excesses = [witness.excess for witness in verdict.witnesses]
    assert excesses and excesses == sorted(excesses, reverse=True)
    for witness in verdict.witnesses[:6]:
        assert_violates(network, claim, witness)


def test_a_violation_that_random_search_misses_is_found_at_the_boxes_that_resist_proof() -> None:
    # a dent of width 1/500 in a rising line
    network = network_of(([[500.0], [500.0], [500.0], [1.0]], [-300.0, -300.5, -301.0, 0.0]),
                         ([[-1.0, 2.0, -1.0, 1.0]], [0.0]))
    claim = specification(1, [(0, 1)])
    verdict = verify(network, claim, SOON)
    assert verdict.status is Status.REFUTED
    assert_violates(network, claim, verdict.witnesses[0])


# --- agreement with brute force ----------------------------------------------------------------------------


def decide_exactly(network: ReluNetwork, claim: Specification) -> float:
    """The smallest signed slope over all activation regions of a box of two inputs, over all queries."""
    gradients = activation_regions(network, claim.lower.tolist(), claim.upper.tolist())
    return min(sign * gradient[feature] for gradient in gradients for feature, sign in claim.queries)


def compare_with_enumeration(seeds: range) -> dict[Status, int]:
    counts = dict.fromkeys(Status, 0)
    for seed in seeds:
        rng = np.random.default_rng(seed)
        network = random_network(rng, 2, [int(rng.integers(2, 9)) for _ in range(int(rng.integers(1, 4)))],
                                 scale=float(rng.choice([0.3, 1.0, 3.0])))
        if rng.random() < 0.6:  # near the border between true and false
            slopes = sampled_slopes(network, rng.random((500, 2)), [(0, 1)])
            network = passage(network, 0, float(rng.normal() * 0.1 - slopes.min()))
        queries = [(0, 1)] if rng.random() < 0.7 else [(0, 1), (1, int(rng.choice([-1, 1])))]
        claim = specification(2, queries, tolerance=float(rng.choice([1e-4, 1e-2])))
        verdict = verify(network, claim, Budget(seconds=5.0, boxes=4000), seed=seed)
        least = decide_exactly(network, claim)
        counts[verdict.status] += 1
        if verdict.status is Status.PROVED:
            assert least >= -claim.tolerance - ENUMERATION, seed
        if verdict.status is Status.REFUTED:
            assert least < -claim.tolerance + ENUMERATION, seed
            assert_violates(network, claim, verdict.witnesses[0])
    return counts


def test_no_verdict_on_a_small_network_disagrees_with_enumeration() -> None:
    counts = compare_with_enumeration(range(120))
    assert counts[Status.PROVED] > 20 and counts[Status.REFUTED] > 20
    # splitting inputs alone does not close a box around a point where several kinks meet
    assert counts[Status.UNKNOWN] + counts[Status.TIMEOUT] < 6


def test_no_verdict_on_a_small_network_disagrees_with_enumeration_in_a_long_attack() -> None:
    counts = compare_with_enumeration(range(1000, 1500))
    assert counts[Status.PROVED] > 100 and counts[Status.REFUTED] > 100


@pytest.mark.parametrize("seed", range(10))
def test_enumerated_regions_are_those_that_a_dense_grid_meets(seed: int) -> None:
    # the oracle itself against a second one
    network = random_network(np.random.default_rng(seed), 2, (5, 4))
    regions = {(round(a, 6), round(b, 6)) for a, b in activation_regions(network, [0, 0], [1, 1])}
    axis = np.linspace(0.0005, 0.9995, 200)
    points = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    seen = {(round(a, 6), round(b, 6)) for a, b in sampled_slopes(network, points, [(0, 1), (1, 1)]).tolist()}
    assert seen <= regions


# --- wild numbers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wall", [1e20, 1e38, 1e150, 1e300, 1e308, 1.7e308])
def test_a_box_of_any_size_never_gets_a_wrong_verdict(wall: float) -> None:
    # 1e308 once was PROVED in both directions
    found = dict.fromkeys(Status, 0)
    networks = [random_network(np.random.default_rng(seed), 2, (5, 5)) for seed in range(5)]
    for network in [*networks, *(monotone_network(2, (5, 5), [(0, 1)], seed=seed) for seed in range(2))]:
        for sign in (1, -1):
            claim = specification(2, [(0, sign)], -wall, wall)
            verdict = verify(network, claim, Budget(seconds=1.0, boxes=500))
            slopes = sampled_slopes(network, np.random.default_rng(0).normal(size=(200, 2)), claim.queries)
            found[verdict.status] += 1
            if verdict.status is Status.PROVED:
                assert slopes.min() >= -claim.tolerance
            for witness in verdict.witnesses[:1]:
                assert_violates(network, claim, witness)
    assert found[Status.PROVED] >= 2 and found[Status.REFUTED] >= 4  # or nothing was compared


@pytest.mark.parametrize("scale", [1e-20, 1e-10, 1e10, 1e20])
def test_weights_of_any_size_never_get_a_wrong_verdict(scale: float) -> None:
    for seed in range(5):
        network = random_network(np.random.default_rng(seed), 2, (5, 5), scale=scale)
        claim = specification(2, [(0, 1)])
        verdict = verify(network, claim, Budget(seconds=1.0, boxes=500))
        if verdict.status is Status.PROVED:
            assert decide_exactly(network, claim) >= -claim.tolerance * (1 + ENUMERATION)
        for witness in verdict.witnesses[:2]:
            assert_violates(network, claim, witness)


@pytest.mark.parametrize("large", [1e4, 1e8, 1e12, 1e16, 1e20])
def test_a_difference_that_is_rounding_alone_is_no_witness(large: float) -> None:
    # f = relu(large x + y) - relu(large x) = y: constant in x; float64 once "saw" it fall at 1e16
    network = network_of(([[large, 1.0], [large, 0.0]], [0.0, 0.0]), ([[1.0, -1.0]], [0.0]))
    for query in ((0, 1), (0, -1), (1, 1)):
        verdict = verify(network, specification(2, [query]), Budget(seconds=1.0, boxes=500))
        assert verdict.status is not Status.REFUTED
    claim = specification(2, [(1, -1)])  # false: f rises in y by 1
    verdict = verify(network, claim, SOON)
    assert verdict.status is not Status.PROVED
    for witness in verdict.witnesses:
        assert_violates(network, claim, witness)


# --- budgets -----------------------------------------------------------------------------------------------


def hard_case() -> tuple[ReluNetwork, Specification]:
    """True with a margin, but not proved by its first box, and nothing to refute."""
    return network_with_many_leaves(), specification(3, [(0, 1)])


def test_a_tiny_box_budget_is_unknown_and_says_how_far_it_came() -> None:
    network, claim = hard_case()
    verdict = verify(network, claim, Budget(boxes=1))
    assert verdict.status is Status.UNKNOWN and "1 boxes" in verdict.reason
    assert verdict.boxes == 1 and verdict.tree is None and not verdict.witnesses
    assert 0 <= verdict.proved_share < 1 and verdict.lower_bound < 0


def test_a_tiny_time_budget_is_a_timeout() -> None:
    network, claim = hard_case()
    verdict = verify(network, claim, Budget(seconds=1e-6, batch=1))
    assert verdict.status is Status.TIMEOUT and "time budget" in verdict.reason
    assert verdict.tree is None and not verdict.witnesses and 0 <= verdict.proved_share < 1


def test_a_proof_that_needs_more_than_rounding_allows_is_unknown() -> None:
    # a tolerance of 0 leaves no room for rounding: the slope 0 of a dead network cannot be told from one below
    network = network_of(([[1.0]], [-5.0]), ([[1.0]], [0.0]))
    verdict = verify(network, specification(1, [(0, 1)], tolerance=0.0), SOON)
    assert verdict.status is Status.UNKNOWN and "rounding" in verdict.reason and verdict.tree is None


def test_the_checker_has_the_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    # a search that takes every box for proved
    network, claim = random_network(np.random.default_rng(0), 2, (8, 8)), specification(2, [(0, 1), (1, 1)])

    def bound(self: DerivativeQuery, lower: torch.Tensor, *more: object) -> Margins:
        one = torch.ones(len(lower), dtype=torch.float64)
        return Margins(one, one > 0, 0 * one, torch.ones_like(lower), lower.clone())

    monkeypatch.setattr(DerivativeQuery, "bound", bound)
    monkeypatch.setattr(SlopeFalsifier, "search", lambda *args, **more: ())
    monkeypatch.setattr(SlopeFalsifier, "near", lambda *args, **more: ())
    verdict = verify(network, claim, Budget(seconds=1.0))
    assert verdict.status in (Status.UNKNOWN, Status.TIMEOUT) and verdict.tree is None
    assert verdict.lower_bound < -claim.tolerance


def test_a_box_that_cannot_be_decided_ends_as_unknown_not_in_a_loop() -> None:
    # the slope is -0.5 between two kinks a float32 apart: too little for a witness, too much for a proof
    network = network_of(([[1.0], [1.0], [1.0]], [-0.5, -0.5 - 6e-8, 1.0]), ([[-1.5, 1.5, 1.0]], [0.0]))
    verdict = verify(network, specification(1, [(0, 1)]), Budget(seconds=20.0))
    assert verdict.status in (Status.UNKNOWN, Status.TIMEOUT)
    assert verdict.proved_share > 0.99


# --- determinism, bad input --------------------------------------------------------------------------------


def same(a: Verdict, b: Verdict) -> bool:
    timeless = [replace(verdict, seconds=0.0, witnesses=(), tree=None) for verdict in (a, b)]
    trees = [None if verdict.tree is None else (verdict.tree.split_dimension.tolist(),
                                                verdict.tree.split_value.tolist()) for verdict in (a, b)]
    witnesses = [[witness.to_json() for witness in verdict.witnesses] for verdict in (a, b)]
    return repr(timeless[0]) == repr(timeless[1]) and trees[0] == trees[1] and witnesses[0] == witnesses[1]


def test_a_seed_gives_one_verdict() -> None:
    refuted = random_network(np.random.default_rng(0), 3, (10, 10)), specification(3, [(0, 1), (1, 1)])
    for network, claim in (hard_case(), refuted):
        points = np.random.default_rng(5).random((30, 3))
        torch.manual_seed(1)
        first = verify(network, claim, SOON, points, seed=7)
        torch.manual_seed(2)  # the global generator is nobody's business
        assert same(first, verify(network, claim, SOON, points, seed=7))


def test_verification_leaves_the_global_generators_alone() -> None:
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002
    expected = torch.rand(1), np.random.rand()  # noqa: NPY002
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002
    verify(*hard_case(), SOON)
    assert (torch.rand(1), np.random.rand()) == expected  # noqa: NPY002


@pytest.mark.parametrize("budget", [
    Budget(seconds=0), Budget(seconds=-1), Budget(seconds=float("nan")), Budget(boxes=0), Budget(batch=0)])
def test_a_budget_that_is_not_positive_is_refused(budget: Budget) -> None:
    with pytest.raises(InputError, match="budget must be positive"):
        verify(*hard_case(), budget)


def test_a_specification_of_another_network_is_refused() -> None:
    with pytest.raises(InputError, match=r"specification must describe the network's 3 inputs, got 2"):
        verify(network_with_many_leaves(), specification(2, [(0, 1)]))


def test_starting_points_outside_of_the_box_give_witnesses_inside() -> None:
    network = random_network(np.random.default_rng(1), 3, (16,))
    claim = specification(3, [(0, 1), (1, 1), (2, 1)])
    verdict = verify(network, claim, SOON, points=np.full((5, 3), 100.0))
    assert verdict.status is Status.REFUTED
    for witness in verdict.witnesses[:5]:
        assert_violates(network, claim, witness)
