"""No value of the exact network ever leaves the bounds. Oracle: rational arithmetic (graphs.py)."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models.verification.bounds import linear_bounds
from models.verification.bounds.linear_bounds import BackwardPass, Bounder, Boxes, LayerBounds, Rows
from models.verification.network.graph import Affine, Graph, Layer, dense_graph
from tests.models.verification.bounds.test_relaxation import flushed_or_not, flushing
from tests.models.verification.graphs import (
    DTYPES,
    KINDS,
    box_points,
    exact,
    exact_weights,
    graphs_and_boxes,
    random_boxes,
    random_graph,
)
from tests.models.verification.hard_networks import annihilating_networks, kinks_where_sums_cancel, wild_networks

attack = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
POINTS = 8
in_both_types = pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES.keys())
# decades of the values of a network that underflows
MAGNITUDES = {torch.float32: (-44.0, 36.0), torch.float64: (-300.0, 290.0)}


def network_that_underflows(rng: np.random.Generator, dtype: torch.dtype):
    """(graph, lower (1, n), upper (1, n)): each layer's values are of a size of their own, of any that the type has.

    So its weights, and products of them, leave the type on the small side, and meet values that make up for it.
    """
    sizes = [int(rng.integers(1, 3)), *rng.integers(1, 4, size=rng.integers(1, 5)).tolist(), int(rng.integers(1, 3))]
    scales = 10.0 ** rng.uniform(*MAGNITUDES[dtype], size=len(sizes))
    most = torch.finfo(dtype).max / 8
    affines = []
    for k, rows in enumerate(sizes[1:]):
        sources = sorted({k} | {s for s in range(k) if rng.random() < 0.2})
        with np.errstate(over="ignore"):
            matrices = {s: np.clip(rng.normal(size=(rows, sizes[s])) * 10.0 ** rng.uniform(-3, 0, (rows, sizes[s]))
                                   * (scales[k + 1] / scales[s]), -most, most) for s in sources}
        affines.append(Affine(matrices, rng.normal(size=rows) * scales[k + 1] * rng.choice([0, 1e-3, 1.0])))
    layers = []
    for affine in affines[:-1]:
        kind = KINDS[int(rng.choice([0, 0, 0, 1, 1, 2, 3]))]
        layers.append(Layer(affine, kind, float(rng.choice([0, 1e-29, 0.01])) if kind == "leaky_relu" else 0.0))
    centre = rng.normal(size=(1, sizes[0])) * scales[0]
    radius = np.abs(rng.normal(size=centre.shape)) * scales[0] * rng.choice([0, 1e-30, 1e-6, 1.0])
    return Graph(sizes[0], tuple(layers), affines[-1]), centre - radius, centre + radius


def boxes_of(bounder: Bounder, lower, upper) -> Boxes:
    return bounder.boxes(torch.as_tensor(np.atleast_2d(lower)).double(), torch.as_tensor(np.atleast_2d(upper)).double())


def rows_of(coefficients: torch.Tensor, constant: torch.Tensor) -> Rows:
    return Rows(coefficients, constant, coefficients.abs(), constant.abs())


def output_bounds(graph: Graph, lower, upper, dtype: torch.dtype, refine: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of every output over every box: (R, o) each."""
    bounder = Bounder(graph, dtype)
    boxes = boxes_of(bounder, lower, upper)
    unit = torch.eye(graph.outputs, dtype=dtype).expand(len(boxes.centre), -1, -1)
    both = torch.cat([unit, -unit], 1)
    rows = rows_of(both, torch.zeros_like(both[..., 0]))
    found = bounder.lower_bound(bounder.layers(boxes, refine), boxes, rows).lower
    return found[:, : graph.outputs].double().numpy(), -found[:, graph.outputs :].double().numpy()


def random_slopes(found: list[LayerBounds], queries: int) -> dict[int, torch.Tensor]:
    """Lower slopes anywhere in what an activation allows."""
    generator = torch.Generator().manual_seed(0)
    chosen = {}
    for k, bound in enumerate(found):
        share = torch.rand(len(bound.z_low), queries, bound.z_low.shape[1], generator=generator).to(bound.z_low.dtype)
        chosen[k] = bound.lines.least[:, None] + share.round(decimals=1) * bound.lines.freedom[:, None]
    return chosen


