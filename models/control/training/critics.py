"""Networks beside the policy, which value states and actions: K of one shape as one module, each product a batched one.

Symbols: K members, B batch, i inputs, o outputs.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from models.training.adam import Adam


class Networks(nn.Module):
    """K fully connected ReLU networks: (B, i) or (K, B, i) -> (K, B, o)."""

    def __init__(self, inputs: int, hidden: Sequence[int], outputs: int, members: int,
                 generator: torch.Generator) -> None:
        super().__init__()
        sizes = (inputs, *hidden, outputs)
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for width, out in pairwise(sizes):
            weight = torch.empty(members, width, out).normal_(0.0, (2.0 / width) ** 0.5, generator=generator)
            self.weights.append(nn.Parameter(weight))
            self.biases.append(nn.Parameter(torch.zeros(members, 1, out)))
        with torch.no_grad():
            self.weights[-1].mul_(0.1)

    def forward(self, inputs: Tensor) -> Tensor:
        """See the class."""
        value = inputs.expand(len(self.weights[0]), *inputs.shape[-2:])
        for position, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            value = torch.baddbmm(bias, value, weight)
            if position < len(self.weights) - 1:
                value = value.relu()
        return value


class Critics(Networks):
    """Q of K members: features (B, f), actions (B, m) -> (K, B)."""

    def __init__(self, features: int, controls: int, hidden: Sequence[int], members: int,
                 generator: torch.Generator) -> None:
        super().__init__(features + controls, hidden, 1, members, generator)

    def values(self, features: Tensor, action: Tensor) -> Tensor:
        """See the class."""
        return self(torch.cat([features, action], dim=-1))[..., 0]


class Learned:
    """Parameters with their optimiser and, where they have one, a slow copy (DDPG's target network).

    Args:
        module: what is learned.
        target: the same module once more; it starts as a copy.
    """

    def __init__(self, module: nn.Module, target: nn.Module | None = None) -> None:
        self.target = target
        self.adam = Adam(module.parameters())
        if target is not None:
            target.load_state_dict(module.state_dict())
            target.requires_grad_(False)

    def step(self, loss: Tensor, rate: float) -> None:
        """One step of Adam."""
        self.adam.step(loss, rate)

    @torch.no_grad()
    def follow(self, share: float) -> None:
        """Moves the target by a share of its distance."""
        assert self.target is not None
        torch._foreach_lerp_(list(self.target.parameters()), self.adam.parameters, share)

    def state(self, name: str) -> dict[str, Tensor]:
        """All numbers, under names that begin with `name`."""
        return {key: tensor.detach().clone() for key, tensor in self._named(name).items()}

    @torch.no_grad()
    def restore(self, name: str, state: dict[str, Tensor]) -> None:
        """Takes what `state` gave."""
        for key, tensor in self._named(name).items():
            tensor.copy_(state[key])

    def _named(self, name: str) -> dict[str, Tensor]:
        groups: dict[str, Iterable[Tensor]] = {
            "parameter": self.adam.parameters, "mean": self.adam.means, "square": self.adam.squares,
            "step": self.adam.steps, "target": [] if self.target is None else self.target.parameters()}
        return {f"{name}.{group}.{number}": tensor for group, tensors in groups.items()
                for number, tensor in enumerate(tensors)}


class Learning:
    """A method that learns several things.

    Attributes:
        learned: by their names in a checkpoint.
    """

    learned: Mapping[str, Learned]

    def state(self) -> dict[str, Tensor]:
        """All numbers that go on."""
        return {key: value for name, one in self.learned.items() for key, value in one.state(name).items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Takes what `state` gave."""
        for name, one in self.learned.items():
            one.restore(name, state)
