"""Behaviour cloning: the policy does what the fallback did (Pomerleau, Neural Computation 1991)."""

from __future__ import annotations

import torch
from torch import Tensor

from models.control.training.actions import Actions
from models.control.training.critics import Learned, Learning
from models.control.training.offline.offline_run import OfflineSettings
from models.control.training.replay_buffer import Batch


class BehaviourCloning(Learning):
    """An `OfflineMethod`."""

    def __init__(self, actions: Actions, settings: OfflineSettings, generator: torch.Generator) -> None:
        self._settings, self._actions = settings, actions
        self.learned = {"actor": Learned(actions.policy)}

    def update(self, batch: Batch, worth: Tensor, generator: torch.Generator) -> Tensor:
        """See `OfflineMethod`: the mean square between wishes and what was done."""
        loss = (self._actions.wished(batch.features) - batch.action).square().mean()
        self.learned["actor"].step(loss, self._settings.actor_rate)
        return loss.detach()
