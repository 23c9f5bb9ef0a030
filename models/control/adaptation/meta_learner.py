"""The meta learner, trained jointly with the policies through the environment over all training applications.

    application -> its M best trajectories so far -> encoder -> embedding -> input of the policy -> loss -> both
                       ^                                                         |
                       +------------- every `refresh` iterations: a new episode --+   (thesis, sections 5.3.2, 5.4.3)

In training an application shows 0 to M trajectories, drawn each time, so that the policy is good before the first one
and with any number of them. At inference the encoder is fixed. System identification is the same learner but for its
goal: its embedding is fitted to the application's true hidden parameters (which a simulator knows), and the policy
reads that without telling it anything.

Symbols: S seeds, each with an encoder; L policies of each seed, one for each target; K = S L; A training
applications; B of them an iteration; M trajectories, e embedding, h hidden parameters.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import mse_loss

from models.control.adaptation.inputs import Given, Hidden
from models.control.adaptation.side_by_side import member_rows, run
from models.control.adaptation.through_stacks import Batch, Stack, TrainingSettings, load_state, save_state, train
from models.control.adaptation.trajectories import Recorder, TrajectoryStore
from models.control.adaptation.trajectory_encoder import EncoderSettings, TrajectoryEncoder
from models.control.contract.environment import Environment
from models.control.policy.policy import Policy
from models.control.training.smooth_objectives import CostAndViolations, PaperReward, SmoothObjective
from models.training.adam import Adam
from models.training.seeds import seeded

_REFRESH_SEED, _CHOICE_SEED = 700_000, 300_000  # apart from the seeds of training episodes


@dataclass(frozen=True)
class MetaSettings:
    """What is trained and how.

    Attributes:
        encoder: sizes; `embedding` is replaced by h where hidden parameters are identified.
        training: of policies and encoders.
        seeds: (S,) of weights and episodes.
        targets: (L,) of CostAndViolations; () trains one policy for the paper's reward.
        applications: B.
        identify: fit the embedding to the hidden parameters.
        refresh: iterations between two new episodes of every application.
        kept: latest episodes of each application, of which the M best are taken.
        fits: steps of identification at each refresh.
    """

    encoder: EncoderSettings = field(default_factory=EncoderSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)
    seeds: tuple[int, ...] = (0,)
    targets: tuple[float, ...] = ()
    applications: int = 64
    identify: bool = False
    refresh: int = 20
    kept: int = 8
    fits: int = 40

    @property
    def policies(self) -> int:
        """L."""
        return max(1, len(self.targets))

    def objective(self) -> SmoothObjective:
        """Of all K policies."""
        if not self.targets:
            return PaperReward()
        return CostAndViolations(torch.tensor(self.targets * len(self.seeds)))


@dataclass
class MetaLearner:
    """What was trained.

    Attributes:
        policy: (K,) those of one seed next to each other.
        encoders: (S).
        recorder: makes the records that the encoders take.
    """

    policy: Policy
    encoders: Sequence[TrajectoryEncoder]
    recorder: Recorder

    @torch.no_grad()
    def embed(self, records: Tensor, is_there: Tensor) -> Tensor:
        """(K, B, M, ...), (K, B, M) -> (K, B, e), each by its seed's encoder."""
        each = len(records) // len(self.encoders)
        return torch.cat([encoder(records[s * each:(s + 1) * each].flatten(0, 1),
                                  is_there[s * each:(s + 1) * each].flatten(0, 1)).unflatten(0, (each, -1))
                          for s, encoder in enumerate(self.encoders)])


