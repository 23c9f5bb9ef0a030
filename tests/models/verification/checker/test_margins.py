"""The checker's bounds of rows of outputs against exact rationals: no tolerance where the bound must hold."""

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models.verification.checker import check
from models.verification.checker.bounds import Box, _under_conditions, relu
from models.verification.language.specification import FloatArray
from models.verification.network.fully_connected import ReluNetwork
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
    as_float64,
    exact_preactivations,
    network_of,
    networks_and_boxes,
    points_inside,
    random_network,
)

relaxed = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
few = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
# outward rounding of some 100 terms of size 1
SLACK = 1e-10


def leaf_margins(weights, biases, lower, upper, coefficients, constants, batch=None, on_inputs=None) -> FloatArray:
    """Of rows (m, Q, o), each alone."""
    beside = None if on_inputs is None else on_inputs[:, :, None]
    return check.leaf_margins(weights, biases, lower, upper, coefficients[:, :, None], constants[:, :, None], batch,
                              on_inputs=beside)


def with_outputs(
    network: ReluNetwork, rng: np.random.Generator, outputs: int,
) -> tuple[list[FloatArray], list[FloatArray]]:
    """The network's hidden layers under several outputs of about the size of its own."""
    weights, biases = as_float64(network)
    size, shift = np.abs(weights[-1]).max() + 1e-30, np.abs(biases[-1]).max()
    weights[-1] = (rng.normal(size=(outputs, weights[-1].shape[1])) * size).astype(np.float32).astype(np.float64)
    biases[-1] = (rng.normal(size=outputs) * shift).astype(np.float32).astype(np.float64)
    return weights, biases


def exact_outputs(network: ReluNetwork, weights: Sequence[FloatArray], biases: Sequence[FloatArray],
                  point: Sequence[float]) -> list[Fraction]:
    last = [max(value, Fraction(0)) for value in exact_preactivations(network, point)[-1]]
    return [sum((Fraction(float(w)) * a for w, a in zip(row, last, strict=True)), Fraction(float(b)))
            for row, b in zip(weights[-1], biases[-1], strict=True)]


def attack(case, points: int) -> None:
    """Rows at scales from 1e-10 to 1e10, some of them with coefficients that cancel, against exact values."""
    network, lower, upper, rng = one_of_the_boxes(case)
    outputs, rows = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    weights, biases = with_outputs(network, rng, outputs)
    coefficients = rng.normal(size=(1, rows, outputs)) * 10.0 ** rng.uniform(-10, 10, size=(1, rows, 1))
    coefficients[0, 0] = np.resize([1.0, -1.0], outputs)
    constants = rng.normal(size=(1, rows)) * 10.0 ** rng.uniform(-10, 10, size=(1, rows))
    chosen = points_inside(rng, lower, upper, points)
    values = [exact_outputs(network, weights, biases, point.tolist()) for point in chosen]
    # a constant that takes the first value off, as near as float64 can: nothing is left but rounding
    constants[0, -1] = -float(sum(Fraction(float(c)) * y for c, y in zip(coefficients[0, -1], values[0], strict=True)))
    if not np.isfinite(constants).all():
        constants[0, -1] = 0.0
    (bounds,) = leaf_margins(weights, biases, lower[None], upper[None], coefficients, constants)
    for value in values:
        for row, constant, bound in zip(coefficients[0], constants[0], bounds, strict=True):
            exact = sum((Fraction(float(c)) * y for c, y in zip(row, value, strict=True)), Fraction(float(constant)))
            assert Fraction(float(bound)) <= exact if math.isfinite(bound) else not bound > 0


@relaxed
@given(case=st.one_of(SMALL, DEEP, annihilating_networks(), kinks_where_sums_cancel(), wild_networks()))
def test_no_exact_row_of_outputs_and_inputs_lies_below_its_bound(case) -> None:
    network, lower, upper, rng = one_of_the_boxes(case)
    weights, biases = with_outputs(network, rng, 2)
    coefficients = rng.normal(size=(1, 2, 2)) * 10.0 ** rng.uniform(-10, 10, size=(1, 2, 1))
    on_inputs = rng.normal(size=(1, 2, len(lower))) * 10.0 ** rng.uniform(-10, 10, size=(1, 2, 1))
    constants = rng.normal(size=(1, 2))
    (bounds,) = leaf_margins(weights, biases, lower[None], upper[None], coefficients, constants, on_inputs=on_inputs)
    for point in points_inside(rng, lower, upper, 12):
        value = exact_outputs(network, weights, biases, point.tolist())
        for k, bound in enumerate(bounds):
            exact = sum((Fraction(float(c)) * y for c, y in zip(coefficients[0, k], value, strict=True)),
                        Fraction(float(constants[0, k])))
            exact += sum((Fraction(float(c)) * Fraction(float(x)) for c, x in zip(on_inputs[0, k], point, strict=True)),
                         Fraction(0))
            assert Fraction(float(bound)) <= exact if math.isfinite(bound) else not bound > 0


