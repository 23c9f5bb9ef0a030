"""The network as the verifier sees it: validation, values, and how far float64 may be off."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from torch import nn

from feature_store.errors import InputError
from models.learners.mlp import build_mlp
from models.verification.network.fully_connected import ReluNetwork, network_from_torch
from models.verification.network.graph_tensors import GraphTensors
from tests.models.verification.networks import exact_value, networks_and_boxes, points_inside, random_network

few = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
# float32 execution of networks with weights and inputs of size 1
FLOAT32 = 1e-4


def arrays(*shapes: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    return tuple(np.ones(shape, dtype=np.float32) for shape in shapes)


@pytest.mark.parametrize(
    ("weights", "biases", "message"),
    [
        (arrays((1, 2)), arrays((1,)), "at least one hidden layer"),
        (arrays((3, 2), (1, 3)), arrays((3,)), "one bias a layer"),
        (arrays((3, 2), (1, 3)), arrays((3,), (2,)), "fitting bias"),
        (arrays((3, 2), (1, 4)), arrays((3,), (1,)), "layer 1 must take 3 inputs, got 4"),
        (arrays((3, 2), (2, 3)), arrays((3,), (2,)), "one output, got 2"),
        (arrays((3,), (1, 3)), arrays((3,), (1,)), "layer 0 must have a matrix"),
    ],
)
def test_layers_that_do_not_fit_are_refused(weights, biases, message) -> None:
    with pytest.raises(InputError, match=message):
        ReluNetwork(weights, biases)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["weights", "biases"])
def test_weights_that_are_not_finite_are_refused(value, where) -> None:
    parts = {"weights": arrays((3, 2), (1, 3)), "biases": arrays((3,), (1,))}
    parts[where][1].flat[0] = value
    with pytest.raises(InputError, match=r"weights must be finite.*layer 1"):
        ReluNetwork(**parts)


def test_a_torch_module_computes_what_the_network_read_from_it_computes() -> None:
    module = build_mlp(3, (8, 5), torch.Generator().manual_seed(0))
    network = network_from_torch(module)
    x = np.random.default_rng(0).normal(size=(50, 3))
    with torch.no_grad():
        expected = module(torch.as_tensor(x, dtype=torch.float32))[:, 0].numpy()
    np.testing.assert_allclose(network.value(x), expected, atol=FLOAT32)
    single = GraphTensors(network.graph, torch.float32)(torch.as_tensor(x, dtype=torch.float32))[:, 0]
    np.testing.assert_allclose(single, expected, atol=FLOAT32)
    assert network.inputs == 3


def test_reading_a_torch_module_copies_nothing_that_training_could_change_unseen() -> None:
    module = build_mlp(2, (4,), torch.Generator().manual_seed(0))
    network = network_from_torch(module)
    before = network.weights[0].copy()
    with torch.no_grad():
        module[0].weight.add_(1.0)
    np.testing.assert_array_equal(network.weights[0], before)


@pytest.mark.parametrize("layers", [
    [nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)],
    [nn.Linear(2, 3), nn.Linear(3, 1)],
    [nn.ReLU(), nn.Linear(2, 1)],
    [nn.Linear(2, 3), nn.ReLU(), nn.Dropout(), nn.Linear(3, 1)],
])
def test_a_module_of_other_layers_is_refused_with_the_layers_name(layers) -> None:
    with pytest.raises(InputError, match=r"network must alternate Linear and ReLU, got \w+ \(layer \d\)"):
        network_from_torch(nn.Sequential(*layers))


@few
@given(case=networks_and_boxes(widths=(1, 8), depth=(1, 4), scales=(1e-3, 1.0, 30.0, 1e6), boxes=1))
def test_the_rounding_bound_holds_against_exact_values(case) -> None:
    network, lower, upper, rng = case
    points = points_inside(rng, lower[0], upper[0], 5)
    for point, value, bound in zip(points, network.value(points), network.rounding(points), strict=True):
        assert abs(Fraction(float(value)) - exact_value(network, point.tolist())) <= Fraction(float(bound))


def test_the_rounding_bound_is_small_beside_a_float32_runtimes() -> None:
    network = random_network(np.random.default_rng(0), 10, (300, 300, 300))
    points = np.random.default_rng(1).random((10, 10))
    # the margin for float32 is 1e-5: 900 terms a layer in float64 must not come near it
    assert (network.rounding(points) < 1e-7).all()
