"""Soft actor-critic with a tuned temperature (Haarnoja et al., ICML 2018; arXiv 1812.05905, section 6).

The policy that ships is deterministic and piecewise linear, so the one that explores is a Gaussian about its wish, cut
to [-1, 1] by the environment, in place of the paper's Gaussian under a Tanh; its entropy is that of the uncut
Gaussian. Its spread is a network of its own, which stays behind when training ends.

Symbols: B batch, N applications, f features, m controls.
"""

from __future__ import annotations

import math
from copy import deepcopy

import torch
from pydantic import Field
from torch import Tensor, nn

from feature_store.written.fields import PositiveNumber
from models.control.policy.policy import Policy
from models.control.training.actions import Actions
from models.control.training.critics import Critics, Learned, Learning, Networks
from models.control.training.online.off_policy import OffPolicySettings
from models.control.training.replay_buffer import Batch

_LOG_SPREAD = (-5.0, 0.0)  # bounds; the paper's code has -20 and 2, for actions before Tanh
_ENTROPY_OF_ONE = 0.5 * math.log(2.0 * math.pi * math.e)


class SacSettings(OffPolicySettings):
    """The paper's soft update and tuned temperature; what differs, the paper's (appendix D) in brackets:

    discount 0.9 (0.99), learning rates 1e-3 (3e-4), batches of 512 (256), layers of 64 (256), a target entropy of
    -0.48 a control (-1), by `target_spread`, two updates a step of all applications (one a step of one).
    """

    temperature: PositiveNumber = Field(default=0.05, description="Weight of the entropy at the start")
    temperature_rate: PositiveNumber = Field(default=1e-3, description="Learning rate of its logarithm")
    target_spread: PositiveNumber = Field(
        default=0.15, description="Standard deviation of each action that the temperature aims at")


class Sac(Learning):
    """An `OffPolicyMethod`."""

    def __init__(self, policy: Policy, settings: SacSettings, generator: torch.Generator) -> None:
        self._settings = settings
        self.actor = Actions(policy)
        self.policy = Learned(policy)
        count, width = self.actor.count, settings.critic_hidden
        self._spread = Networks(len(policy.mean), (width,), count, 1, generator)
        with torch.no_grad():
            self._spread.biases[-1].fill_(math.log(settings.target_spread))
        self.spread = Learned(self._spread)
        self.critic = Critics(len(policy.mean), count, (width,) * 2, 2, generator)
        self._slow_critic = deepcopy(self.critic)
        self.critics = Learned(self.critic, self._slow_critic)
        self._log_temperature = nn.ParameterList([nn.Parameter(torch.tensor(math.log(settings.temperature)))])
        self.temperature = Learned(self._log_temperature)
        self.learned = {"actor": self.policy, "critic": self.critics, "spread_network": self.spread,
                        "temperature": self.temperature}
        self._target_entropy = count * (_ENTROPY_OF_ONE + math.log(settings.target_spread))

    def begin_episode(self, applications: int) -> None:
        """See `OffPolicyMethod`; the noise has no memory."""

    def explore(self, features: Tensor, generator: torch.Generator) -> Tensor:
        """See `OffPolicyMethod`."""
        return self._drawn(features, generator)[0]

    def update(self, batch: Batch, worth: Tensor, generator: torch.Generator, moves_actor: bool) -> Tensor:
        """See `OffPolicyMethod`: Algorithm 1 of arXiv 1812.05905."""
        settings, temperature = self._settings, self._log_temperature[0].detach().exp()
        with torch.no_grad():
            following, entropy, _ = self._drawn(batch.following, generator)
            value = self._slow_critic.values(batch.following, following).amin(dim=0) + temperature * entropy
            target = worth + settings.discount * value
        loss = (self.critic.values(batch.features, batch.action) - target).square().mean()
        self.critics.step(loss, settings.critic_rate)
        self.critics.follow(settings.target_share)
        if not moves_actor:
            return loss.detach()
        action, entropy, excess = self._drawn(batch.features, generator)
        value = self.critic.values(batch.features, action).amin(dim=0)
        both = excess - (value + temperature * entropy).mean()
        gradients = torch.autograd.grad(both, [*self.policy.adam.parameters, *self.spread.adam.parameters])
        own = len(self.policy.adam.parameters)
        self.policy.adam.apply(gradients[:own], settings.actor_rate)
        self.spread.adam.apply(gradients[own:], settings.actor_rate)
        surplus = (entropy.detach() - self._target_entropy).mean()
        self.temperature.step(self._log_temperature[0].exp() * surplus, settings.temperature_rate)
        return loss.detach()

    def _drawn(self, features: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """(B, m) actions, (B,) entropy there, () by how much wishes exceed the range."""
        wished = self.actor.wished(features)
        log_spread = self._spread(features)[0].clamp(*_LOG_SPREAD)
        noise = torch.randn(wished.shape, generator=generator)
        centre = wished.clamp(-1.0, 1.0)
        action = (centre + log_spread.exp() * noise).clamp(-1.0, 1.0)
        return action, (_ENTROPY_OF_ONE + log_spread).sum(dim=1), (wished - centre).square().mean()
