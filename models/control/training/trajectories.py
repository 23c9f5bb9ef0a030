"""Trajectories as tensors: of an environment that was stepped, of a controller's log, for every learner alike.

    environment + who acts -> collect -> Trajectories -> transitions -> replay_buffer.py, offline learners
    log (trajectory_log.py) -> transitions_of_log

A trajectory is a sequence of (observation, targets, reward, cost, violation, violated) (thesis, section 5.2.1).

Symbols: N episodes, T steps, n signals, m controls; numbers are raw and float32, NaN where not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from feature_store.errors import InputError
from models.control.contract.environment import Environment, agents_of
from models.control.simulation.rollout import Acting, taken_steps
from models.control.training.trajectory_log import OUTCOMES, ReadLog, Step


@dataclass(frozen=True)
class Trajectories:
    """Episodes of one task, side by side.

    Attributes:
        observation: (N, T, n).
        targets: (N, T, m) as they were set.
        reward, cost, violation, violated: (N, T) of the environment's `Outcome`.
    """

    observation: Tensor
    targets: Tensor
    reward: Tensor
    cost: Tensor
    violation: Tensor
    violated: Tensor

    def __len__(self) -> int:
        return len(self.reward)


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
    """All steps that were measured, and whose next step was observed; an episode's last step has none.

    Raises:
        InputError: there is none.
    """
    parts = {name: value[:, :-1].flatten(0, 1) for name, value in vars(trajectories).items()}
    found = _known(Transitions(**parts, following=trajectories.observation[:, 1:].flatten(0, 1)))
    if not len(found):
        raise InputError(f"trajectories must have a measured step with a successor, got none of "
                         f"{trajectories.reward.numel()} steps in {len(trajectories)} episodes")
    return found


def _known(found: Transitions) -> Transitions:
    """Those whose numbers are all finite."""
    known = torch.ones(len(found), dtype=torch.bool)
    for value in vars(found).values():
        known &= value.isfinite() if value.ndim == 1 else value.isfinite().all(dim=1)
    return Transitions(**{name: value[known] for name, value in vars(found).items()})


@torch.no_grad()
def collect(environment: Environment, act: Acting, split: str, count: int, steps: int, seed: int) -> Trajectories:
    """Lets someone act in N new episodes, side by side; of groups each agent is an episode, with its group's outcome.

    Args:
        act: see `acting_of`.
        split, count, steps, seed: see `Environment.draw`.

    Raises:
        InputError: as `Environment.draw`.
    """
    episodes = environment.draw(split, count, steps, seed)
    observations, targets, outcomes = [], [], []
    for observation, target, outcome in taken_steps(environment, episodes, steps, act):
        observations.append(observation)
        targets.append(target)
        outcomes.append(torch.stack([getattr(outcome, name) for name in OUTCOMES]))
    of_agents = torch.stack(outcomes, dim=2).repeat_interleave(agents_of(environment), dim=1)
    return Trajectories(torch.stack(observations, dim=1), torch.stack(targets, dim=1),
                        **dict(zip(OUTCOMES, of_agents, strict=True)))


def transitions_of_log(read: ReadLog) -> Transitions:
    """All steps that were measured, and whose next step is there, in the order of applications, episodes and steps.

    Raises:
        InputError: there is none.
    """
    pairs = [(one, after) for one, after in pairwise(sorted(read.steps, key=_place))
             if _place(after) == (one.application, one.episode, one.step + 1)]
    parts = {name: _column([getattr(one, name) for one, _ in pairs]) for name in ("observation", "targets", *OUTCOMES)}
    found = _known(Transitions(**parts, following=_column([after.observation for _, after in pairs])))
    if not len(found):
        episodes = {(step.application, step.episode) for step in read.steps}
        raise InputError(f"trajectory log must have a measured step with a successor, got none of {len(read.steps)} "
                         f"steps in {len(episodes)} episodes")
    return found


def _place(step: Step) -> tuple[str, int, int]:
    return step.application, step.episode, step.step


def _column(values: Sequence[float | tuple[float, ...]]) -> Tensor:
    return torch.from_numpy(np.array(values, dtype=np.float32))


def joined(parts: Sequence[Transitions]) -> Transitions:
    """Several as one."""
    return Transitions(**{name: torch.cat([getattr(part, name) for part in parts]) for name in vars(parts[0])})
