"""The normal form refuses what it cannot hold, and says how far float64 may be off. Oracle: rational arithmetic."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from feature_store.errors import InputError
from models.verification.network.graph import LEAST_LEAK, Affine, Graph, Kind, Layer, dense_graph
from tests.models.verification.graphs import box_points, exact, exact_weights, graphs_and_boxes

attack = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
ONE = Affine({0: np.ones((1, 1))}, np.zeros(1))
LAST = Affine({1: np.ones((1, 1))}, np.zeros(1))


@pytest.mark.parametrize("kind", ["relu", "tanh", "sigmoid"])
def test_only_a_leaky_relu_has_a_leak(kind: Kind) -> None:
    with pytest.raises(InputError, match=f"leak must be 0 for {kind}, got 0.1 .layer 0"):
        Graph(1, (Layer(ONE, kind, 0.1),), LAST)
    Graph(1, (Layer(ONE, kind, 0.0),), LAST)


@pytest.mark.parametrize("leak", [-0.1, 1.0, float("nan")])
def test_a_leak_lies_between_0_and_1(leak) -> None:
    with pytest.raises(InputError, match=r"leak must be in \[0, 1\)"):
        Graph(1, (Layer(ONE, "leaky_relu", leak),), LAST)


def test_a_leak_that_float32_would_lose_is_refused() -> None:
    for leak in (5e-324, 1e-45, 0.99 * LEAST_LEAK):
        with pytest.raises(InputError, match="leak must be 0 or at least 1e-30"):
            Graph(1, (Layer(ONE, "leaky_relu", leak),), LAST)
    for leak in (0.0, LEAST_LEAK, 0.999):
        Graph(1, (Layer(ONE, "leaky_relu", leak),), LAST)


@pytest.mark.parametrize(("affine", "message"), [
    (Affine({0: np.ones((1, 2))}, np.zeros(1)), "matrix must fit its source"),
    (Affine({1: np.ones((1, 1))}, np.zeros(1)), "matrix must fit its source"),
    (Affine({0: np.full((1, 1), np.inf)}, np.zeros(1)), "weights must be finite"),
    (Affine({0: np.ones((1, 1))}, np.full(1, np.nan)), "weights must be finite"),
    (Affine({0: np.ones((1, 1))}, np.zeros(1), {0: -np.ones((1, 1))}), "error bounds must be finite"),
    (Affine({0: np.ones((1, 1))}, np.zeros(1), {0: np.ones((1, 2))}), "error bounds must be finite"),
    (Affine({}, np.zeros(1)), "layer must depend on a source"),
    (Affine({0: np.ones((0, 1))}, np.zeros(0)), "layer must have at least one neuron")],
    ids=["shape", "later-source", "infinite", "nan", "negative-error", "error-shape", "no-source", "no-neuron"])
def test_what_does_not_fit_is_refused(affine, message) -> None:
    with pytest.raises(InputError, match=f"{message}.*layer 0"):
        Graph(1, (Layer(affine),), LAST)


def assert_within_rounding(graph: Graph, points, rng: np.random.Generator) -> None:
    stated, rounding = graph.value(points), graph.rounding(points)
    for x, values, offs in zip(points, stated.tolist(), rounding.tolist(), strict=True):
        for value, off, y in zip(values, offs, exact(graph, exact_weights(graph, rng), x).y, strict=True):
            assert not np.isfinite(value + off) or abs(Fraction(value) - y) <= Fraction(off)


@attack
@given(case=graphs_and_boxes(spread=5.0))
def test_no_exact_value_is_farther_from_that_of_float64_than_its_rounding(case) -> None:
    graph, lower, upper, rng = case
    points = [box_points(rng, *walls, 4) for walls in zip(lower, upper, strict=True)]
    assert_within_rounding(graph, np.concatenate(points), rng)


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_rounding_covers_what_underflows(seed) -> None:
    # values of each layer anywhere in float64, by weights that make up for it
    rng = np.random.default_rng(seed)
    scales = 10.0 ** rng.uniform(-310, 300, size=5)
    with np.errstate(over="ignore", divide="ignore"):
        weights = [np.clip(rng.normal(size=(2, 2)) * (after / before), -1e300, 1e300)
                   for before, after in pairwise(scales)]
    graph = dense_graph(weights, [np.zeros(2)] * 4)
    with np.errstate(over="ignore", invalid="ignore"):
        assert_within_rounding(graph, rng.normal(size=(3, 2)) * scales[0], rng)


def test_products_that_underflow_are_off_by_more_than_their_relative_error() -> None:
    # 1e-200 x 1e-200 x 1e300 is 1e-100, of which float64 keeps nothing
    graph = dense_graph([np.full((1, 1), 1e-200), np.full((1, 1), 1e300)], [np.zeros(1)] * 2)
    x = np.full((1, 1), 1e-200)
    assert graph.value(x)[0, 0] == 0 and graph.rounding(x)[0, 0] >= 1e-100
