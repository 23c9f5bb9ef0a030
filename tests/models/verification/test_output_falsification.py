"""Witnesses against unsafe sets: exactly inside their boxes, unsafe, and where possible numbers that float32 has."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings

from models.verification.graph import Affine, Graph, dense_graph
from models.verification.output_falsification import OutputFalsifier, OutputWitness
from models.verification.unsafe_set import UnsafeSet
from tests.models.verification.cells import is_reached
from tests.models.verification.graphs import KINDS, exact, exact_weights, graphs_and_boxes, random_boxes, random_graph

attack = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
IDENTITY = Graph(1, (), Affine({0: np.ones((1, 1))}, np.zeros(1)))


def at_least(limit: float, lower, upper, outputs: int = 1) -> UnsafeSet:
    """Unsafe where the first output is at least the limit."""
    lower, upper = (np.atleast_2d(np.asarray(wall, dtype=np.float64)) for wall in (lower, upper))
    coefficients = np.zeros((len(lower), 1, 1, outputs))
    coefficients[..., 0] = 1
    return UnsafeSet(lower, upper, coefficients, np.full((len(lower), 1, 1), -limit))


def float32_between(low: float, high: float) -> bool:
    near = np.float32(low)
    first = near if float(near) >= low else np.nextafter(near, np.float32(np.inf))
    return float(first) <= high


def assert_witness(graph: Graph, unsafe: UnsafeSet, witness: OutputWitness) -> None:
    lower, upper = unsafe.lower[witness.box], unsafe.upper[witness.box]
    assert (witness.x >= lower).all() and (witness.x <= upper).all()
    with np.errstate(over="ignore"):
        for value, low, high in zip(witness.x.tolist(), lower.tolist(), upper.tolist(), strict=True):
            assert float(np.float32(value)) == value or not float32_between(low, high)
    assert witness.violation >= 0
    y = exact(graph, exact_weights(graph), witness.x).y
    rounding = graph.rounding(witness.x[None])[0] * 2 + 1e-300
    for stated, true, off in zip(witness.outputs.tolist(), y, rounding.tolist(), strict=True):
        assert abs(Fraction(stated) - true) <= Fraction(off)
    assert unsafe.violation(np.array([witness.box]), witness.outputs[None])[0] == pytest.approx(witness.violation)


@attack
@given(case=graphs_and_boxes(errors=0.0))
def test_a_witness_lies_in_its_box_and_is_unsafe(case) -> None:
    graph, lower, upper, rng = case
    unsafe = UnsafeSet(lower, upper, rng.normal(size=(3, 2, 2, graph.outputs)), rng.normal(size=(3, 2, 2)))
    falsifier = OutputFalsifier(graph, unsafe)
    found = falsifier.search(samples=100, seed=1)
    if found is not None:
        assert_witness(graph, unsafe, found)
    suspects = torch.as_tensor((lower + upper) / 2)
    confirmed = falsifier.confirm(suspects, torch.arange(3))
    if confirmed is not None:
        assert_witness(graph, unsafe, confirmed)


@pytest.mark.parametrize("walls", [
    (0.1, 0.1), (-0.3, -0.3), (0.1, 0.1 + 1e-12), (1 / 3, 0.5), (1e10 + 100, 1e10 + 200), (1e-50, 1e-49), (1e39, 1e40)],
    ids=["point", "negative", "sliver", "third", "between-two", "below-float32", "above-float32"])
def test_points_of_float32_are_used_where_the_box_has_them_and_others_where_not(walls) -> None:
    unsafe = at_least(-1.0, [walls[0]], [walls[1]])
    witness = OutputFalsifier(IDENTITY, unsafe).search()
    assert witness is not None
    assert_witness(IDENTITY, unsafe, witness)


def test_no_witness_where_exact_enumeration_finds_none() -> None:
    rng, reached = np.random.default_rng(0), 0
    for _ in range(25):
        graph = random_graph(rng, 2, (4,), 2)
        lower, upper = random_boxes(rng, 1, 2, 1.0, flat=0.0)
        y = graph.value(lower + (upper - lower) * rng.random((200, 2)))
        unsafe = at_least(float(np.quantile(y[:, 0], 1.0)) + rng.choice([-0.01, 0.3]), lower, upper, 2)
        found = OutputFalsifier(graph, unsafe).search()
        assert (found is None) or is_reached(graph, unsafe)
        reached += found is not None
    assert 5 < reached < 20


@pytest.mark.parametrize("kind", KINDS)
def test_a_peak_off_the_samples_is_climbed(kind) -> None:
    # the top 1e-4 of what the outputs reach in four dimensions
    rng = np.random.default_rng(1)
    graph = random_graph(rng, 4, (20, 20), 1, (kind,))
    lower, upper = np.full((1, 4), -1.0), np.ones((1, 4))
    y = graph.value(rng.uniform(-1, 1, size=(20_000, 4)))[:, 0]
    unsafe = at_least(float(y.max()), lower, upper)
    witness = OutputFalsifier(graph, unsafe).search(samples=500)
    assert witness is not None
    assert_witness(graph, unsafe, witness)


def test_one_unsafe_box_of_thousands_is_found() -> None:
    walls = np.linspace(0, 1, 5001)[:, None]
    unsafe = at_least(0.99985, walls[:-1], walls[1:])
    witness = OutputFalsifier(IDENTITY, unsafe).search()
    assert witness is not None and witness.box == 4999
    assert_witness(IDENTITY, unsafe, witness)
    assert OutputFalsifier(IDENTITY, at_least(1.0001, walls[:-1], walls[1:])).search() is None


def test_an_unsafe_set_with_thousands_of_boxes_and_alternatives_of_their_own() -> None:
    # box r is unsafe where y <= r - 1 or y >= r + 2: never, but for box 1234 where y >= 1234.5
    count = 3000
    walls = np.arange(count, dtype=np.float64)[:, None]
    coefficients = np.tile(np.array([[[-1.0]], [[1.0]]]), (count, 1, 1, 1))
    constants = np.stack([walls - 1, -walls - 2], axis=1)
    assert OutputFalsifier(IDENTITY, UnsafeSet(walls, walls + 1, coefficients, constants)).search() is None
    constants[1234, 1] = -1234.5
    witness = OutputFalsifier(IDENTITY, UnsafeSet(walls, walls + 1, coefficients, constants)).search()
    assert witness is not None and witness.box == 1234 and witness.x[0] >= 1234.5


def needle(at: float = 0.25, width: float = 1e-7) -> tuple[Graph, UnsafeSet]:
    """A spike of height 1 and of this width on a line: samples and gradients miss it."""
    slope = 1 / width
    graph = dense_graph([np.full((3, 1), slope), np.array([[1.0, -2.0, 1.0]])],
                        [slope * np.array([width - at, -at, -width - at]), np.zeros(1)])
    return graph, at_least(0.5, [0.0], [1.0])


def test_given_points_are_tried_and_clipped_into_the_box() -> None:
    graph, unsafe = needle()
    assert OutputFalsifier(graph, unsafe).search() is None
    witness = OutputFalsifier(graph, unsafe).search(np.array([[5.0], [0.25], [-1.0]]))
    assert witness is not None
    assert_witness(graph, unsafe, witness)
    assert OutputFalsifier(graph, unsafe).search(np.zeros((0, 1))) is None


@pytest.mark.xfail(strict=True, reason="points are tried in box 0 alone, not in every box that holds them (reported)")
def test_given_points_are_tried_in_the_box_that_holds_them() -> None:
    graph, _ = needle()
    unsafe = at_least(0.5, [[-1.0], [0.0]], [[-0.5], [1.0]])
    witness = OutputFalsifier(graph, unsafe).search(np.array([[0.25]]))
    assert witness is not None and witness.box == 1


@pytest.mark.xfail(strict=True, reason="argmax and argsort take NaN for the largest violation (reported)")
def test_a_point_without_a_value_does_not_hide_witnesses() -> None:
    graph, unsafe = needle()
    witness = OutputFalsifier(graph, unsafe).search(np.array([[np.nan], [0.25]]))
    assert witness is not None


def test_the_same_seed_finds_the_same_witness() -> None:
    graph = random_graph(np.random.default_rng(2), 3, (10, 10), 1)
    unsafe = at_least(0.0, np.full((1, 3), -1.0), np.ones((1, 3)))
    first, second = (OutputFalsifier(graph, unsafe).search(seed=3) for _ in range(2))
    assert first is not None and second is not None
    assert first.x.tolist() == second.x.tolist() and first.violation == second.violation
