"""What every trainer shares: its settings, its history, its checkpoints, how a policy is measured.

    environment, settings -> Online.train (methods.py) -> TrainedPolicy

A run is cut into rounds of one episode of N applications. After a round everything that goes on (networks, optimisers,
buffer, generators, multiplier, history) is in `state()`; a checkpoint is that state, and a run that was killed goes on
from it to the same result, to the bit.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Protocol
from zipfile import BadZipFile

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from feature_store.errors import InputError
from feature_store.whole_files import whole_file
from feature_store.written.fields import PositiveWholeNumber
from feature_store.written.model import ListOf, Written
from models.control.contract.controller import Controller
from models.control.contract.environment import Environment
from models.control.policy.policy import Policy, PolicyShape
from models.control.simulation.rollout import WARM_UP_STEPS, Decide, roll_out, taken_steps
from models.control.training.objective import ConstrainedObjective, ObjectiveSettings
from models.control.training.trajectories import Transitions, collect
from models.training.seeds import seeded

VALIDATION_SEED = 7_700_000  # of episodes that measure a policy while it trains: never drawn for training


class RunSettings(Written):
    """What all methods share."""

    episodes: PositiveWholeNumber = Field(default=150, description="Rounds; one episode of all applications each")
    applications: PositiveWholeNumber = Field(default=128, description="N, stepped as one operation")
    hidden: ListOf[PositiveWholeNumber] = Field(
        default=(64, 64), json_schema_extra={"unit": "neurons"}, description="Hidden layers of the policy")
    objective: ObjectiveSettings = Field(default=ObjectiveSettings(), description="What is maximised")
    validate_every: PositiveWholeNumber = Field(
        default=5, json_schema_extra={"unit": "episodes"},
        description="After how many the policy is measured without exploration; the best one is the result")
    validation_applications: PositiveWholeNumber = Field(default=256, description="How many it is measured on")
    checkpoint_every: PositiveWholeNumber = Field(
        default=25, json_schema_extra={"unit": "episodes"},
        description="After how many a checkpoint is written, at the next measurement")


@dataclass(frozen=True)
class Measured:
    """A policy without exploration, as means over applications and steps."""

    reward: float
    cost: float
    violating_share: float


@dataclass(frozen=True)
class Row:
    """One measurement of the history.

    Attributes:
        episode: rounds so far.
        environment_steps: of all applications together.
        updates: of the networks.
        reward, cost, violating_share: of the policy without exploration.
        explored_reward, explored_cost, explored_violating_share: in the latest round, as it acted; NaN where it did
        not. multiplier: of the objective. loss: mean of the critic's, or of the only loss, over the latest round.
    """

    episode: int
    environment_steps: int
    updates: int
    reward: float
    cost: float
    violating_share: float
    explored_reward: float
    explored_cost: float
    explored_violating_share: float
    multiplier: float
    loss: float


@dataclass(frozen=True)
class TrainedPolicy:
    """What a trainer gives.

    Attributes:
        policy: the best measured one.
        history: its measurements.
        stopped: why training ended early; "" where it did not.
    """

    policy: Policy
    history: tuple[Row, ...]
    stopped: str = ""


Progress = Callable[[Row], None]


def evaluate(environment: Environment, controller: Controller | Decide, split: str, count: int, seed: int) -> Measured:
    """Someone who acts, measured on episodes of a split; what they begin with does not count."""
    warm_up = min(WARM_UP_STEPS, environment.steps // 5)
    steps = warm_up + environment.steps
    found = roll_out(environment, controller, environment.draw(split, count, steps + 1, seed), steps, warm_up)
    return Measured(float(found.reward.mean()), float(found.cost.mean()), float(found.violated.mean()))


def new_policy(environment: Environment, shape: PolicyShape, seed: int) -> Policy:
    """An untrained policy whose features are normalised over an episode in which targets wander."""
    generator = seeded(seed)
    policy = Policy(shape, generator)

    def wander(observation: Tensor, _: float) -> Tensor:
        change = 0.15 * torch.randn(len(observation), len(shape.controls), generator=generator)
        return policy.targets(observation, policy.scaling(observation), change)

    policy.normalise(collect(environment, wander, "train", 256, environment.steps, seed).observation)
    return policy


def plain_shape(environment: Environment, hidden: Sequence[int]) -> PolicyShape:
    """Of a policy whose actions are changes of what is set, and that keeps nothing by its form."""
    return PolicyShape(tuple(environment.signals), tuple(environment.controls), tuple(environment.features),
                       tuple(hidden))


def start_from(environment: Environment, settings: RunSettings, seed: int, start: Policy | None) -> Policy:
    """A copy of a policy that training starts from, or a new one."""
    if start is not None:
        return deepcopy(start)
    return new_policy(environment, plain_shape(environment, settings.hidden), seed)


def episode_seed(seed: int, episode: int) -> int:
    """Of the episodes of a round."""
    return int(np.random.SeedSequence([seed, episode, 0x7A11]).generate_state(1)[0] // 2)


State = dict[str, Tensor]


class Learner(Protocol):
    """What differs between methods."""

    policy: Policy

    def round(self, episode: int) -> tuple[Measured, float]:
        """Trains on one more episode; how it went with exploration, and the mean loss."""

    def state(self) -> State:
        """Everything that goes on."""

    def restore(self, state: State) -> None:
        """Takes what `state` gave."""

    @property
    def objective(self) -> ConstrainedObjective:
        """What it maximises."""

    @property
    def counts(self) -> tuple[int, int]:
        """Environment steps and updates so far."""


def run(environment: Environment, learner: Learner, settings: RunSettings, seed: int, checkpoint: Path | None,
        progress: Progress | None, digest: Mapping[str, Any]) -> TrainedPolicy:
    """Trains round after round, measures, and keeps checkpoints and the best policy.

    Args:
        checkpoint: file; goes on from it where it is there. None: nothing is written.
        digest: see `run_digest`; the environment's first steps come to it.

    Raises:
        InputError: the checkpoint is of another run, or no checkpoint.
    """
    history: list[Row] = []
    best, best_score, done = deepcopy(learner.policy), -math.inf, 0
    if checkpoint is not None:
        digest = {**digest, "environment": first_steps(environment, learner.policy.current)}
    stored = None if checkpoint is None else read_checkpoint(checkpoint, digest)
    if stored is not None:
        state, document = stored
        best.load_state_dict({name.removeprefix("best."): value for name, value in state.items()
                              if name.startswith("best.")})
        learner.restore(state)
        history = [Row(**row) for row in document["history"]]
        best_score, done = document["best_score"], document["done"]
        learner.objective.multiplier = document["multiplier"]
    saved = done
    for episode in range(done, settings.episodes):
        explored, loss = learner.round(episode)
        if not math.isfinite(loss) or not all(bool(part.isfinite().all()) for part in learner.policy.parameters()):
            kept = f"that of episode {history[-1].episode}" if history else "the one that training started from"
            return TrainedPolicy(best, tuple(history), (
                f"training diverged in episode {episode + 1}: expected a finite loss and finite weights, got a loss of "
                f"{loss:g}; the policy is the best measured before, at most {kept}; a smaller learning rate may help"))
        if (episode + 1) % settings.validate_every and episode + 1 < settings.episodes:
            continue
        measured = evaluate(environment, learner.policy, "train", settings.validation_applications,
                            VALIDATION_SEED + seed)
        row = Row(episode + 1, *learner.counts, measured.reward, measured.cost, measured.violating_share,
                  explored.reward, explored.cost, explored.violating_share, learner.objective.multiplier, loss)
        history.append(row)
        score = learner.objective.score(measured.reward, measured.cost, measured.violating_share)
        if score > best_score:
            best, best_score = deepcopy(learner.policy), score
        learner.objective.adapt(measured.violating_share)
        is_due = (episode + 1) // settings.checkpoint_every > saved // settings.checkpoint_every
        if checkpoint is not None and (is_due or episode + 1 == settings.episodes):
            saved = episode + 1
            document = {"digest": dict(digest), "history": [asdict(row) for row in history], "done": episode + 1,
                        "best_score": best_score, "multiplier": learner.objective.multiplier}
            write_checkpoint(checkpoint, {**learner.state(), **{f"best.{name}": value for name, value
                                                                in best.state_dict().items()}}, document)
        if progress is not None:
            progress(row)
    return TrainedPolicy(best, tuple(history))


def run_digest(method: str, settings: Written, seed: int, start: Policy | None, experience: Transitions | None
               ) -> dict[str, Any]:
    """What a checkpoint must have been made with, beside the environment."""
    weights = [] if start is None else [json.dumps(start.shape.document()).encode(),
                                        *(value.numpy().tobytes() for value in start.state_dict().values())]
    data = [] if experience is None else [getattr(experience, field.name).numpy().tobytes()
                                          for field in fields(experience)]
    return {"method": method, "settings": settings.model_dump(mode="json"), "seed": seed,
            "start": hashlib.sha256(b"".join(weights)).hexdigest(),
            "experience": hashlib.sha256(b"".join(data)).hexdigest()}


@torch.no_grad()
def first_steps(environment: Environment, current: Sequence[int]) -> str:
    """SHA-256 of how a few episodes begin while nothing is changed: another one in another environment.

    Of means in three digits: another processor may round a step in another way.

    Args:
        current: columns of the observation that hold what is set.
    """
    means: list[float] = []
    episodes = environment.draw("train", 8, environment.steps, VALIDATION_SEED)
    for taken in taken_steps(environment, episodes, min(3, environment.steps), lambda seen, _: seen[:, current]):
        outcome = taken.outcome
        for part in (taken.observation, outcome.reward, outcome.cost, outcome.violated):
            means += part.double().reshape(len(part), -1).mean(0).tolist()
    return hashlib.sha256(" ".join(f"{mean:.3g}" for mean in means).encode()).hexdigest()


@contextmanager
def checkpoint_folder(path: Path) -> Iterator[None]:
    """For the block that writes a checkpoint: its folder is there.

    A run of the same work that ends takes the folder away, also during the block (components/checkpoints.py): then this
    checkpoint is lost, which is no error, and the next one makes the folder again.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileNotFoundError):
        yield


