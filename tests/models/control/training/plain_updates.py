"""Update rules written plainly, for tests: networks layer by layer, torch's own Adam, slow copies that follow.

A test of a rule compares with equations over these, because an outcome does not tell a wrong sign from a slow learner.
A reference draws the same random numbers as its algorithm, in its order.

Symbols: B batch.
"""

from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from models.control.policy.policy import Policy
from models.control.training.actions import Actions
from models.control.training.replay_buffer import Batch
from models.control.training.training_run import new_policy, plain_shape
from tests.models.control.training.pond import Pond

ROUNDING = 2e-5  # float32, a few updates of Adam
COUNT, FEATURES, CONTROLS = 32, 4, 2
# No two rates or shares are equal, so that none can stand for another.
ACTOR_RATE, CRITIC_RATE, SHARE, DISCOUNT = 3e-3, 5e-3, 0.07, 0.83
RATES = {"actor_rate": ACTOR_RATE, "critic_rate": CRITIC_RATE, "target_share": SHARE, "discount": DISCOUNT,
         "critic_hidden": 8}


def wide_policy() -> Policy:
    """Some of its wishes lie beyond [-1, 1]."""
    policy = new_policy(Pond(), plain_shape(Pond(), (8,)), 0)
    with torch.no_grad():
        policy.weights[-1].mul_(60.0)
    return policy


def batches(count: int, generator: torch.Generator) -> Iterable[tuple[Batch, Tensor]]:
    """Actions within [-1, 1]; worth that is none of a batch's own columns."""
    for _ in range(count):
        state, following = (torch.randn(COUNT, FEATURES, generator=generator) for _ in range(2))
        action = 2.0 * torch.rand(COUNT, CONTROLS, generator=generator) - 1.0
        reward, cost, violated, worth = (torch.randn(COUNT, generator=generator) for _ in range(4))
        yield Batch(state, action, reward, cost, violated, following), worth


def output(network: nn.Module, *inputs: Tensor) -> list[Tensor]:
    """What each member of a `Networks` gives: layer by layer."""
    found = []
    for member in range(len(network.weights[0])):  # type: ignore[arg-type]
        value = torch.cat(inputs, dim=1)
        layers = list(zip(network.weights, network.biases, strict=True))  # type: ignore[arg-type]
        for position, (weight, bias) in enumerate(layers):
            value = value @ weight[member] + bias[member]
            value = value.relu() if position < len(layers) - 1 else value
        found.append(value)
    return found


def q(critic: nn.Module, features: Tensor, action: Tensor) -> list[Tensor]:
    return [value[:, 0] for value in output(critic, features, action)]


def squares(critic: nn.Module, batch: Batch, target: Tensor) -> Tensor:
    """() mean over members and batch."""
    return sum(((value - target) ** 2).mean() for value in q(critic, batch.features, batch.action)) / 2  # type: ignore


class Reference:
    """Copies of a method's networks, each with torch's Adam and, where it has one, a slow copy."""

    def __init__(self, **networks: tuple[Any, float]) -> None:
        for name, (network, rate) in networks.items():
            copy, slow = deepcopy(network), deepcopy(network)
            setattr(self, name, copy)
            setattr(self, f"slow_{name}", slow.requires_grad_(False))
            setattr(self, f"{name}_adam", torch.optim.Adam(copy.parameters(), rate))

    def descend(self, loss: Tensor, *names: str) -> None:
        adams = [getattr(self, f"{name}_adam") for name in names]
        for adam in adams:
            adam.zero_grad()
        loss.backward()
        for adam in adams:
            adam.step()

    @torch.no_grad()
    def follow(self, *names: str) -> None:
        for name in names:
            pairs = zip(getattr(self, f"slow_{name}").parameters(), getattr(self, name).parameters(), strict=True)
            for slow, fast in pairs:
                slow.copy_((1.0 - SHARE) * slow + SHARE * fast)


def wished(policy: Policy, features: Tensor) -> Tensor:
    return Actions(policy).wished(features)


def cut(policy: Policy, features: Tensor) -> tuple[Tensor, Tensor]:
    """The action of a wish, and () the mean square of what exceeds the range."""
    wish = wished(policy, features)
    return wish.clamp(-1, 1), ((wish - wish.clamp(-1, 1)) ** 2).mean()


def noise(generator: torch.Generator, count: int = COUNT, controls: int = CONTROLS) -> Tensor:
    return torch.randn(count, controls, generator=generator)


def assert_same(*pairs: tuple[nn.Module, nn.Module]) -> None:
    for one, other in pairs:
        for a, b in zip(one.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(a, b, atol=ROUNDING, rtol=0)


def compare(update: Callable[..., Tensor], reference: Callable[[Batch, Tensor, torch.Generator], Tensor],
            updates: int = 5) -> None:
    """Both over the same batches with the same random numbers; their losses are equal."""
    generators = [torch.Generator().manual_seed(1) for _ in range(2)]
    for batch, worth in batches(updates, torch.Generator().manual_seed(0)):
        known, expected = update(batch, worth, generators[0]), reference(batch, worth, generators[1])
        torch.testing.assert_close(known, expected.detach(), atol=1e-4, rtol=1e-4)
        assert torch.equal(generators[0].get_state(), generators[1].get_state()), "other random numbers were drawn"


def td3_target(reference: Reference, batch: Batch, worth: Tensor, generator: torch.Generator) -> Tensor:
    with torch.no_grad():
        smoothing = (0.2 * noise(generator)).clamp(-0.5, 0.5)
        action = (cut(reference.slow_actor, batch.following)[0] + smoothing).clamp(-1, 1)
        one, two = q(reference.slow_critic, batch.following, action)
        return worth + DISCOUNT * torch.minimum(one, two)
