"""What a task asks for, as one number: cost, and a price for violating steps beyond those that are allowed."""

from dataclasses import dataclass

from models.paired_comparison import block_length, interval
from models.tasks.control.judging import Played

# Beyond the allowed share a violating step costs so many times the cost of a step: never worth it, but for a reward
# that counts beside the cost (choosing.py).
PRICE = 20.0
CONFIDENCE = 0.95  # that what is chosen keeps the objective on other episodes too: the later load is another one


@dataclass(frozen=True)
class Score:
    """Means over episodes. loss: what is minimised, in units of the cost."""

    loss: float
    cost: float
    violating_share: float
    reward: float


def score(cost: float, share: float, reward: float, target_share: float, upper: float | None = None) -> Score:
    """Of means over episodes; upper: the share of violating steps that counts, if it is not the mean."""
    counted = share if upper is None else upper
    return Score(cost * (1.0 + PRICE * max(counted - target_share, 0.0)), cost, share, reward)


def scores(played: Played, groups: int, target_share: float) -> list[Score]:
    """Of `groups` groups of neighbouring episodes, all of one size.

    What violates counts with the upper end of its mean: of several policies the least share in some episodes is often
    luck.
    """
    cost, share, reward = (values.reshape(groups, -1) for values in
                           (played.cost, played.violating_share, played.reward))
    uppers = [interval(one, block_length(one), CONFIDENCE)[1] for one in share]
    return [score(float(c.mean()), float(s.mean()), float(r.mean()), target_share, upper)
            for c, s, r, upper in zip(cost, share, reward, uppers, strict=True)]
