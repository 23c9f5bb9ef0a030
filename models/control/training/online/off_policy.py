"""What DDPG, TD3 and SAC share: acting on N applications at once, the replay buffer, batches drawn from it.

At each step all applications act, their transitions go into the buffer as one insertion, and the networks take
`updates_per_step` steps on batches (thesis, Algorithm 3.3: one). An episode that ends is cut, not over: the value of
its last state counts like any other's.

Symbols: N applications, B batch, f features, m controls.
"""

from __future__ import annotations

from typing import Protocol

import torch
from pydantic import Field
from torch import Tensor

from feature_store.written.fields import PositiveNumber, PositiveWholeNumber, WholeNumber
from models.control.contract.environment import Environment, agents_of
from models.control.policy.policy import Policy
from models.control.training.actions import Actions
from models.control.training.monotone import Demands, NoDemands
from models.control.training.objective import ConstrainedObjective
from models.control.training.replay_buffer import CAPACITY, Batch, ReplayBuffer
from models.control.training.training_run import Measured, RunSettings, State, episode_seed
from models.control.training.trajectories import Transitions
from models.training.denormal_numbers import denormals_flushed


class OffPolicySettings(RunSettings):
    """What off-policy methods share."""

    applications: PositiveWholeNumber = Field(default=64, description="N, stepped as one operation")
    batch_size: PositiveWholeNumber = Field(
        default=512, json_schema_extra={"unit": "transitions"}, description="Of an update")
    updates_per_step: PositiveWholeNumber = Field(default=2, description="Updates while all applications take one step")
    first_update: WholeNumber = Field(
        default=2000, json_schema_extra={"unit": "transitions"}, description="In the buffer before updates begin")
    buffer_size: PositiveWholeNumber = Field(
        default=CAPACITY, json_schema_extra={"unit": "transitions"}, description="Of the replay buffer")
    discount: float = Field(default=0.9, ge=0, lt=1, description="Of the next step's value")
    actor_rate: PositiveNumber = Field(default=1e-3, description="Learning rate of the actor")
    critic_rate: PositiveNumber = Field(default=1e-3, description="Learning rate of the critics")
    target_share: PositiveNumber = Field(default=5e-3, description="By which target networks follow, an update")
    actor_from: WholeNumber = Field(
        default=0, json_schema_extra={"unit": "updates"},
        description="From which on the actor learns: a new critic would spoil a policy that training starts from")
    critic_hidden: PositiveWholeNumber = Field(
        default=64, json_schema_extra={"unit": "neurons"}, description="Of each of two hidden layers of a critic")


class OffPolicyMethod(Protocol):
    """What an off-policy method adds."""

    def explore(self, features: Tensor, generator: torch.Generator) -> Tensor:
        """(N, m) actions in [-1, 1] from features (N, f)."""

    def begin_episode(self, applications: int) -> None:
        """Forgets the noise of the last one."""

    def update(self, batch: Batch, worth: Tensor, generator: torch.Generator, moves_actor: bool) -> Tensor:
        """One update of critics and, where it moves, the actor; worth: (B,). Returns () the critics' loss."""

    def state(self) -> State:
        """Everything that goes on."""

    def restore(self, state: State) -> None:
        """Takes what `state` gave."""


class OffPolicyLearner:
    """A `Learner` (training_run.py) around an `OffPolicyMethod`."""

    def __init__(self, environment: Environment, settings: OffPolicySettings, policy: Policy, method: OffPolicyMethod,
                 generator: torch.Generator, seed: int, experience: Transitions | None = None,
                 demands: Demands = NoDemands()) -> None:
        self.policy, self.method = policy, method
        self.objective = ConstrainedObjective(settings.objective)
        self.actions = Actions(policy)
        self.buffer = ReplayBuffer(len(policy.mean), self.actions.count, settings.buffer_size)
        self._environment, self._settings, self._seed = environment, settings, seed
        self._generator, self._demands = generator, demands
        self._steps = self._updates = 0
        if experience is not None:
            self.buffer.add(self._batch_of(experience))

    @property
    def counts(self) -> tuple[int, int]:
        """See `Learner`."""
        return self._steps, self._updates

    def round(self, episode: int) -> tuple[Measured, float]:
        """See `Learner`."""
        environment, settings, agents = self._environment, self._settings, agents_of(self._environment)
        count, losses, outcomes = settings.applications, [torch.zeros(())], []
        if not episode and len(self.buffer) >= settings.first_update:
            losses += [self.update() for _ in range(settings.actor_from)]
        self.method.begin_episode(count * agents)
        with denormals_flushed():
            state = environment.reset(environment.draw("train", count, environment.steps,
                                                       episode_seed(self._seed, episode)))
            observation = environment.observe(state)
            features = self.actions.features(observation)
            for _ in range(environment.steps):
                with torch.no_grad():
                    action = self.method.explore(features, self._generator)
                    state, outcome = environment.step(state, self.actions.targets(observation, action))
                    observation = environment.observe(state)
                    following = self.actions.features(observation)
                    reward, cost, violated = (one.repeat_interleave(agents)
                                              for one in (outcome.reward, outcome.cost, outcome.violated))
                    self.buffer.add(Batch(features, action, reward, cost, violated, following))
                features = following
                outcomes.append(torch.stack([outcome.reward.mean(), outcome.cost.mean(), outcome.violated.mean()]))
                self._steps += count * agents
                if len(self.buffer) >= settings.first_update:
                    losses += [self.update() for _ in range(settings.updates_per_step)]
        means = torch.stack(outcomes).mean(dim=0).tolist()
        return Measured(*means), float(torch.stack(losses).mean())

    def update(self) -> Tensor:
        """One update from the buffer; () the critics' loss."""
        batch = self.buffer.sample(self._settings.batch_size, self._generator)
        self._updates += 1
        worth = self.objective(batch.reward, batch.cost, batch.violated)
        loss = self.method.update(batch, worth, self._generator, self._updates > self._settings.actor_from)
        self._demands.project(self.policy)
        return loss

    def _batch_of(self, known: Transitions) -> Batch:
        action = self.actions.of_targets(known.observation, known.targets)
        return Batch(self.actions.features(known.observation), action, known.reward, known.cost, known.violated,
                     self.actions.features(known.following))

    def state(self) -> State:
        """See `Learner`."""
        buffer = {f"buffer.{name}": value for name, value in self.buffer.state().items()}
        return {**self.method.state(), **buffer, "generator": self._generator.get_state(), "mean": self.policy.mean,
                "spread": self.policy.spread, "counts": torch.tensor(self.counts)}

    def restore(self, state: State) -> None:
        """See `Learner`."""
        self.method.restore(state)
        self.buffer.restore({name: state[f"buffer.{name}"] for name in ("rows", "next")})
        self._generator.set_state(state["generator"])
        self.policy.mean.copy_(state["mean"])
        self.policy.spread.copy_(state["spread"])
        self._steps, self._updates = state["counts"].tolist()
