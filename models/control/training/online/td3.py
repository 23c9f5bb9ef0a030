"""TD3 (Fujimoto, van Hoof and Meger, ICML 2018): DDPG with two critics, smoothed targets and a delayed actor.

Symbols: B batch, N applications, m controls.
"""

from __future__ import annotations

from copy import deepcopy

import torch
from pydantic import Field
from torch import Tensor

from feature_store.written.fields import PositiveNumber, PositiveWholeNumber
from models.control.policy.policy import Policy
from models.control.training.actions import Actions, action_of
from models.control.training.critics import Critics, Learned, Learning
from models.control.training.online.off_policy import OffPolicySettings
from models.control.training.replay_buffer import Batch
from models.control.training.training_run import State


class Td3Settings(OffPolicySettings):
    """The paper's target noise, delay, learning rates and soft update; what differs, the paper's in brackets:

    discount 0.9 (0.99), exploration noise 0.2 (0.1), batches of 512 (100), layers of 64 (400 and 300), two updates a
    step of all applications (one a step of one).
    """

    noise: PositiveNumber = Field(default=0.2, description="Standard deviation of the exploration noise")
    target_noise: float = Field(default=0.2, ge=0, description="Of the noise on the target's action")
    target_noise_limit: PositiveNumber = Field(default=0.5, description="Largest noise on the target's action")
    actor_every: PositiveWholeNumber = Field(default=2, description="Critic updates to one of the actor")


class Td3(Learning):
    """An `OffPolicyMethod`."""

    def __init__(self, policy: Policy, settings: Td3Settings, generator: torch.Generator) -> None:
        self._settings = settings
        self.actor, actor_target = Actions(policy), deepcopy(policy)
        self._slow_actor = Actions(actor_target)
        self.policy = Learned(policy, actor_target)
        self.critic = Critics(len(policy.mean), self.actor.count, (settings.critic_hidden,) * 2, 2, generator)
        self._slow_critic = deepcopy(self.critic)
        self.critics = Learned(self.critic, self._slow_critic)
        self.learned = {"actor": self.policy, "critic": self.critics}
        self._updates = 0

    def begin_episode(self, applications: int) -> None:
        """See `OffPolicyMethod`; the noise has no memory."""

    def explore(self, features: Tensor, generator: torch.Generator) -> Tensor:
        """See `OffPolicyMethod`."""
        action = self.actor.wished(features).clamp(-1.0, 1.0)
        return (action + self._settings.noise * torch.randn(action.shape, generator=generator)).clamp(-1.0, 1.0)

    def update(self, batch: Batch, worth: Tensor, generator: torch.Generator, moves_actor: bool = True) -> Tensor:
        """See `OffPolicyMethod`: Algorithm 1 of the paper."""
        loss = self.update_critics(batch, worth, generator)
        self._updates += 1
        if self._updates % self._settings.actor_every == 0:
            if moves_actor:
                self.policy.step(self.actor_loss(batch), self._settings.actor_rate)
            self.policy.follow(self._settings.target_share)
            self.critics.follow(self._settings.target_share)
        return loss

    def update_critics(self, batch: Batch, worth: Tensor, generator: torch.Generator) -> Tensor:
        """One step of both critics; () their loss."""
        target = self.target(batch, worth, generator)
        loss = (self.critic.values(batch.features, batch.action) - target).square().mean()
        self.critics.step(loss, self._settings.critic_rate)
        return loss.detach()

    @torch.no_grad()
    def target(self, batch: Batch, worth: Tensor, generator: torch.Generator) -> Tensor:
        """(B,) what both critics learn: the lower one's value of a noisy action in the next state."""
        settings = self._settings
        noise = settings.target_noise * torch.randn(batch.action.shape, generator=generator)
        noise = noise.clamp(-settings.target_noise_limit, settings.target_noise_limit)
        following = (self._slow_actor.wished(batch.following).clamp(-1.0, 1.0) + noise).clamp(-1.0, 1.0)
        return worth + settings.discount * self._slow_critic.values(batch.following, following).amin(dim=0)

    def actor_loss(self, batch: Batch) -> Tensor:
        """() what the actor descends: the first critic's value, and what exceeds the range of actions."""
        action, excess = action_of(self.actor.wished(batch.features))
        return excess - self.critic.values(batch.features, action)[0].mean()

    def state(self) -> State:
        """See `OffPolicyMethod`."""
        return {**super().state(), "updates": torch.tensor(self._updates)}

    def restore(self, state: State) -> None:
        """See `OffPolicyMethod`."""
        super().restore(state)
        self._updates = int(state["updates"])
