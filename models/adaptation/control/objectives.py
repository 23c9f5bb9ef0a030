"""What is minimised in training, for each episode and step; differentiable.

Symbols: N = K B episodes of K policies side by side, the episodes of one next to each other.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import softplus

from models.environments.environment import Outcome

# From here on its logarithm counts: an episode that runs away must not be all of the gradient, nor none.
_LARGE_COST = 20.0
_MARGIN, _SHARPNESS = 0.05, 10.0  # of the logistic that stands for the count of violating steps
_DISTANCE_MARGIN, _DISTANCE_SHARPNESS, _DISTANCE_WEIGHT = 0.1, 8.0, 0.3


class Objective(Protocol):
    """(N,) what a step costs."""

    def __call__(self, outcome: Outcome) -> Tensor:
        """See the class."""


@dataclass(frozen=True)
class PaperReward:
    """The thesis's reward, to be maximised (section 5.2.2)."""

    def __call__(self, outcome: Outcome) -> Tensor:
        """(N,)."""
        return -outcome.reward


@dataclass(frozen=True)
class CostAndViolations:
    """Resources, and a multiplier times violating steps: Lagrange's form of "at most a share of the steps violates".

    The count of violating steps has no gradient: a logistic of the margin to the objective stands for it, and a
    softplus of it, which pulls back what is far beyond. The margin is the measure `log_latency` (log p99 / SLO) where
    the environment has it, else its `violation`.

    Attributes:
        multipliers: (K,) cost units that one violating step is worth.
    """

    multipliers: Tensor

    def __call__(self, outcome: Outcome) -> Tensor:
        """(N,)."""
        margin = outcome.measures.get("log_latency", outcome.violation)
        rest = (outcome.violation - margin.clamp(min=0.0)).clamp(0.0, 1.0)  # requests that were lost
        counted = 0.5 * torch.sigmoid((margin + _MARGIN) * _SHARPNESS)
        distance = softplus((margin + _DISTANCE_MARGIN) * _DISTANCE_SHARPNESS) / _DISTANCE_SHARPNESS
        missed = counted + _DISTANCE_WEIGHT * distance + rest
        weight = self.multipliers.repeat_interleave(len(margin) // len(self.multipliers))
        large = _LARGE_COST * (1.0 + (outcome.cost.clamp(min=_LARGE_COST) / _LARGE_COST).log())
        return (torch.where(outcome.cost < _LARGE_COST, outcome.cost, large) + weight * missed) / (1.0 + weight / 10.0)
