"""BCQ (Fujimoto, Meger and Precup, ICML 2019), the offline method of the thesis (section 5.3.4, its reference 277).

A variational autoencoder generates actions as they were done in a state; a small network shifts them by at most
`shift`; the critics value what comes out and nothing else, so that no action is valued that was never seen (Algorithm
1):

    y = r + discount * max over n generated a' of [lambda min Q'(s', a') + (1 - lambda) max Q'(s', a')]

BCQ acts by the best of n generated actions. What ships is one deterministic network, so the policy is trained beside
it to do what that choice is on the data's own states.

Symbols: B batch, n generated actions, f features, m controls, z latent numbers (2 m).
"""

from __future__ import annotations

from copy import deepcopy

import torch
from pydantic import Field
from torch import Tensor

from feature_store.written.fields import PositiveWholeNumber
from models.control.training.actions import Actions
from models.control.training.critics import Critics, Learned, Learning, Networks
from models.control.training.offline.offline_run import OfflineSettings
from models.control.training.replay_buffer import Batch

_LOG_SPREAD = (-4.0, 15.0)  # of the encoder, as in the paper's code
_LATENT = 0.5  # generated latents are cut to [-0.5, 0.5], as in the paper's code
_DIVERGENCE = 0.5  # weight of the divergence from a standard normal, as in the paper's code


class BcqSettings(OfflineSettings):
    """The paper's values of what is set here, its learning rates, its soft update; what differs, its own in brackets:

    discount 0.9 (0.99), batches of 256 (100), layers of 64 (400 and 300), of the autoencoder 128 (750).
    """

    generated: PositiveWholeNumber = Field(default=10, description="Actions that are compared in a state")
    shift: float = Field(default=0.05, ge=0, le=1, description="Largest change of a generated action; Phi")
    pessimism: float = Field(default=0.75, ge=0, le=1, description="Weight of the lower critic; lambda")
    generator_hidden: PositiveWholeNumber = Field(
        default=128, json_schema_extra={"unit": "neurons"},
        description="Of each of two hidden layers of the autoencoder")


class Bcq(Learning):
    """An `OfflineMethod`."""

    def __init__(self, actions: Actions, settings: BcqSettings, generator: torch.Generator) -> None:
        features, count, wide = len(actions.policy.mean), actions.count, (settings.generator_hidden,) * 2
        narrow = (settings.critic_hidden,) * 2
        self._settings, self._actions, self._latent = settings, actions, 2 * count
        self._encoder = Networks(features + count, wide, 2 * self._latent, 1, generator)
        self._decoder = Networks(features + self._latent, wide, count, 1, generator)
        self._shift = Networks(features + count, narrow, count, 1, generator)
        self._critic = Critics(features, count, narrow, 2, generator)
        self._slow_shift, self._slow_critic = deepcopy(self._shift), deepcopy(self._critic)
        self.learned = {
            "encoder": Learned(self._encoder), "decoder": Learned(self._decoder),
            "shift": Learned(self._shift, self._slow_shift), "critic": Learned(self._critic, self._slow_critic),
            "actor": Learned(actions.policy)}

    def update(self, batch: Batch, worth: Tensor, generator: torch.Generator) -> Tensor:
        """See `OfflineMethod`: Algorithm 1, then the policy follows the choice."""
        settings = self._settings
        self._update_autoencoder(batch, generator)
        with torch.no_grad():
            following = batch.following.repeat_interleave(settings.generated, dim=0)
            values = self._slow_critic.values(following, self._generated(following, self._slow_shift, generator))
            soft = settings.pessimism * values.amin(dim=0) + (1.0 - settings.pessimism) * values.amax(dim=0)
            target = worth + settings.discount * soft.reshape(-1, settings.generated).amax(dim=1)
        loss = (self._critic.values(batch.features, batch.action) - target).square().mean()
        self.learned["critic"].step(loss, settings.critic_rate)
        with torch.no_grad():
            decoded = self._decoded(batch.features, generator)
        value = self._critic.values(batch.features, self._shifted(batch.features, decoded, self._shift))[0]
        self.learned["shift"].step(-value.mean(), settings.critic_rate)
        for name in ("critic", "shift"):
            self.learned[name].follow(settings.target_share)
        imitation = (self._actions.wished(batch.features) - self.chosen(batch.features, generator)).square().mean()
        self.learned["actor"].step(imitation, settings.actor_rate)
        return loss.detach()

    @torch.no_grad()
    def chosen(self, features: Tensor, generator: torch.Generator) -> Tensor:
        """(B, m) the best of n generated actions by the first critic: how BCQ acts."""
        count = self._settings.generated
        many = features.repeat_interleave(count, dim=0)
        actions = self._generated(many, self._shift, generator)
        best = self._critic.values(many, actions)[0].reshape(-1, count).argmax(dim=1)
        return actions.reshape(len(features), count, -1)[torch.arange(len(features)), best]

    def _update_autoencoder(self, batch: Batch, generator: torch.Generator) -> None:
        encoded = self._encoder(torch.cat([batch.features, batch.action], dim=1))[0]
        mean, log_spread = encoded[:, :self._latent], encoded[:, self._latent:].clamp(*_LOG_SPREAD)
        noise = torch.randn(mean.shape, generator=generator)
        again = self._decoder(torch.cat([batch.features, mean + log_spread.exp() * noise], dim=1))[0]
        divergence = -0.5 * (1.0 + 2.0 * log_spread - mean.square() - (2.0 * log_spread).exp()).mean()
        loss = (again - batch.action).square().mean() + _DIVERGENCE * divergence
        both = [self.learned[name].adam for name in ("encoder", "decoder")]
        gradients = torch.autograd.grad(loss, [part for adam in both for part in adam.parameters])
        own = len(both[0].parameters)
        both[0].apply(gradients[:own], self._settings.critic_rate)
        both[1].apply(gradients[own:], self._settings.critic_rate)

    def _decoded(self, features: Tensor, generator: torch.Generator) -> Tensor:
        """(B, m) actions as they were done there."""
        latent = torch.randn(len(features), self._latent, generator=generator).clamp(-_LATENT, _LATENT)
        return self._decoder(torch.cat([features, latent], dim=1))[0].clamp(-1.0, 1.0)

    def _shifted(self, features: Tensor, action: Tensor, network: Networks) -> Tensor:
        shift = self._settings.shift * torch.tanh(network(torch.cat([features, action], dim=1))[0])
        return (action + shift).clamp(-1.0, 1.0)

    def _generated(self, features: Tensor, network: Networks, generator: torch.Generator) -> Tensor:
        return self._shifted(features, self._decoded(features, generator), network)
