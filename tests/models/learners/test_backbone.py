"""The shared trunk, and how a workload's own network grows out of it."""

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from models.learners.backbone import Backbone, grow
from models.learners.mlp import build_mlp, linear_layers

relaxed = settings(max_examples=30, deadline=None)
# float32 sums of some 20 terms in two orders, values of size 1 to 10
FLOAT32 = 1e-5


def backbone(joint: int, workloads: int, width: int, seed: int = 0) -> Backbone:
    generator = torch.Generator().manual_seed(seed)
    made = Backbone(joint, workloads, width, generator)
    with torch.no_grad():
        for layer in made.layers:
            layer.weight.normal_(0.0, 0.5, generator=generator)
            layer.bias.normal_(0.0, 0.5, generator=generator)
    return made


def answer(made: Backbone, workload: int, columns: Sequence[int], x: torch.Tensor) -> torch.Tensor:
    joint = torch.zeros(len(x), made.layers[0].in_features)
    joint[:, list(columns)] = x
    with torch.no_grad():
        found: torch.Tensor = made(joint, torch.full((len(x),), workload))
    return found


@relaxed
@given(data=st.data(), seed=st.integers(0, 1000))
def test_growing_keeps_the_function(data: st.DataObject, seed: int) -> None:
    joint, workloads, width = (data.draw(st.integers(1, high)) for high in (6, 4, 8))
    columns = data.draw(st.permutations(range(joint)))[: data.draw(st.integers(1, joint))]
    hidden = data.draw(st.lists(st.integers(width, width + 8), min_size=2, max_size=4))
    workload = data.draw(st.integers(0, workloads - 1))
    made = backbone(joint, workloads, width, seed)
    network = build_mlp(len(columns), hidden, torch.Generator().manual_seed(seed))
    grown = grow(made, workload, columns, network)
    x = torch.randn(50, len(columns), generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        torch.testing.assert_close(grown(x)[:, 0], answer(made, workload, columns, x), rtol=FLOAT32, atol=FLOAT32)


@pytest.mark.parametrize("hidden", [(8,), (7, 9), (9, 7), (9, 9, 7)])
def test_a_network_that_the_trunk_does_not_fit_into_is_returned_as_it_is(hidden: tuple[int, ...]) -> None:
    network = build_mlp(3, hidden, torch.Generator().manual_seed(0))
    before = [layer.weight.detach().clone() for layer in linear_layers(network)]
    assert grow(backbone(5, 2, 8), 0, [0, 1, 2], network) is network
    assert all(torch.equal(a, layer.weight) for a, layer in zip(before, linear_layers(network), strict=True))


def test_units_beyond_the_trunk_feed_nothing_yet_but_can_learn() -> None:
    made = backbone(3, 1, 4)
    network = grow(made, 0, [0, 1, 2], build_mlp(3, (6, 6), torch.Generator().manual_seed(1)))
    layers = linear_layers(network)
    assert not layers[1].weight[:4, 4:].any() and not layers[2].weight[0, 4:].any()
    assert layers[0].weight[4:].any() and layers[1].weight[4:].any()
    network(torch.rand(20, 3)).sum().backward()
    gradient = layers[2].weight.grad
    assert gradient is not None and gradient[0, 4:].any()


def test_each_workload_has_its_own_head_on_one_trunk() -> None:
    made = backbone(3, 2, 5)
    x = torch.rand(6, 3, generator=torch.Generator().manual_seed(0))
    workload = torch.tensor([0, 1, 0, 1, 0, 1])
    with torch.no_grad():
        found = made(x, workload)
        hidden = made.trunk(x)
        expected = torch.stack([made.head(hidden)[i, w] for i, w in enumerate(workload.tolist())])
    assert found.shape == (6,) and torch.equal(found, expected)


def test_all_heads_start_alike() -> None:
    made = Backbone(3, 4, 5, torch.Generator().manual_seed(0))
    assert isinstance(made.head, nn.Linear)
    assert all(torch.equal(row, made.head.weight[0]) for row in made.head.weight) and not made.head.bias.any()
    assert [layer.out_features for layer in made.layers] == [5, 5, 4]


def test_only_the_heads_of_a_batch_are_computed_and_learn_as_if_all_were() -> None:
    backbone = Backbone(3, 50, 6, torch.Generator().manual_seed(0))
    with torch.no_grad():
        backbone.head.weight.normal_(generator=torch.Generator().manual_seed(1))
    x, workload = torch.rand(9, 3, generator=torch.Generator().manual_seed(2)), torch.tensor([7] * 4 + [3, 49, 3, 0, 7])
    everything = backbone.head(backbone.trunk(x)).gather(1, workload[:, None])[:, 0]
    torch.testing.assert_close(backbone(x, workload), everything)
    expected = torch.autograd.grad((everything**2).sum(), list(backbone.parameters()))
    gradients = torch.autograd.grad((backbone(x, workload) ** 2).sum(), list(backbone.parameters()))
    for gradient, of_all in zip(gradients, expected, strict=True):
        torch.testing.assert_close(gradient, of_all)
