"""Policies that are monotone by construction in chosen signals: every path from them to a target keeps one sign.

As models/training/sign_pattern.py does for predictors, with three differences. A signal stands in several features
(`load a core`, `load over its mean`, ...), so what must have a sign is the sum of a unit's weights along the signal's
direction in the features, a half-space. Units of sign 0 do not see these signals at all: what they give may be
added and taken away freely. And many policies are projected at once.

Hidden unit i has the sign s[i] in (+1, -1, 0). A weight between units of signs a, b != 0 has the sign a b or is 0;
from a unit that sees the signals none goes to one that does not; the outputs' weights on unit i have the sign s[i], or
any where s[i] is 0. The derivative by such a signal is then a sum of terms of one sign in every activation region.

What is monotone in what, and why (all else equal: the present limits, utilisations and means of the load too):
- every target rises with p99 and falls with the share that was served. A reading that is worse and equal otherwise is
  never an argument for less of anything; it may be noise, and then more costs little.
- every target rises with the rate of the last interval. Its means and its peak are other signals: that is a load
  that grows. Not demanded: an order in utilisation, which falls when replicas are added, or in the means and the
  peak, in which more load in the past with the same load now is a load that falls.
- none in the objective: it is set, not observed, and moving it changes which application this is.

Symbols: d directions, f features; weights (*S, out, in).
"""

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor

from feature_store.errors import InputError
from models.control.contract.signals import feature_matrix
from models.control.policy.policy import Policy

# Signs of hidden units, over and over: as many see the monotone signals as do not.
PATTERN = (1.0, 0.0, -1.0, 0.0)
# A slope that is exactly 0 may be a trifle negative after rounding (a sum of some float32 weights of the size of 1,
# times up to 10 a feature): of seen signals it is at least this.
LEAST = 1e-5


class Demands(Protocol):
    """What is asked of a policy while it is trained, for example that it can be proved."""

    def project(self, policy: Policy) -> None:
        """Moves its weights to the nearest admissible ones, in place; called after every step of its optimiser."""


class NoDemands:
    """Nothing."""

    def project(self, policy: Policy) -> None:
        """Nothing to do."""


class Monotone:
    """`Demands` that all targets are monotone.

    Args:
        directions: signal -> +1 (targets never fall when it rises) or -1.

    Raises:
        InputError: by `project`, where two signals stand in one feature.
    """

    def __init__(self, directions: Mapping[str, int]) -> None:
        self.directions = dict(directions)

    @torch.no_grad()
    def project(self, policy: Policy) -> None:
        """Moves the weights of policies to the nearest monotone ones, in place."""
        along = self._along(policy)
        signs = torch.tensor([_sign(unit) for unit in range(max(policy.shape.hidden, default=0))])
        for layer, weight in enumerate(policy.weights):
            last = layer == len(policy.weights) - 1
            out = torch.ones(weight.shape[-2]) if last else signs[:weight.shape[-2]]
            if layer == 0:
                _onto_half_spaces(weight, along, out)
                continue
            required = out[:, None] * signs[:weight.shape[-1]]
            wrong = (weight * required < 0) | ((out[:, None] == 0) & (signs[:weight.shape[-1]] != 0))
            weight.masked_fill_(wrong, 0.0)

    def _along(self, policy: Policy) -> Tensor:
        """(d, f): by what the normalised features change when a signal moves in its direction."""
        shape = policy.shape
        matrix = torch.tensor(feature_matrix(shape.features, shape.signals), dtype=torch.float32)
        along = torch.stack([sign * matrix[:, shape.column(name)] for name, sign in self.directions.items()])
        if ((along != 0).sum(dim=0) > 1).any():
            raise InputError("monotone: expected signals that stand in different features, got "
                             f"{', '.join(self.directions)}")
        return along / policy.spread


def _sign(unit: int) -> float:
    return PATTERN[unit % len(PATTERN)]


def _onto_half_spaces(weight: Tensor, along: Tensor, signs: Tensor) -> None:
    """Rows (*S, out, f) with sign * (row . direction) >= LEAST; those of sign 0 do not see the direction's features."""
    weight.masked_fill_((signs == 0)[:, None] & (along != 0).any(dim=0), 0.0)
    for direction in along:
        slope = weight @ direction
        short = torch.where(signs == 0, 0.0, (LEAST - slope * signs).clamp(min=0.0) * signs)
        weight += short[..., None] * (direction / direction.square().sum())
