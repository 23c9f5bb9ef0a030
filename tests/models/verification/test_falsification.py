"""Counterexamples: what is returned is one, and there is none where there cannot be."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models.verification.falsification import REPLAY_MARGIN, falsify, slope_falsifier
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


def test_a_fall_too_narrow_for_the_scan_of_the_axis_is_found_near_a_point_where_the_slope_is_wrong() -> None:
    # a dent of width 1/500 at 0.601 in a rising line
    network = network_of(([[500.0], [500.0], [500.0], [1.0]], [-300.0, -300.5, -301.0, 0.0]),
                         ([[-1.0, 2.0, -1.0, 1.0]], [0.0]))
    claim = specification(1, [(0, 1)])
    assert not falsify(network, claim, np.array([[0.6005]]))
    (witness, *_) = slope_falsifier(network.graph, claim).near(np.array([[0.6005]]))
    low, high = (exact_value(network, point.tolist()) for point in (witness.low, witness.high))
    assert low - high > Fraction(claim.tolerance) * (Fraction(witness.high[0]) - Fraction(witness.low[0]))
    assert slope_falsifier(network.graph, claim).near(np.array([[0.3], [0.9]])) == ()


def test_pairs_near_a_wall_stay_inside_the_box() -> None:
    network = network_of(([[1.0]], [1.0]), ([[-1.0]], [0.0]))
    for witness in slope_falsifier(network.graph, specification(1, [(0, 1)])).near(np.array([[0.0], [1.0]])):
        assert witness.low[0] >= 0 and witness.high[0] <= 1


def test_the_same_seed_finds_the_same_witnesses() -> None:
    network, claim = random_network(np.random.default_rng(3), 3, (16, 16)), specification(3, [(0, 1), (1, -1)])
    first, second = (falsify(network, claim, seed=4) for _ in range(2))
    assert [w.to_json() for w in first] == [w.to_json() for w in second]
    assert first