def test_coefficients_on_inputs_are_added_to_the_networks_own() -> None:
    """y = x through a ReLU that is active: y - x is 0 everywhere, which bounds of either alone would not show."""
    one = [np.ones((1, 1)), np.ones((1, 1))], [np.zeros(1), np.zeros(1)]
    box = np.array([[1.0]]), np.array([[8.0]])
    rows, nothing = np.ones((1, 1, 1)), np.zeros((1, 1))
    (bound,) = leaf_margins(*one, *box, rows, nothing, on_inputs=-rows)
    assert -SLACK < bound[0] <= 0
    (bound,) = leaf_margins(*one, *box, rows, nothing, on_inputs=rows)
    assert 2 - SLACK < bound[0] <= 2


@relaxed
@given(case=st.one_of(SMALL, DEEP, annihilating_networks(), kinks_where_sums_cancel(), wild_networks()))
def test_no_exact_row_of_outputs_lies_below_its_bound(case) -> None:
    attack(case, points=6)


@few
@given(case=WIDE)
def test_no_exact_row_of_a_wide_network_lies_below_its_bound(case) -> None:
    attack(case, points=3)


@settings(max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=st.one_of(SMALL, DEEP, annihilating_networks(), kinks_where_sums_cancel(), wild_networks()))
def test_no_exact_row_of_outputs_lies_below_its_bound_in_a_long_attack(case) -> None:
    attack(case, points=6)


@relaxed
@given(case=networks_and_boxes(boxes=3))
def test_no_sampled_row_of_a_larger_network_lies_below_its_bound(case) -> None:
    network, lower, upper, rng = case
    coefficients, constants = np.tile([[1.0], [-1.0]], (3, 1, 1)), rng.normal(size=(3, 2))
    bounds = leaf_margins(*as_float64(network), lower, upper, coefficients, constants)
    for box in range(3):
        points = points_inside(rng, lower[box], upper[box], 200)
        values = network.value(points)[:, None] * coefficients[box, :, 0] + constants[box]
        assert (values >= bounds[box] - network.rounding(points)[:, None]).all()


def test_a_row_over_a_box_in_which_the_network_is_linear_has_its_least_value_as_the_bound() -> None:
    rng = np.random.default_rng(0)
    weights = [rng.random((4, 3)), rng.normal(size=(5, 4)), rng.normal(size=(2, 5))]
    biases = [np.ones(4), np.full(5, 20.0), rng.normal(size=2)]
    lower, upper = np.zeros((1, 3)), np.ones((1, 3))
    coefficients, constants = rng.normal(size=(1, 3, 2)), rng.normal(size=(1, 3))
    slopes = coefficients[0] @ weights[2] @ weights[1] @ weights[0]
    at_zero = coefficients[0] @ (weights[2] @ (weights[1] @ biases[0] + biases[1]) + biases[2]) + constants[0]
    (bounds,) = leaf_margins(weights, biases, lower, upper, coefficients, constants)
    np.testing.assert_allclose(bounds, at_zero + np.minimum(slopes, 0).sum(axis=1), rtol=0, atol=100 * SLACK)


def test_outputs_that_move_together_keep_their_distance() -> None:
    # intervals of the outputs overlap: only a row carried through the layers as a whole shows the order
    network = random_network(np.random.default_rng(1), 3, (10, 10, 10))
    weights, biases = as_float64(network)
    weights[-1], biases[-1] = np.repeat(weights[-1], 2, axis=0), biases[-1] + np.array([0.0, 0.5])
    box = np.full((1, 3), -1.0), np.full((1, 3), 1.0)
    apart = leaf_margins(weights, biases, *box, np.array([[[-1.0, 1.0]]]), np.zeros((1, 1)))
    alone = leaf_margins(weights, biases, *box, np.array([[[-1.0, 0.0], [0.0, 1.0]]]), np.zeros((1, 2)))
    assert 0.5 - SLACK < apart[0, 0] <= 0.5 and alone.sum() < 0