def write_checkpoint(path: Path, state: State, document: Mapping[str, Any]) -> None:
    """Writes a checkpoint whole; see `checkpoint_folder`. Raises OSError where the disk does not take it."""
    arrays = {name: value.detach().numpy() for name, value in state.items()}
    with checkpoint_folder(path), whole_file(path) as new, new.open("wb") as file:
        np.savez(file, allow_pickle=False, run=np.frombuffer(json.dumps(document).encode(), dtype=np.uint8), **arrays)


def read_checkpoint(path: Path, digest: Mapping[str, Any]) -> tuple[State, dict[str, Any]] | None:
    """Reads a checkpoint of the run with this digest; None: there is none (any more). Raises InputError."""
    try:
        with np.load(path, allow_pickle=False) as file:
            document = json.loads(file["run"].tobytes())
            state = {name: torch.from_numpy(file[name]) for name in file.files if name != "run"}
    except FileNotFoundError:
        return None
    except (OSError, KeyError, TypeError, ValueError, EOFError, BadZipFile) as error:
        raise InputError(f"checkpoint: expected a file that training wrote, got {error} ({path}); remove it to start "
                         "anew") from error
    expected, found = json.loads(json.dumps(dict(digest))), document["digest"]
    if differing := [name for name, value in expected.items() if found.get(name) != value]:
        raise InputError(f"checkpoint: expected one of the same {', '.join(expected)}, got one that differs in "
                         f"{', '.join(differing)} ({path}); remove it to start anew")
    return state, document

