"""No derivative of the exact network is ever below its bound, from either end. Oracle: rational arithmetic."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models.verification.bounds import linear_bounds
from models.verification.bounds.derivative_margins import DerivativeMargins, Ends, Walls
from models.verification.bounds.end_choice import BOTH
from models.verification.bounds.linear_bounds import Bounder
from models.verification.network.graph import Affine, FloatArray, Graph, Layer, dense_graph
from models.verification.network.graph_tensors import GraphTensors
from models.verification.obligations.slopes import Slopes
from models.verification.search.branch_and_bound import Margins
from tests.models.verification.bounds.test_linear_bounds import network_that_underflows
from tests.models.verification.bounds.test_relaxation import flushed_or_not, flushing
from tests.models.verification.graphs import (
    DTYPES,
    KINDS,
    box_points,
    exact,
    exact_gradient,
    exact_weights,
    graphs_and_boxes,
    random_boxes,
    random_graph,
)
from tests.models.verification.hard_networks import annihilating_networks, kinks_where_sums_cancel, wild_networks

attack = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
POINTS = 6
# from which ends of the network, and whether refined
Way = tuple[Ends, bool]
PLAIN: Way = (BOTH, False)
ways = st.sampled_from([(ends, refine) for ends in (("output",), ("input",)) for refine in (False, True)]
                       + [(BOTH, True)])
from_each_end = pytest.mark.parametrize("end", ["output", "input"])
in_both_types = pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES.keys())


def margins(graph: Graph, features, rows, lower, upper, dtype: torch.dtype, allowed: float = 0.0,
            way: Way = PLAIN) -> Margins:
    slopes = Slopes(tuple(features), np.array(rows, dtype=np.float64), np.full(len(features), allowed))
    walls = Walls(*(torch.as_tensor(np.atleast_2d(wall)).double() for wall in (lower, upper)))
    return DerivativeMargins(graph, slopes, dtype, "cpu").margins(walls, *way)


def interval(graph: Graph, feature: int, lower, upper, dtype: torch.dtype,
             way: Way = PLAIN) -> tuple[FloatArray, FloatArray]:
    """Bounds of dy[0]/dx[feature] over boxes: (R,) each."""
    row = np.eye(graph.outputs)[[0]]
    low, high = (margins(graph, [feature], sign * row, lower, upper, dtype, way=way).margin.double().numpy()
                 for sign in (1, -1))
    return low, -high


def all_slopes(graph: Graph, rng: np.random.Generator) -> tuple[list[int], FloatArray]:
    """Both signs of every output by every input, and one mixed row each."""
    rows = np.vstack([np.eye(graph.outputs), -np.eye(graph.outputs), rng.normal(size=(1, graph.outputs))])
    rows = rows.astype(np.float32).astype(np.float64)
    return [i for i in range(graph.inputs) for _ in rows], np.tile(rows, (graph.inputs, 1))


def assert_sound(case, dtype: torch.dtype, way: Way, size: float = 1.0, flushed: bool = False) -> None:
    """Of rows of this size."""
    graph, lower, upper, rng = case
    features, rows = all_slopes(graph, rng)
    rows = rows * size
    with flushing(flushed):
        each = [margins(graph, [f], row[None], lower, upper, dtype, way=way).margin
                for f, row in zip(features, rows, strict=True)]
        together = margins(graph, features, rows, lower, upper, dtype, way=way).margin
    for r in range(len(lower)):
        for x in box_points(rng, lower[r], upper[r], POINTS):
            weights = exact_weights(graph, rng)
            at = exact(graph, weights, x)
            gradients = [exact_gradient(graph, weights, at, feature) for feature in range(graph.inputs)]
            values = [None if (g := gradients[f]) is None else
                      sum((Fraction(c) * d for c, d in zip(row, g, strict=True)), Fraction(0))
                      for f, row in zip(features, rows.tolist(), strict=True)]
            for q, value in enumerate(values):
                bound = each[q][r].item()
                assert value is None or not bound > value, (q, float(value), bound)
            if all(value is not None for value in values):
                assert not together[r].item() > min(values)  # type: ignore[type-var]


@in_both_types
@attack
@given(case=graphs_and_boxes(), way=ways)
def test_no_exact_derivative_is_below_its_bound(dtype, case, way) -> None:
    assert_sound(case, dtype, way)


@in_both_types
@attack
@given(case=graphs_and_boxes(kinds=("relu", "leaky_relu"), sizes=(0.3, 3.0), deepest=5, widest=4), way=ways)
def test_no_exact_derivative_of_a_deep_network_is_below_its_bound(dtype, case, way) -> None:
    assert_sound(case, dtype, way)


@in_both_types
@attack
@given(case=graphs_and_boxes(spread=20.0, sizes=(0.0, 1e-9, 1.0, 1e6, 1e20)), way=ways)
def test_no_exact_derivative_is_below_its_bound_at_any_magnitude(dtype, case, way) -> None:
    assert_sound(case, dtype, way)


@in_both_types
@attack
@given(case=st.one_of(annihilating_networks(), kinks_where_sums_cancel(), wild_networks()), way=ways)
def test_no_exact_derivative_is_below_its_bound_where_sums_cancel(dtype, case, way) -> None:
    network, lower, upper, rng = case
    assert_sound((network.graph, np.atleast_2d(lower), np.atleast_2d(upper), rng), dtype, way)


@in_both_types
@flushed_or_not
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32 - 1), size=st.sampled_from([1.0, 2.0**70, 2.0**-70]), way=ways)
def test_no_exact_derivative_is_below_its_bound_where_coefficients_underflow(dtype, flushed, seed, size, way) -> None:
    rng = np.random.default_rng(seed)
    assert_sound((*network_that_underflows(rng, dtype), rng), dtype, way, size, flushed)


# --- rounding ----------------------------------------------------------------------------------------------


@in_both_types
@from_each_end
def test_the_sums_over_a_wide_layer_are_charged_by_its_width(dtype, end) -> None:
    # 1000 neurons; to the first one's weight the others' add less than half an ulp each. The part of size 1 cancels
    unit, width = torch.finfo(dtype).eps / 2, 1000
    small, left = float(np.float32(0.99 * unit)), 2**12 * unit
    first, second = np.full((width, 1), small), np.ones((2, width))
    first[0], second[1, 1:] = 1.0, 0.0
    graph = dense_graph([first, second, np.array([[1.0, left - 1]])], [np.ones(width), np.ones(2), np.zeros(1)])
    value = Fraction(left) + (width - 1) * Fraction(small)
    low, high = interval(graph, 0, np.array([1.0]), np.array([1.0]), dtype, ((end,), False))
    assert low[0] <= value <= high[0]


@pytest.mark.parametrize(("dtype", "large"), [(torch.float32, 8e37), (torch.float64, 8e307)], ids=DTYPES.keys())
@from_each_end
def test_where_the_type_overflows_nothing_is_known_of_the_slope(dtype, large, end) -> None:
    # the third layer's bounds are NaN, which once counted as a neuron that is never active: a slope of 0
    graph = dense_graph([np.array([[w]]) for w in (1.0, large, 1e-38, 1.0)], [np.zeros(1)] * 4)
    found = margins(graph, [0], [[-1.0]], np.array([1.8]), np.array([2.0]), dtype, way=((end,), False))
    assert not found.margin[0] > -0.79


@pytest.mark.parametrize(("dtype", "weight", "last"), [(torch.float32, 1e-25, 1e30), (torch.float64, 1e-170, 1e300)],
                         ids=DTYPES.keys())
@from_each_end
def test_coefficients_that_underflow_are_charged(dtype, weight, last, end) -> None:
    graph = dense_graph([np.array([[w]]) for w in (weight, weight, last)], [np.ones(1), np.ones(1), np.zeros(1)])
    low, high = interval(graph, 0, np.array([1.0]), np.array([1.0]), dtype, ((end,), False))
    assert low[0] <= Fraction(weight) ** 2 * Fraction(last) <= high[0]


@pytest.mark.parametrize("weights", [(1e-50, 1e35), (1e35, 1e-50), (1e-50,)], ids=["first", "last", "direct"])
@from_each_end
def test_float64_weights_too_small_for_float32_are_charged(weights, end) -> None:
    graph = dense_graph([np.array([[w]]) for w in weights], [np.ones(1) for _ in weights])
    size = 1.0 if len(weights) > 1 else 1e35
    value = Fraction(size)
    for w in weights:
        value *= Fraction(w)
    low, high = (sign * margins(graph, [0], [[sign * size]], np.ones(1), np.ones(1), torch.float32,
                                way=((end,), False)).margin[0].item()
                 for sign in (1, -1))
    assert low <= value <= high


@pytest.mark.parametrize(("dtype", "end", "seeds"), [
    (torch.float32, "output", (1, 11, 54)), (torch.float64, "output", (71, 325)),
    (torch.float32, "input", (44, 54, 82)), (torch.float64, "input", (130, 227))])
def test_without_the_charge_for_underflow_bounds_would_be_wrong(dtype, end, seeds, monkeypatch) -> None:
    def holds(seed: int) -> bool:
        rng = np.random.default_rng(seed)
        try:
            assert_sound((*network_that_underflows(rng, dtype), rng), dtype, ((end,), False), 2.0**70)
        except AssertionError:
            return False
        return True

    assert all(map(holds, seeds))
    init = Bounder.__init__

    def without(self: Bounder, *arguments) -> None:
        init(self, *arguments)
        self.floor = 0.0
        self._set_costs()

    monkeypatch.setattr(Bounder, "__init__", without)
    assert not any(map(holds, seeds))  # they were picked: most networks do without


@in_both_types
@from_each_end
def test_without_the_charge_for_rounding_bounds_would_be_wrong(dtype, end, monkeypatch) -> None:
    graph = random_graph(np.random.default_rng(0), 2, (20, 20), 1)
    x = np.random.default_rng(1).normal(size=(30, 2))
    weights = exact_weights(graph)
    values = [exact_gradient(graph, weights, exact(graph, weights, point), 0)[0] for point in x]  # type: ignore[index]

    def holds() -> bool:
        low, high = interval(graph, 0, x, x, dtype, ((end,), False))
        return all(a <= value <= b for a, value, b in zip(low, values, high, strict=True))

    assert holds()
    monkeypatch.setattr(Bounder, "eps", lambda self, terms: 0.0)
    assert not holds()


# --- tightness ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@in_both_types
@from_each_end
def test_a_box_of_one_point_gives_the_exact_derivative(dtype, kind, end) -> None:
    graph = random_graph(np.random.default_rng(2), 3, (8, 8, 8), 2, (kind,), skips=0.5)
    x = np.random.default_rng(3).normal(size=(6, 3))
    row = torch.zeros(2, dtype=torch.float64)
    row[0] = 1
    gradient = GraphTensors(graph).gradient(torch.as_tensor(x), row).numpy()
    slack = 2e4 * torch.finfo(dtype).eps  # tanh's and sigmoid's derivatives are known to 64 units
    for feature in range(3):
        low, high = interval(graph, feature, x, x, dtype, ((end,), False))
        np.testing.assert_allclose(low, gradient[:, feature], atol=slack)
        np.testing.assert_allclose(high, gradient[:, feature], atol=slack)


@in_both_types
@from_each_end
def test_one_hidden_layer_is_bounded_exactly(dtype, end) -> None:
    # its terms are independent: the least derivative has every open neuron where it does most harm
    graph = random_graph(np.random.default_rng(4), 2, (9,), 1)
    lower, upper = np.full(2, -10.0), np.full(2, 10.0)
    weight, offset = graph.layers[0].affine.matrices[0], graph.layers[0].affine.offset
    reach = np.abs(weight) @ np.full(2, 10.0)
    terms = graph.output.matrices[1][0] * weight[:, 0]
    on, open_ = offset - reach > 0, (offset - reach < 0) & (offset + reach > 0)
    low, high = interval(graph, 0, lower, upper, dtype, ((end,), False))
    assert open_.any()
    assert low[0] == pytest.approx(terms[on].sum() + np.minimum(terms[open_], 0).sum(), abs=1e-4)
    assert high[0] == pytest.approx(terms[on].sum() + np.maximum(terms[open_], 0).sum(), abs=1e-4)


@in_both_types
@from_each_end
def test_pieces_and_batches_of_any_size_give_the_same_bounds(dtype, end, monkeypatch) -> None:
    graph = random_graph(np.random.default_rng(5), 3, (8, 8, 8), 2, skips=0.5)
    lower, upper = random_boxes(np.random.default_rng(6), 7, 3, 0.3)
    features, rows = [0, 1, 2, 2], np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    together = margins(graph, features, rows, lower, upper, dtype, way=((end,), True)).margin
    monkeypatch.setattr(linear_bounds, "CHUNK_ELEMENTS", 1)
    pieces = margins(graph, features, rows, lower, upper, dtype, way=((end,), True)).margin
    torch.testing.assert_close(pieces, together, atol=1e4 * torch.finfo(dtype).eps, rtol=0)


def test_the_least_of_several_slopes_decides_and_the_allowance_counts() -> None:
    graph = Graph(2, (), Affine({0: np.array([[3.0, -2.0], [0.5, 1.0]])}, np.zeros(2)))
    found = margins(graph, [0, 1, 1], [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], np.zeros(2), np.ones(2), torch.float64, 2.5)
    assert found.margin[0].item() == pytest.approx(0.5) and found.proved[0]
    found = margins(graph, [0, 1], [[1.0, 0.0], [1.0, 0.0]], np.zeros(2), np.ones(2), torch.float64, 1.5)
    assert found.margin[0].item() == pytest.approx(-0.5) and not found.proved[0]


def test_a_network_without_hidden_layers_is_bounded_over_several_boxes() -> None:
    graph = Graph(1, (), Affine({0: np.array([[-2.0]])}, np.zeros(1)))
    found = margins(graph, [0], [[1.0]], np.array([[0.0], [1.0]]), np.array([[1.0], [2.0]]), torch.float64)
    np.testing.assert_allclose(found.margin.numpy(), [-2.0, -2.0])
    assert not found.proved.any() and found.split_score.shape == (2, 1)


def test_suspects_lie_in_their_boxes_and_only_inputs_with_width_are_split() -> None:
    graph = random_graph(np.random.default_rng(7), 3, (10, 10, 10), 1)
    lower, upper = random_boxes(np.random.default_rng(8), 5, 3, 1.0, flat=0.4)
    found = margins(graph, [0, 1, 2], np.ones((3, 1)), lower, upper, torch.float64)
    assert ((found.suspect.numpy() >= lower) & (found.suspect.numpy() <= upper)).all()
    assert (found.split_score.numpy()[lower == upper] == 0).all()
    assert (found.split_score >= 0).all()
    assert found.split_share is not None and ((found.split_share > 0) & (found.split_share < 1)).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("sign", "wall"), [(1.0, 0.25), (-1.0, 0.75)])
def test_a_box_is_cut_where_one_neuron_proves_a_part_of_it(sign: float, wall: float, dtype: torch.dtype) -> None:
    # y = 2 relu(+-(x0 - wall)) - relu(+-(x0 - x1)): monotone where the first neuron is on, not beyond
    layer = Layer(Affine({0: sign * np.array([[1.0, 0.0], [1.0, -1.0]])}, np.array([-sign * wall, 0.0])))
    graph = Graph(2, (layer,), Affine({1: np.array([[2.0, -1.0]])}, np.zeros(1)))
    found = margins(graph, [0], [[sign]], np.zeros(2), np.ones(2), dtype)
    assert not found.proved[0] and found.split_share is not None
    assert found.split_score[0].argmax() == 0
    assert found.split_share[0].tolist() == pytest.approx([wall, 0.5], abs=2e-3)
    # the wall stands inside of the part that is proved
    cut = float(found.split_share[0, 0])
    lower, upper = (np.array([cut, 0.0]), np.ones(2)) if sign > 0 else (np.zeros(2), np.array([cut, 1.0]))
    assert margins(graph, [0], [[sign]], lower, upper, dtype).proved[0]


def test_a_box_is_not_cut_where_a_neuron_makes_up_for_one_of_two_slopes_only() -> None:
    layer = Layer(Affine({0: np.array([[1.0, 0.0], [1.0, -1.0], [0.0, 1.0]])}, np.array([-0.25, 0.0, -0.5])))
    graph = Graph(2, (layer,), Affine({1: np.array([[2.0, -1.0, -1.0]])}, np.zeros(1)))
    found = margins(graph, [0, 1], np.ones((2, 1)), np.zeros(2), np.ones(2), torch.float64)
    assert found.split_share is not None and (found.split_share == 0.5).all()


def test_a_layer_that_nothing_takes_has_no_say() -> None:
    one = np.ones((1, 1))
    layers = (Layer(Affine({0: one}, np.zeros(1))), Layer(Affine({0: -one}, np.zeros(1))))
    graph = Graph(1, layers, Affine({1: one}, np.zeros(1)))
    low, high = interval(graph, 0, np.array([1.0]), np.array([2.0]), torch.float64)
    assert low[0] == pytest.approx(1.0) and high[0] == pytest.approx(1.0)
