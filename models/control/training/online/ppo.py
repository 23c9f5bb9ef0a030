"""PPO (Schulman et al., arXiv 1707.06347) with generalised advantages (Schulman et al., ICLR 2016).

A round is one episode of N applications: T x N steps, then `epochs` passes over them in minibatches. Actions are drawn
from a Gaussian about the policy's wish, of one spread for each control, and cut to [-1, 1] by the environment.

Symbols: T steps, N applications, B minibatch, f features, m controls.
"""

from __future__ import annotations

import math

import torch
from pydantic import Field
from torch import Tensor, nn

from feature_store.written.fields import PositiveNumber, PositiveWholeNumber
from models.control.contract.environment import Environment, agents_of
from models.control.policy.policy import Policy
from models.control.training.actions import Actions
from models.control.training.critics import Learned, Networks
from models.control.training.monotone import Demands, NoDemands
from models.control.training.objective import ConstrainedObjective
from models.control.training.training_run import Measured, RunSettings, State, episode_seed
from models.training.denormal_numbers import denormals_flushed


class PpoSettings(RunSettings):
    """The paper's clip and layers for continuous control; what differs, the paper's (Table 3) in brackets:

    discount 0.9 (0.99), lambda 0.9 (0.95), epochs 5 (10), learning rate 2e-3 (3e-4), a round of one episode of all
    applications in 16 minibatches (2048 steps of one actor in 32).
    """

    epochs: PositiveWholeNumber = Field(default=5, description="Passes over a round's steps")
    applications: PositiveWholeNumber = Field(default=256, description="N, stepped as one operation")
    minibatches: PositiveWholeNumber = Field(default=16, description="Of a pass")
    discount: float = Field(default=0.9, ge=0, lt=1, description="Of the next step's value")
    trace: float = Field(default=0.9, ge=0, le=1, description="Lambda of the generalised advantage")
    clip: PositiveNumber = Field(default=0.2, description="Of the probability ratio")
    rate: PositiveNumber = Field(default=2e-3, description="Learning rate of policy and value")
    entropy: float = Field(default=0.0, ge=0, description="Weight of the entropy")
    spread: PositiveNumber = Field(default=0.6, description="Standard deviation of actions at the start")
    value_hidden: PositiveWholeNumber = Field(
        default=64, json_schema_extra={"unit": "neurons"}, description="Of each of two hidden layers of the value")