def test_rows_of_one_leaf_are_not_those_of_another() -> None:
    # y = relu(x), rows x and -x over [0, 1], [2, 3] and [-2, -1]
    network = network_of(([[1.0]], [0.0]), ([[1.0]], [0.0]))
    lower, upper = np.array([[0.0], [2.0], [-2.0]]), np.array([[1.0], [3.0], [-1.0]])
    coefficients = np.array([[[1.0], [-1.0]]] * 3) * np.array([1.0, 2.0, 4.0])[:, None, None]
    bounds = leaf_margins(*as_float64(network), lower, upper, coefficients, np.array([[0.0, 10.0]] * 3))
    np.testing.assert_allclose(bounds, [[0, 9], [4, 4], [0, 10]], rtol=0, atol=SLACK)


def test_what_a_large_constant_swallows_layer_by_layer_is_charged() -> None:
    # y = x - 0.9 * 400; beside 3 * 2^52, float64 rounds every single 0.9 away
    weights, biases = [np.ones((1, 1))] * 401, [np.full(1, -0.9)] * 400 + [np.zeros(1)]
    box, constant = np.full((1, 1), 1000.0), np.full((1, 1), 3 * 2.0**52)
    ((bound,),) = leaf_margins(weights, biases, box, box, np.ones((1, 1, 1)), constant)
    exact = 1000 - 400 * Fraction(0.9) + 3 * 2**52
    assert exact - 10**6 < Fraction(float(bound)) <= exact


def test_bounds_do_not_depend_on_how_leaves_are_batched() -> None:
    rng = np.random.default_rng(2)
    weights, biases = with_outputs(random_network(rng, 3, (8, 8, 8, 8)), rng, 2)
    walls = np.sort(rng.normal(size=(2, 70, 3)), axis=0)
    rows, constants = rng.normal(size=(70, 3, 2)), rng.normal(size=(70, 3))
    one_by_one = leaf_margins(weights, biases, *walls, rows, constants, batch=1)
    for batch in (7, None):
        np.testing.assert_allclose(leaf_margins(weights, biases, *walls, rows, constants, batch), one_by_one,
                                   rtol=0, atol=1e-9)


@pytest.mark.parametrize("wall", [1e150, 1e300, 1.7e308, math.inf])
def test_overflow_is_no_proof(wall) -> None:
    rng = np.random.default_rng(4)
    weights, biases = with_outputs(random_network(rng, 2, (4, 4, 4), scale=1e30), rng, 2)
    bounds = leaf_margins(weights, biases, np.full((1, 2), -wall), np.full((1, 2), wall),
                          np.array([[[1.0, -1.0], [-1.0, 1.0]]]), np.zeros((1, 2)))
    assert not (bounds > 0).any()


@relaxed
@given(networks_and_boxes(), st.integers(2, 4))
def test_the_largest_of_several_rows_is_nowhere_below_its_bound(case, rows: int) -> None:
    network, lower, upper, rng = one_of_the_boxes(case)
    weights, biases = with_outputs(network, rng, 2)
    coefficients = rng.normal(size=(1, 2, rows, 2))
    coefficients[:, :, -1] = -coefficients[:, :, 0] * rng.choice([0.5, 1.0, 3.0])  # a combination of them is a constant
    constants = rng.normal(size=(1, 2, rows)) * 0.1
    beside = rng.normal(size=(1, 2, rows, len(lower)))
    points = points_inside(np.random.default_rng(0), lower, upper, 20)
    outputs = np.array([[float(y) for y in exact_outputs(network, weights, biases, point)] for point in points])
    (bounds,) = check.leaf_margins(weights, biases, lower[None], upper[None], coefficients, constants,
                                   on_inputs=beside)
    values = np.einsum("kmo,po->pkm", coefficients[0], outputs) + constants[0] + np.einsum(
        "kmn,pn->pkm", beside[0], points)
    slack = SLACK * (1 + np.abs(outputs).max() + np.abs(points).max())
    assert (values.max(axis=2) >= bounds - slack).all()


