"""Witnesses against unsafe sets: exactly inside their boxes, unsafe, and where possible numbers that float32 has."""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings

from models.verification.attack import output_falsification
from models.verification.attack.output_falsification import OFFERS, OutputFalsifier, OutputWitness
from models.verification.language.unsafe_set import UnsafeSet
from models.verification.network.graph import Affine, Graph, dense_graph
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
    assert exact_violation(unsafe, witness.box, y) >= 0


def exact_violation(unsafe: UnsafeSet, box: int, y: list[Fraction]) -> Fraction:
    """How far inside the unsafe set the outputs are, in rational arithmetic."""
    def row(k: int, m: int) -> Fraction:
        slopes = zip(unsafe.coefficients[box, k, m].tolist(), y, strict=True)
        return sum((Fraction(c) * value for c, value in slopes), Fraction(float(unsafe.constants[box, k, m])))

    _, alternatives, rows, _ = unsafe.coefficients.shape
    return max(min(row(k, m) for m in range(rows)) for k in range(alternatives))


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


def test_given_points_are_tried_in_the_box_that_holds_them() -> None:
    graph, _ = needle()
    unsafe = at_least(0.5, [[-1.0], [0.0]], [[-0.5], [1.0]])
    witness = OutputFalsifier(graph, unsafe).search(np.array([[0.25]]))
    assert witness is not None and witness.box == 1


def test_a_point_without_a_value_does_not_hide_witnesses() -> None:
    graph, unsafe = needle()
    witness = OutputFalsifier(graph, unsafe).search(np.array([[np.nan], [0.25]]))
    assert witness is not None
    points = torch.tensor([[torch.nan], [0.25], [torch.nan]], dtype=torch.float64)
    witness = OutputFalsifier(graph, unsafe).confirm(points, torch.zeros(3, dtype=torch.long))
    assert witness is not None and witness.x.tolist() == [0.25]
    assert OutputFalsifier(graph, unsafe).search(np.full((3, 1), np.nan)) is None


def test_points_at_which_the_network_has_no_value_do_not_hide_witnesses() -> None:
    # x 1e310 - x 1e310 + 1e6: infinity minus infinity but near 0
    graph = dense_graph([np.full((1, 1), 1e155), np.full((2, 1), 1e155), np.array([[1.0, -1.0]])],
                        [np.zeros(1), np.zeros(2), np.full(1, 1e6)])
    unsafe = at_least(0.5, [0.0], [1.0])
    with np.errstate(over="ignore", invalid="ignore"):
        assert np.isnan(graph.value(np.array([[0.5]]))[0, 0]) and graph.value(np.zeros((1, 1)))[0, 0] == 1e6
    points, box = torch.linspace(0, 1, 50, dtype=torch.float64)[:, None], torch.zeros(50, dtype=torch.long)
    witness = OutputFalsifier(graph, unsafe).confirm(points, box)
    assert witness is not None and witness.x.tolist() == [0.0]


def test_points_are_tried_in_every_box_that_holds_them_or_else_in_the_nearest() -> None:
    # unsafe at 0.25 in the second and the fourth of overlapping boxes, each by its own constraint
    graph, _ = needle()
    walls = np.array([[0.0, 0.2], [0.1, 1.0], [0.0, 1.0], [0.2, 0.3], [0.4, 2.0]])
    coefficients, constants = np.ones((5, 1, 1, 1)), np.array([9.0, -0.5, 9.0, -0.25, 9.0]).reshape(5, 1, 1)
    constants[[0, 2, 4]] *= -1
    unsafe = UnsafeSet(walls[:, :1], walls[:, 1:], coefficients, constants)
    offered: list[tuple[int, float]] = []

    def note(witness: OutputWitness) -> bool:
        offered.append((witness.box, float(witness.x[0])))
        return False

    assert OutputFalsifier(graph, unsafe).search(np.array([[0.25]]), accept=note) is None
    assert {(1, 0.25), (3, 0.25)} <= set(offered) and {box for box, _ in offered} == {1, 3}
    # 0.25 is nearest to the second box's wall
    apart = at_least(0.5, [[-3.0], [0.25], [0.9]], [[-2.0], [0.8], [1.0]])
    witness = OutputFalsifier(graph, apart).search(np.array([[0.2]]))
    assert witness is not None and witness.box == 1 and witness.x.tolist() == [0.25]


