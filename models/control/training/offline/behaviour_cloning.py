"""Behaviour cloning: the policy does what the fallback did (Pomerleau, Neural Computation 1991)."""

from __future__ import annotations

import torch
from torch import Tensor

from models.control.training.actions import Actions
from models.control.training.critics import Learned
from models.control.training.offline.offline_run import OfflineSettings
from models.control.training.replay_buffer import Batch
from models.control.training.training_run import State


class BehaviourCloning:
    """An `OfflineMethod`."""

    def __init__(self, actions: Actions, settings: OfflineSettings, generator: torch.Generator) -> None:
        self._settings, self._actions = settings, actions
        self.policy = Learned(actions.policy)

    def update(self, batch: Batch, worth: Tensor, generator: torch.Generator) -> Tensor:
        """See `OfflineMethod`: the mean square between wishes and what was done."""
        loss = (self._actions.wished(batch.features) - batch.action).square().mean()
        self.policy.step(loss, self._settings.actor_rate)
        return loss.detach()

    def state(self) -> State:
        """See `OfflineMethod`."""
        return self.policy.state("actor")

    def restore(self, state: State) -> None:
        """See `OfflineMethod`."""
        self.policy.restore("actor", state)
