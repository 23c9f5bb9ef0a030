"""What a task asks for, as one number: cost, and a price for violating steps beyond those that are allowed."""

from dataclasses import dataclass

import numpy as np

from models.tasks.control.judging import Played

# Beyond the allowed share a violating step costs so many times the cost of a step: never worth it.
PRICE = 20.0


@dataclass(frozen=True)
class Score:
    """Means over episodes. loss: what is minimised, in units of the cost."""

    loss: float
    cost: float
    violating_share: float
    reward: float


def scores(played: Played, groups: int, target_share: float) -> list[Score]:
    """Of `groups` groups of neighbouring episodes, all of one size."""
    cost, share, reward = (values.reshape(groups, -1).mean(axis=1) for values in
                           (played.cost, played.violating_share, played.reward))
    loss = cost * (1.0 + PRICE * np.maximum(share - target_share, 0.0))
    return [Score(*map(float, one)) for one in zip(loss, cost, share, reward, strict=True)]