def assert_sound(case, dtype: torch.dtype, refine: bool, size: float = 1.0, flushed: bool = False) -> None:
    """Of rows of this size."""
    graph, lower, upper, rng = case
    coefficients = torch.as_tensor(size * rng.normal(size=(len(lower), 4, graph.outputs)), dtype=dtype)
    coefficients[:, 0], coefficients[:, 1] = size, -size
    constant = torch.as_tensor(rng.normal(size=(len(lower), 4)) * (size == 1), dtype=dtype)
    with flushing(flushed):
        bounder = Bounder(graph, dtype)
        boxes = boxes_of(bounder, lower, upper)
        found = bounder.layers(boxes, refine)
        rows = rows_of(coefficients, constant)
        passes: list[BackwardPass] = [bounder.lower_bound(found, boxes, rows),
                                      bounder.lower_bound(found, boxes, rows, random_slopes(found, 4))]
    for r in range(len(lower)):
        for x in box_points(rng, lower[r], upper[r], POINTS):
            at = exact(graph, exact_weights(graph, rng), x)
            for k, bound in enumerate(found):
                for z, low, high in zip(at.z[k], bound.z_low[r].tolist(), bound.z_high[r].tolist(), strict=True):
                    assert not low > z and not high < z, (k, float(z), low, high)
            for q in range(4):
                value = Fraction(constant[r, q].item()) + sum(
                    Fraction(c) * y for c, y in zip(coefficients[r, q].tolist(), at.y, strict=True))
                for found_pass in passes:
                    bound = found_pass.lower[r, q].item()
                    assert not bound > value, (q, float(value), bound, float(Fraction(bound) - value))


@pytest.mark.parametrize("refine", [False, True], ids=["forward", "refined"])
@in_both_types
@attack
@given(case=graphs_and_boxes())
def test_no_exact_value_leaves_the_bounds(dtype, refine, case) -> None:
    assert_sound(case, dtype, refine)


@pytest.mark.parametrize("refine", [False, True], ids=["forward", "refined"])
@in_both_types
@attack
@given(case=graphs_and_boxes(spread=20.0, sizes=(0.0, 1e-9, 1.0, 1e6, 1e20)))
def test_no_exact_value_leaves_the_bounds_at_any_magnitude(dtype, refine, case) -> None:
    assert_sound(case, dtype, refine)


@in_both_types
@attack
@given(case=st.one_of(annihilating_networks(), kinks_where_sums_cancel(), wild_networks()))
def test_no_exact_value_leaves_the_bounds_where_sums_cancel(dtype, case) -> None:
    network, lower, upper, rng = case
    assert_sound((network.graph, np.atleast_2d(lower), np.atleast_2d(upper), rng), dtype, True)


@in_both_types
@flushed_or_not
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32 - 1), size=st.sampled_from([1.0, 1e20, 1e-20]))
def test_no_exact_value_leaves_the_bounds_where_coefficients_underflow(dtype, flushed, seed, size) -> None:
    rng = np.random.default_rng(seed)
    assert_sound((*network_that_underflows(rng, dtype), rng), dtype, True, size, flushed)


# --- rounding ----------------------------------------------------------------------------------------------


@in_both_types
def test_without_the_charge_for_rounding_bounds_would_be_wrong(dtype, monkeypatch) -> None:
    # boxes of one point at which terms of size 1000 cancel: what is computed lies on either side of the exact value
    graph = random_graph(np.random.default_rng(0), 8, (), 1)
    x = np.random.default_rng(1).normal(size=(20, 8)) * 1000
    x[:, 7] -= graph.value(x)[:, 0] / graph.output.matrices[0][0, 7]
    x = x.astype(np.float32).astype(np.float64)
    values = [exact(graph, exact_weights(graph), point).y[0] for point in x]
    low, high = output_bounds(graph, x, x, dtype)
    assert all(a <= value <= b for a, value, b in zip(low[:, 0], values, high[:, 0], strict=True))
    monkeypatch.setattr(Bounder, "eps", lambda self, terms: 0.0)
    low, high = output_bounds(graph, x, x, dtype)
    assert not all(a <= value <= b for a, value, b in zip(low[:, 0], values, high[:, 0], strict=True))


def swallowing_graph(dtype: torch.dtype) -> Graph:
    """Of 1000 neurons the first has a slope of 1 and a value near 0; the others' slopes are below half an ulp of 1.

    Added to it one after the other they are lost, 1000 units in all, although the layer's own sums are of two terms.
    """
    unit, width = torch.finfo(dtype).eps / 2, 1000
    weight = np.zeros((width, 2))
    weight[:, 0] = np.float32(0.99 * unit)
    weight[0] = 1.0, 2**12 * unit - 1
    return dense_graph([weight, np.ones((1, width))], [np.zeros(width), np.zeros(1)])


@in_both_types
def test_the_sums_over_a_wide_layer_are_charged_by_its_width(dtype) -> None:
    graph, x = swallowing_graph(dtype), np.ones(2)
    (value,) = exact(graph, exact_weights(graph), x).y
    ((low,),), ((high,),) = output_bounds(graph, x, x, dtype)
    assert low <= value <= high


