"""Trajectories as an encoder takes them, and the store that keeps each application's best (thesis, section 5.3.2).

A record is what the thesis writes as <state, action, reward>: normalised features, changes of the controls'
logarithms, reward, and whether the objective was missed. `stride` neighbouring steps are one record, their mean: the
thesis feeds every step; a quarter of the records costs a quarter and lost nothing that we could measure.

Symbols: N episodes, T steps, L records an episode, s numbers a record; A applications, E episodes kept of each,
M the best that are taken.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from models.control.contract.environment import Environment, Outcome
from models.control.contract.signals import feature_matrix
from models.control.simulation.scaling import Scaling

_LEAST = 1e-6  # of a control, before its logarithm is taken


class Recorder:
    """Makes records of what happens in N episodes."""

    def __init__(self, environment: Environment, mean: Tensor, spread: Tensor, stride: int = 4) -> None:
        """Of episodes that begin now.

        Args:
            mean: (f) of the features.
            spread: (f).
            stride: steps a record.
        """
        self._scaling = Scaling(environment.signals)
        self._matrix = torch.tensor(feature_matrix(environment.features, environment.signals), dtype=torch.float32)
        names = [signal.name for signal in environment.signals]
        self._current = [names.index(control.current) for control in environment.controls]
        self._mean, self._spread, self._stride = mean, spread, stride
        self.numbers = len(environment.features) + len(environment.controls) + 2

    def step(self, observation: Tensor, targets: Tensor, outcome: Outcome) -> Tensor:
        """(N, s) of one step."""
        features = (self._scaling(observation) @ self._matrix.T - self._mean) / self._spread
        change = (targets / observation[:, self._current].clamp(min=_LEAST)).clamp(min=_LEAST).log()
        rest = torch.stack([outcome.reward - 1.0, outcome.violated], dim=1)
        return torch.cat([features.clamp(-5.0, 5.0), 4.0 * change.clamp(-1.5, 1.5), rest], dim=1)

    def records(self, steps: list[Tensor]) -> Tensor:
        """T times (N, s) -> (N, L, s); steps that fill no record are left out."""
        whole = len(steps) // self._stride * self._stride
        stacked = torch.stack(steps[:whole], dim=1)
        return stacked.unflatten(1, (-1, self._stride)).mean(dim=2)


@dataclass
class TrajectoryStore:
    """The latest E episodes of each application, of which the M of highest reward are taken.

    Attributes:
        records: (A, E, L, s).
        rewards: (A, E) mean of an episode; -inf where there is none.
        written: (A) how many episodes were ever added.
    """

    records: Tensor
    rewards: Tensor
    written: Tensor

    @classmethod
    def empty(cls, applications: int, episodes: int, length: int, numbers: int) -> "TrajectoryStore":
        """One without any episode."""
        return cls(torch.zeros(applications, episodes, length, numbers),
                   torch.full((applications, episodes), -torch.inf), torch.zeros(applications, dtype=torch.long))

    def add(self, applications: Tensor, records: Tensor, rewards: Tensor) -> None:
        """One more episode of each of the applications (B), which are all different; a full row forgets its oldest.

        Args:
            applications: (B) row numbers.
            records: (B, L, s).
            rewards: (B); an episode without a finite reward is never among the best.
        """
        place = self.written[applications] % self.rewards.shape[1]
        self.records[applications, place] = records
        self.rewards[applications, place] = rewards.nan_to_num(-torch.inf, -torch.inf, -torch.inf)
        self.written[applications] += 1

    def best(self, applications: Tensor, most: int) -> tuple[Tensor, Tensor]:
        """(B, M, L, s), (B, M) bool: the M episodes of highest reward, best first, and which of them are there."""
        rewards, place = self.rewards[applications].topk(min(most, self.rewards.shape[1]), dim=1)
        return self.records[applications[:, None], place], rewards.isfinite()

    def state(self) -> dict[str, Tensor]:
        """What `restore` takes."""
        return {"records": self.records, "rewards": self.rewards, "written": self.written}

    def restore(self, state: dict[str, Any]) -> None:
        """Goes on from `state`."""
        self.records, self.rewards, self.written = (state[name].clone() for name in ("records", "rewards", "written"))
