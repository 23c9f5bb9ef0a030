"""The second family's loss: bounds of slopes from the input on are bounds, exact at a point, and train their family."""

import pytest
import torch

from benchmarks.learning.tangent_bounds import tangent_bounds
from benchmarks.verification.networks import QUERIES, Recipe, train
from models.learners.mlp import build_mlp, linear_layers
from models.training.derivative_penalty import derivative_bounds, preactivation_bounds
from models.verification.network.fully_connected import network_from_torch
from models.verification.network.graph_tensors import GraphTensors

# float32 bounds without a charge for rounding.
ROUNDING = 1e-4


def bounds_of(network: torch.nn.Sequential, lower: torch.Tensor, upper: torch.Tensor, bound) -> torch.Tensor:
    weights = [layer.weight for layer in linear_layers(network)]
    biases = [layer.bias for layer in linear_layers(network)]
    with torch.no_grad():
        return bound(weights, preactivation_bounds(weights, biases, lower, upper), QUERIES)


def slopes(network: torch.nn.Sequential, x: torch.Tensor) -> torch.Tensor:
    tensors = GraphTensors(network_from_torch(network).graph, torch.float32)
    return torch.stack([tensors.gradient(x, torch.tensor([float(sign)]))[:, feature] for feature, sign in QUERIES], 1)


@pytest.mark.parametrize("hidden", [(7,), (8, 6), (8, 6, 5)], ids=["1", "2", "3"])
@pytest.mark.parametrize("seed", range(3))
def test_no_sampled_slope_is_below_its_bound_and_a_point_has_its_own(hidden: tuple[int, ...], seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    network = build_mlp(8, hidden, random)
    centre = torch.rand(5, 8, generator=random)
    radius = torch.tensor([0.0, 0.01, 0.1, 0.5, 2.0])[:, None]
    bounds = bounds_of(network, centre - radius, centre + radius, tangent_bounds)
    torch.testing.assert_close(bounds[0], slopes(network, centre[:1])[0], atol=ROUNDING, rtol=0)
    for box in range(5):
        x = centre[box] + radius[box] * (2 * torch.rand(400, 8, generator=random) - 1)
        assert (slopes(network, x).amin(0) >= bounds[box] - ROUNDING).all()


def test_one_hidden_layer_has_the_same_bounds_from_either_end() -> None:
    network = build_mlp(8, (9,), torch.Generator().manual_seed(0))
    lower, upper = torch.zeros(1, 8), torch.ones(1, 8)
    torch.testing.assert_close(bounds_of(network, lower, upper, tangent_bounds),
                               bounds_of(network, lower, upper, derivative_bounds), atol=ROUNDING, rtol=0)


def test_a_network_is_best_bounded_from_the_end_that_it_was_trained_on() -> None:
    lower, upper = torch.zeros(1, 8), torch.ones(1, 8)
    gains = []
    for bound in (tangent_bounds, derivative_bounds):
        network = train((24, 24), QUERIES, Recipe(300, weight=1.0, margin=0.05, bound=bound))
        gains.append(float((bounds_of(network, lower, upper, tangent_bounds)
                            - bounds_of(network, lower, upper, derivative_bounds)).min()))
    assert gains[0] > gains[1]
