"""Settings of rules: the least cost at so many violating steps, searched by Optuna on training episodes.

A round of settings is one batch: each is run on the same episodes, drawn once for each of them.

Symbols: K settings a round, E episodes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import optuna

from models.controllers.setting import Setting, Value
from models.environments.environment import Environment, RuleFamily
from models.environments.environments import environment_of
from models.tasks.control.judging import play, rule_acting
from models.tasks.control.scoring import Score, scores
from models.tasks.control.task import ControlTask

ROUND = 16  # settings that are tried side by side
EPISODES = 64  # of each
MOST_STEPS = 120


@dataclass(frozen=True)
class TunedRule:
    """A rule with the settings that were best in training.

    Attributes:
        name: of the rule.
        settings: those that differ from its defaults.
        score: in training.
        trials: how many settings were tried.
    """

    name: str
    settings: Mapping[str, float | str]
    score: Score
    trials: int

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"name": self.name, "settings": dict(self.settings), "score": vars(self.score).copy(),
                "trials": self.trials}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "TunedRule":
        """Reads it back."""
        return cls(data["name"], data["settings"], Score(**data["score"]), data["trials"])


def tune(task: ControlTask, name: str, environment: Environment, seed: int) -> TunedRule:
    """Tries the defaults first, then what Optuna's TPE suggests.

    Args:
        name: of the rule.
        environment: where it acts: of the task or of a workload.
    """
    family, settings = environment_of(task.environment).rules[name], task.training
    trials = settings.times_budget(settings.rule_trials)
    searched = [setting for setting in family.declared if setting.search is not None or setting.searched]
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed, constant_liar=True))
    best: tuple[Score, dict[str, float | str]] | None = None
    left = trials if searched else 1
    tried = left
    while left > 0:
        count = min(ROUND, left)
        asked = [study.ask() for _ in range(count)]
        choices = [_suggested(trial, searched) for trial in asked]
        if best is None:
            choices[0] = {}
        found = _tried(task, family, environment, choices, seed)
        for trial, chosen, score in zip(asked, choices, found, strict=True):
            if chosen:
                study.tell(trial, score.loss)
            if best is None or score.loss < best[0].loss:
                best = (score, chosen)
        left -= count
    assert best is not None
    return TunedRule(name, best[1], best[0], tried)


def _suggested(trial: optuna.Trial, searched: Sequence[Setting]) -> dict[str, float | str]:
    found: dict[str, float | str] = {}
    for setting in searched:
        low, high = setting.search or (setting.low, setting.high)
        if setting.choices:
            found[setting.name] = trial.suggest_categorical(setting.name, setting.choices)
        elif setting.whole:
            found[setting.name] = float(trial.suggest_int(setting.name, int(low), int(high)))
        else:
            found[setting.name] = trial.suggest_float(setting.name, low, high, log=setting.log)
    return found


def _tried(task: ControlTask, family: RuleFamily, environment: Environment,
           settings: Sequence[Mapping[str, float | str]], seed: int) -> list[Score]:
    """Of each of K settings."""
    count, steps = len(settings), min(task.judging.steps or environment.steps, MOST_STEPS)
    drawn = environment.draw("train", EPISODES, steps, seed)
    episodes = drawn.take(_repeated(count))
    defaults = {setting.name: setting.default for setting in family.declared}
    values: dict[str, Value] = {name: np.repeat([one.get(name, defaults[name]) for one in settings], EPISODES)
                                for name in {name for one in settings for name in one}}
    controller = family.make(values)
    played = play(environment, episodes, steps, rule_acting(environment, controller, count * EPISODES),
                  task.judging.counted_from(steps))
    return scores(played, count, task.objective.violating_share)


def _repeated(count: int) -> Any:
    import torch

    return torch.arange(EPISODES).repeat(count)
