"""CQL(H) (Kumar et al., NeurIPS 2020): critics that value unseen actions low.

To the critics' loss comes  weight * (log sum over a of exp Q(s, a) - Q(s, a of the data)), the sum estimated with
importance weights from uniform actions and from the policy's in this and the next state (appendix F). The actor is
TD3's, with Gaussian noise where the paper's is SAC's: what ships is deterministic.

Symbols: B batch, n drawn actions of each kind, m controls.
"""

from __future__ import annotations

import math

import torch
from pydantic import Field
from torch import Tensor

from feature_store.written.fields import PositiveNumber, PositiveWholeNumber
from models.control.training.actions import Actions
from models.control.training.offline.offline_run import OfflineSettings
from models.control.training.online.td3 import Td3, Td3Settings
from models.control.training.replay_buffer import Batch

_LOG_VOLUME = math.log(2.0)  # of a control's range [-1, 1]


class CqlSettings(OfflineSettings):
    """The paper's drawn actions and soft update; what differs, the paper's in brackets:

    discount 0.9 (0.99), learning rates 1e-3 (at most 3e-4), layers of 64 (256).
    """

    weight: PositiveNumber = Field(default=5.0, description="Of the conservative term; alpha")
    drawn: PositiveWholeNumber = Field(default=10, description="Actions of each kind in the sum")
    spread: PositiveNumber = Field(default=0.2, description="Standard deviation of the policy's drawn actions")


class Cql(Td3):
    """An `OfflineMethod`: TD3 (online/td3.py) with another loss of the critics."""

    def __init__(self, actions: Actions, settings: CqlSettings, generator: torch.Generator) -> None:
        shared = {name: getattr(settings, name) for name in ("discount", "actor_rate", "critic_rate", "target_share",
                                                             "critic_hidden")}
        super().__init__(actions.policy, Td3Settings(**shared), generator)
        self._cql = settings

    def update_critics(self, batch: Batch, worth: Tensor, generator: torch.Generator) -> Tensor:
        """One step of both critics; () their loss without the conservative term."""
        target = self.target(batch, worth, generator)
        known = self.critic.values(batch.features, batch.action)
        loss = (known - target).square().mean()
        gap = (self._log_sum(batch, generator) - known).mean()
        self.critics.step(loss + self._cql.weight * gap, self._settings.critic_rate)
        return loss.detach()

    def _log_sum(self, batch: Batch, generator: torch.Generator) -> Tensor:
        """(2, B) log of the integral of exp Q over the actions, estimated."""
        count, controls = self._cql.drawn, self.actor.count
        features = batch.features.repeat_interleave(count, dim=0)
        uniform = 2.0 * torch.rand(len(features), controls, generator=generator) - 1.0
        drawn, weights = [uniform], [torch.full((len(features),), controls * _LOG_VOLUME)]
        for where in (batch.features, batch.following):
            with torch.no_grad():
                centre = self.actor.wished(where).clamp(-1.0, 1.0).repeat_interleave(count, dim=0)
            noise = torch.randn(centre.shape, generator=generator)
            action = centre + self._cql.spread * noise
            log_density = (-0.5 * noise.square() - math.log(self._cql.spread * math.sqrt(2.0 * math.pi))).sum(dim=1)
            drawn.append(action.clamp(-1.0, 1.0))
            weights.append((-log_density).masked_fill((action.abs() > 1.0).any(dim=1), -torch.inf))
        values = self.critic.values(features.repeat(3, 1), torch.cat(drawn)) + torch.cat(weights)
        by_state = values.reshape(2, 3, len(batch.features), count).transpose(1, 2).flatten(2)
        return by_state.logsumexp(dim=2) - math.log(3 * count)
