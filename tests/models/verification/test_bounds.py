"""Bounds of the search: attacked by sampling inside random boxes, in both precisions."""

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models.verification.bounds import _backward_intervals, derivative_bounds, preactivation_bounds
from models.verification.network import ReluNetwork, forward, gradient
from models.verification.specification import FloatArray
from tests.models.verification.networks import (
    all_queries,
    monotone_network,
    networks_and_boxes,
    points_inside,
    preactivations,
    random_network,
    sampled_slopes,
)

# Share of the size (the sum of the terms' magnitudes) that rounding may take: some 30 terms a layer, 5 layers,
# unit roundoff 6e-8 and 1.1e-16, a factor of 4 to spare.
ROUNDING = {torch.float32: 3e-5, torch.float64: 1e-13}
# A float32 pre-activation this near to 0, as a share of its size, may be seen on either side of its kink.
KINK = {torch.float32: 1e-4, torch.float64: 1e-12}
POINTS = 60

relaxed = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
precisions = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])


def sizes(network: ReluNetwork, points: FloatArray) -> list[FloatArray]:
    """Sums of the magnitudes behind every pre-activation: what rounding is measured against."""
    a, found = np.abs(points), []
    for weight, bias in zip(network.weights[:-1], network.biases[:-1], strict=True):
        a = a @ np.abs(weight).T.astype(np.float64) + np.abs(bias)
        found.append(a)
    return found


def slope_size(network: ReluNetwork) -> FloatArray:
    """Sums of the magnitudes behind every partial derivative: (n,)."""
    g = np.abs(network.weights[-1][0]).astype(np.float64)
    for weight in reversed(network.weights[:-1]):
        g = g @ np.abs(weight)
    return g


def as_tensors(dtype: torch.dtype, *arrays: FloatArray) -> tuple[torch.Tensor, ...]:
    return tuple(torch.as_tensor(array, dtype=dtype) for array in arrays)


@precisions
@relaxed
@given(case=networks_and_boxes())
def test_no_sampled_preactivation_leaves_its_bounds(case, dtype) -> None:
    network, lower, upper, rng = case
    lower, upper = (wall.astype(np.float32).astype(np.float64) for wall in (lower, upper))
    layers = preactivation_bounds(*network.tensors(dtype), *as_tensors(dtype, lower, upper))
    for box in range(len(lower)):
        points = points_inside(rng, lower[box], upper[box], POINTS)
        for layer, z, size in zip(layers, preactivations(network, points), sizes(network, points), strict=True):
            # the size anywhere in the box counts: rounding is that of the walls, not that of the point
            slack = ROUNDING[dtype] * (size.max(axis=0) + np.abs(z).max(axis=0)) + 1e-30
            assert (z >= layer.z_lower[box].double().numpy() - slack).all()
            assert (z <= layer.z_upper[box].double().numpy() + slack).all()


@precisions
@relaxed
@given(case=networks_and_boxes())
def test_no_sampled_derivative_lies_below_its_bound(case, dtype) -> None:
    network, lower, upper, rng = case
    lower, upper = (wall.astype(np.float32).astype(np.float64) for wall in (lower, upper))
    queries = all_queries(network.inputs)
    weights, biases = network.tensors(dtype)
    layers = preactivation_bounds(weights, biases, *as_tensors(dtype, lower, upper))
    bounds = derivative_bounds(weights, layers, queries).lower.double().numpy()
    slack = ROUNDING[dtype] * np.array([slope_size(network)[feature] for feature, _ in queries]) + 1e-30
    for box in range(len(lower)):
        points = points_inside(rng, lower[box], upper[box], POINTS)
        pairs = zip(preactivations(network, points), sizes(network, points), strict=True)
        decided = np.all([(np.abs(z) > KINK[dtype] * size.max(axis=0)).all(axis=1) for z, size in pairs], axis=0)
        slopes = sampled_slopes(network, points[decided], queries)
        assert (slopes >= bounds[box] - slack).all()


