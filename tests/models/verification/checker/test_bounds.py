"""The checker's bounds against exact rationals: no tolerance anywhere in this file.

A leaf bound is rigorous if it never exceeds the derivative at any point of the leaf, in real arithmetic.
NaN and -inf are refusals, so they are allowed wherever numbers leave float64's range.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models.verification.checker import bounds as checker_bounds
from models.verification.checker.bounds import Box, Layer, bound_layers
from models.verification.checker.check import _derivatives, leaf_bounds
from models.verification.checker.relaxations import ACTIVATIONS, Lines, relu, scaled
from models.verification.language.specification import FloatArray
from models.verification.network.fully_connected import ReluNetwork
from models.verification.obligations.slopes import Slopes
from models.verification.search.derivative_query import DerivativeQuery
from tests.models.verification.hard_networks import (
    DEEP,
    SMALL,
    WIDE,
    annihilating_networks,
    kinks_where_sums_cancel,
    one_of_the_boxes,
    wild_networks,
)
from tests.models.verification.networks import (
    all_queries,
    as_float64,
    exact_gradient,
    exact_preactivations,
    monotone_network,
    network_of,
    networks_and_boxes,
    points_inside,
    random_network,
    sampled_slopes,
)
from tests.models.verification.regions import activation_regions, exact_slopes_on_line

relaxed = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
few = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def bounds_of(
    network: ReluNetwork, lower: FloatArray, upper: FloatArray, queries=None, batch: int | None = None,
) -> FloatArray:
    """(m, F) bounds of boxes (m, n)."""
    queries = all_queries(network.inputs) if queries is None else queries
    return leaf_bounds(*as_float64(network), np.atleast_2d(lower), np.atleast_2d(upper), queries, batch)


def assert_not_above(bounds: FloatArray, gradient: list[Fraction]) -> None:
    """bounds: (F,) for every feature in both directions; gradient: (n,) exact."""
    for (feature, sign), bound in zip(all_queries(len(gradient)), bounds, strict=True):
        if math.isfinite(bound):
            assert Fraction(float(bound)) <= sign * gradient[feature], (feature, sign, bound)
        else:
            assert not bound > 0


def across_a_kink(network: ReluNetwork, start: list[Fraction], end: list[Fraction]) -> list[list[Fraction]]:
    """Gradients on both sides of a change of the gradient between two points, 2^-70 of the way apart."""
    def gradient_at(t: Fraction) -> list[Fraction]:
        return exact_gradient(network, [a + t * (b - a) for a, b in zip(start, end, strict=True)])

    low, high = Fraction(0), Fraction(1)
    at_low, at_high = gradient_at(low), gradient_at(high)
    for _ in range(70 if at_low != at_high else 0):
        middle = (low + high) / 2
        found = gradient_at(middle)
        low, at_low, high, at_high = (middle, found, high, at_high) if found == at_low else (low, at_low, middle, found)
    return [at_low, at_high]


def hidden_layers(network: ReluNetwork, lower: FloatArray, upper: FloatArray) -> list[Layer]:
    """What the checker knows of the hidden layers over boxes (m, n)."""
    weights, biases = as_float64(network)
    with np.errstate(over="ignore", invalid="ignore"):
        return bound_layers(weights[:-1], biases[:-1], Box(lower, upper), [relu] * (len(weights) - 1))


def two_bounds(
    network: ReluNetwork, lower: FloatArray, upper: FloatArray, directions: FloatArray, tight: bool = True,
) -> tuple[FloatArray, FloatArray]:
    """The checker's two bounds (m, F) over boxes (m, n)."""
    weights, biases = as_float64(network)
    with np.errstate(over="ignore", invalid="ignore"):
        return _derivatives(weights, biases, Box(lower, upper), [ACTIVATIONS["relu"]] * (len(weights) - 1), directions,
                            tight)


def attack(network: ReluNetwork, lower: FloatArray, upper: FloatArray, rng: np.random.Generator, points: int) -> None:
    """Compares the bounds of one box with exact gradients: corners, random points, both sides of a kink, a line.

    The checker takes the better of two bounds, plain ones or tight ones: each is attacked.
    """
    directions = np.array([np.eye(network.inputs)[feature] * sign for feature, sign in all_queries(network.inputs)])
    both = [bounds[0] for tight in (True, False)
            for bounds in two_bounds(network, lower[None], upper[None], directions, tight)]
    chosen = [[Fraction(float(v)) for v in point] for point in points_inside(rng, lower, upper, points)]
    gradients = [exact_gradient(network, point) for point in chosen]
    gradients += across_a_kink(network, chosen[-1], chosen[-2])
    feature = int(rng.integers(network.inputs))
    start, end = list(chosen[0]), list(chosen[0])
    start[feature], end[feature] = Fraction(float(lower[feature])), Fraction(float(upper[feature]))
    if start != end:
        gradients += exact_slopes_on_line(network, start, end)
    for gradient in gradients:
        for bounds in both:
            assert_not_above(bounds, gradient)


