"""A trained policy with further inputs, which it ignores at first: what a learner of embeddings begins from.

Symbols: S leading axes of the members, f features, e further inputs.
"""

from collections.abc import Sequence

import torch

from models.control.policy.policy import Policy


@torch.no_grad()
def widened(policy: Policy, names: Sequence[str], reach: float) -> Policy:
    """The same targets as `policy` whatever the further inputs, within -reach and reach, are; until it is trained."""
    wide = Policy(policy.shape.with_inputs(names, reach), members=policy.members)
    features = len(policy.mean)
    wide.mean[:features], wide.spread[:features] = policy.mean, policy.spread
    for own, first in zip(wide.parameters(), policy.parameters(), strict=True):
        if own.shape == first.shape:
            own.copy_(first)
        else:
            own[..., :features] = first
    return wide
