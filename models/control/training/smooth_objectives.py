"""What is minimised in training, for each episode and step; differentiable.

Symbols: N = K B episodes of K policies side by side, the episodes of one next to each other.
"""

from typing import Protocol

import torch
from torch import Tensor

from models.control.contract.environment import Outcome

# The smooth count of violating steps: a violation that counts as half a step, since it counts whether the objective is
# missed, not how badly; and the weight of how badly nevertheless, so that there is a slope wherever it is missed.
_HALF_MISSED, _HOW_MUCH = 0.2, 0.1
_SHARE_MEMORY = 0.8  # a window's, of the measured share of violating steps
# A target that cannot be kept drives the multiplier to its upper end. Beyond it the cost rises steeply, up to twofold
# at 1e4, and such targets are still missed by other applications (docs/decisions/0012).
_MULTIPLIERS = (1e-2, 1e3)


class SmoothObjective(Protocol):
    """See the classes."""

    def __call__(self, outcome: Outcome) -> Tensor:
        """(N,) what a step costs."""

    def observe(self, violated: Tensor) -> None:
        """Takes the (K,) shares of violating steps of a window, after its gradient."""

    def state(self) -> dict[str, Tensor]:
        """Tensors that change in training; written in place by whoever goes on from a checkpoint."""


class PaperReward:
    """The thesis's reward, to be maximised (section 5.2.2)."""

    def __call__(self, outcome: Outcome) -> Tensor:
        """(N,)."""
        return -outcome.reward

    def observe(self, violated: Tensor) -> None:
        """Nothing changes."""

    def state(self) -> dict[str, Tensor]:
        """Nothing."""
        return {}


class CostAndViolations:
    """Resources, and a multiplier times violating steps: at most a share of the steps violates, by Lagrange's method.

    Args:
        targets: (K,) shares of violating steps.
        multipliers: (K,) cost units that one violating step is worth, at first; from the first window on 0.01 to 1,000.
        rate: change of their logarithms in a window in which twice the target was measured; 0: they stay.
        reward_weight: cost units that a unit of the paper's reward is worth.
    """

    def __init__(self, targets: Tensor, multipliers: Tensor | float = 50.0, rate: float = 0.03,
                 reward_weight: float = 0.0) -> None:
        self.targets, self.rate, self.reward_weight = targets, rate, reward_weight
        self.multipliers = torch.as_tensor(multipliers).expand(len(targets)).clone()
        self.share = targets.clone()

    def __call__(self, outcome: Outcome) -> Tensor:
        """(N,): (cost - reward_weight * reward + multiplier * missed) / (1 + multiplier); missed: a smooth step whose
        slope does not vanish, the mean over the agents of a group."""
        violation = outcome.violation[:, None] if outcome.each_violation is None else outcome.each_violation
        missed = (violation / (violation + _HALF_MISSED) + _HOW_MUCH * violation).mean(dim=1)
        weight = self.multipliers.repeat_interleave(len(missed) // len(self.multipliers))
        cost = outcome.cost - self.reward_weight * outcome.reward if self.reward_weight else outcome.cost
        return (cost + weight * missed) / (1.0 + weight)

    def observe(self, violated: Tensor) -> None:
        """Multipliers rise where more than the target was measured."""
        self.share.lerp_(violated, 1.0 - _SHARE_MEMORY)
        excess = (self.share / self.targets - 1.0).clamp(-1.0, 2.0)
        self.multipliers.mul_((self.rate * excess).exp()).clamp_(*_MULTIPLIERS)

    def state(self) -> dict[str, Tensor]:
        """Multipliers and the measured share."""
        return {"multipliers": self.multipliers, "share": self.share}