@relaxed
@given(case=st.one_of(SMALL, DEEP))
def test_no_exact_derivative_lies_below_its_bound(case) -> None:
    network, lower, upper, rng = one_of_the_boxes(case)
    attack(network, lower, upper, rng, points=8)


@few
@given(case=WIDE)
def test_no_exact_derivative_of_a_wide_network_lies_below_its_bound(case) -> None:
    network, lower, upper, rng = one_of_the_boxes(case)
    both = leaf_bounds(*as_float64(network), lower[None], upper[None], all_queries(network.inputs))
    for point in points_inside(rng, lower, upper, 3):
        assert_not_above(both[0], exact_gradient(network, point.tolist()))


@relaxed
@given(case=annihilating_networks())
def test_rounding_of_sums_that_cancel_does_not_push_a_bound_above_the_derivative(case) -> None:
    network, lower, upper, rng = case
    attack(network, lower, upper, rng, points=3)


def assert_inside(network: ReluNetwork, lower: FloatArray, upper: FloatArray, points: FloatArray) -> None:
    layers = hidden_layers(network, lower[None], upper[None])
    for point in points:
        exact = exact_preactivations(network, point.tolist())
        for z, layer in zip(exact, layers, strict=True):
            for value, low, high in zip(z, layer.low[0], layer.high[0], strict=True):
                assert Fraction(float(low)) <= value if math.isfinite(low) else not low > 0
                assert value <= Fraction(float(high)) if math.isfinite(high) else not high < 0


@relaxed
@given(case=st.one_of(SMALL, DEEP, annihilating_networks(), kinks_where_sums_cancel(), wild_networks()))
def test_no_exact_preactivation_leaves_its_bounds(case) -> None:
    network, lower, upper, rng = one_of_the_boxes(case)
    assert_inside(network, lower, upper, points_inside(rng, lower, upper, 6))


@few
@given(case=WIDE)
def test_no_exact_preactivation_of_a_wide_network_leaves_its_bounds(case) -> None:
    network, lower, upper, rng = one_of_the_boxes(case)
    assert_inside(network, lower, upper, points_inside(rng, lower, upper, 3))


@relaxed
@given(case=kinks_where_sums_cancel())
def test_rounding_of_sums_that_cancel_at_a_kink_does_not_push_a_bound_above_the_derivative(case) -> None:
    network, lower, upper, rng = case
    attack(network, lower, upper, rng, points=3)


