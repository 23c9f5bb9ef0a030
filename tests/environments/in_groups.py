"""Any environment with its applications in groups of A agents: what came of a group is the mean over its agents."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from models.control.contract.environment import Outcome


@dataclass(frozen=True)
class Groups:
    """Episodes of N groups; those inside are of N A applications."""

    inside: Any
    agents: int

    def take(self, index: Tensor) -> "Groups":
        rows = torch.as_tensor(index)[:, None] * self.agents + torch.arange(self.agents)
        return Groups(self.inside.take(rows.flatten()), self.agents)


class InGroups:
    """An environment whose applications stand in groups; a group violates where one of its agents does."""

    def __init__(self, environment: Any, agents: int) -> None:
        self._environment, self.agents = environment, agents

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environment, name)

    @property
    def differentiable(self) -> "InGroups":
        return InGroups(self._environment.differentiable, self.agents)

    def draw(self, split: str, count: int, steps: int, seed: int, scenario: str = "",
             applications: Sequence[int] | None = None) -> Groups:
        own = None if applications is None else [one for one in applications for _ in range(self.agents)]
        return Groups(self._environment.draw(split, count * self.agents, steps, seed, scenario, own), self.agents)

    def reset(self, episodes: Groups) -> Any:
        return self._environment.reset(episodes.inside)

    def observe(self, state: Any) -> Tensor:
        found: Tensor = self._environment.observe(state)
        return found

    def step(self, state: Any, targets: Tensor) -> tuple[Any, Outcome]:
        state, one = self._environment.step(state, targets)
        return state, Outcome(*(self._of_groups(part) for part in (one.reward, one.cost, one.violation)),
                              self._of_groups(one.violated).ceil(),
                              {name: self._of_groups(part) for name, part in one.measures.items()})

    def hidden_parameters(self, state: Any) -> Tensor:
        found: Tensor = self._environment.hidden_parameters(state)[::self.agents]
        return found

    def coming_load(self, state: Any) -> Tensor:
        found: Tensor = self._environment.coming_load(state)[::self.agents]
        return found

    def _of_groups(self, values: Tensor) -> Tensor:
        return values.reshape(-1, self.agents).mean(dim=1)
