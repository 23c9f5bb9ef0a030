"""Episodes that controllers are compared by: the same applications, loads and noise for each of them.

Symbols: N episodes, T steps, n signals, m controls.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.control.contract.environment import Environment
from models.control.simulation.rollout import Acting, taken_steps
from models.verification.network.runtime_session import open_session

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Played:
    """What came of episodes: (N,) means over the steps of each.

    Attributes:
        reward, cost: see Outcome.
        violating_share: of the steps.
        measures: name -> (N,).
        observations: (T, N, n), targets: (T, N, m), both raw; what was seen and done in each step, by each agent.
        series: name -> (T, N), of reward, cost, violated and the measures.
    """

    reward: FloatArray
    cost: FloatArray
    violating_share: FloatArray
    measures: Mapping[str, FloatArray]
    observations: NDArray[np.float32]
    targets: NDArray[np.float32]
    series: Mapping[str, NDArray[np.float32]]


def play(environment: Environment, episodes: Any, steps: int, acting: Acting, warm_up: int = 0) -> Played:
    """Lets a controller act in episodes, from the first step on.

    Args:
        steps: T.
        warm_up: the first steps, which do not count in the means: what the system started with is gone by then.
    """
    observations, targets = [], []
    series: dict[str, list[Tensor]] = {}
    with torch.inference_mode():
        for seen, target, outcome in taken_steps(environment, episodes, steps, acting):
            observations.append(seen)
            targets.append(target)
            now = {"reward": outcome.reward, "cost": outcome.cost, "violated": outcome.violated, **outcome.measures}
            for name, value in now.items():
                series.setdefault(name, []).append(value)
    arrays = {name: torch.stack(values).float().numpy() for name, values in series.items()}
    means = {name: array[warm_up:].astype(np.float64).mean(axis=0) for name, array in arrays.items()}
    return Played(means["reward"], means["cost"], means["violated"],
                  {name: mean for name, mean in means.items() if name not in ("reward", "cost", "violated")},
                  torch.stack(observations).float().numpy(), torch.stack(targets).float().numpy(), arrays)


def model_acting(model: bytes) -> Acting:
    """An exported policy, run by onnxruntime."""
    session = open_session(model)
    name = session.get_inputs()[0].name

    def act(observation: Tensor, seconds: float) -> Tensor:
        (targets,) = session.run(None, {name: observation.float().contiguous().numpy()})
        return torch.from_numpy(targets)

    return act


def episodes_digest(**what: Any) -> str:
    """Which episodes: hex SHA-256 of what they are drawn by."""
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()
