"""K policies run side by side, each in B episodes of its own: one tensor operation a step.

Symbols: K members of a stacked policy (models/control/policy/policy.py), B episodes of each, N = K B, the episodes of
one member next to each other; T steps, n signals, m controls.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.control.adaptation.inputs import Inputs
from models.control.adaptation.trajectories import Recorder
from models.control.contract.environment import Environment
from models.control.policy.policy import Policy
from models.control.training.rollouts import targets_of


def member_rows(groups: int, members: int, episodes: int) -> Tensor:
    """(groups members episodes) rows of what was drawn: the members of a group, say a seed, get the same episodes."""
    rows = torch.arange(groups * episodes).view(groups, 1, episodes)
    return rows.expand(-1, members, -1).flatten()


def act(policy: Policy, environment: Environment, inputs: Inputs, state: Any, observation: Tensor,
        memory: Any) -> tuple[Tensor, Any]:
    """(N, m) raw targets of a policy with members (K,), and what its inputs remember."""
    extra, memory = inputs(environment, state, observation, memory)
    return targets_of(policy, torch.cat([observation, extra], dim=1)), memory


@dataclass(frozen=True)
class Ran:
    """Means over the steps that count, (K, B) each.

    Attributes:
        reward: the paper's.
        cost: in the environment's unit.
        violated: share of steps that missed the objective.
        measures: name -> the environment's further figures.
        records: (K, B, L, s) of all steps, None where none were asked for.
    """

    reward: NDArray[np.float64]
    cost: NDArray[np.float64]
    violated: NDArray[np.float64]
    measures: Mapping[str, NDArray[np.float64]]
    records: Tensor | None


@torch.no_grad()
def run(environment: Environment, policy: Policy, inputs: Inputs, episodes: Any, steps: int, warm_up: int,
        measures: Sequence[str] = (), recorder: Recorder | None = None) -> Ran:
    """Runs N episodes; the first `warm_up` of `steps` decisions do not count."""
    state = environment.reset(episodes)
    observation = environment.observe(state)
    memory = inputs.start(observation)
    sums: dict[str, Tensor] = {}
    records = []
    for step in range(steps):
        targets, memory = act(policy, environment, inputs, state, observation, memory)
        state, outcome = environment.step(state, targets)
        if recorder is not None:
            records.append(recorder.step(observation, targets, outcome))
        observation = environment.observe(state)
        if step < warm_up:
            continue
        figures = {"reward": outcome.reward, "cost": outcome.cost, "violated": outcome.violated,
                   **{name: outcome.measures[name] for name in measures}}
        for name, values in figures.items():
            sums[name] = sums[name].add_(values) if name in sums else values.double()
    shape = (policy.members[0], -1)
    means = {name: (values / (steps - warm_up)).view(shape).numpy() for name, values in sums.items()}
    kept = None if recorder is None else recorder.records(records).unflatten(0, shape)
    return Ran(means.pop("reward"), means.pop("cost"), means.pop("violated"), means, kept)
