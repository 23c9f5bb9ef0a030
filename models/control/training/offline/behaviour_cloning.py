"""Behaviour cloning: the policy does what the fallback did (Pomerleau, Neural Computation 1991)."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from models.control.policy.policy import Policy
from models.control.training.actions import Actions
from models.control.training.critics import Learned
from models.control.training.offline.offline_run import OfflineSettings, OfflineTrained, Progress, run
from models.control.training.replay_buffer import Batch
from models.control.training.training_run import State, clone
from models.control.training.trajectories import Transitions
from models.training.seeds import seeded


class BehaviourCloning:
    """An `OfflineMethod`."""

    def __init__(self, actions: Actions, settings: OfflineSettings) -> None:
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


def train(start: Policy, experience: Transitions, settings: OfflineSettings, seed: int,
          checkpoint: Path | None = None, progress: Progress | None = None) -> OfflineTrained:
    """Trains a copy of a policy on what others did.

    Args:
        start: see offline_run.policy_for.

    Raises:
        InputError: the checkpoint is of another run.
    """
    generator, actions = seeded(seed), Actions(clone(start))
    return run("behaviour_cloning", BehaviourCloning(actions, settings), actions, experience, settings, generator, seed,
               checkpoint, progress)