@relaxed
@given(case=st.one_of(SMALL, DEEP))
def test_a_backward_pass_only_tightens(case) -> None:
    """Its own layer's bounds: those behind may be wider than without it, for the lines there follow from its bounds."""
    network, lower, upper, _ = case
    tighten, passes = checker_bounds._tighten, []

    def recorded(layers, boxes, weight, bias, low, high, wanted) -> None:
        before = low.copy(), high.copy()
        tighten(layers, boxes, weight, bias, low, high, wanted)
        passes.append((before, (low, high)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checker_bounds, "_tighten", recorded)
        hidden_layers(network, lower, upper)
    assert passes or len(network.weights) < 4
    for (loose_low, loose_high), (low, high) in passes:
        assert (low >= loose_low).all() and (high <= loose_high).all()


@relaxed
@given(case=networks_and_boxes(widths=(2, 12), depth=(1, 5), scales=(0.3, 1.0)))
def test_a_leaf_that_the_search_proves_the_checker_proves(case) -> None:
    network, lower, upper, _ = case
    features, signs = zip(*all_queries(network.inputs), strict=True)
    slopes = Slopes(features, np.array(signs, dtype=np.float64)[:, None], np.zeros(len(signs)))
    query = DerivativeQuery(network.graph, slopes)
    walls = torch.as_tensor(lower), torch.as_tensor(upper)
    found = query.bound(*walls, torch.zeros(len(lower)), torch.float64).margin.numpy()
    bounds = bounds_of(network, lower, upper).min(axis=1)
    # their charges for rounding differ, nothing else
    assert (bounds >= found - 1e-8 * (1 + np.abs(found))).all()


def test_the_better_of_the_two_bounds_of_a_derivative_counts() -> None:
    rng = np.random.default_rng(5)
    network, walls = random_network(rng, 3, (9, 9)), np.sort(rng.normal(size=(2, 20, 3)), axis=0)
    directions = np.array([np.eye(3)[feature] * sign for feature, sign in all_queries(3)])
    up, down = two_bounds(network, walls[0], walls[1], directions)
    assert (up > down + 0.01).any() and (down > up + 0.01).any()
    np.testing.assert_array_equal(bounds_of(network, *walls, batch=20), np.maximum(up, down))


def test_leaves_whose_plain_bounds_suffice_are_not_bounded_again() -> None:
    rng = np.random.default_rng(5)
    network, walls = random_network(rng, 3, (9, 9, 9)), np.sort(rng.normal(size=(2, 40, 3)), axis=0)
    queries = [(0, 1), (1, -1)]
    directions = np.array([np.eye(3)[feature] * sign for feature, sign in queries])
    plain, tight = (np.fmax(*two_bounds(network, walls[0], walls[1], directions, t)) for t in (False, True))
    assert (tight >= plain - 1e-12).all() and (tight > plain + 1e-3).any()
    enough = np.median(plain, axis=0)
    suffice = (plain >= enough).all(axis=1)
    assert 0 < suffice.sum() < 40
    bounds = leaf_bounds(*as_float64(network), walls[0], walls[1], queries, batch=40, enough=enough)
    np.testing.assert_allclose(bounds, np.where(suffice[:, None], plain, tight), rtol=1e-12)


def test_backward_passes_pay_from_the_third_layer_on() -> None:
    rng = np.random.default_rng(3)
    network, walls = random_network(rng, 4, (20,) * 5), np.sort(rng.normal(size=(2, 8, 4)) * 0.3, axis=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checker_bounds, "_tighten", lambda *_: None)
        before = [(layer.high - layer.low).mean() for layer in hidden_layers(network, *walls)]
    after = [(layer.high - layer.low).mean() for layer in hidden_layers(network, *walls)]
    # the first two are what a backward pass would find; a fifth layer is some ten times narrower
    assert after[:2] == before[:2] and after[4] < before[4] / 3


NUMBERS = st.floats(-1e300, 1e300) | st.floats(-10, 10) | st.sampled_from([0.0, -0.0])


def assert_lines_hold(lines: Lines, z: Fraction, value: Fraction) -> None:
    """value lies between the lines at z, in exact arithmetic; NaN and infinity outwards say nothing."""
    below_slope, below, above_slope, above, least, most = (float(number[0]) for number in lines)
    for slope, constant, side in ((below_slope, below, 1), (above_slope, above, -1), (0.0, least, 1), (0.0, most, -1)):
        if math.isfinite(slope) and math.isfinite(constant):
            assert side * (Fraction(slope) * z + Fraction(constant)) <= side * value
        else:
            assert math.isnan(slope) or math.isnan(constant) or side * constant < 0
    assert not below > 0 and not above < 0  # what the sums of the backward pass rely on


@settings(max_examples=500, deadline=None)
@given(first=NUMBERS, second=NUMBERS, no_low=st.sampled_from([None, None, -math.inf, math.nan]),
       no_high=st.sampled_from([None, None, math.inf, math.nan]), inner=st.floats(0, 1),
       kind=st.sampled_from(["relu", "on", "off", "open"]))
def test_lines_hold_at_the_walls_at_the_kink_and_between_without_any_tolerance(
    first, second, no_low, no_high, inner, kind,
) -> None:
    # a wall that left float64's range is no wall: anything may stand beyond
    left, right = (-1e301 if no_low else min(first, second)), (1e301 if no_high else max(first, second))
    low, high = np.array([no_low or left]), np.array([no_high or right])
    with np.errstate(all="ignore"):
        lines = relu(low, high) if kind == "relu" else scaled(
            np.array([float(kind == "on")]), np.array([float(kind != "off")]), low, high)
    points = {Fraction(left), Fraction(right), Fraction(left) + Fraction(inner) * (Fraction(right) - Fraction(left))}
    for z in points | ({Fraction(0)} if left <= 0 <= right else set()):
        values = {"relu": [max(z, 0)], "on": [z], "off": [0], "open": [0, z, z / 3]}[kind]
        for value in values:
            assert_lines_hold(lines, z, Fraction(value))


@relaxed
@given(seed=st.integers(0, 2**32 - 1))
def test_lines_that_touch_at_both_walls_are_rounded_outwards(seed) -> None:
    # walls of like sizes: neither line has anything to spare
    rng = np.random.default_rng(seed)
    low, high = -(10.0 ** rng.uniform(-3, 3, size=(1, 20))), 10.0 ** rng.uniform(-3, 3, size=(1, 20))
    for lines in (relu(low, high), scaled(np.zeros((1, 20)), np.ones((1, 20)), low, high)):
        for i, walls in enumerate(zip(low[0], high[0], strict=True)):
            for z in (*walls, 0.0):
                assert_lines_hold(Lines(*(number[:, i] for number in lines)), Fraction(z), Fraction(max(z, 0)))


@relaxed
@given(seed=st.integers(0, 2**32 - 1), terms=st.integers(1, 40))
def test_a_row_over_the_inputs_themselves_is_rounded_down(seed, terms) -> None:
    # products of all sizes whose sum cancels: exact but for what one box of no width leaves over
    rng = np.random.default_rng(seed)
    x, row = rng.normal(size=(1, terms)), rng.normal(size=(1, terms)) * 10.0 ** rng.uniform(-8, 8, size=terms)
    exact = sum((Fraction(float(a)) * Fraction(float(b)) for a, b in zip(x[0], row[0], strict=True)), Fraction(0))
    constant = -float(exact)
    bound = checker_bounds._backward([], Box(x, x), row, np.array([constant]), np.zeros(1, dtype=np.intp))
    assert Fraction(float(bound[0])) <= exact + Fraction(constant)


@relaxed
@given(first=st.floats(0.125, 8, width=32), bias=st.floats(-1, 1, width=32), second=st.floats(-8, 8, width=32),
       third=st.floats(-8, 8, width=32))
def test_a_relaxation_that_touches_the_function_at_both_walls_is_not_a_hair_too_tight(
    first, bias, second, third,
) -> None:
    # one neuron a layer: the chord meets relu at both ends of the box, so that any part too little is a violation
    network = network_of(([[first]], [bias]), ([[second]], [0.0]), ([[third]], [0.125]), ([[second]], [bias]),
                         ([[1.0]], [0.0]))
    assert_inside(network, np.array([-2.0]), np.array([1.0]), np.array([[-2.0], [1.0], [0.25]]))


@relaxed
@given(case=wild_networks())
def test_wild_scales_and_cancellation_do_not_push_a_bound_above_the_derivative(case) -> None:
    network, lower, upper, rng = case
    attack(network, lower, upper, rng, points=6)


@settings(max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=st.one_of(wild_networks(), SMALL, DEEP, annihilating_networks()))
def test_no_exact_derivative_lies_below_its_bound_in_a_long_attack(case) -> None:
    network, lower, upper, rng = one_of_the_boxes(case)
    attack(network, lower, upper, rng, points=8)
    assert_inside(network, lower, upper, points_inside(rng, lower, upper, 6))


@few
@given(seed=st.integers(0, 2**32 - 1), hidden=st.lists(st.integers(2, 4), min_size=1, max_size=2))
def test_no_bound_exceeds_the_true_minimum_over_all_activation_regions(seed, hidden) -> None:
    rng = np.random.default_rng(seed)
    network = random_network(rng, 2, hidden)
    walls = rng.normal(size=(2, 2))
    lower, upper = walls.min(axis=0), walls.max(axis=0)
    (bounds,) = bounds_of(network, lower, upper)
    for gradient in activation_regions(network, lower.tolist(), upper.tolist(), Fraction):
        assert_not_above(bounds, list(gradient))


@few
@given(seed=st.integers(0, 2**32 - 1))
def test_small_enough_leaves_reach_the_true_minimum(seed) -> None:
    # one hidden layer, one input: a leaf without a kink inside has the exact derivative as its bound
    rng = np.random.default_rng(seed)
    network = random_network(rng, 1, (5,))
    edges = np.linspace(-2, 2, 4001)
    bounds = bounds_of(network, edges[:-1, None], edges[1:, None])
    kinks = -network.biases[0].astype(float) / network.weights[0][:, 0]
    whole = ~((kinks >= edges[:-1, None]) & (kinks <= edges[1:, None])).any(axis=1)
    middles = (edges[:-1] + edges[1:])[whole, None] / 2
    slack = 1e-9  # outward rounding of some 10 terms of size 1 stays far below
    assert (bounds[whole] >= sampled_slopes(network, middles, all_queries(1)) - slack).all()


@relaxed
@given(case=networks_and_boxes(boxes=2))
def test_no_sampled_derivative_of_a_larger_network_lies_below_its_bound(case) -> None:
    network, lower, upper, rng = case
    bounds = bounds_of(network, lower, upper)
    for box in range(len(lower)):
        points = points_inside(rng, lower[box], upper[box], 40)
        for point in points[:2]:
            assert_not_above(bounds[box], exact_gradient(network, point.tolist()))
        slopes = sampled_slopes(network, points, all_queries(network.inputs))
        # float64 sampling is itself rounded: 1e-10 of the largest slope it saw, and the kinks by the exact tests
        near = 1e-10 * (1 + np.abs(slopes).max())
        share_below = (slopes < bounds[box] - near).any(axis=1).mean()
        assert share_below <= 0.05  # a sample whose mask rounding decides wrongly is rare; a wrong bound is not


def test_a_neuron_exactly_on_its_kink_counts_as_undecided() -> None:
    # f = relu(x) - relu(x) for x in [0, 1], and in [-1, 0]: the wall lies on the kink
    network = network_of(([[1.0], [1.0]], [0.0, 0.0]), ([[1.0, -1.0]], [0.0]))
    for walls in ((0.0, 1.0), (-1.0, 0.0), (0.0, 0.0)):
        (bounds,) = bounds_of(network, np.array([walls[0]]), np.array([walls[1]]))
        assert (bounds <= 0).all()


@pytest.mark.parametrize("wall", [1e150, 1e300, 1e307, 1e308, 1.7e308, math.inf])
def test_overflow_of_a_preactivation_never_passes_for_a_neuron_that_is_off(wall) -> None:
    # it once did: NaN bounds made every neuron inactive, and a constant 0 the proven derivative
    rng = np.random.default_rng(0)
    for _ in range(20):
        network = random_network(rng, 2, (4, 4), scale=2.0)
        (bounds,) = bounds_of(network, np.full(2, -wall), np.full(2, wall))
        for _ in range(20):
            point = [float(v) for v in rng.normal(size=2)]
            assert_not_above(bounds, exact_gradient(network, point))


def test_overflow_inside_a_deep_network_of_huge_weights_is_no_proof() -> None:
    rng = np.random.default_rng(1)
    network = random_network(rng, 2, (3,) * 12, scale=1e35)
    (bounds,) = bounds_of(network, np.zeros(2), np.ones(2))
    gradients = [exact_gradient(network, rng.random(2).tolist()) for _ in range(20)]
    for gradient in gradients:
        assert_not_above(bounds, gradient)


@pytest.mark.parametrize("last", [-3e38, -1e-37])
@pytest.mark.parametrize("small_first", [True, False])
def test_underflow_of_a_multiplier_does_not_hide_a_derivative_behind_large_weights(small_first, last) -> None:
    # 9 layers of 1e-37 take the multiplier below float64's smallest number, 7 of 3e38 bring the derivative back:
    # seen from the one end or from the other
    small, large = [([[1e-37]], [1.0])] * 9, [([[3e38]], [1.0])] * 7
    network = network_of(*(small + large if small_first else large + small), ([[last]], [0.0]))
    assert exact_gradient(network, [0.5])[0] < 0
    attack(network, np.zeros(1), np.ones(1), np.random.default_rng(0), points=3)


def test_bounds_do_not_depend_on_how_leaves_are_batched() -> None:
    rng = np.random.default_rng(2)
    network = random_network(rng, 3, (8, 8))
    walls = np.sort(rng.normal(size=(2, 70, 3)), axis=0)
    one_by_one = bounds_of(network, walls[0], walls[1], batch=1)
    # summed in another order by another kernel: rounding alone
    np.testing.assert_allclose(bounds_of(network, walls[0], walls[1]), one_by_one, rtol=0, atol=1e-11)


def test_a_network_that_is_monotone_by_construction_needs_one_leaf() -> None:
    queries = [(0, 1), (3, -1)]
    network = monotone_network(5, (60, 50, 40), queries)
    bounds = bounds_of(network, np.full((1, 5), -3.0), np.full((1, 5), 3.0), queries)
    # outward rounding is all that it may lose
    assert (bounds > -1e-9).all()