class PpoLearner:
    """A `Learner` (training_run.py)."""

    def __init__(self, environment: Environment, settings: PpoSettings, policy: Policy, generator: torch.Generator,
                 seed: int, demands: Demands = NoDemands()) -> None:
        self.policy = policy
        self.objective = ConstrainedObjective(settings.objective)
        self.actions = Actions(policy)
        self._environment, self._settings, self._generator, self._seed = environment, settings, generator, seed
        self._demands = demands
        start = torch.full((self.actions.count,), math.log(settings.spread))
        self._log_spread = nn.Parameter(start)
        self._actor = Learned(nn.ParameterList([*policy.parameters(), self._log_spread]))
        self._value = Networks(len(policy.mean), (settings.value_hidden,) * 2, 1, 1, generator)
        self._critic = Learned(self._value)
        self._steps = self._updates = 0

    @property
    def counts(self) -> tuple[int, int]:
        """See `Learner`."""
        return self._steps, self._updates

    def round(self, episode: int) -> tuple[Measured, float]:
        """See `Learner`."""
        with denormals_flushed():
            features, drawn, reward, measured = self._acted(episode)
            with torch.no_grad():
                values = self._value(features.flatten(0, 1))[0, :, 0].reshape(features.shape[:2])
                advantage = self._advantages(reward, values)
                returns = (advantage + values[:-1]).flatten()
                known = self._log_probability(features[:-1].flatten(0, 1), drawn.flatten(0, 1))
            loss = self._passes(features[:-1].flatten(0, 1), drawn.flatten(0, 1), known, advantage.flatten(), returns)
        return measured, loss

    @torch.no_grad()
    def _acted(self, episode: int) -> tuple[Tensor, Tensor, Tensor, Measured]:
        """(T + 1, N, f) features, (T, N, m) drawn actions before they are cut, (T, N) worth, how it went."""
        environment, count = self._environment, self._settings.applications
        state = environment.reset(environment.draw("train", count, environment.steps,
                                                   episode_seed(self._seed, episode)))
        features, drawn, outcomes = [], [], []
        for _ in range(environment.steps):
            observation = environment.observe(state)
            features.append(self.actions.features(observation))
            wished = self.actions.wished(features[-1])
            drawn.append(wished + self._log_spread.exp() * torch.randn(wished.shape, generator=self._generator))
            state, outcome = environment.step(state, self.actions.targets(observation, drawn[-1].clamp(-1.0, 1.0)))
            outcomes.append(torch.stack([outcome.reward, outcome.cost, outcome.violated]))
        features.append(self.actions.features(environment.observe(state)))
        reward, cost, violated = torch.stack(outcomes, dim=1).repeat_interleave(agents_of(environment), dim=2)
        self._steps += reward.numel()
        measured = Measured(float(reward.mean()), float(cost.mean()), float(violated.mean()))
        return torch.stack(features), torch.stack(drawn), self.objective(reward, cost, violated), measured

    def _advantages(self, reward: Tensor, values: Tensor) -> Tensor:
        """(T, N) generalised advantages; an episode that ends is cut, not over."""
        settings = self._settings
        found, running = torch.empty_like(reward), torch.zeros(reward.shape[1])
        for step in range(len(reward) - 1, -1, -1):
            error = reward[step] + settings.discount * values[step + 1] - values[step]
            running = error + settings.discount * settings.trace * running
            found[step] = running
        return found

    def _log_probability(self, features: Tensor, drawn: Tensor) -> Tensor:
        """(B,) of drawn actions, but for a constant."""
        distance = (drawn - self.actions.wished(features)) / self._log_spread.exp()
        return (-0.5 * distance.square() - self._log_spread).sum(dim=-1)

    def _passes(self, features: Tensor, drawn: Tensor, known: Tensor, advantage: Tensor, returns: Tensor) -> float:
        """Updates policy and value; the mean loss of the value."""
        settings, losses = self._settings, []
        for _ in range(settings.epochs):
            order = torch.randperm(len(features), generator=self._generator)
            for rows in order.chunk(settings.minibatches):
                part = advantage[rows]
                part = (part - part.mean()) / (part.std() + 1e-8)
                ratio = (self._log_probability(features[rows], drawn[rows]) - known[rows]).exp()
                cut = ratio.clamp(1.0 - settings.clip, 1.0 + settings.clip)
                wished = self.actions.wished(features[rows])
                excess = (wished - wished.clamp(-1.0, 1.0)).square().mean()
                gain = torch.minimum(ratio * part, cut * part).mean() + settings.entropy * self._log_spread.sum()
                self._actor.step(excess - gain, settings.rate)
                self._demands.project(self.policy)
                error = (self._value(features[rows])[0, :, 0] - returns[rows]).square().mean()
                self._critic.step(error, settings.rate)
                losses.append(error.detach())
                self._updates += 1
        return float(torch.stack(losses).mean())

    def state(self) -> State:
        """See `Learner`."""
        return {**self._actor.state("actor"), **self._critic.state("value"), "mean": self.policy.mean,
                "spread": self.policy.spread, "generator": self._generator.get_state(),
                "counts": torch.tensor(self.counts)}

    def restore(self, state: State) -> None:
        """See `Learner`."""
        self._actor.restore("actor", state)
        self._critic.restore("value", state)
        self.policy.mean.copy_(state["mean"])
        self.policy.spread.copy_(state["spread"])
        self._generator.set_state(state["generator"])
        self._steps, self._updates = state["counts"].tolist()