@in_both_types
def test_the_sums_over_many_outputs_are_charged_by_their_number(dtype) -> None:
    graph, x = swallowing_graph(dtype), np.ones(2)
    graph = Graph(2, (), graph.layers[0].affine)
    bounder = Bounder(graph, dtype)
    boxes = boxes_of(bounder, x, x)
    value = sum(exact(graph, exact_weights(graph), x).y)
    for sign in (1.0, -1.0):
        row = torch.full((1, 1, 1000), sign, dtype=dtype)
        found = bounder.lower_bound([], boxes, rows_of(row, torch.zeros(1, 1, dtype=dtype)))
        assert found.lower.item() <= sign * value


@pytest.mark.parametrize(("dtype", "weight", "x"), [
    (torch.float32, 1e-25, 1e30), (torch.float32, 1e-22, 3e37), (torch.float64, 1e-170, 1e300)],
    ids=["float32-lost", "float32-denormal", "float64-lost"])
def test_coefficients_that_underflow_are_charged(dtype, weight, x) -> None:
    graph = dense_graph([np.array([[weight]]), np.array([[weight]])], [np.zeros(1), np.zeros(1)])
    (value,) = exact(graph, exact_weights(graph), [x]).y
    ((low,),), ((high,),) = output_bounds(graph, np.array([x]), np.array([x]), dtype)
    assert low <= value <= high


def test_float64_weights_too_small_for_float32_are_charged() -> None:
    graph = Graph(1, (), Affine({0: np.array([[1e-50]])}, np.zeros(1)))
    ((low,),), ((high,),) = output_bounds(graph, np.array([1e35]), np.array([1e35]), torch.float32)
    assert low <= 1e-15 <= high


@in_both_types
def test_without_the_charge_for_underflow_bounds_would_be_wrong(dtype, monkeypatch) -> None:
    def holds(seed: int) -> bool:
        rng = np.random.default_rng(seed)
        try:
            assert_sound((*network_that_underflows(rng, dtype), rng), dtype, True, 1e20)
        except AssertionError:
            return False
        return True

    seeds = range(60)
    assert all(map(holds, seeds))
    init = Bounder.__init__

    def without(self: Bounder, *arguments) -> None:
        init(self, *arguments)
        self.floor = 0.0
        self._set_costs()

    monkeypatch.setattr(Bounder, "__init__", without)
    assert not all(map(holds, seeds))


@in_both_types
def test_the_charge_for_underflow_takes_nothing_from_ordinary_bounds(dtype) -> None:
    graph = random_graph(np.random.default_rng(0), 4, (20, 20, 20), 3)
    bounder = Bounder(graph, dtype)
    boxes = boxes_of(bounder, *random_boxes(np.random.default_rng(1), 5, 4, 1.0))
    found = bounder.layers(boxes)
    unit = torch.eye(3, dtype=dtype).expand(5, -1, -1)
    charge = bounder.lower_bound(found, boxes, rows_of(unit, torch.zeros_like(unit[..., 0]))).charge
    assert (found[-1].floor < 1e-20 * charge).all()


@in_both_types
def test_the_charge_of_a_pass_begins_with_the_first_product(dtype) -> None:
    # at one point without a radius all that a bound is off by is charge, half of which is the outputs' own
    graph, x = random_graph(np.random.default_rng(0), 8, (), 3), np.random.default_rng(1).normal(size=(1, 8))
    x = x.astype(np.float32).astype(np.float64)
    bounder = Bounder(graph, dtype)
    boxes = boxes_of(bounder, x, x)
    unit = torch.eye(3, dtype=dtype)[None]
    found = bounder.lower_bound([], boxes, rows_of(unit, torch.zeros(1, 3, dtype=dtype)))
    size, _ = bounder.size(0, [boxes.largest])
    assert (found.charge >= size).all()
    for value, bound, charge in zip(exact(graph, exact_weights(graph), x[0]).y, found.lower[0].tolist(),
                                    found.charge[0].tolist(), strict=True):
        assert value - Fraction(charge) * 3 / 2 <= bound <= value


@pytest.mark.parametrize(("dtype", "large"), [(torch.float32, 8e37), (torch.float64, 8e307)], ids=DTYPES.keys())
def test_where_the_type_overflows_a_layer_is_unknown(dtype, large) -> None:
    # the third layer's bounds are infinity minus infinity: NaN once counted as a neuron that is never active
    ones = [np.array([[w]]) for w in (1.0, large, 1e-38, 1.0)]
    graph = dense_graph(ones, [np.zeros(1)] * 4)
    bounder = Bounder(graph, dtype)
    for bound in bounder.layers(boxes_of(bounder, np.array([1.8]), np.array([2.0]))):
        assert not (bound.z_low.isnan() | bound.z_high.isnan()).any()
        assert (bound.z_high > 0).all()


