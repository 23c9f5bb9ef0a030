"""Trajectories as tensors: of an environment that was stepped, of a controller's log, for every learner alike.

    environment + who acts -> collect -> Trajectories -> transitions -> replay_buffer.py, offline learners
    log (trajectory_log.py) -> from_log -> Trajectories

A trajectory is a sequence of (observation, targets, reward, cost, violation, violated) (thesis, section 5.2.1).

Symbols: N episodes, T steps, n signals, m controls; numbers are raw and float32, NaN where not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from itertools import chain
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from feature_store.errors import InputError
from models.control.contract.environment import Environment, agents_of
from models.control.simulation.rollout import Acting, taken_steps
from models.control.training.trajectory_log import ReadLog, Step

OUTCOMES = ("reward", "cost", "violation", "violated")


@dataclass(frozen=True)
class Trajectories:
    """Episodes of one task.

    Attributes:
        observation: (N, T, n).
        targets: (N, T, m) as they were set.
        reward, cost, violation, violated: (N, T) of the environment's `Outcome`.
        taken: (N, T) bool, whether the step is there: episodes of a log may lack some.
        application: (N) names.
        episode: (N) numbers, which grow in time for each application.
    """

    observation: Tensor
    targets: Tensor
    reward: Tensor
    cost: Tensor
    violation: Tensor
    violated: Tensor
    taken: Tensor
    application: tuple[str, ...]
    episode: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.episode)

    @property
    def episode_reward(self) -> Tensor:
        """(N,) mean reward of a step; NaN where a step is not there or was not measured."""
        return self.reward.masked_fill(~self.taken, torch.nan).mean(dim=1)

    def select(self, index: Sequence[int]) -> Trajectories:
        """Those at `index`."""
        at = torch.as_tensor(index, dtype=torch.long)
        tensors = {field.name: getattr(self, field.name)[at] for field in fields(self)
                   if field.name not in ("application", "episode")}
        return Trajectories(application=tuple(self.application[i] for i in index),
                            episode=tuple(self.episode[i] for i in index), **tensors)

    def best(self, most: int) -> Trajectories:
        """Of each application the `most` whole episodes of highest reward (section 5.3.2), best first."""
        rewards = self.episode_reward
        chosen: dict[str, list[int]] = {}
        for i in torch.argsort(rewards, descending=True, stable=True).tolist():
            if bool(rewards[i].isfinite()) and len(found := chosen.setdefault(self.application[i], [])) < most:
                found.append(i)
        return self.select([i for found in chosen.values() for i in found])


@dataclass(frozen=True)
class Transitions:
    """Steps whose successor is known: what off-policy and offline learners take.

    Attributes:
        observation: (K, n).
        targets: (K, m).
        reward, cost, violation, violated: (K,), finite.
        following: (K, n) the next observation.
    """

    observation: Tensor
    targets: Tensor
    reward: Tensor
    cost: Tensor
    violation: Tensor
    violated: Tensor
    following: Tensor

    def __len__(self) -> int:
        return len(self.reward)


def transitions(trajectories: Trajectories) -> Transitions:
    """All steps that are there, were measured, and whose next step is there; an episode's last step has none.

    Raises:
        InputError: there is none.
    """
    usable = trajectories.taken & trajectories.observation.isfinite().all(dim=2)
    known = usable[:, :-1] & usable[:, 1:] & trajectories.targets[:, :-1].isfinite().all(dim=2)
    for name in OUTCOMES:
        known &= getattr(trajectories, name)[:, :-1].isfinite()
    if not known.any():
        raise InputError(f"trajectories must have a measured step with a successor, got none of "
                         f"{int(trajectories.taken.sum())} steps in {len(trajectories)} episodes")
    parts = {name: getattr(trajectories, name)[:, :-1][known] for name in ("observation", "targets", *OUTCOMES)}
    return Transitions(following=trajectories.observation[:, 1:][known], **parts)


@torch.no_grad()
def collect(environment: Environment, act: Acting, split: str, count: int, steps: int, seed: int, scenario: str = "",
            applications: Sequence[int] | None = None, episode: int = 0) -> Trajectories:
    """Lets someone act in N new episodes, side by side; of groups each agent is an episode, with its group's outcome.

    Args:
        act: see `acting_of`.
        split, count, steps, seed, scenario, applications: see `Environment.draw`.
        episode: number that they all get.

    Raises:
        InputError: as `Environment.draw`.
    """
    episodes = environment.draw(split, count, steps, seed, scenario, applications)
    observations, targets, outcomes = [], [], []
    for observation, target, outcome in taken_steps(environment, episodes, steps, act):
        observations.append(observation)
        targets.append(target)
        outcomes.append(torch.stack([getattr(outcome, name) for name in OUTCOMES]))
    agents = agents_of(environment)
    parts = dict(zip(OUTCOMES, torch.stack(outcomes, dim=2).repeat_interleave(agents, dim=1), strict=True))
    names = tuple(str(number) for number in (range(count) if applications is None else applications)
                  for _ in range(agents))
    return Trajectories(torch.stack(observations, dim=1), torch.stack(targets, dim=1), **parts,
                        taken=torch.ones(count * agents, steps, dtype=torch.bool), application=names,
                        episode=(episode,) * count * agents)


def from_log(read: ReadLog) -> Trajectories:
    """The episodes of a log, in the order of its applications and their episodes.

    Where steps lack, one place of a row stands for them, however many they are.

    Raises:
        InputError: it holds no step.
    """
    groups = _by_episode(read)
    if not groups:
        raise InputError("trajectory log must hold a step, got none")
    keys = sorted(groups)
    places = {key: _places([step.step for step in groups[key]]) for key in keys}
    length = 1 + max(int(place.max()) for place in places.values())
    shape = (len(keys), length)
    arrays = {name: np.full(shape, np.nan, dtype=np.float32) for name in OUTCOMES}
    arrays["observation"] = np.full((*shape, len(read.header.signals)), np.nan, dtype=np.float32)
    arrays["targets"] = np.full((*shape, len(read.header.controls)), np.nan, dtype=np.float32)
    taken = np.zeros(shape, dtype=bool)
    for row, key in enumerate(keys):
        at = places[key]
        taken[row, at] = True
        for name, array in arrays.items():
            array[row, at] = [getattr(step, name) for step in groups[key]]
    return Trajectories(**{name: torch.from_numpy(array) for name, array in arrays.items()},
                        taken=torch.from_numpy(taken), application=tuple(name for name, _ in keys),
                        episode=tuple(number for _, number in keys))


def _by_episode(read: ReadLog) -> dict[tuple[str, int], list[Step]]:
    groups: dict[tuple[str, int], list[Step]] = {}
    for step in read.steps:
        groups.setdefault((step.application, step.episode), []).append(step)
    return groups


def _places(steps: Sequence[int]) -> NDArray[np.int64]:
    """Where steps stand in a row: next to each other, or with one place between them where some lack."""
    order = np.argsort(steps)
    ordered = np.asarray(steps, dtype=np.int64)[order]
    places = np.empty(len(steps), dtype=np.int64)
    places[order] = np.cumsum(np.clip(np.diff(ordered, prepend=-1), 1, 2)) - 1
    return places


def transitions_of_log(read: ReadLog) -> Transitions:
    """`transitions` of a log, episode by episode: the room of its steps, not that of its longest episode for each.

    Raises:
        InputError: there is none.
    """
    groups, found = _by_episode(read), []
    for key in sorted(groups):
        with suppress(InputError):  # an episode without any
            found.append(transitions(from_log(ReadLog(read.header, tuple(groups[key]), ()))))
    if not found:
        raise InputError(f"trajectory log must have a measured step with a successor, got none of {len(read.steps)} "
                         f"steps in {len(groups)} episodes")
    return joined(found)


Kind = TypeVar("Kind", Trajectories, Transitions)


def joined(parts: Sequence[Kind]) -> Kind:
    """Several as one; all of the same length T."""
    values: dict[str, Any] = {}
    for field in fields(parts[0]):
        of_parts = [getattr(part, field.name) for part in parts]
        values[field.name] = torch.cat(of_parts) if isinstance(of_parts[0], Tensor) else tuple(chain(*of_parts))
    return type(parts[0])(**values)
