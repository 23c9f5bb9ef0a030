"""The checker's lines and bounds of tanh and the sigmoid against rational arithmetic: no tolerance but the oracle's."""

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models.verification.checker import relaxations
from models.verification.checker.archive import UNIT
from models.verification.checker.bounds import Box, _backward, bound_layers
from models.verification.checker.check import leaf_bounds, leaf_margins
from models.verification.checker.relaxations import ACTIVATIONS, CURVE, Kind, scaled
from models.verification.network.graph import Affine, FloatArray, Graph, Layer
from tests.models.verification.graphs import exact, exact_activation, exact_gradient, exact_slope, exact_weights

relaxed = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
CURVES: tuple[Kind, ...] = ("tanh", "sigmoid")
ORACLE = Fraction(1, 10**39)  # what exact_activation and exact_slope may be off by
WALLS = st.floats(-3, 3) | st.floats(-40, 40) | st.floats(-1e-9, 1e-9) | st.sampled_from([0.0, -1e300, 1e300, 1e-300])


def layer_of(kind: Kind) -> Layer:
    assert kind != "identity"
    return Layer(Affine({0: np.eye(1)}, np.zeros(1)), kind)


def exact_value(kind: Kind, z: float) -> Fraction:
    return exact_activation(layer_of(kind), Fraction(z))


def points_between(low: float, high: float, inner: float) -> set[Fraction]:
    walls = Fraction(low), Fraction(high)
    return {*walls, walls[0] + Fraction(inner) * (walls[1] - walls[0])} | ({Fraction(0)} if low <= 0 <= high else set())


def test_numpys_tanh_is_within_a_quarter_of_what_is_assumed() -> None:
    rng = np.random.default_rng(0)
    z = np.concatenate([rng.normal(size=1500) * 10.0 ** rng.uniform(-6, 1.5, size=1500), np.linspace(-22, 22, 1500)])
    for values, kind in ((np.tanh(z), "tanh"), (relaxations._sigmoid(z), "sigmoid")):
        off = max(abs(Fraction(float(a)) - exact_value(kind, float(x))) for a, x in zip(values, z, strict=True))
        assert off <= Fraction(CURVE * UNIT / 4) + ORACLE


@settings(max_examples=400, deadline=None)
@given(first=WALLS, second=WALLS, near=st.sampled_from([None, 1e-15, 1e-6]), inner=st.floats(0, 1),
       kind=st.sampled_from(CURVES))
def test_lines_of_a_curve_hold_at_the_walls_at_zero_and_between(first, second, near, inner, kind) -> None:
    low, high = sorted((first, second if near is None else first + near * abs(first)))
    lines = ACTIVATIONS[kind].lines(np.array([[low]]), np.array([[high]]))
    below_slope, below, above_slope, above, least, most = (Fraction(float(one[0, 0])) for one in lines)
    for z in points_between(low, high, inner):
        value = exact_activation(layer_of(kind), z)
        assert below_slope * z + below <= value + ORACLE and value - ORACLE <= above_slope * z + above
        assert least <= value + ORACLE and value - ORACLE <= most


@settings(max_examples=400, deadline=None)
@given(first=WALLS, second=WALLS, inner=st.floats(0, 1), kind=st.sampled_from(CURVES))
def test_no_derivative_of_a_curve_leaves_its_interval(first, second, inner, kind) -> None:
    low, high = sorted((first, second))
    least, most = (float(one[0, 0]) for one in ACTIVATIONS[kind].slopes(np.array([[low]]), np.array([[high]])))
    assert 0 <= least <= most <= 1
    for z in points_between(low, high, inner):
        slope = exact_slope(layer_of(kind), z, exact_activation(layer_of(kind), z))
        assert Fraction(least) - ORACLE <= slope <= Fraction(most) + ORACLE


@settings(max_examples=400, deadline=None)
@given(first=WALLS, second=WALLS, inner=st.floats(0, 1), share=st.floats(0, 1), ends=st.tuples(
    st.floats(0, 1), st.floats(0, 1)))
def test_lines_of_a_product_hold_for_every_factor_in_its_interval(first, second, inner, share, ends) -> None:
    (low, high), (least, most) = sorted((first, second)), sorted(ends)
    below_slope, below, above_slope, above, *walls = (
        Fraction(float(one[0, 0])) for one in scaled(*(np.array([[one]]) for one in (least, most, low, high))))
    rounded = Fraction(2 * UNIT) * max(map(abs, walls)) + Fraction(1, 10**300)  # of the walls, which the sums charge
    for z in points_between(low, high, inner):
        for factor in (Fraction(least), Fraction(most), Fraction(least) + Fraction(share) * Fraction(most - least)):
            if factor <= Fraction(most):
                assert below_slope * z + below <= factor * z <= above_slope * z + above
                assert walls[0] - rounded <= factor * z <= walls[1] + rounded


@pytest.mark.parametrize("kind", CURVES)
@pytest.mark.parametrize("wall", [1e308, math.inf, math.nan])
def test_what_left_the_range_is_no_proof(kind: Kind, wall: float) -> None:
    ones = [np.ones((1, 1))] * 3
    rows = np.ones((1, 1, 1, 1)), np.full((1, 1, 1), 2.0)
    lower, upper = np.full((1, 1), -wall), np.full((1, 1), wall)
    margin = leaf_margins(ones, [np.zeros(1)] * 3, lower, upper, *rows, kinds=[kind, kind])[0, 0]
    slope = leaf_bounds(ones, [np.zeros(1)] * 3, lower, upper, [(0, 1)], kinds=[kind, kind])[0, 0]
    assert not margin > 3 and not slope > 0


