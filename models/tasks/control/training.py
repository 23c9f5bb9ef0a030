"""Trains the policies of a control task, several side by side, as its `training` says.

Each aims at a share of violating steps of its own; which one stays is chosen afterwards (choosing.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.control.contract.environment import Environment
from models.control.policy.policy import Policy
from models.control.training.through_environment import Settings, ThroughEnvironment, stack
from models.tasks.control.policies import demands_of, policy_shape
from models.tasks.control.task import ControlTask
from models.tasks.kind import OnProgress

LEAST_AIM = 1e-3  # of violating steps: none at all cannot be measured
_JUDGEMENTS = 12  # of a training, beside that of what it starts from


@dataclass(frozen=True)
class Trained:
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
          progress: OnProgress, start: Policy | None = None) -> Trained:
    """Trains one policy for each aim of the task, which keeps what holds by construction.

    Args:
        environment: of the task or of a workload.
        rounds: from 1.
        seed: of first weights and episodes.
        checkpoint: file from which a run that was killed goes on.
        start: a single policy to go on from; None: new ones.

    Raises:
        InputError: training diverged before any weights were judged.
    """
    written = task.training.aims if start is None else task.training.finetune_aims or task.training.aims
    aims = tuple(max(LEAST_AIM, aim * task.objective.violating_share) for aim in written)

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
    return Trained(trained.policy, aims, history, trained.stopped)


def training_settings(task: ControlTask, rounds: int, finetuning: bool = False) -> Settings:
    """As the task asks for, for so many rounds."""
    written = task.training
    rate = written.finetune_learning_rate if finetuning else written.learning_rate
    return Settings(
        objective="reward" if task.objective.maximise == "reward" else "cost", applications=written.applications,
        rounds=rounds, steps=written.steps, window=written.window, rate=rate,
        judged_every=max(1, rounds // _JUDGEMENTS), judged_from=0.0)


def _said(event: Mapping[str, Any]) -> str:
    return (f"round {event['round']} of {event['rounds']}, cost {event['cost']:.4g}, "
            f"violating {event['violated']:.1%}")
