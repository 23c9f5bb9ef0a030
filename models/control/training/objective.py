"""What is maximised: the paper's reward, or little cost under a limit on violations.

    reward:  r                                       (thesis, section 5.2.2)
    cost:   -(cost + lambda violated) / (1 + lambda)

lambda is a Lagrange multiplier: it grows by a share while the policy, acting without exploration, violates its
objective in more than the target share of steps, and falls while it does in less. Dividing by 1 + lambda keeps values,
and with them the critics' gradients, within the range of the cost whatever lambda is.
"""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field
from torch import Tensor

from feature_store.written.fields import PositiveNumber
from feature_store.written.model import Written

_LARGEST_STEP = 0.1  # of log lambda at one measurement: early policies violate so often that it would run away
_BOUNDS = (1e-3, 1e4)
_LEAST_TARGET = 1e-4  # share of the steps: below it, and at 0, violations weigh as they do there


def excess(violated: float, target: float) -> float:
    """By how much a cost is raised where weights or settings are chosen: violating steps over those that may violate,
    less 1; 0 up to the target, NaN of NaN. A policy that violates twice as often as it may counts as one that costs
    twice as much. Costs are above 0.

    Args:
        violated: share of the steps.
        target: largest share that may.
    """
    return max(violated / max(target, _LEAST_TARGET) - 1.0, 0.0)


class ObjectiveSettings(Written):
    """What is maximised."""

    kind: Literal["reward", "cost"] = Field(
        default="cost", description="The paper's reward, or the cost under the limit on violations")
    violating_share: float = Field(default=0.02, gt=0, lt=1, description="Steps that may violate the objective")
    multiplier: PositiveNumber = Field(default=10.0, description="Cost of a violating step at the start")
    multiplier_rate: PositiveNumber = Field(
        default=0.1, description="By which share it grows where twice as many steps violate as may")


class ConstrainedObjective:
    """The objective with its multiplier."""

    def __init__(self, settings: ObjectiveSettings) -> None:
        self.settings = settings
        self.multiplier = settings.multiplier

    def __call__(self, reward: Tensor, cost: Tensor, violated: Tensor) -> Tensor:
        """(...) what a step is worth."""
        if self.settings.kind == "reward":
            return reward
        return -(cost + self.multiplier * violated) / (1.0 + self.multiplier)

    def adapt(self, violating_share: float) -> None:
        """Moves the multiplier after a measurement of the policy without exploration."""
        if self.settings.kind == "cost" and math.isfinite(violating_share):
            change = self.settings.multiplier_rate * (violating_share / self.settings.violating_share - 1.0)
            step = max(-_LARGEST_STEP, min(_LARGEST_STEP, change))
            self.multiplier = max(_BOUNDS[0], min(_BOUNDS[1], self.multiplier * math.exp(step)))

    def score(self, reward: float, cost: float, violating_share: float) -> float:
        """How good a measured policy is: larger is better."""
        if self.settings.kind == "reward":
            return reward
        return -cost * (1.0 + excess(violating_share, self.settings.violating_share))
