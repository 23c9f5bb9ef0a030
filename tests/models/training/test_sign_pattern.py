"""Monotone by construction: attacked by sampling, in value and in slope."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from models.learners.mlp import build_mlp, linear_layers
from models.training.sign_pattern import initialise, project, unit_signs
from models.verification.network.fully_connected import network_from_torch
from tests.models.verification.networks import Queries, exact_gradient, sampled_slopes

relaxed = settings(max_examples=30, deadline=None)
# The float64 value of a network of 3 layers of 20 units and weights of size 1.
ROUNDING = 1e-10


def network(inputs: int, hidden: Sequence[int], seed: int) -> nn.Sequential:
    generator = torch.Generator().manual_seed(seed)
    module = build_mlp(inputs, hidden, generator)
    with torch.no_grad():
        for layer in linear_layers(module):
            layer.bias.normal_(0.0, 0.5, generator=generator)
    return module


def weights(module: nn.Sequential) -> list[torch.Tensor]:
    return [layer.weight.detach().clone() for layer in linear_layers(module)]


def assert_monotone(module: nn.Sequential, queries: Queries, seed: int) -> None:
    rng = np.random.default_rng(seed)
    learner = network_from_torch(module)
    points = rng.normal(size=(300, learner.inputs)) * rng.choice([0.1, 1.0, 10.0])
    # products of numbers of one sign, summed: not even rounding makes a slope negative
    assert (sampled_slopes(learner, points, queries) >= 0).all()
    for feature, sign in queries:
        moved = points.copy()
        moved[:, feature] += rng.random(len(points)) * 5
        rise = sign * (learner.value(moved) - learner.value(points))
        assert (rise >= -ROUNDING * (1 + np.abs(points).max())).all()


@relaxed
@given(seed=st.integers(0, 10_000), hidden=st.lists(st.integers(2, 20), min_size=1, max_size=4),
       signs=st.lists(st.sampled_from([-1, 1]), min_size=1, max_size=4))
def test_a_projected_network_is_monotone_everywhere(seed, hidden, signs) -> None:
    queries = list(enumerate(signs))
    module = network(5, hidden, seed)
    project(linear_layers(module), queries)
    assert_monotone(module, queries, seed)


@relaxed
@given(seed=st.integers(0, 10_000), hidden=st.lists(st.integers(2, 20), min_size=1, max_size=4))
def test_an_initialised_network_is_monotone_and_already_on_the_pattern(seed, hidden) -> None:
    queries = [(0, 1), (3, -1)]
    module = network(4, hidden, seed)
    initialise(linear_layers(module), queries)
    assert_monotone(module, queries, seed)
    before = weights(module)
    project(linear_layers(module), queries)
    assert all(torch.equal(a, b) for a, b in zip(before, weights(module), strict=True))


@relaxed
@given(seed=st.integers(0, 10_000), hidden=st.lists(st.integers(1, 20), min_size=1, max_size=3))
def test_projection_is_idempotent_and_touches_only_what_disagrees(seed, hidden) -> None:
    queries = [(1, 1)]
    module = network(3, hidden, seed)
    before = weights(module)
    project(linear_layers(module), queries)
    once = weights(module)
    project(linear_layers(module), queries)
    assert all(torch.equal(a, b) for a, b in zip(once, weights(module), strict=True))
    # a weight stays as it was or becomes zero: the nearest point of the pattern
    assert all(((b == a) | (b == 0)).all() for a, b in zip(before, once, strict=True))
    assert torch.equal(once[0][:, [0, 2]], before[0][:, [0, 2]])


def test_initialisation_keeps_free_weights_and_the_size_of_the_others() -> None:
    module = network(4, (10, 8), seed=0)
    before = weights(module)
    biases = [layer.bias.detach().clone() for layer in linear_layers(module)]
    initialise(linear_layers(module), [(2, -1)])
    after = weights(module)
    assert torch.equal(after[0][:, [0, 1, 3]], before[0][:, [0, 1, 3]])
    assert torch.equal(after[0][:, 2].abs(), before[0][:, 2].abs())
    assert torch.equal(after[0][:, 2].sign(), -unit_signs(10))
    for k in (1, 2):
        torch.testing.assert_close(after[k].abs(), before[k].abs() * 2 / before[k].shape[1] ** 0.5)
    assert all(torch.equal(a, layer.bias) for a, layer in zip(biases, linear_layers(module), strict=True))


def test_both_curvatures_are_available() -> None:
    # a step up and a step down of the slope, both rising: convex units alone could do the first only
    signs = unit_signs(2)
    module = build_mlp(1, (2,), torch.Generator())
    first, last = linear_layers(module)
    with torch.no_grad():
        first.weight.copy_(signs[:, None])
        first.bias.copy_(torch.tensor([0.0, 1.0]))
        last.weight.copy_(signs[None])
        last.bias.zero_()
    before = weights(module)
    project([first, last], [(0, 1)])
    assert all(torch.equal(a, b) for a, b in zip(before, weights(module), strict=True))
    # relu(x) - relu(1 - x): slope 1 below 0, 2 between, 1 above
    learner = network_from_torch(module)
    assert [float(exact_gradient(learner, [x])[0]) for x in (-1.0, 0.5, 2.0)] == [1.0, 2.0, 1.0]


def test_without_monotone_features_the_first_layer_is_free() -> None:
    module = network(3, (6, 6), seed=1)
    before = weights(module)[0]
    project(linear_layers(module), [])
    assert torch.equal(weights(module)[0], before)


@pytest.mark.parametrize("width", [1, 2, 7])
def test_unit_signs_alternate(width: int) -> None:
    assert unit_signs(width).tolist() == [1.0, -1.0] * (width // 2) + [1.0] * (width % 2)
