"""Many base learners of the same sizes, trained side by side as one tensor operation.

Monotone by construction like the pipeline's (models/training/sign_pattern.py): the pattern is that package's own, put
on every network of the batch. Minibatches are drawn for each network of its own rows.

Symbols: B networks, m rows each, n inputs; steps of Adam.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from models.learners.mlp import build_mlp, linear_layers
from models.training.sign_pattern import initialise, project

FloatArray = NDArray[np.float64]
BATCH = 128


@dataclass
class Networks:
    """Networks of one shape.

    Attributes:
        weights: (B, out, in) for each layer.
        biases: (B, 1, out) for each layer.
    """

    weights: list[Tensor]
    biases: list[Tensor]

    @classmethod
    def of(cls, modules: Sequence[nn.Sequential]) -> "Networks":
        """Copies of networks of the same sizes."""
        layers = [linear_layers(module) for module in modules]
        depth = range(len(layers[0]))
        return cls([torch.stack([linear[k].weight.detach().clone() for linear in layers]) for k in depth],
                   [torch.stack([linear[k].bias.detach().clone()[None] for linear in layers]) for k in depth])

    def pick(self, at: Sequence[int]) -> "Networks":
        """Copies of some of them, which may stand several times."""
        index = torch.as_tensor(list(at))
        return Networks([w[index].clone() for w in self.weights], [b[index].clone() for b in self.biases])

    def __call__(self, x: Tensor) -> Tensor:
        """(B, m) of x (B, m, n)."""
        for k, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = torch.baddbmm(bias, x, weight.transpose(1, 2))
            x = torch.relu(x) if k + 1 < len(self.weights) else x
        return x[..., 0]


@dataclass(frozen=True)
class Curves:
    """Errors during training.

    Attributes:
        errors (B, E): of the test rows after `steps`.
        steps (E,): gradient steps.
        seconds: of all steps, without the tests.
    """

    steps: NDArray[np.int64]
    errors: FloatArray
    seconds: float


def fresh(count: int, inputs: int, hidden: Sequence[int], queries: Sequence[tuple[int, int]], seed: int) -> Networks:
    """Initialised as the pipeline does."""
    modules = []
    for number in range(count):
        module = build_mlp(inputs, hidden, torch.Generator().manual_seed(seed * 10_000 + number))
        initialise(linear_layers(module), queries)
        modules.append(module)
    return Networks.of(modules)


def train(networks: Networks, x: Sequence[FloatArray], y: Sequence[FloatArray], x_test: Sequence[FloatArray],
          y_test: Sequence[FloatArray], queries: Sequence[tuple[int, int]], steps: int, every: int, rate: float,
          seed: int, relative: Sequence[float] | None = None) -> Curves:
    """Trains in place with the mean squared error.

    Args:
        x, y: rows of each network, as many as it has.
        relative: length of a scaled unit of each network's target in logarithms: errors are then mean absolute
            percentage errors; None: they are mean squared errors.
    """
    rows = [torch.as_tensor(values, dtype=torch.float32) for values in x]
    targets = [torch.as_tensor(values, dtype=torch.float32) for values in y]
    parameters = [*networks.weights, *networks.biases]
    for parameter in parameters:
        parameter.requires_grad_(True)
    optimiser = torch.optim.Adam(parameters, lr=rate, fused=True)
    generator = torch.Generator().manual_seed(seed)
    test = _padded(x_test), _padded([values[:, None] for values in y_test])[..., 0]
    is_row = torch.arange(test[1].shape[1])[None] < torch.as_tensor([len(values) for values in y_test])[:, None]
    patterns = _patterns(networks, queries)
    errors, seconds = [_test(networks, *test, is_row, relative)], 0.0
    for step in range(1, steps + 1):
        began = time.process_time()
        at = [torch.randint(len(values), (min(BATCH, len(values)),), generator=generator) for values in rows]
        width = max(len(index) for index in at)
        at = [index.repeat(width // len(index) + 1)[:width] for index in at]
        batch = torch.stack([values[index] for values, index in zip(rows, at, strict=True)])
        wanted = torch.stack([values[index] for values, index in zip(targets, at, strict=True)])
        # the sum over networks: each one's gradient is its own
        loss = ((networks(batch) - wanted) ** 2).mean(dim=1).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        with torch.no_grad():
            for weight, pattern in zip(networks.weights, patterns, strict=True):
                weight.mul_((weight * pattern >= 0).to(weight.dtype))
        seconds += time.process_time() - began
        if step % every == 0:
            errors.append(_test(networks, *test, is_row, relative))
    for parameter in parameters:
        parameter.requires_grad_(False)
    return Curves(np.arange(0, steps + 1, every), np.stack(errors, axis=1), seconds)


def steps_to_converge(curves: Curves, within: float = 0.02, last: int = 10) -> tuple[FloatArray, FloatArray]:
    """Steps (B,) until the error is first within a share of the converged one, and that (B,): the mean of the last."""
    converged = curves.errors[:, -last:].mean(axis=1)
    reached = curves.errors <= (1 + within) * converged[:, None]
    reached[:, -1] = True
    return curves.steps[reached.argmax(axis=1)].astype(np.float64), converged


def steps_to_reach(curves: Curves, bar: FloatArray) -> FloatArray:
    """Steps (B,) until the error is first at most `bar` (B,); infinite where it never is."""
    reached = curves.errors <= bar[:, None]
    return np.where(reached.any(axis=1), curves.steps[reached.argmax(axis=1)], np.inf)


@torch.no_grad()
def _test(networks: Networks, x: Tensor, y: Tensor, is_row: Tensor, relative: Sequence[float] | None) -> FloatArray:
    gap = networks(x) - y
    error = gap**2 if relative is None else (gap * torch.as_tensor(relative)[:, None]).double().expm1().abs()
    return np.asarray((torch.where(is_row, error, 0.0).sum(dim=1) / is_row.sum(dim=1)).numpy(), dtype=np.float64)


def _patterns(networks: Networks, queries: Sequence[tuple[int, int]]) -> list[Tensor]:
    """(out, in) a layer: the sign that a weight must have, 0 where it is free."""
    layers = []
    for weight in networks.weights:
        layer = nn.Linear(weight.shape[2], weight.shape[1])
        layers.append(layer)
    signs = []
    for sign in (1.0, -1.0):  # what the projection leaves of ones and of minus ones tells the pattern
        for layer in layers:
            with torch.no_grad():
                layer.weight.fill_(sign)
        project(layers, queries)
        signs.append([layer.weight.detach().clone() for layer in layers])
    return [plus + minus for plus, minus in zip(*signs, strict=True)]


def _padded(rows: Sequence[FloatArray]) -> Tensor:
    most = max(len(values) for values in rows)
    return torch.stack([torch.nn.functional.pad(torch.as_tensor(values, dtype=torch.float32),
                                                (0, 0, 0, most - len(values))) for values in rows])