# --- tightness, and independence of the batch --------------------------------------------------------------


@in_both_types
def test_a_box_of_one_point_is_bounded_to_a_few_units(dtype) -> None:
    rng = np.random.default_rng(1)
    for kinds in (("relu",), ("leaky_relu",), ("tanh",), ("sigmoid",)):
        graph = random_graph(rng, 3, (8, 8), 2, kinds)
        x = rng.normal(size=(5, 3))
        low, high = output_bounds(graph, x, x, dtype)
        assert (high - low).max() < 1e4 * torch.finfo(dtype).eps
        assert (np.abs(graph.value(x) - (low + high) / 2) <= (high - low)).all()


@in_both_types
def test_one_layer_is_bounded_by_its_corners(dtype) -> None:
    graph = random_graph(np.random.default_rng(2), 3, (), 2)
    corners = np.array(np.meshgrid([-1, 1], [-1, 1], [0.25, 3])).reshape(3, -1).T
    low, high = output_bounds(graph, corners.min(axis=0), corners.max(axis=0), dtype)
    values = graph.value(corners)
    slack = 1e3 * torch.finfo(dtype).eps
    np.testing.assert_allclose(low[0], values.min(axis=0), atol=slack)
    np.testing.assert_allclose(high[0], values.max(axis=0), atol=slack)


@in_both_types
def test_refinement_never_loosens_and_often_tightens(dtype) -> None:
    graph = random_graph(np.random.default_rng(3), 3, (12, 12, 12), 1)
    bounder = Bounder(graph, dtype)
    boxes = boxes_of(bounder, *random_boxes(np.random.default_rng(4), 6, 3, 1.0))
    plain, refined = bounder.layers(boxes, refine=False), bounder.layers(boxes, refine=True)
    for a, b in zip(plain, refined, strict=True):
        assert (b.z_low >= a.z_low).all() and (b.z_high <= a.z_high).all()
    assert (refined[2].z_low > plain[2].z_low + 1e-3).any()


@in_both_types
def test_a_box_is_bounded_alike_in_any_batch_and_in_pieces_of_any_size(dtype, monkeypatch) -> None:
    graph = random_graph(np.random.default_rng(5), 3, (10, 10, 10), 2, ("relu", "tanh", "leaky_relu"), skips=0.5)
    lower, upper = random_boxes(np.random.default_rng(6), 9, 3, 1.0)
    order = np.random.default_rng(7).permutation(9)
    together = np.stack(output_bounds(graph, lower, upper, dtype))
    alone = np.concatenate([np.stack(output_bounds(graph, lower[[r]], upper[[r]], dtype)) for r in range(9)], axis=1)
    shuffled = np.stack(output_bounds(graph, lower[order], upper[order], dtype))
    monkeypatch.setattr(linear_bounds, "CHUNK_ELEMENTS", 1)
    pieces = np.stack(output_bounds(graph, lower, upper, dtype))
    slack = 1e3 * torch.finfo(dtype).eps * np.abs(together).max()  # sums round by their batch
    for other in (alone, pieces):
        np.testing.assert_allclose(other, together, atol=slack)
    np.testing.assert_allclose(shuffled, together[:, order], atol=slack)


@in_both_types
@attack
@given(data=st.data())
def test_boxes_in_another_type_contain_the_walls(dtype, data) -> None:
    walls = data.draw(st.lists(st.floats(-1e37, 1e37), min_size=2, max_size=2))
    near = data.draw(st.sampled_from([0.0, 1e-300, 1e-45, 1e-9, 1.0]))
    lower, upper = min(walls), data.draw(st.sampled_from([max(walls), min(walls) + near]))
    boxes = Bounder(Graph(1, (), Affine({0: np.ones((1, 1))}, np.zeros(1))), dtype).boxes(
        torch.tensor([[lower]], dtype=torch.float64), torch.tensor([[upper]], dtype=torch.float64))
    centre, radius, most = (Fraction(v.item()) for v in (boxes.centre, boxes.radius, boxes.largest))
    assert centre - radius <= Fraction(lower) <= Fraction(upper) <= centre + radius
    # the sum is rounded, which the bounds' own charge covers
    assert most * (1 + Fraction(torch.finfo(dtype).eps)) >= max(abs(Fraction(lower)), abs(Fraction(upper)))
    if lower == upper and Fraction(lower) == centre:
        assert radius == 0