class MetaTraining:
    """One training; resumable.

    Args:
        environment: in which trajectories are collected; its `differentiable` one trains.
        differentiable: the same with gradients.
        policy: (K,) with e (or h) further inputs; untrained, or one that was widened (widening.py).
        applications: (A,) numbers of the training applications.
        checkpoint: where the state is kept; None: nowhere.
        objective: of all K policies; None: that of the settings, from its beginning.
    """

    def __init__(self, environment: Environment, differentiable: Environment, policy: Policy, settings: MetaSettings,
                 applications: Sequence[int], checkpoint: Path | None = None,
                 objective: SmoothObjective | None = None) -> None:
        self.environment, self.differentiable, self.settings = environment, differentiable, settings
        self.applications = torch.as_tensor(list(applications))
        self.checkpoint = checkpoint
        plain = len(environment.features)
        self.recorder = Recorder(environment, policy.mean[:plain], policy.spread[:plain], settings.encoder.stride)
        self.encoders = [TrajectoryEncoder(settings.encoder, self.recorder.numbers, seed) for seed in settings.seeds]
        self.stack = Stack(policy, () if settings.identify else self.encoders)
        length = settings.training.steps // settings.encoder.stride
        self.stores = [TrajectoryStore.empty(len(self.applications), settings.kept, length, self.recorder.numbers)
                       for _ in settings.seeds]
        self._objective = objective or settings.objective()
        self._fitting = [Adam(encoder.parameters()) for encoder in self.encoders]
        self._hidden: Tensor | None = None

    def run(self) -> MetaLearner:
        """Trains to the end; goes on from the checkpoint where there is one."""
        if self.checkpoint is not None and self.checkpoint.exists():
            self._restore(load_state(self.checkpoint))
        if not self.stack.iteration:
            self._refresh(0)
        train(self.differentiable, self.stack, self._batch, self._objective, self.settings.training, self._after)
        return MetaLearner(self.stack.policy, self.encoders, self.recorder)

    def _batch(self, iteration: int) -> Batch:
        """B applications of each seed, told by their trajectories so far."""
        settings, steps = self.settings, self.settings.training.steps
        generator = seeded(_CHOICE_SEED + iteration)
        count, seeds = settings.applications, len(settings.seeds)
        rows = torch.stack([torch.randperm(len(self.applications), generator=generator)[:count] for _ in range(seeds)])
        shown = torch.randint(settings.encoder.trajectories + 1, (seeds, count, 1), generator=generator)
        episodes = self.differentiable.draw("train", rows.numel(), steps + 1, iteration + 1000 * settings.seeds[0],
                                            applications=self.applications[rows.flatten()].tolist())

        def told() -> Given:
            embeddings = torch.stack([self._embedding(s, rows[s], shown[s]) for s in range(seeds)])
            return Given(embeddings[:, None].expand(-1, settings.policies, -1, -1).flatten(0, 2))

        return Batch(episodes.take(member_rows(seeds, settings.policies, count)), told)

    def _embedding(self, seed: int, rows: Tensor, shown: Tensor) -> Tensor:
        """(B, e) of as many trajectories as are shown (B, 1)."""
        records, there = self.stores[seed].best(rows, self.settings.encoder.trajectories)
        there = there & (torch.arange(there.shape[1]) < shown)
        if self.settings.identify:
            with torch.no_grad():
                return self.encoders[seed](records, there)
        return self.encoders[seed](records, there)

    def _after(self, iteration: int) -> None:
        if iteration % self.settings.refresh == 0 and iteration < self.settings.training.iterations:
            self._refresh(iteration)
            if self.checkpoint is not None:
                save_state(self._state(), self.checkpoint)

    @torch.no_grad()
    def _refresh(self, iteration: int) -> None:
        """A new episode of every training application for each seed, by its policy in the middle of the front."""
        settings, everyone = self.settings, torch.arange(len(self.applications))
        seeds = len(settings.seeds)
        middle = settings.policies // 2
        chosen = self.stack.policy.taken(range(middle, seeds * settings.policies, settings.policies))
        told = torch.cat([self.encoders[s](*self.stores[s].best(everyone, settings.encoder.trajectories))
                          for s in range(seeds)])
        steps = settings.training.steps
        episodes = self.environment.draw("train", len(everyone), steps + 1, _REFRESH_SEED + iteration,
                                         applications=self.applications.tolist())
        found = run(self.environment, chosen, Given(told), episodes.take(member_rows(1, seeds, len(everyone))), steps,
                    settings.training.warm_up, recorder=self.recorder)
        assert found.records is not None
        for s, store in enumerate(self.stores):
            store.add(everyone, found.records[s], torch.from_numpy(found.reward[s]).float())
        if settings.identify:
            self._identify(iteration, self._true_parameters(episodes))

    def _true_parameters(self, episodes: Any) -> Tensor:
        """(A, h) within the embedding's box."""
        if self._hidden is None:
            self._hidden = self.environment.hidden_parameters(self.environment.reset(episodes)) / Hidden.reach
        return self._hidden

    @torch.enable_grad()
    def _identify(self, iteration: int, hidden: Tensor) -> None:
        """Regression of the hidden parameters on 1 to M trajectories of random applications."""
        generator = seeded(_CHOICE_SEED * 2 + iteration)
        most = self.settings.encoder.trajectories
        for _ in range(self.settings.fits):
            rows = torch.randint(len(hidden), (self.settings.applications,), generator=generator)
            shown = 1 + torch.randint(most, (len(rows), 1), generator=generator)
            for encoder, store, optimiser in zip(self.encoders, self.stores, self._fitting, strict=True):
                records, there = store.best(rows, most)
                loss = mse_loss(encoder(records, there & (torch.arange(there.shape[1]) < shown)), hidden[rows])
                optimiser.step(loss, self.settings.training.rate)

    def _state(self) -> dict[str, Any]:
        return {"stack": self.stack.state(), "stores": [store.state() for store in self.stores],
                "encoders": [encoder.state_dict() for encoder in self.encoders],
                "objective": self._objective.state(),
                "fitting": [[one.means, one.squares, one.steps] for one in self._fitting]}

    def _restore(self, state: dict[str, Any]) -> None:
        self.stack.restore(state["stack"])
        for encoder, own in zip(self.encoders, state["encoders"], strict=True):
            encoder.load_state_dict(own)
        for store, kept in zip(self.stores, state["stores"], strict=True):
            store.restore(kept)
        for name, own in self._objective.state().items():
            own.copy_(state["objective"][name])
        for one, moments in zip(self._fitting, state["fitting"], strict=True):
            for mine, kept in zip((one.means, one.squares, one.steps), moments, strict=True):
                for part, value in zip(mine, kept, strict=True):
                    part.copy_(value)
