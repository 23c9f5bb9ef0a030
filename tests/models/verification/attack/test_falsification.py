"""Counterexamples: what is returned is one, and there is none where there cannot be."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models.verification.attack.falsification import (
    REPLAY_MARGIN,
    Effort,
    SlopeFalsifier,
    SlopeQuery,
    falsify,
    slope_falsifier,
)
from models.verification.network.graph import Graph, dense_graph
from models.verification.verdict import Witness
from tests.models.verification.graphs import exact, exact_weights, random_boxes, random_graph
from tests.models.verification.networks import (
    exact_value,
    monotone_network,
    network_of,
    networks_and_boxes,
    random_network,
    specification,
)

few = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@few
@given(case=networks_and_boxes(widths=(3, 12), depth=(1, 3), boxes=1),
       tolerance=st.sampled_from([0.0, 1e-4, 0.1, 3.0]), seed=st.integers(0, 1000))
def test_the_excess_of_a_witness_is_real_in_rational_arithmetic(case, tolerance, seed) -> None:
    network, lower, upper, _ = case
    queries = [(0, 1), (0, -1)] if network.inputs == 1 else [(0, 1), (1, -1)]
    for query in queries:
        claim = specification(network.inputs, [query], lower[0], upper[0], tolerance)
        witnesses = falsify(network, claim, samples=64, steps=4, seed=seed)
        for witness in witnesses[:3]:
            assert (witness.feature, witness.sign) == query
            for point in (witness.low, witness.high):
                assert (point >= claim.lower).all() and (point <= claim.upper).all()
            low, high = (exact_value(network, point.tolist()) for point in (witness.low, witness.high))
            distance = Fraction(float(witness.high[query[0]])) - Fraction(float(witness.low[query[0]]))
            violation = query[1] * (low - high) - Fraction(tolerance) * distance
            assert distance > 0
            # the excess already leaves out the margin for a float32 runtime
            assert violation >= Fraction(witness.excess)
            assert witness.excess > 0


@few
@given(seed=st.integers(0, 2**32 - 1), hidden=st.lists(st.integers(4, 30), min_size=1, max_size=3))
def test_a_network_that_is_monotone_by_construction_has_no_witness(seed, hidden) -> None:
    queries = [(0, 1), (2, -1)]
    network = monotone_network(3, hidden, queries, seed % 2**31)
    assert falsify(network, specification(3, queries, -3.0, 3.0, tolerance=0.0), seed=seed % 1000) == ()


def test_a_violation_below_the_margin_of_a_float32_runtime_is_no_witness() -> None:
    for slope, found in ((-0.5 * REPLAY_MARGIN, False), (-10 * REPLAY_MARGIN, True)):
        network = network_of(([[1.0]], [1.0]), ([[slope]], [0.0]))
        assert bool(falsify(network, specification(1, [(0, 1)], tolerance=0.0))) is found


def test_a_fall_within_the_tolerance_is_no_witness() -> None:
    network = network_of(([[1.0]], [1.0]), ([[-0.1]], [0.0]))
    assert not falsify(network, specification(1, [(0, 1)], tolerance=0.11))
    (witness, *_) = falsify(network, specification(1, [(0, 1)], tolerance=0.05))
    # the largest fall beyond the tolerance is that between the walls
    assert witness.low.tolist() == [0.0] and witness.high.tolist() == [1.0]
    assert witness.excess == pytest.approx(0.05 - REPLAY_MARGIN * 1.2, rel=1e-3)


def test_the_limit_is_shared_among_the_features_and_the_worst_come_first() -> None:
    network = random_network(np.random.default_rng(0), 4, (32,))
    claim = specification(4, [(0, 1), (1, 1), (2, 1), (3, 1)])
    witnesses = falsify(network, claim, limit=8)
    assert 0 < len(witnesses) <= 8
    excesses = [witness.excess for witness in witnesses]
    assert excesses == sorted(excesses, reverse=True)
    per_feature = [sum(witness.feature == feature for witness in witnesses) for feature in range(4)]
    assert max(per_feature) <= 2


def test_given_points_are_used_and_a_feature_without_width_is_skipped() -> None:
    # a dip at x1 = 0.7 that is 0.002 wide in x1: uniform samples of 16 rows miss it
    network = network_of(
        ([[0.0, 1000.0], [0.0, 1000.0], [0.0, 1000.0], [1.0, 0.0]], [-699.0, -700.0, -701.0, 0.0]),
        ([[1.0, -2.0, 1.0, -0.5]], [-0.5]), ([[-1.0]], [0.0]))
    claim = specification(2, [(0, 1), (1, 1)], np.array([0.25, 0.0]), np.array([0.25, 1.0]))
    point = np.array([[0.25, 0.7]])
    witnesses = falsify(network, claim, point, samples=16)
    assert all(witness.feature == 1 for witness in witnesses)


def near(falsifier: SlopeFalsifier, *values: float) -> tuple[Witness, ...]:
    """Around points of one input, of the first query, in the first box."""
    none = np.zeros(len(values), dtype=np.int64)
    return falsifier.near(np.array(values)[:, None], none, none)


def near_all(falsifier: SlopeFalsifier, value: float) -> tuple[Witness, ...]:
    """Around one point of one input, of all queries, in the first box."""
    which = np.arange(len(falsifier.queries))
    return falsifier.near(np.full((len(which), 1), value), which, 0 * which)


def test_a_fall_too_narrow_for_the_scan_of_the_axis_is_found_near_a_point_where_the_slope_is_wrong() -> None:
    # a dent of width 1/500 at 0.601 in a rising line
    network = network_of(([[500.0], [500.0], [500.0], [1.0]], [-300.0, -300.5, -301.0, 0.0]),
                         ([[-1.0, 2.0, -1.0, 1.0]], [0.0]))
    claim = specification(1, [(0, 1)])
    assert not falsify(network, claim, np.array([[0.6005]]))
    (witness, *_) = near(slope_falsifier(network.graph, claim), 0.6005)
    low, high = (exact_value(network, point.tolist()) for point in (witness.low, witness.high))
    assert low - high > Fraction(claim.tolerance) * (Fraction(witness.high[0]) - Fraction(witness.low[0]))
    assert near(slope_falsifier(network.graph, claim), 0.3, 0.9) == ()


def test_pairs_near_a_wall_stay_inside_the_box() -> None:
    network = network_of(([[1.0]], [1.0]), ([[-1.0]], [0.0]))
    found = near(slope_falsifier(network.graph, specification(1, [(0, 1)])), 0.0, 1.0)
    assert found
    for witness in found:
        assert witness.low[0] >= 0 and witness.high[0] <= 1


def test_the_same_seed_finds_the_same_witnesses() -> None:
    network, claim = random_network(np.random.default_rng(3), 3, (16, 16)), specification(3, [(0, 1), (1, -1)])
    first, second = (falsify(network, claim, seed=4) for _ in range(2))
    assert [w.to_json() for w in first] == [w.to_json() for w in second]
    assert first


def test_points_without_a_value_do_not_hide_witnesses() -> None:
    # of the 300 the climb takes the 64 worst
    network = network_of(([[5e5], [5e5], [5e5], [1.0]], [-125_000.0, -125_001.0, -125_002.0, 0.0]),
                         ([[-1.0, 2.0, -1.0, 1.0]], [0.0]))
    claim, points = specification(1, [(0, 1)]), np.full((300, 1), np.nan)
    points[123] = 0.25
    falsifier = slope_falsifier(network.graph, claim)
    x, box = torch.as_tensor(points, dtype=torch.float32), torch.zeros(300, dtype=torch.long)
    low, high, _ = falsifier._climb(x, box, 0, 1, 17, lambda: False)
    assert len(low) == 64 and not (low[0].isnan().any() or high[0].isnan().any())


@pytest.mark.parametrize("method", ["search", "descend"])
def test_it_stops_when_it_is_over(method, monkeypatch) -> None:
    # nothing to be found; two features
    graph = corner_trap(2, reach=0.0)
    falsifier = SlopeFalsifier(graph, [SlopeQuery(0, 1), SlopeQuery(0, 1)], 1e-4, np.zeros((1, 2)), np.ones((1, 2)))
    asked: list[int] = []
    inner = falsifier._scan if method == "search" else falsifier._soft_slopes
    monkeypatch.setattr(falsifier, inner.__name__, lambda *arguments: asked.append(1) or inner(*arguments))
    counts = []
    for rounds in (0, 1, 3, 1000):
        left = iter(range(rounds))
        asked.clear()
        assert getattr(falsifier, method)(over=lambda left=left: next(left, None) is None) == ()
        counts.append(len(asked))
    assert counts[0] == 0 and counts == sorted(counts) and counts[1] < counts[2] < counts[3]


# --- graphs, several boxes, several outputs ----------------------------------------------------------------


def assert_violates(graph: Graph, falsifier: SlopeFalsifier, witness: Witness) -> int:
    """The pair lies in one of the boxes and breaks the order in rational arithmetic; which box."""
    inside = [(side >= falsifier.lower) & (side <= falsifier.upper) for side in (witness.low, witness.high)]
    (box, *_) = np.flatnonzero((inside[0] & inside[1]).all(axis=1))
    others = np.arange(graph.inputs) != witness.feature
    assert (witness.low[others] == witness.high[others]).all()
    low, high = (exact(graph, exact_weights(graph), side).y[witness.output] for side in (witness.low, witness.high))
    distance = Fraction(witness.high[witness.feature]) - Fraction(witness.low[witness.feature])
    assert distance > 0
    allowed = Fraction(float(falsifier.tolerance[0])) * distance
    assert witness.sign * (low - high) - allowed >= Fraction(witness.excess) > 0
    return int(box)


def corner_trap(inputs: int, reach: float = 0.2) -> Graph:
    """Rising in x0 but in one corner, where the others add up to more than inputs - 1 - reach: there it falls."""
    weight = np.vstack([np.ones(inputs), np.eye(inputs)[0]])
    return dense_graph([weight, np.array([[-3.0, 1.0]])], [np.array([reach - inputs, 0.0]), np.zeros(1)])


def test_the_descent_finds_a_wrong_slope_in_a_corner_that_the_search_misses() -> None:
    inputs = 8  # the corner's share of the others' box is 0.2^7 / 7! = 3e-9
    graph = corner_trap(inputs)
    falsifier = SlopeFalsifier(graph, [SlopeQuery(0, 1)], 1e-4, np.zeros((1, inputs)), np.ones((1, inputs)))
    assert falsifier.search() == ()
    found = falsifier.descend()
    assert found
    for witness in found[:5]:
        assert_violates(graph, falsifier, witness)
    assert [w.to_json() for w in found] == [w.to_json() for w in falsifier.descend()]


def test_the_descent_finds_nothing_where_the_order_holds() -> None:
    graph = corner_trap(4, reach=0.0)
    boxes = np.zeros((1, 4)), np.ones((1, 4))
    assert SlopeFalsifier(graph, [SlopeQuery(0, 1)], 1e-4, *boxes).descend(Effort(256, 16, 20)) == ()


@pytest.mark.parametrize("method", ["search", "descend"])
def test_of_several_boxes_each_witness_lies_in_one(method) -> None:
    rng = np.random.default_rng(0)
    graph = random_graph(rng, 3, (16, 16), 1, ("relu", "leaky_relu", "tanh"), skips=0.5)
    boxes = random_boxes(rng, 9, 3, 0.3, flat=0)
    falsifier = SlopeFalsifier(graph, [SlopeQuery(0, 1), SlopeQuery(2, -1)], 1e-4, *boxes)
    found = getattr(falsifier, method)()[:40]
    in_boxes = {assert_violates(graph, falsifier, witness) for witness in found}
    assert len(in_boxes) > (method == "search")


def test_the_one_box_of_many_in_which_the_order_breaks_is_found() -> None:
    # f = |x - 0.505|: falls below 0.505; boxes of width 0.01 side by side
    graph = dense_graph([np.array([[1.0], [-1.0]]), np.ones((1, 2))], [np.array([-0.505, 0.505]), np.zeros(1)])
    walls = np.arange(50, 101)[:, None] / 100
    falsifier = SlopeFalsifier(graph, [SlopeQuery(0, 1)], 1e-4, walls[:-1], walls[1:])
    found = falsifier.search()
    assert found and {assert_violates(graph, falsifier, witness) for witness in found} == {0}


def test_inputs_that_are_fixed_in_a_box_keep_their_value_exactly() -> None:
    # x1 takes 0.1, 0.2, 0.7, of which float32 has none; f rises in x0 where x0 + 10 x1 > 6
    graph = dense_graph([np.array([[1.0, 10.0], [0.0, 10.0]]), np.array([[1.0, -1.0]])],
                        [np.full(2, -6.0), np.zeros(1)])
    lower = np.array([[0.0, value] for value in (0.1, 0.2, 0.7)])
    upper = np.array([[1.0, value] for value in (0.1, 0.2, 0.7)])
    falsifier = SlopeFalsifier(graph, [SlopeQuery(0, -1)], 1e-4, lower, upper)
    found = (*falsifier.search(), *falsifier.descend())
    assert found
    for witness in found:
        box = assert_violates(graph, falsifier, witness)
        assert witness.low[1] == witness.high[1] == lower[box, 1]


def test_each_query_is_about_its_own_output() -> None:
    # y0 = x, y1 = -x, y2 = 1
    one = np.ones((1, 1))
    graph = dense_graph([one, np.array([[1.0], [-1.0], [0.0]])], [np.zeros(1), np.array([0.0, 0.0, 1.0])])
    queries = [SlopeQuery(0, sign, output) for sign in (1, -1) for output in range(3)]
    falsifier = SlopeFalsifier(graph, queries, 1e-4, 0 * one, one)
    for found in (falsifier.search(), falsifier.descend(), near_all(falsifier, 0.5)):
        assert found and {(w.sign, w.output) for w in found} <= {(1, 1), (-1, 0)}
        for witness in found:
            assert_violates(graph, falsifier, witness)


def test_pairs_near_points_of_several_boxes_stay_in_the_point_s_own_box() -> None:
    graph = dense_graph([np.ones((1, 1)), -np.ones((1, 1))], [np.ones(1), np.zeros(1)])
    lower, upper = np.array([[0.0], [1.0]]), np.array([[1.0], [1.5]])
    falsifier = SlopeFalsifier(graph, [SlopeQuery(0, 1)], 1e-4, lower, upper)
    for witness in falsifier.near(np.array([[1.0], [1.0]]), np.zeros(2, dtype=np.int64), np.array([0, 1])):
        assert_violates(graph, falsifier, witness)
        assert (witness.low[0] >= 1) or (witness.high[0] <= 1)
