"""The certified loss: its bounds are bounds, it can be trained with, and it vanishes where the margin holds."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from models.training.derivative_penalty import DerivativePenalty, derivative_bounds, preactivation_bounds
from models.verification.network.fully_connected import network_from_torch
from models.verification.network.graph_tensors import GraphTensors

QUERIES = [(0, 1), (2, -1)]
# float32 bounds without a charge for rounding.
ROUNDING = 1e-4


def mlp(seed: int, hidden: tuple[int, ...]) -> nn.Sequential:
    torch.manual_seed(seed)
    sizes = (3, *hidden, 1)
    layers: list[nn.Module] = []
    for a, b in pairwise(sizes):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def linear(network: nn.Sequential) -> list[nn.Linear]:
    return [layer for layer in network if isinstance(layer, nn.Linear)]


@pytest.mark.parametrize("hidden", [(7,), (8, 6), (8, 6, 5)], ids=["1", "2", "3"])
@pytest.mark.parametrize("seed", range(3))
def test_no_sampled_preactivation_or_derivative_leaves_its_bounds(hidden: tuple[int, ...], seed: int) -> None:
    network = mlp(seed, hidden)
    weights, biases = [w.weight for w in linear(network)], [w.bias for w in linear(network)]
    random = torch.Generator().manual_seed(seed)
    centre = torch.randn(6, 3, generator=random)
    radius = torch.rand(6, 1, generator=random) * torch.tensor([[0.0], [0.01], [0.1], [0.3], [1.0], [2.0]])
    with torch.no_grad():
        layers = preactivation_bounds(weights, biases, centre - radius, centre + radius)
        bounds = derivative_bounds(weights, layers, QUERIES)
        for box in range(6):
            x = centre[box] + radius[box] * (2 * torch.rand(400, 3, generator=random) - 1)
            a = x
            for (low, high), weight, bias in zip(layers, weights, biases, strict=False):
                z = a @ weight.T + bias
                assert (z >= low[box] - ROUNDING).all() and (z <= high[box] + ROUNDING).all()
                a = torch.relu(z)
            tensors = GraphTensors(network_from_torch(network).graph, torch.float32)
            for query, (feature, sign) in enumerate(QUERIES):
                slope = tensors.gradient(x, torch.tensor([float(sign)]))[:, feature]
                assert slope.min() >= bounds[box, query] - ROUNDING


def test_the_bound_of_a_point_is_its_derivative() -> None:
    network = mlp(1, (9, 7))
    x = torch.randn(5, 3)
    weights, biases = [w.weight for w in linear(network)], [w.bias for w in linear(network)]
    bounds = derivative_bounds(weights, preactivation_bounds(weights, biases, x, x), QUERIES)
    tensors = GraphTensors(network_from_torch(network).graph, torch.float32)
    exact = torch.stack([tensors.gradient(x, torch.tensor([float(s)]))[:, f] for f, s in QUERIES], 1)
    assert torch.allclose(bounds, exact, atol=1e-5)


def test_the_penalty_is_zero_where_the_margin_holds_everywhere() -> None:
    network = nn.Sequential(nn.Linear(3, 1), nn.ReLU(), nn.Linear(1, 1))
    with torch.no_grad():
        linear(network)[0].weight.copy_(torch.tensor([[1.0, 0.0, -1.0]]))
        linear(network)[0].bias.fill_(5.0)  # never off on the unit cube
        linear(network)[1].weight.fill_(1.0)
    penalty = DerivativePenalty(QUERIES, torch.zeros(3), torch.ones(3), 0.9, 4, torch.Generator().manual_seed(0))
    assert float(penalty(linear(network), 1.0).detach()) == 0.0
    strict = DerivativePenalty(QUERIES, torch.zeros(3), torch.ones(3), 1.5, 4, torch.Generator().manual_seed(0))
    assert float(strict(linear(network), 1.0).detach()) == pytest.approx(0.5)


def test_descending_on_the_penalty_makes_a_network_monotone() -> None:
    network = mlp(0, (16, 16))
    penalty = DerivativePenalty(QUERIES, torch.zeros(3), torch.ones(3), 0.05, 8, torch.Generator().manual_seed(0))
    optimiser = torch.optim.Adam(network.parameters(), lr=5e-3)
    first = float(penalty(linear(network), 1.0).detach())
    for _ in range(300):
        optimiser.zero_grad()
        loss = penalty(linear(network), 1.0)
        loss.backward()
        optimiser.step()
    assert float(penalty(linear(network), 1.0).detach()) < 0.5 * first
    points = np.random.default_rng(0).random((2000, 3))
    gradient = GraphTensors(network_from_torch(network).graph).gradient(torch.as_tensor(points), torch.ones(1).double())
    assert float(gradient[:, 0].min()) > -1e-3 and float(gradient[:, 2].max()) < 1e-3
