"""Trains the policies of a control task as its `training` says: through the environment several side by side, by
another method one after the other.

Each aims at a share of violating steps of its own; which one stays is chosen afterwards (choosing.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from feature_store.strict_yaml import Lines
from feature_store.written.field_errors import field_error
from feature_store.written.model import check_written
from models.control.contract.environment import Environment
from models.control.policy.policy import Policy
from models.control.training.methods import METHODS, Offline
from models.control.training.offline.offline_run import policy_for
from models.control.training.through_environment import Settings, ThroughEnvironment, stack
from models.control.training.training_run import Row, new_policy
from models.control.training.trajectories import Transitions
from models.tasks.control.policies import demands_of, policy_shape
from models.tasks.control.task import ControlTask
from models.tasks.kind import OnProgress

THROUGH_ENVIRONMENT = "through_environment"

LEAST_AIM = 1e-3  # of violating steps: none at all cannot be measured
_JUDGEMENTS = 12  # of a training, beside that of what it starts from


@dataclass(frozen=True)
class TrainedForAims:
    """What training came to.

    Attributes:
        policies: (K,) side by side.
        aims: (K,) shares of violating steps that they were trained for.
        history: an entry a judgement: epoch, cost, violating_share, reward; means over the policies.
        stopped: why training ended early, with the best weights until then; "" where it did not.
    """

    policies: Policy
    aims: tuple[float, ...]
    history: tuple[dict[str, float], ...]
    stopped: str


def train(task: ControlTask, environment: Environment, rounds: int, seed: int, checkpoint: Path,
          progress: OnProgress, start: Policy | None = None, experience: Transitions | None = None) -> TrainedForAims:
    """Trains one policy for each aim of the task, which keeps what holds by construction.

    Args:
        environment: of the task or of a workload.
        rounds: from 1.
        seed: of first weights and episodes.
        checkpoint: file from which a run that was killed goes on.
        start: a single policy to go on from; None: new ones.
        experience: of others; methods that never act have some, those with a buffer may.

    Raises:
        InputError: training diverged before any weights were judged.
    """
    aims = aims_of(task, start is not None)
    if task.training.method == THROUGH_ENVIRONMENT:
        return _through_environment(task, environment, rounds, seed, checkpoint, progress, start, aims)
    first = _first(task, environment, seed, experience) if start is None else start
    policies, histories, stopped = [], [], []
    for number, aim in enumerate(aims):
        found, settings = METHODS[task.training.method], method_settings(task, rounds, aim)
        told = partial(_told, progress, settings, number, len(aims))
        path = checkpoint.with_name(f"{checkpoint.stem}-{number}{checkpoint.suffix}")
        if isinstance(found, Offline):
            assert experience is not None
            one: Any = found.train(first, experience, settings, seed + number, path, told, demands_of(task))
        else:
            one = found.train(environment, settings, seed + number, path, told, first,
                              experience if found.takes_experience else None, demands_of(task))
        policies.append(one.policy)
        histories.append(one.history)
        stopped += [one.stopped] if one.stopped else []
    return TrainedForAims(stack(policies), aims, _history(histories), "; ".join(stopped))


def aims_of(task: ControlTask, finetuning: bool) -> tuple[float, ...]:
    """Shares of violating steps that policies are trained for."""
    written = task.training.finetune_aims if finetuning and task.training.finetune_aims else task.training.aims
    return tuple(max(LEAST_AIM, aim * task.objective.violating_share) for aim in written)


def _first(task: ControlTask, environment: Environment, seed: int, experience: Transitions | None) -> Policy:
    """An untrained policy, not anchored, as its actions are changes of what is set; its features are normalised by what
    it will see."""
    shape = replace(policy_shape(task, environment), anchors={})
    return new_policy(environment, shape, seed) if experience is None else policy_for(shape, experience, seed)


def _told(progress: OnProgress, settings: Any, number: int, count: int, row: Any) -> None:
    if isinstance(row, Row):
        done, said = row.episode / settings.episodes, (f"round {row.episode} of {settings.episodes}, cost "
                                                       f"{row.cost:.4g}, violating {row.violating_share:.1%}")
    else:
        done, said = row.updates / settings.updates, (f"update {row.updates} of {settings.updates}, loss "
                                                      f"{row.loss:.4g}")
    progress({"done": (number + done) / count, "said": f"policy {number + 1} of {count}, {said}"})


def _history(histories: Sequence[Sequence[Any]]) -> tuple[dict[str, float], ...]:
    """Means over the policies at each judgement; () of those that never act, which nobody judges on the way."""
    rows = [rows for rows in zip(*histories, strict=False) if isinstance(rows[0], Row)]
    return tuple({"epoch": float(row[0].episode), **{name: fmean(getattr(one, name) for one in row)
                                                     for name in ("cost", "reward", "violating_share")}}
                 for row in rows)


def _through_environment(task: ControlTask, environment: Environment, rounds: int, seed: int, checkpoint: Path,
                         progress: OnProgress, start: Policy | None, aims: tuple[float, ...]) -> TrainedForAims:
    def on_progress(event: Mapping[str, Any]) -> None:
        progress({"done": event["round"] / event["rounds"], "said": _said(event)})

    first = None if start is None else stack([start] * len(aims))
    trained = ThroughEnvironment(
        environment.differentiable, environment, policy_shape(task, environment),
        training_settings(task, rounds, start is not None),
        [seed + number for number in range(len(aims))], aims, demands_of(task), first, checkpoint,
        on_progress=on_progress).run()
    history = tuple({"epoch": float(one.round), "cost": one.cost, "reward": one.reward,
                     "violating_share": one.violated} for one in trained.judgements)
    return TrainedForAims(trained.policy, aims, history, trained.stopped)


def method_settings(task: ControlTask, rounds: int, aim: float, where: str = "task", lines: Lines | None = None) -> Any:
    """Of the method, in its own class: what the task says for all methods, and what it says of this one.

    Raises:
        InputError: a setting that the method has not, or that the task says elsewhere.
    """
    written = task.training
    place = ("training", "settings")
    if written.method == THROUGH_ENVIRONMENT:
        if written.settings:
            raise field_error(place, "expected none with method through_environment, whose settings are fields of "
                              f"`training`, got {', '.join(written.settings)}", where, lines)
        return None
    found = METHODS[written.method]
    elsewhere = {"episodes": "`rounds`", "hidden": "`hidden` of the task", "objective": "`objective` of the task",
                 "applications": "`applications`"}
    if said := next((name for name in written.settings if name in elsewhere), None):
        raise field_error((*place, said), f"expected it as {elsewhere[said]}, got it here", where, lines)
    given: dict[str, Any] = {"objective": {
        "kind": "reward" if task.objective.maximise == "reward" else "cost", "violating_share": aim}}
    if not isinstance(found, Offline):
        given |= {"episodes": rounds, "validate_every": max(1, rounds // _JUDGEMENTS)}
        given |= {"applications": written.applications} if "applications" in written.model_fields_set else {}
    return check_written(found.settings, {**given, **written.settings}, "settings of a method",
                         f"training.settings of method {written.method}, {where}",
                         lines.below(*place) if lines and written.settings else None)


def takes_experience(task: ControlTask) -> bool:
    """Whether the method can learn from what others did."""
    found = METHODS.get(task.training.method)
    return isinstance(found, Offline) or (found is not None and found.takes_experience)


def never_acts(task: ControlTask) -> bool:
    """Whether the method learns from what others did alone."""
    return isinstance(METHODS.get(task.training.method), Offline)


def training_settings(task: ControlTask, rounds: int, finetuning: bool = False) -> Settings:
    """As the task asks for, for so many rounds."""
    written = task.training
    rate = written.finetune_learning_rate if finetuning else written.learning_rate
    return Settings(
        objective="reward" if task.objective.maximise == "reward" else "cost", applications=written.applications,
        reward_weight=written.finetune_reward_weight if finetuning else 0.0,
        rounds=rounds, steps=written.steps, window=written.window, rate=rate,
        judged_every=max(1, rounds // _JUDGEMENTS), judged_from=0.0)


def _said(event: Mapping[str, Any]) -> str:
    return (f"round {event['round']} of {event['rounds']}, cost {event['cost']:.4g}, "
            f"violating {event['violated']:.1%}")