def test_a_combination_of_rows_proves_what_no_row_proves_alone() -> None:
    one = [np.eye(2), np.eye(2)], [np.zeros(2), np.zeros(2)]
    box = np.zeros((1, 2)), np.ones((1, 2))
    rows = np.array([[[[1.0, 1.0], [-1.0, -1.0]]]])  # x0 + x1 - 0.9 or 1.1 - x0 - x1 is above 0
    constants = np.array([[[-0.9, 1.1]]])
    assert check.leaf_margins(*one, *box, rows, constants)[0, 0] == pytest.approx(0.1)
    assert (check.leaf_margins(*one, *box, rows.reshape(1, 2, 1, 2), constants.reshape(1, 2, 1)) < 0).all()
    assert check.leaf_margins(*one, *box, rows, constants - 0.2)[0, 0] < 0


def test_the_former_target_beside_a_clipped_change_keeps_its_relation_to_the_inputs() -> None:
    # y = x0 + c with the change c = min(1, relu(noise)) of a neuron that may be anything: y >= x0 over the whole box
    weights = [np.array([[1.0, 0.0], [0.0, 50.0]]), np.array([[1.0, 0.0], [0.0, -1.0]]), np.array([[1.0, -1.0]])]
    biases = [np.array([0.0, -25.0]), np.array([0.0, 1.0]), np.array([1.0])]
    bounds = check.leaf_margins(weights, biases, np.zeros((1, 2)), np.array([[8.0, 1.0]]), np.ones((1, 1, 1, 1)),
                                np.full((1, 1, 1), 1e-6), on_inputs=np.array([[[[-1.0, 0.0]]]]))
    assert 0 < bounds[0, 0] < 1e-5


def attack_under_a_condition(case, points: int) -> None:
    """Rows where a linear function of the inputs is not below 0, against exact values there."""
    network, lower, upper, rng = one_of_the_boxes(case)
    outputs = int(rng.integers(1, 3))
    weights, biases = with_outputs(network, rng, outputs)
    coefficients, on_inputs = rng.normal(size=(2, outputs)), rng.normal(size=(2, len(lower)))
    chosen = points_inside(rng, lower, upper, points)
    condition = rng.normal(size=len(lower)) * (rng.random(len(lower)) < 0.7)
    condition[rng.integers(len(lower))] = 1.0
    offset = -float(condition @ chosen[0])  # its border goes through a point
    exact = [exact_outputs(network, weights, biases, point.tolist()) for point in chosen]

    def row(number: int, point: int) -> Fraction:
        y = sum((Fraction(float(c)) * v for c, v in zip(coefficients[number], exact[point], strict=True)), Fraction(0))
        return y + linear(on_inputs[number], chosen[point]) + Fraction(float(constants[number]))

    def linear(slopes: FloatArray, x: FloatArray) -> Fraction:
        return sum((Fraction(float(a)) * Fraction(float(b)) for a, b in zip(slopes, x, strict=True)), Fraction(0))

    constants = np.zeros(2)
    constants[1] = -float(row(1, 0))
    if not np.isfinite(constants).all():
        constants[1] = 0.0
    given = np.concatenate([condition, [offset]])[None, None]
    with np.errstate(over="ignore", invalid="ignore"):
        found = _under_conditions(weights, biases, Box(lower[None], upper[None]), [relu] * (len(weights) - 1), given,
                                  coefficients, constants, on_inputs)
    inside = [k for k in range(points) if linear(condition, chosen[k]) + Fraction(offset) >= 0]
    for k in inside:
        assert not math.isfinite(found) or max(row(0, k), row(1, k)) >= Fraction(found)
    rows = np.concatenate([coefficients, np.zeros((1, outputs))])[None, None]
    direct = np.concatenate([on_inputs, -condition[None]])[None, None]
    bound = check.leaf_margins(weights, biases, lower[None], upper[None], rows,
                               np.concatenate([constants, [-offset]])[None, None], on_inputs=direct)[0, 0]
    if bound > 0:
        assert all(max(row(0, k), row(1, k)) > 0 for k in inside)


@relaxed
@given(case=st.one_of(SMALL, DEEP))
def test_no_exact_row_lies_below_its_bound_where_a_condition_holds(case) -> None:
    attack_under_a_condition(case, points=8)