def test_many_points_meet_many_boxes_in_pieces(monkeypatch) -> None:
    monkeypatch.setattr(output_falsification, "WALLS", 50_000)
    monkeypatch.setattr(output_falsification, "PAIRS", 100)
    graph, _ = needle()
    walls = np.linspace(0, 1, 4001)[:, None]
    points = np.random.default_rng(0).random((300, 1))
    points[217] = 0.25 + 2e-8
    unsafe = at_least(0.5, walls[:-1], walls[1:])
    witness = OutputFalsifier(graph, unsafe).search(points, samples=100)
    assert witness is not None and witness.box == 1000
    assert_witness(graph, unsafe, witness)
    monkeypatch.setattr(output_falsification, "MOST_WALLS", 0)  # then a random part
    monkeypatch.setattr(output_falsification, "LEAST_POINTS", 5)
    assert OutputFalsifier(graph, unsafe).search(points, samples=100) is None


def test_the_same_seed_finds_the_same_witness() -> None:
    graph = random_graph(np.random.default_rng(2), 3, (10, 10), 1)
    unsafe = at_least(0.0, np.full((1, 3), -1.0), np.ones((1, 3)))
    first, second = (OutputFalsifier(graph, unsafe).search(seed=3) for _ in range(2))
    assert first is not None and second is not None
    assert first.x.tolist() == second.x.tolist() and first.violation == second.violation


# --- what counts -------------------------------------------------------------------------------------------


def level(size: float, value: float = 0.0) -> Graph:
    """y = x + value, computed as x + size + (value - size)."""
    return dense_graph([np.ones((1, 1)), np.ones((1, 1))], [np.array([size]), np.array([value - size])])


@pytest.mark.parametrize("size", [1.0, 1e3, 1e8])
def test_a_violation_that_rounding_may_have_made_up_is_no_witness(size) -> None:
    graph, x = level(size), np.ones((1, 1))
    rounding = float(graph.rounding(x)[0, 0])
    for share, found in ((0.5, False), (0.0, False), (-0.1, False), (3.0, True)):
        unsafe = at_least(1 - share * rounding, x, x)
        falsifier = OutputFalsifier(graph, unsafe)
        assert (falsifier.search() is not None) is found
        assert (falsifier.confirm(torch.ones(1, 1, dtype=torch.float64), torch.zeros(1, dtype=torch.long))
                is not None) is found


def test_a_violation_that_float64_makes_up_is_no_witness() -> None:
    # x + 1e17 - 1e17 is x, but 0 in float64
    assert float(level(1e17).value(np.full((1, 1), 5.0))[0, 0]) == 0
    unsafe = UnsafeSet(np.ones((1, 1)), np.full((1, 1), 7.0), -np.ones((1, 1, 1, 1)), np.full((1, 1, 1), 0.5))
    assert OutputFalsifier(level(1e17), unsafe).search() is None


def test_the_rounding_of_the_constraints_themselves_counts() -> None:
    # y0 = y1 = x; 1e16 y0 - 1e16 y1 + 1e-3 y1 is 1e-3 x, float64 cannot tell 1e16 + 1e-3 from 1e16
    graph = Graph(1, (), Affine({0: np.ones((2, 1))}, np.zeros(2)))
    for shift, found in ((0.0, False), (1e3, True)):
        unsafe = UnsafeSet(np.ones((1, 1)), np.ones((1, 1)), np.array([[[[1e16, -1e16]]]]), np.full((1, 1, 1), shift))
        assert (OutputFalsifier(graph, unsafe).search() is not None) is found


