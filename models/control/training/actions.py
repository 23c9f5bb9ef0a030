"""Actions in [-1, 1] of a policy's controls: what critics take, and exploration adds noise to.

    1: the control's logarithm grows by log(1 + most_up);  -1: it falls by -log(1 - most_down);  0: it stays

Of a control with an anchor the change is from there (policy.py), else from the present value.
A control of whole numbers may always move by one, so that its -1 is log 1/2 at least: from 2 to 1. What exceeds a
control's limits is cut by the policy (models/control/policy/policy.py), which turns changes into targets.

Symbols: B batch, n signals, f features, m controls.
"""

import math

import torch
from torch import Tensor

from models.control.contract.signals import Feature, feature_matrix
from models.control.policy.policy import Policy
from models.control.simulation.scaling import interpolated_log


class Actions:
    """Of one policy: its features, its actions and what they set."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        controls = policy.shape.controls
        self._up = torch.tensor([math.log1p(control.most_up) for control in controls])
        self._down = torch.tensor([-math.log1p(-max(control.most_down, 0.5 if control.whole else 0.0))
                                   for control in controls])
        self._first = torch.tensor([policy.shape.signals[column].low for column in policy.current])
        anchors = [(control.name, policy.shape.anchor(control)) for control in controls]
        named = [Feature(name, anchor.terms) for name, anchor in anchors]
        self._anchors = torch.tensor(feature_matrix(named, policy.shape.signals).T, dtype=torch.float32)
        self._offset = torch.tensor([anchor.offset for _, anchor in anchors]) - self._first.log()

    @property
    def count(self) -> int:
        """m."""
        return len(self._up)

    def features(self, observation: Tensor) -> Tensor:
        """(B, n) raw -> (B, f) normalised."""
        return (self.policy.raw_features(observation) - self.policy.mean) / self.policy.spread

    def wished(self, features: Tensor) -> Tensor:
        """(B, m) what the policy would do: an action where it lies in [-1, 1]."""
        change = self.policy.changes(features)
        return torch.where(change > 0, change / self._up, change / self._down)

    def targets(self, observation: Tensor, action: Tensor) -> Tensor:
        """(B, m) raw targets of actions, within the policy's limits and gates."""
        change = torch.where(action > 0, action * self._up, action * self._down)
        return self.policy.targets(observation, self.policy.scaling(observation), change)

    def of_targets(self, observation: Tensor, targets: Tensor) -> Tensor:
        """(B, m) the actions that set these targets; what no action sets is the nearest that does."""
        anchor = self.policy.scaling(observation) @ self._anchors + self._offset
        change = interpolated_log((targets / self._first).clamp(min=1.0)) - anchor
        return torch.where(change > 0, change / self._up, change / self._down).clamp(-1.0, 1.0)


def action_of(wished: Tensor) -> tuple[Tensor, Tensor]:
    """The action of a wish, and () the mean square by which wishes exceed the range.

    Beyond [-1, 1] an action has no gradient; losses add the excess, which brings wishes back.
    """
    action = wished.clamp(-1.0, 1.0)
    return action, (wished - action).square().mean()