@relaxed
@given(case=annihilating_networks())
def test_rounding_does_not_push_a_bound_under_a_condition_above_the_row(case) -> None:
    network, lower, upper, rng = case
    attack_under_a_condition((network, lower, upper, rng), points=4)


def test_a_clip_keeps_its_relation_to_the_inputs() -> None:
    """y = max(x / 2, x - relu(x - z)): at least x / 2, however far z goes; and at most x."""
    # inputs x in [1, 16], z in [0, 1000]; layers carry x along
    weights = [np.array([[1.0, 0.0], [1.0, -1.0]]), np.array([[1.0, 0.0], [0.5, -1.0]]), np.array([[0.5, 1.0]])]
    biases = [np.zeros(2), np.zeros(2), np.zeros(1)]
    lower, upper = np.array([[1.0, 0.0]]), np.array([[16.0, 1000.0]])
    coefficients, on_inputs = np.array([[[1.0], [-1.0]]]), np.array([[[-0.5, 0.0], [1.0, 0.0]]])
    (bounds,) = leaf_margins(weights, biases, lower, upper, coefficients, np.full((1, 2), 1e-6), on_inputs=on_inputs)
    assert (bounds > 0).all()


def test_a_row_is_proved_where_a_condition_on_inputs_holds_and_not_elsewhere() -> None:
    """y = relu(a - b) with a, b in [0, 10]: 0 where b >= a."""
    weights, biases = [np.array([[1.0, -1.0]]), np.array([[1.0]])], [np.zeros(1), np.zeros(1)]
    lower, upper = np.zeros((1, 2)), np.full((1, 2), 10.0)

    def margin(condition: list[float]) -> float:
        return float(check.leaf_margins(
            weights, biases, lower, upper, np.array([[[[-1.0], [0.0]]]]), np.array([[[1e-6, 0.0]]]),
            on_inputs=np.array([[[[0.0, 0.0], condition]]]))[0, 0])

    assert margin([1.0, -1.0]) > 0  # safe, or a - b above 0
    assert not margin([-1.0, 1.0]) > 0
    assert margin([1.0, -0.9]) > 0
    assert not margin([1.0, -1.1]) > 0


@pytest.mark.parametrize("outputs", [1024, 4096])
@pytest.mark.parametrize("leaves", [1, 4])
def test_sums_over_the_rows_of_a_wide_layer_are_charged_for_as_over_its_columns(outputs: int, leaves: int) -> None:
    """A layer of one column: a step back through it adds up as many terms as it has rows."""
    large = 2.0**53 + 2.0**22  # beside which 0.99 is lost, in some orders of a sum
    for heads in (1, 4, 8, 16, 32):
        for block in (256, 384, 1024):
            bias = np.full(outputs, -0.99)
            for first in range(0, outputs, block):
                bias[first:first + heads] = large
            taken = large * int((bias == large).sum())
            found = check.leaf_margins([np.zeros((outputs, 1))], [bias], np.zeros((leaves, 1)), np.ones((leaves, 1)),
                                       np.ones((leaves, 1, 1, outputs)), np.full((leaves, 1, 1), -taken))
            assert float(found.max()) <= float(sum(map(Fraction, bias.tolist())) - Fraction(taken))


@pytest.mark.parametrize(("neurons", "inputs"), [(4096, 1), (4096, 2)])
def test_a_wide_hidden_layer_whose_terms_cancel_is_bounded_from_below(neurons: int, inputs: int) -> None:
    large = 2.0**53
    for heads in (1, 4, 8, 16, 32):
        for block in (256, 1024, neurons):
            slope, bias, last = np.full(neurons, 0.99), np.full(neurons, 0.99), np.full(neurons, -1.0)
            for first in range(0, neurons, block):
                slope[first:first + heads], bias[first:first + heads] = large + 2.0**16, -large
                last[first:first + heads] = 1.0
            weight = np.concatenate([slope[:, None], np.zeros((neurons, inputs - 1))], axis=1)
            box = np.ones((4, inputs))
            found = check.leaf_margins([weight, last[None]], [bias, np.zeros(1)], box, box, np.ones((4, 1, 1, 1)),
                                       np.zeros((4, 1, 1)))
            exact = sum(Fraction(a) * (Fraction(w) + Fraction(b))
                        for a, w, b in zip(last.tolist(), slope.tolist(), bias.tolist(), strict=True))
            assert Fraction(float(found.max())) <= exact