def test_constraints_without_outputs_hold_exactly() -> None:
    # padding: rows of zeros hold with equality, alternatives of zeros never
    unsafe = UnsafeSet(np.zeros((1, 1)), np.ones((1, 1)), np.array([[[[1.0], [0.0]], [[0.0], [0.0]]]]),
                       np.array([[[-0.5, 0.0], [-1.0, -1.0]]]))
    witness = OutputFalsifier(IDENTITY, unsafe).search()
    assert witness is not None
    assert_witness(IDENTITY, unsafe, witness)


@attack
@given(case=graphs_and_boxes(errors=0.5, sizes=(0.0, 1e-9, 1e-3)))
def test_witnesses_near_the_edge_are_real_ones(case) -> None:
    # the limit is what float64 says of the best sample, or a little less: within rounding, or hardly beyond it
    graph, lower, upper, rng = case
    x = lower + (upper - lower) * rng.random(lower.shape)
    y, rounding = graph.value(x), graph.rounding(x)
    coefficients = rng.normal(size=(len(lower), 1, 1, graph.outputs))
    near = (coefficients @ (y[:, None, :, None]))[..., 0]
    doubt = (np.abs(coefficients) @ rounding[:, None, :, None])[..., 0]
    for share in (0.0, 0.5, 1.2, 5.0):
        unsafe = UnsafeSet(lower, upper, coefficients, share * doubt - near)
        for witness in (OutputFalsifier(graph, unsafe).search(x, samples=20),
                        OutputFalsifier(graph, unsafe).confirm(torch.as_tensor(x), torch.arange(len(x)))):
            if witness is not None:
                values = [exact(graph, exact_weights(graph, rng), witness.x).y for _ in range(3)]
                assert all(exact_violation(unsafe, witness.box, value) >= 0 for value in values)


# --- what is offered ---------------------------------------------------------------------------------------


def test_at_most_so_many_points_are_offered_the_most_violated_first() -> None:
    unsafe = at_least(0.0, [0.0], [1.0])
    seen: list[OutputWitness] = []

    def third(witness: OutputWitness) -> bool:
        seen.append(witness)
        return len(seen) == 3

    points = torch.linspace(0.1, 1, 40, dtype=torch.float64)[torch.randperm(40)][:, None]
    box = torch.zeros(40, dtype=torch.long)
    found = OutputFalsifier(IDENTITY, unsafe).confirm(points, box, third)
    assert found is seen[2] and len(seen) == 3
    violations = [witness.violation for witness in seen]
    assert violations == sorted(violations, reverse=True) and violations[0] == 1.0
    seen.clear()
    assert OutputFalsifier(IDENTITY, unsafe).confirm(points, box, lambda witness: seen.append(witness) or False) is None
    assert len(seen) == OFFERS


def test_the_search_goes_on_where_a_point_is_not_accepted() -> None:
    # counts as a witness only close to 1, where no sample is
    unsafe = at_least(0.5, [0.0], [1.0])
    found = OutputFalsifier(IDENTITY, unsafe).search(samples=2, accept=lambda witness: float(witness.x[0]) > 0.9999)
    assert found is not None and found.x[0] > 0.9999
    assert OutputFalsifier(IDENTITY, unsafe).search(accept=lambda witness: False) is None


def countdown(rounds: int) -> Callable[[], bool]:
    left = iter(range(rounds))
    return lambda: next(left, None) is None


def test_the_search_stops_when_it_is_over(monkeypatch) -> None:
    graph, unsafe = needle()
    calls: list[int] = []
    violation = OutputFalsifier._violation
    monkeypatch.setattr(OutputFalsifier, "_violation",
                        lambda self, x, box: calls.append(len(x)) or violation(self, x, box))
    counts = []
    for rounds in (0, 1, 5, 100):
        calls.clear()
        assert OutputFalsifier(graph, unsafe).search(over=countdown(rounds)) is None
        counts.append(len(calls))
    assert counts[0] == 1 and counts == sorted(set(counts))
    # what the first samples show is still found
    assert OutputFalsifier(IDENTITY, at_least(0.5, [0.0], [1.0])).search(over=lambda: True) is not None
