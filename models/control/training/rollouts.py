"""Policies in an environment: many policies, each on applications of its own, as one batch.

Symbols: K policies (1 where a policy is a single one), N applications of each; observations (K, N, n).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from models.control.contract.environment import Environment, Outcome
from models.control.policy.policy import Policy
from models.control.simulation.rollout import taken_steps
from models.training.seeds import seeded

_WALK = 0.2  # standard deviation of a step's change of the logarithm, where targets walk at random


@dataclass(frozen=True)
class Scores:
    """Means over steps and applications, (K,) each.

    Attributes:
        cost: in the environment's unit.
        violated: share of the steps in which the objective was missed.
        reward: the paper's.
    """

    cost: Tensor
    violated: Tensor
    reward: Tensor


def targets_of(policy: Policy, observation: Tensor, open_loop: bool = False) -> Tensor:
    """(K * N, m) targets; policy k acts on the k-th N of the observations. open_loop: as of `Policy`."""
    together = observation.reshape(*policy.members, -1, observation.shape[-1])
    return policy(together, open_loop=open_loop).reshape(len(observation), -1)


@torch.no_grad()
def judge(policy: Policy, environment: Environment, episodes: Any, steps: int, skip: int = 0,
          on_step: Callable[[Outcome], None] = lambda outcome: None) -> Scores:
    """Lets policies act for some steps.

    Args:
        episodes: of K * N applications.
        steps: taken in all; the first `skip` are not counted.
        on_step: called with what every counted step came to.
    """
    members = policy.members[0] if policy.members else 1
    totals = torch.zeros(3, members)

    def acting(observation: Tensor, seconds: float) -> Tensor:
        return targets_of(policy, observation)

    for step, (_, _, outcome) in enumerate(taken_steps(environment, episodes, steps, acting)):
        if step >= skip:
            totals += torch.stack([value.reshape(members, -1).mean(dim=1)
                                   for value in (outcome.cost, outcome.violated, outcome.reward)])
            on_step(outcome)
    return Scores(*(totals / (steps - skip)))


@torch.no_grad()
def random_walk(environment: Environment, current: Sequence[int], steps: int, seed: int,
                applications: int = 512) -> Tensor:
    """(steps, N, n) observations while every target is its present value times a random factor.

    Args:
        current: column of the present value of each control.
    """
    generator = seeded(seed)

    def walk(observation: Tensor, seconds: float) -> Tensor:
        present = observation[:, list(current)]
        return present * (_WALK * torch.randn(present.shape, generator=generator)).exp()

    episodes = environment.draw("train", applications, steps, seed)
    return torch.stack([one.observation for one in taken_steps(environment, episodes, steps, walk)])
