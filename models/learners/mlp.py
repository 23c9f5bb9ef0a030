"""The base learner: a fully connected ReLU network (vPALs, section "DNN Training", table 6)."""

from collections.abc import Sequence

import torch
from torch import nn


def build_mlp(inputs: int, hidden: Sequence[int], generator: torch.Generator) -> nn.Sequential:
    """Linear, ReLU, ..., Linear with one output, He-initialised from `generator`: (batch, inputs) -> (batch, 1)."""
    layers: list[nn.Module] = []
    width = inputs
    for size in (*hidden, 1):
        linear = nn.Linear(width, size)
        with torch.no_grad():
            linear.weight.normal_(0.0, (2.0 / width) ** 0.5, generator=generator)
            linear.bias.zero_()
        layers += [linear, nn.ReLU()]
        width = size
    return nn.Sequential(*layers[:-1])


def linear_layers(network: nn.Sequential) -> list[nn.Linear]:
    """The Linear layers, first to last."""
    return [layer for layer in network if isinstance(layer, nn.Linear)]
