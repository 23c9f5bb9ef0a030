"""What offline learners share: the data, updates on batches of them, checkpoints (thesis, section 5.3.4).

    experience (trajectories of a fallback) -> Offline.train (methods.py) -> OfflineTrained

They never act. The policy that comes out is of the same class as any other, so that training goes on with it online
(`start` of a trainer in methods.py, the same experience in its buffer), and it is exported and proved like one.

Symbols: B batch, K transitions, f features, m controls.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from pydantic import Field
from torch import Tensor

from feature_store.written.fields import PositiveNumber, PositiveWholeNumber
from feature_store.written.model import Written
from models.control.policy.policy import Policy, PolicyShape
from models.control.training.actions import Actions
from models.control.training.monotone import Demands, NoDemands
from models.control.training.objective import ConstrainedObjective, ObjectiveSettings
from models.control.training.replay_buffer import Batch, ReplayBuffer
from models.control.training.training_run import State, read_checkpoint, run_digest, write_checkpoint
from models.control.training.trajectories import Transitions
from models.training.denormal_numbers import denormals_flushed
from models.training.seeds import seeded


class OfflineSettings(Written):
    """What all offline methods share."""

    updates: PositiveWholeNumber = Field(default=4000, description="Of the networks")
    batch_size: PositiveWholeNumber = Field(
        default=256, json_schema_extra={"unit": "transitions"}, description="Of an update")
    objective: ObjectiveSettings = Field(
        default=ObjectiveSettings(), description="What is maximised; the multiplier stays, for nothing new is measured")
    discount: float = Field(default=0.9, ge=0, lt=1, description="Of the next step's value")
    actor_rate: PositiveNumber = Field(default=1e-3, description="Learning rate of the actor")
    critic_rate: PositiveNumber = Field(default=1e-3, description="Learning rate of all other networks")
    target_share: PositiveNumber = Field(default=5e-3, description="By which target networks follow, an update")
    critic_hidden: PositiveWholeNumber = Field(
        default=64, json_schema_extra={"unit": "neurons"}, description="Of each of two hidden layers of other networks")
    report_every: PositiveWholeNumber = Field(
        default=500, json_schema_extra={"unit": "updates"}, description="After how many losses are told, and a "
        "checkpoint is written")


@dataclass(frozen=True)
class OfflineRow:
    """Mean loss of the updates since the row before."""

    updates: int
    loss: float


@dataclass(frozen=True)
class OfflineTrained:
    """The policy, how losses went, and why training ended early, "" where it did not."""

    policy: Policy
    history: tuple[OfflineRow, ...]
    stopped: str = ""


Progress = Callable[[OfflineRow], None]


class OfflineMethod(Protocol):
    """What a method adds."""

    def update(self, batch: Batch, worth: Tensor, generator: torch.Generator) -> Tensor:
        """One update of all networks; worth: (B,) standardised. Returns () a loss to watch."""

    def state(self) -> State:
        """Everything that goes on."""

    def restore(self, state: State) -> None:
        """Takes what `state` gave."""


# Of a feature, in e-folds where it is a logarithm: what a fallback hardly moves varies by less, and a policy that then
# moves it would see numbers far beyond all that it was trained on.
_LEAST_SPREAD = 0.25


def policy_for(shape: PolicyShape, experience: Transitions, seed: int) -> Policy:
    """An untrained policy whose features are normalised over the experience."""
    policy = Policy(shape, seeded(seed))
    policy.normalise(experience.observation)
    policy.spread.clamp_(min=_LEAST_SPREAD)
    return policy


def run(name: str, method: OfflineMethod, actions: Actions, experience: Transitions, settings: OfflineSettings,
        generator: torch.Generator, seed: int, checkpoint: Path | None, progress: Progress | None,
        demands: Demands = NoDemands()) -> OfflineTrained:
    """Updates on batches of the experience. Raises InputError where the checkpoint is of another run, or none."""
    digest = run_digest(name, settings, seed, actions.policy, experience)
    buffer, worth_of = _buffer(actions, experience, settings)
    history: list[OfflineRow] = []
    stored = None if checkpoint is None else read_checkpoint(checkpoint, digest)
    if stored is not None:
        state, document = stored
        method.restore(state)
        generator.set_state(state["generator"])
        history = [OfflineRow(**row) for row in document["history"]]
    done = history[-1].updates if history else 0
    good, losses = deepcopy(actions.policy), []
    for update in range(done + 1, settings.updates + 1):
        batch = buffer.sample(settings.batch_size, generator)
        with denormals_flushed():
            losses.append(method.update(batch, worth_of(batch), generator))
        demands.project(actions.policy)
        if update % settings.report_every and update < settings.updates:
            continue
        loss = float(torch.stack(losses).mean())
        if not math.isfinite(loss) or not all(bool(part.isfinite().all()) for part in actions.policy.parameters()):
            return OfflineTrained(good, tuple(history), f"training diverged before update {update}: expected a finite "
                                  f"loss and finite weights, got a loss of {loss:g}; the policy is that of update "
                                  f"{history[-1].updates if history else 0}; a smaller learning rate may help")
        good, losses = deepcopy(actions.policy), []
        history.append(OfflineRow(update, loss))
        if checkpoint is not None:
            document = {"digest": digest, "history": [vars(row) for row in history]}
            write_checkpoint(checkpoint, {**method.state(), "generator": generator.get_state()}, document)
        if progress is not None:
            progress(history[-1])
    return OfflineTrained(good, tuple(history))


def _buffer(actions: Actions, experience: Transitions, settings: OfflineSettings
            ) -> tuple[ReplayBuffer, Callable[[Batch], Tensor]]:
    """The data as networks take them, and (B,) what a transition is worth: mean 0 and spread 1 over all of them."""
    objective = ConstrainedObjective(settings.objective)
    buffer = ReplayBuffer(len(actions.policy.mean), actions.count, len(experience))
    with torch.no_grad():
        buffer.add(Batch(actions.features(experience.observation),
                         actions.of_targets(experience.observation, experience.targets), experience.reward,
                         experience.cost, experience.violated, actions.features(experience.following)))
    worth = objective(experience.reward, experience.cost, experience.violated)
    mean, spread = worth.mean(), worth.std().clamp(min=1e-6)
    return buffer, lambda batch: (objective(batch.reward, batch.cost, batch.violated) - mean) / spread
