"""IQL (Kostrikov, Nair and Levine, ICLR 2022): the best of what was done, without valuing an action that was not.

    V: expectile `expectile` of Q'(s, a) over the data;  Q: r + discount V(s');
    policy: (pi(s) - a)^2 weighted by exp(`sharpness` (Q'(s, a) - V(s))), at most 100
"""

from __future__ import annotations

from copy import deepcopy

import torch
from pydantic import Field
from torch import Tensor

from feature_store.written.fields import PositiveNumber
from models.control.training.actions import Actions
from models.control.training.critics import Critics, Learned, Learning, Networks
from models.control.training.offline.offline_run import OfflineSettings
from models.control.training.replay_buffer import Batch

_LARGEST_WEIGHT = 100.0  # the paper's code


class IqlSettings(OfflineSettings):
    """The paper's for locomotion, its soft update and batches; what differs, the paper's in brackets:

    discount 0.9 (0.99), learning rates 1e-3 (3e-4), layers of 64 (256).
    """

    expectile: float = Field(default=0.7, gt=0, lt=1, description="Of the values of what was done; tau")
    sharpness: PositiveNumber = Field(default=3.0, description="Of the preference for what was better; beta")


class Iql(Learning):
    """An `OfflineMethod`."""

    def __init__(self, actions: Actions, settings: IqlSettings, generator: torch.Generator) -> None:
        features, hidden = len(actions.policy.mean), (settings.critic_hidden,) * 2
        self._settings, self._actions = settings, actions
        self._value = Networks(features, hidden, 1, 1, generator)
        self._critic = Critics(features, actions.count, hidden, 2, generator)
        self._slow_critic = deepcopy(self._critic)
        self.learned = {"value": Learned(self._value), "critic": Learned(self._critic, self._slow_critic),
                        "actor": Learned(actions.policy)}

    def update(self, batch: Batch, worth: Tensor, generator: torch.Generator) -> Tensor:
        """See `OfflineMethod`: equations 5, 6 and 7 of the paper."""
        settings = self._settings
        with torch.no_grad():
            known = self._slow_critic.values(batch.features, batch.action).amin(dim=0)
        value = self._value(batch.features)[0, :, 0]
        advantage = known - value.detach()
        self.learned["value"].step(expectile_loss(known - value, settings.expectile), settings.critic_rate)
        weight = (settings.sharpness * advantage).exp().clamp(max=_LARGEST_WEIGHT)
        distance = (self._actions.wished(batch.features) - batch.action).square().sum(dim=1)
        self.learned["actor"].step((weight * distance).mean(), settings.actor_rate)
        with torch.no_grad():
            target = worth + settings.discount * self._value(batch.following)[0, :, 0]
        loss = (self._critic.values(batch.features, batch.action) - target).square().mean()
        self.learned["critic"].step(loss, settings.critic_rate)
        self.learned["critic"].follow(settings.target_share)
        return loss.detach()


def expectile_loss(difference: Tensor, expectile: float) -> Tensor:
    """() mean of |expectile - [difference < 0]| difference^2: least where the value is that expectile (equation 5)."""
    weight = torch.where(difference < 0, 1.0 - expectile, expectile)
    return (weight * difference.square()).mean()
