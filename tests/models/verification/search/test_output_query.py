"""Margins of unsafe sets: never more than what any input of the box leaves, exactly. Oracle: graphs.py."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings

from models.verification.language.unsafe_set import UnsafeSet
from models.verification.network.graph import Affine, FloatArray, Graph
from models.verification.search.branch_and_bound import Margins
from models.verification.search.output_query import OutputQuery
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

attack = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
in_both_types = pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES.keys())


def random_unsafe(rng: np.random.Generator, outputs: int, lower: FloatArray, upper: FloatArray, alternatives: int = 3,
                  rows: int = 2) -> UnsafeSet:
    """Boxes with different constraints, padded as unsafe_set pads."""
    count = len(lower)
    coefficients = rng.normal(size=(count, alternatives, rows, outputs)) * 10.0 ** rng.integers(-3, 4)
    constants = rng.normal(size=(count, alternatives, rows)) * 10.0 ** rng.integers(-3, 4)
    coefficients[:, 1, 1], constants[:, 1, 1] = 0, 0  # one constraint alone
    if alternatives > 2:
        coefficients[0, 2], constants[0, 2] = 0, -1  # no third alternative
    return UnsafeSet(lower, upper, coefficients, constants)


def bound(graph: Graph, unsafe: UnsafeSet, dtype: torch.dtype, steps: int = 4,
          part: list[int] | None = None) -> Margins:
    chosen = list(range(len(unsafe.lower))) if part is None else part
    return OutputQuery(graph, unsafe, steps=steps).bound(
        torch.as_tensor(unsafe.lower[chosen]), torch.as_tensor(unsafe.upper[chosen]), torch.tensor(chosen), dtype)


def clearance(unsafe: UnsafeSet, box: int, y: list[Fraction]) -> Fraction:
    """Minus the violation at outputs y, exactly."""
    def row(k: int, m: int) -> Fraction:
        slopes = zip(unsafe.coefficients[box, k, m].tolist(), y, strict=True)
        return sum((Fraction(c) * value for c, value in slopes), Fraction(float(unsafe.constants[box, k, m])))

    _, alternatives, rows, _ = unsafe.coefficients.shape
    return -max(min(row(k, m) for m in range(rows)) for k in range(alternatives))


def assert_sound(case, dtype: torch.dtype) -> None:
    graph, lower, upper, rng = case
    unsafe = random_unsafe(rng, graph.outputs, lower, upper)
    found = bound(graph, unsafe, dtype)
    for r in range(len(lower)):
        margin = found.margin[r].item()
        for x in box_points(rng, lower[r], upper[r], 6):
            left = clearance(unsafe, r, exact(graph, exact_weights(graph, rng), x).y)
            assert not margin > left, (r, margin, float(left))
            assert left > 0 or not found.proved[r]


@in_both_types
@attack
@given(case=graphs_and_boxes())
def test_no_input_is_nearer_to_the_unsafe_set_than_the_margin(dtype, case) -> None:
    assert_sound(case, dtype)


@in_both_types
@attack
@given(case=graphs_and_boxes(spread=20.0, sizes=(0.0, 1e-9, 1.0, 1e6, 1e20)))
def test_no_input_is_nearer_to_the_unsafe_set_than_the_margin_at_any_magnitude(dtype, case) -> None:
    assert_sound(case, dtype)


@in_both_types
@pytest.mark.parametrize("kinds", [("relu",), ("leaky_relu",), ("tanh",), ("sigmoid",), KINDS],
                         ids=["relu", "leaky", "tanh", "sigmoid", "mixed"])
def test_slope_optimisation_never_worsens_a_margin_and_helps_with_kinks(dtype, kinds) -> None:
    rng = np.random.default_rng(0)
    graph = random_graph(rng, 3, (12, 12, 12), 2, kinds)
    lower, upper = random_boxes(rng, 12, 3, 0.5, flat=0.0)
    unsafe = random_unsafe(rng, 2, lower, upper, alternatives=2)
    plain, better = (bound(graph, unsafe, dtype, steps=steps).margin for steps in (0, 4))
    slack = 1e4 * torch.finfo(dtype).eps * plain.abs().max()
    assert (better >= plain - slack).all()
    if kinds[0] in ("relu", "leaky_relu") and len(kinds) == 1:
        assert (better > plain + 1e-3).any()


@in_both_types
def test_the_best_row_of_each_alternative_and_the_worst_alternative_count(dtype) -> None:
    # y = x in [0, 1]; two alternatives: y >= 3 and y >= 1.5 (clear by 2), y <= -1 (clear by 1)
    graph = Graph(1, (), Affine({0: np.ones((1, 1))}, np.zeros(1)))
    unsafe = UnsafeSet(np.zeros((1, 1)), np.ones((1, 1)), np.array([[[[1.0], [1.0]], [[-1.0], [0.0]]]]),
                       np.array([[[-3.0, -1.5], [-1.0, 0.0]]]))
    found = bound(graph, unsafe, dtype)
    assert found.margin[0].item() == pytest.approx(1.0, abs=1e-4) and found.proved[0]
    first = UnsafeSet(unsafe.lower, unsafe.upper, unsafe.coefficients[:, :1], unsafe.constants[:, :1])
    assert bound(graph, first, dtype).margin[0].item() == pytest.approx(2.0, abs=1e-4)


@in_both_types
def test_an_unsafe_set_that_only_touches_is_not_proved_clear(dtype) -> None:
    # y = x in [0, 1]: y >= 1 happens
    one = np.ones((1, 1))
    graph = Graph(1, (), Affine({0: one}, np.zeros(1)))
    for constant, safe in ((-1.0, False), (-1.0 - 1e-3, True)):
        unsafe = UnsafeSet(np.zeros((1, 1)), one, np.ones((1, 1, 1, 1)), np.full((1, 1, 1), constant))
        assert bool(bound(graph, unsafe, dtype).proved[0]) is safe


@in_both_types
def test_each_box_is_held_against_the_constraints_of_its_own_root(dtype) -> None:
    # 300 roots, asked for in any order and repeatedly
    rng = np.random.default_rng(1)
    graph = random_graph(rng, 2, (6,), 2)
    lower, upper = random_boxes(rng, 300, 2, 0.5)
    unsafe = random_unsafe(rng, 2, lower, upper)
    together = bound(graph, unsafe, dtype).margin
    order = rng.integers(300, size=50).tolist()
    slack = 1e4 * torch.finfo(dtype).eps * together.abs().max().item()
    torch.testing.assert_close(bound(graph, unsafe, dtype, part=order).margin, together[order], atol=slack, rtol=0)


@in_both_types
def test_suspects_are_corners_of_their_boxes_and_only_unstable_networks_have_gaps(dtype) -> None:
    rng = np.random.default_rng(2)
    graph = random_graph(rng, 3, (8, 8), 1)
    lower, upper = random_boxes(rng, 6, 3, 1.0)
    found = bound(graph, random_unsafe(rng, 1, lower, upper, alternatives=2), dtype)
    suspect = found.suspect.numpy()
    assert ((suspect == lower) | (suspect == upper)).all()
    assert (found.split_score >= 0).all() and (found.charge >= 0).all()
    assert torch.isfinite(found.margin).all()


def test_float64_margins_of_one_point_are_sharper_than_those_of_float32() -> None:
    rng = np.random.default_rng(3)
    graph = random_graph(rng, 3, (30, 30), 1, KINDS)
    x = rng.normal(size=(20, 3))
    unsafe = UnsafeSet(x, x, np.ones((20, 1, 1, 1)), np.zeros((20, 1, 1)))
    exactly = -graph.value(x)[:, 0]
    off = {name: (exactly - bound(graph, unsafe, dtype).margin.double().numpy()) for name, dtype in DTYPES.items()}
    assert (off["float32"] > 0).all() and (off["float64"] > 0).all()
    assert off["float32"].max() < 1e-2 and off["float64"].max() < 1e-10
    # what the last pass lost to rounding is stated, but for what the relaxations of curves take
    assert (off["float64"] < off["float32"]).all()
