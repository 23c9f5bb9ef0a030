"""What the two CROWN peers share: the network's signed slope as a torch module that auto_LiRPA can bound, and a repair.

auto_LiRPA bounds the Jacobian on an augmented graph (Shi et al., NeurIPS 2022; its examples/vision/jacobian.py).
It is not on PyPI in a version with Jacobians: a checkout of its source is put on the module path.
"""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.verification.peers.question import Question


class SignedSlope(nn.Module):
    """x (batch, n) -> sign * df/dx[i], (batch, 1). Without auto_LiRPA's graph its value is 0."""

    direction: Tensor

    def __init__(self, question: Question) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for weight, bias in zip(question.network.weights, question.network.biases, strict=True):
            linear = nn.Linear(weight.shape[1], weight.shape[0])
            linear.weight = nn.Parameter(torch.as_tensor(weight), requires_grad=False)
            linear.bias = nn.Parameter(torch.as_tensor(bias), requires_grad=False)
            layers += [linear, nn.ReLU()]
        self.network = nn.Sequential(*layers[:-1])
        direction = torch.zeros(question.network.inputs, 1)
        direction[question.feature, 0] = question.sign
        self.register_buffer("direction", direction)

    def forward(self, x: Tensor) -> Tensor:
        from auto_LiRPA.jacobian import JacobianOP

        jacobian: Tensor = JacobianOP.apply(self.network(x), x)
        return jacobian.flatten(1).matmul(self.direction)


def repair_batches() -> None:
    """Makes auto_LiRPA's Jacobian bounds of fully connected networks right for more than one box at a time.

    As of 0.7.1 the backward bound of the ReLU's gradient multiplies coefficients (spec, batch, 1, width) by masks
    (batch, width): for a batch b they broadcast to (spec, b, b, width), the boxes' bounds are added up and may lie far
    above the true slope (2x64, 64 boxes: 43.9 where the slope is 0.02), and time grows with b squared. Here the masks
    get the missing axis; bounds of a batch then equal those of its boxes one by one.
    """
    from auto_LiRPA.operators.relu import BoundReluGrad

    if getattr(BoundReluGrad, "repaired", False):
        return
    backward = BoundReluGrad.bound_backward

    def bound_backward(self: Any, last_low: Any, last_high: Any, g: Any, positive: Any, negative: Any,
                       preactivation: Any, **options: Any) -> Any:
        if preactivation.lower.ndim == 2:
            preactivation = SimpleNamespace(lower=preactivation.lower[:, None], upper=preactivation.upper[:, None])
        return backward(self, last_low, last_high, g, positive, negative, preactivation, **options)

    BoundReluGrad.bound_backward = bound_backward
    BoundReluGrad.repaired = True
