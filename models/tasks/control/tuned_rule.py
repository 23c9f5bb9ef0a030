"""Rules as a task asks for them: searched on training episodes (models/control/training/rule_tuning.py)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from models.control.contract.environment import Environment
from models.control.contract.systems import environment_of
from models.control.training.rule_tuning import Tuner
from models.tasks.control.scoring import Score, score
from models.tasks.control.task import ControlTask
from models.tasks.control.training import LEAST_AIM

EPISODES = 64
MOST_STEPS = 120


@dataclass(frozen=True)
class TunedRule:
    """A rule with the settings that were best in training.

    Attributes:
        name: of the rule.
        settings: all of it.
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
    """Tries the defaults first, then what Optuna's TPE suggests, for what the task asks for.

    Args:
        name: of the rule.
        environment: where it acts: of the task or of a workload.
    """
    family = environment_of(task.environment).rules[name]
    steps = min(task.judging.steps or environment.steps, MOST_STEPS)
    allowed, reward = task.objective.violating_share, task.objective.maximise == "reward"
    target = max(LEAST_AIM, allowed)
    tuner = Tuner(environment, family, environment.draw("train", EPISODES, steps, seed), steps, seed,
                  task.judging.counted_from(steps))
    searched = any(setting.search or setting.searched for setting in family.declared)
    tuner.search(task.training.times_budget(task.training.rule_trials) if searched else 1, target,
                 reward=reward)
    best = tuner.best(target, reward)
    return TunedRule(name, best.settings, score(best.cost, best.violated, best.reward, allowed), best.trials)
