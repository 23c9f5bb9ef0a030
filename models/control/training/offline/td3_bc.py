"""TD3+BC (Fujimoto and Gu, NeurIPS 2021): TD3 whose actor is also pulled to what was done.

    minimise  -w Q(s, pi(s)) + (pi(s) - a)^2,  w = alpha / mean |Q|
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from feature_store.written.fields import PositiveNumber
from models.control.training.actions import Actions, action_of
from models.control.training.offline.offline_run import OfflineSettings
from models.control.training.online.td3 import Td3, Td3Settings
from models.control.training.replay_buffer import Batch


class Td3BcSettings(OfflineSettings):
    """The paper's alpha, soft update and batches; what differs, the paper's in brackets:

    discount 0.9 (0.99), learning rates 1e-3 (3e-4), layers of 64 (256).
    """

    alpha: PositiveNumber = Field(default=2.5, description="Weight of the value beside what was done")


class Td3Bc(Td3):
    """An `OfflineMethod`: TD3 (online/td3.py) with another loss of the actor."""

    def __init__(self, actions: Actions, settings: Td3BcSettings, generator: torch.Generator) -> None:
        shared = {name: getattr(settings, name) for name in ("discount", "actor_rate", "critic_rate", "target_share",
                                                             "critic_hidden")}
        super().__init__(actions.policy, Td3Settings(**shared), generator)
        self._alpha = settings.alpha

    def actor_loss(self, batch: Batch) -> Tensor:
        """() equation 5 of the paper, and what exceeds the range of actions."""
        action, excess = action_of(self.actor.wished(batch.features))
        value = self.critic.values(batch.features, action)[0]
        weight = self._alpha / value.detach().abs().mean().clamp(min=1e-6)
        return excess - weight * value.mean() + (action - batch.action).square().mean()