def network(rng: np.random.Generator, sizes: list[int], kinds: list[Kind], scale: float) -> Graph:
    weights = [rng.normal(size=(after, before)) * scale for before, after in pairwise(sizes)]
    affines = [Affine({k: weight}, rng.normal(size=len(weight)) * scale) for k, weight in enumerate(weights)]
    return Graph(sizes[0], tuple(Layer(a, kind) for a, kind in zip(affines, kinds, strict=False)),  # type: ignore[arg-type]
                 affines[-1])


def chained(graph: Graph) -> tuple[list[FloatArray], list[FloatArray]]:
    return [a.matrices[k] for k, a in enumerate(graph.affines)], [a.offset for a in graph.affines]


@st.composite
def cases(draw: st.DrawFn) -> tuple[Graph, list[Kind], FloatArray, FloatArray, np.random.Generator]:
    """A network with at least one curve, a box, down to a point."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kinds = draw(st.lists(st.sampled_from([*CURVES, "relu"]), min_size=1, max_size=3).filter(set(CURVES).intersection))
    sizes = [draw(st.integers(1, 3)), *(draw(st.integers(1, 5)) for _ in kinds), 1]
    graph = network(rng, sizes, kinds, draw(st.sampled_from([0.1, 1.0, 5.0])))
    centre, width = rng.normal(size=sizes[0]), draw(st.sampled_from([0.0, 1e-12, 1e-3, 0.3, 5.0]))
    return graph, kinds, centre, centre + width * rng.random(sizes[0]), rng


def inside(rng: np.random.Generator, low: FloatArray, high: FloatArray) -> list[list[float]]:
    points = [low, high, *(np.clip(low + rng.random(len(low)) * (high - low), low, high) for _ in range(3))]
    return [point.tolist() for point in points]


@relaxed
@given(case=cases())
def test_no_exact_value_lies_beyond_its_bounds(case) -> None:
    graph, kinds, low, high, rng = case
    rows = np.array([[[[1.0]], [[-1.0]]]])
    bounds = leaf_margins(*chained(graph), low[None], high[None], rows, np.zeros((1, 2, 1)), kinds=kinds)[0]
    for point in inside(rng, low, high):
        (y,) = exact(graph, exact_weights(graph), point).y
        assert Fraction(float(bounds[0])) <= y + ORACLE and Fraction(float(bounds[1])) <= -y + ORACLE


@relaxed
@given(case=cases())
def test_no_exact_derivative_lies_below_its_bound(case) -> None:
    graph, kinds, low, high, rng = case
    queries = [(feature, sign) for feature in range(graph.inputs) for sign in (1, -1)]
    for enough in (None, np.full(len(queries), -np.inf)):
        bounds = leaf_bounds(*chained(graph), low[None], high[None], queries, kinds=kinds, enough=enough)[0]
        for point in inside(rng, low, high):
            weights = exact_weights(graph)
            at = exact(graph, weights, point)
            for (feature, sign), bound in zip(queries, bounds, strict=True):
                slopes = exact_gradient(graph, weights, at, feature)
                if slopes is not None:
                    assert Fraction(float(bound)) <= sign * slopes[0] + ORACLE * 10**6  # slopes times weights


def test_constants_of_either_sign_are_summed_outwards() -> None:
    """At a point rounding alone is lost: of 400 constants of one sign, times 1 + eps, more than the lines' slack."""
    rng, width = np.random.default_rng(0), 400
    graph = Graph(1, (Layer(Affine({0: rng.normal(size=(width, 1))}, rng.uniform(1, 2, width)), "sigmoid"),),
                  Affine({1: rng.uniform(0.5, 1, (1, width))}, np.zeros(1)))
    weights, biases = chained(graph)
    for x in rng.normal(size=20).tolist():
        point = Box(*np.full((2, 1, 1), x))
        layers = bound_layers(weights[:-1], biases[:-1], point, [ACTIVATIONS["sigmoid"].lines])
        below, above = (_backward(layers, point, sign * weights[-1], np.zeros(1), np.zeros(1, dtype=np.intp))[0]
                        for sign in (1, -1))
        (y,) = exact(graph, exact_weights(graph), [x]).y
        assert Fraction(float(below)) <= y + ORACLE * width and y - ORACLE * width <= -Fraction(float(above))


@pytest.mark.parametrize("kind", CURVES)
def test_bounds_of_small_leaves_come_near_the_values(kind: Kind) -> None:
    """Chords and tangents are off by the square of a leaf's width: halves have a quarter of the gap."""
    graph = network(np.random.default_rng(3), [2, 6, 6, 1], [kind, kind], 1.0)
    gaps = []
    for width in (0.02, 0.01):
        low, high = np.full((1, 2), 0.3), np.full((1, 2), 0.3 + width)
        bound = leaf_margins(*chained(graph), low, high, np.ones((1, 1, 1, 1)), np.zeros((1, 1, 1)),
                             kinds=[kind, kind])[0, 0]
        least = min(graph.value(np.array([[a, b]]))[0, 0] for a in np.linspace(0.3, 0.3 + width, 21)
                    for b in np.linspace(0.3, 0.3 + width, 21))
        gaps.append(least - bound)
    assert 0 < gaps[1] < 0.3 * gaps[0]
