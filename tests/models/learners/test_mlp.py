"""The base learner: shapes, initial scale, reproducibility."""

import pytest
import torch
from torch import nn

from models.learners.mlp import build_mlp, linear_layers


@pytest.mark.parametrize("hidden", [(4,), (300, 300), (5, 7, 3)])
def test_layers_alternate_and_have_the_widths_asked_for(hidden: tuple[int, ...]) -> None:
    module = build_mlp(6, hidden, torch.Generator().manual_seed(0))
    assert [type(layer) for layer in module] == [nn.Linear, nn.ReLU] * len(hidden) + [nn.Linear]
    assert [layer.out_features for layer in linear_layers(module)] == [*hidden, 1]
    assert module(torch.zeros(9, 6)).shape == (9, 1)
    assert len(linear_layers(module)) == len(hidden) + 1


def test_weights_have_hes_scale_and_biases_are_zero() -> None:
    module = build_mlp(400, (500,), torch.Generator().manual_seed(0))
    weight = linear_layers(module)[0].weight.detach()
    # 200,000 samples: the standard deviation is known to a quarter of a percent
    assert float(weight.std()) == pytest.approx((2 / 400) ** 0.5, rel=0.01)
    assert abs(float(weight.mean())) < 1e-3
    assert all(not layer.bias.any() for layer in linear_layers(module))


def test_the_generator_alone_decides_the_weights() -> None:
    torch.manual_seed(0)
    a = build_mlp(3, (5,), torch.Generator().manual_seed(7))
    torch.manual_seed(1)
    b = build_mlp(3, (5,), torch.Generator().manual_seed(7))
    other = build_mlp(3, (5,), torch.Generator().manual_seed(8))
    assert torch.equal(a[0].weight, b[0].weight) and not torch.equal(a[0].weight, other[0].weight)
