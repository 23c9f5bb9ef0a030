"""What a task asks for, as one number: cost, and a price for violating steps beyond those that are allowed."""

from dataclasses import dataclass

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


def score(cost: float, share: float, reward: float, target_share: float) -> Score:
    """Of means over episodes."""
    return Score(cost * (1.0 + PRICE * max(share - target_share, 0.0)), cost, share, reward)


def scores(played: Played, groups: int, target_share: float) -> list[Score]:
    """Of `groups` groups of neighbouring episodes, all of one size."""
    means = [values.reshape(groups, -1).mean(axis=1).tolist() for values in
             (played.cost, played.violating_share, played.reward)]
    return [score(cost, share, reward, target_share) for cost, share, reward in zip(*means, strict=True)]