@relaxed
@given(case=networks_and_boxes(boxes=2))
def test_derivative_bounds_are_never_looser_than_interval_arithmetic(case) -> None:
    network, lower, upper, _ = case
    queries = all_queries(network.inputs)
    weights, biases = network.tensors(torch.float64)
    layers = preactivation_bounds(weights, biases, *as_tensors(torch.float64, lower, upper))
    found = derivative_bounds(weights, layers, queries).lower
    g_low, g_high = _backward_intervals(weights, layers)[0]
    on, maybe = layers[0].z_lower >= 0, layers[0].unstable
    none = torch.zeros_like(g_low)
    p_low = torch.where(on, g_low, torch.where(maybe, g_low.clamp_max(0), none))
    p_high = torch.where(on, g_high, torch.where(maybe, g_high.clamp_min(0), none))
    for column, (feature, sign) in enumerate(queries):
        first = sign * weights[0][:, feature]
        plain = torch.minimum(first * p_low, first * p_high).sum(-1)
        slack = ROUNDING[torch.float64] * slope_size(network)[feature] + 1e-30
        assert (found[:, column] >= plain - slack).all()


@relaxed
@given(seed=st.integers(0, 2**32 - 1), hidden=st.lists(st.integers(3, 12), min_size=1, max_size=3))
def test_a_point_has_its_own_preactivations_and_derivatives_as_bounds(seed, hidden) -> None:
    rng = np.random.default_rng(seed)
    network = random_network(rng, 3, hidden)
    point = rng.normal(size=(1, 3))
    queries = all_queries(3)
    weights, biases = network.tensors(torch.float64)
    layers = preactivation_bounds(weights, biases, *as_tensors(torch.float64, point, point))
    for layer, z in zip(layers, preactivations(network, point), strict=True):
        np.testing.assert_allclose(layer.z_lower.numpy(), z, atol=1e-9)
        np.testing.assert_allclose(layer.z_upper.numpy(), z, atol=1e-9)
        assert not layer.unstable.any()
    bounds = derivative_bounds(weights, layers, queries).lower.numpy()
    np.testing.assert_allclose(bounds, sampled_slopes(network, point, queries), atol=1e-9)


def test_boxes_do_not_influence_each_other() -> None:
    rng = np.random.default_rng(0)
    network = random_network(rng, 4, (9, 7))
    weights, biases = network.tensors(torch.float64)
    lower = torch.as_tensor(rng.normal(size=(5, 4)))
    upper = lower + torch.as_tensor(rng.random((5, 4)))
    together = derivative_bounds(weights, preactivation_bounds(weights, biases, lower, upper), [(0, 1), (2, -1)])
    for box in range(5):
        alone = preactivation_bounds(weights, biases, lower[box : box + 1], upper[box : box + 1])
        found = derivative_bounds(weights, alone, [(0, 1), (2, -1)])
        torch.testing.assert_close(found.lower[0], together.lower[box], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(found.split_score[0], together.split_score[box], rtol=1e-12, atol=1e-12)


def test_one_box_proves_a_network_that_is_monotone_by_construction() -> None:
    queries = [(0, 1), (2, -1)]
    network = monotone_network(4, (40, 30, 20), queries)
    weights, biases = network.tensors()
    layers = preactivation_bounds(weights, biases, torch.full((1, 4), -5.0), torch.full((1, 4), 5.0))
    # every product has one sign, so that rounding cannot make the sum negative
    assert (derivative_bounds(weights, layers, queries).lower >= 0).all()


def test_splitting_pays_only_along_inputs_that_reach_an_unstable_neuron() -> None:
    network = random_network(np.random.default_rng(3), 3, (8, 8))
    for layer in network.weights[:1]:
        layer[:, 1] = 0.0
    weights, biases = network.tensors()
    layers = preactivation_bounds(weights, biases, torch.full((1, 3), -1.0), torch.full((1, 3), 1.0))
    score = derivative_bounds(weights, layers, [(0, 1), (0, -1)]).split_score[0]
    assert score[1] == 0 and score[0] > 0 and score[2] > 0


@relaxed
@given(seed=st.integers(0, 2**32 - 1), hidden=st.lists(st.integers(1, 10), min_size=1, max_size=4))
def test_gradient_agrees_with_automatic_differentiation(seed, hidden) -> None:
    rng = np.random.default_rng(seed)
    network = random_network(rng, 3, hidden)
    weights, biases = network.tensors(torch.float64)
    x = torch.as_tensor(rng.normal(size=(20, 3))).requires_grad_(True)
    value = forward(weights, biases, x)
    (expected,) = torch.autograd.grad(value.sum(), x)
    torch.testing.assert_close(gradient(weights, biases, x.detach()), expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(network.value(x.detach().numpy()), value.detach().numpy(), rtol=1e-12, atol=1e-12)
