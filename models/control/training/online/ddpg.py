"""DDPG (Lillicrap et al., ICLR 2016), the base learner of the thesis: Algorithm 3.3, Tables 3.3 and 5.2, Fig. 3.4.

The defaults are Table 5.2, which the autoscaler uses; `TABLE_3_3` is FIRM's. Where the two disagree:

    replay buffer 10^6 | 10^5, discount 0.99 | 0.9, soft update 3e-3 | 2e-3, steps of an episode 100 | 300

Equal in both: batches of 64, learning rates 3e-4 (actor) and 3e-3 (critic), noise mu 0 and sigma 0.2, exploration
factor 1.0 that loses 1e-6 a step; two hidden layers of 40 ReLU units in each network (section 3.2.4). What the text
leaves open, or what differs here:

- The noise is "a random process" that an episode initialises (Algorithm 3.3, line 5): Ornstein-Uhlenbeck, whose sigma
  0.2 it is in Lillicrap et al., with their theta 0.15. The exploration factor multiplies it.
- Line 14 names the soft update's coefficient gamma, as the discount is named; it is the tables' own coefficient.
- "23 inputs" of the critic are not the 8 states and 5 actions of Table 3.2; here it takes features and actions.
- The actor ends in Tanh there; here in its piecewise linear relative, min(max(x, -1), 1), which can be proved, with a
  penalty on what exceeds the range instead of Tanh's saturation.
- An episode has the environment's number of steps (100 for the autoscaler), and at each N applications act where one
  does in the thesis. Updates are one a step there and here.

Symbols: B batch, N applications, m controls.
"""

from __future__ import annotations

from copy import deepcopy

import torch
from pydantic import Field
from torch import Tensor

from feature_store.written.fields import PositiveNumber, PositiveWholeNumber, WholeNumber
from feature_store.written.model import ListOf
from models.control.policy.policy import Policy
from models.control.training.actions import Actions, action_of
from models.control.training.critics import Critics, Learned, Learning
from models.control.training.online.off_policy import OffPolicySettings
from models.control.training.replay_buffer import Batch
from models.control.training.training_run import State


class DdpgSettings(OffPolicySettings):
    """Table 5.2."""

    hidden: ListOf[PositiveWholeNumber] = Field(
        default=(40, 40), json_schema_extra={"unit": "neurons"},
        description="Hidden layers of the actor; section 3.2.4")
    critic_hidden: PositiveWholeNumber = Field(
        default=40, json_schema_extra={"unit": "neurons"}, description="Of each of two hidden layers of the critic")
    batch_size: PositiveWholeNumber = Field(
        default=64, json_schema_extra={"unit": "transitions"}, description="Of an update")
    updates_per_step: PositiveWholeNumber = Field(default=1, description="While all applications take one step")
    first_update: WholeNumber = Field(
        default=64, json_schema_extra={"unit": "transitions"}, description="In the buffer before updates begin")
    discount: float = Field(default=0.99, ge=0, lt=1, description="Of the next step's value; Table 3.3: 0.9")
    actor_rate: PositiveNumber = Field(default=3e-4, description="Learning rate of the actor")
    critic_rate: PositiveNumber = Field(default=3e-3, description="Learning rate of the critic")
    target_share: PositiveNumber = Field(default=3e-3, description="Soft update coefficient; Table 3.3: 2e-3")
    noise: PositiveNumber = Field(default=0.2, description="Sigma of the random noise; its mean is 0")
    noise_return: PositiveNumber = Field(default=0.15, description="Theta of the Ornstein-Uhlenbeck process")
    exploration: float = Field(default=1.0, ge=0, description="Exploration factor at the start, times the noise")
    exploration_decay: float = Field(default=1e-6, ge=0, description="What it loses a step of an episode")


TABLE_3_3 = DdpgSettings(buffer_size=100_000, discount=0.9, target_share=2e-3)


class Ddpg(Learning):
    """An `OffPolicyMethod`."""

    def __init__(self, policy: Policy, settings: DdpgSettings, generator: torch.Generator) -> None:
        self._settings = settings
        self.actor, actor_target = Actions(policy), deepcopy(policy)
        self._slow_actor = Actions(actor_target)
        self.policy = Learned(policy, actor_target)
        critic = Critics(len(policy.mean), self.actor.count, (settings.critic_hidden,) * 2, 1, generator)
        self.critic, self._slow_critic = critic, deepcopy(critic)
        self.critics = Learned(critic, self._slow_critic)
        self.learned = {"actor": self.policy, "critic": self.critics}
        self._noise = torch.zeros(0)
        self._exploration = torch.tensor(settings.exploration)

    def begin_episode(self, applications: int) -> None:
        """See `OffPolicyMethod`."""
        self._noise = torch.zeros(applications, self.actor.count)

    def explore(self, features: Tensor, generator: torch.Generator) -> Tensor:
        """See `OffPolicyMethod`: line 8 of Algorithm 3.3."""
        settings = self._settings
        self._noise += (settings.noise * torch.randn(self._noise.shape, generator=generator)
                        - settings.noise_return * self._noise)
        action = self.actor.wished(features).clamp(-1.0, 1.0) + self._exploration * self._noise
        self._exploration = (self._exploration - settings.exploration_decay).clamp(min=0.0)
        return action.clamp(-1.0, 1.0)

    def update(self, batch: Batch, worth: Tensor, generator: torch.Generator, moves_actor: bool) -> Tensor:
        """See `OffPolicyMethod`: equations 3.2 and 3.3, lines 11 to 14 of Algorithm 3.3."""
        settings = self._settings
        with torch.no_grad():
            following = self._slow_actor.wished(batch.following).clamp(-1.0, 1.0)
            target = worth + settings.discount * self._slow_critic.values(batch.following, following)[0]
        loss = (self.critic.values(batch.features, batch.action)[0] - target).square().mean()
        self.critics.step(loss, settings.critic_rate)
        if moves_actor:
            action, excess = action_of(self.actor.wished(batch.features))
            self.policy.step(excess - self.critic.values(batch.features, action).mean(), settings.actor_rate)
        self.critics.follow(settings.target_share)
        self.policy.follow(settings.target_share)
        return loss.detach()

    def state(self) -> State:
        """See `OffPolicyMethod`; an episode's noise begins with it."""
        return {**super().state(), "exploration": self._exploration}

    def restore(self, state: State) -> None:
        """See `OffPolicyMethod`."""
        super().restore(state)
        self._exploration = state["exploration"]
