"""Policies and rules in the same held-out episodes, and by how much a policy is better than the best rule.

"Best rule": of those whose violating share is at most what the task allows, or the policy's own where that is more, the
one with the least cost; where none is, the one that violates least. A reward (`rule_reward`, `reward_gain`) is held
against the largest of the same rules', which may be another one's. Differences are paired, their ends those of a
bootstrap at CONFIDENCE, one-sided (models/paired_comparison.py).

Symbols: N episodes.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from models.control.contract.controller import RuleFamily
from models.control.contract.environment import Environment
from models.control.simulation.rollout import Acting, acting_of
from models.paired_comparison import block_length, interval
from models.tasks.control.judging import FloatArray, Played, play
from models.tasks.control.task import ControlTask
from models.tasks.control.tuned_rule import TunedRule

CONFIDENCE = 0.99  # of each end of an interval
WORST = 0.1  # share of the episodes that count as the worst


class JudgedEpisodes:
    """The episodes that all are judged by; split: held_out, unless training's are asked for."""

    def __init__(self, task: ControlTask, environment: Environment, split: str = "held_out") -> None:
        self.environment, self.count = environment, task.judging.episodes
        self.steps = task.judging.steps or environment.steps
        self.seed, self.warm_up = task.judging.seed, task.judging.counted_from(self.steps)
        self._episodes = environment.draw(split, self.count, self.steps, self.seed)

    def play(self, acting: Acting) -> Played:
        """What comes of a controller in them."""
        return play(self.environment, self._episodes, self.steps, acting, self.warm_up)

    def play_rule(self, family: RuleFamily, rule: TunedRule) -> Played:
        """What comes of a rule as it was tuned."""
        return self.play(acting_of(self.environment, family.make(rule.settings)))


def figures(played: Played) -> dict[str, float]:
    """What gates ask of one controller."""
    worst = max(1, round(WORST * len(played.cost)))
    return {"mean_reward": float(played.reward.mean()), "mean_cost": float(played.cost.mean()),
            "violating_share": float(played.violating_share.mean()),
            "violating_share_upper": ends(played.violating_share)[1],
            "reward_deviation": float(played.reward.std()), "cost_deviation": float(played.cost.std()),
            "worst_tenth_reward": float(np.sort(played.reward)[:worst].mean()),
            "worst_tenth_violating_share": float(np.sort(played.violating_share)[-worst:].mean()),
            **{f"mean_{name}": float(values.mean()) for name, values in played.measures.items()}}


def ends(values: FloatArray) -> tuple[float, float]:
    """Both ends of the interval of a mean (N,); episodes may resemble their neighbours."""
    return interval(values, block_length(values), CONFIDENCE)


def against(task: ControlTask, found: Played, rules: Mapping[str, Played], prefix: str) -> tuple[str, dict[str, float]]:
    """Which rule is the best, what the policy saves against it, and gains on the largest reward of those rules.

    Args:
        rules: by name.
        prefix: of the metrics' names.
    """
    allowed = max(task.objective.violating_share, float(found.violating_share.mean()))
    keeping = {name: one for name, one in rules.items() if one.violating_share.mean() <= allowed}
    usable = keeping or dict([min(rules.items(), key=lambda entry: float(entry[1].violating_share.mean()))])
    cheapest = min(usable, key=lambda name: float(usable[name].cost.mean()))
    cost, reward = usable[cheapest], max(usable.values(), key=lambda one: float(one.reward.mean()))
    saved = (cost.cost - found.cost) / cost.cost.mean()
    gained = found.reward - reward.reward
    return cheapest, {
        f"{prefix}cost_saved": float(saved.mean()), f"{prefix}cost_saved_lower": ends(saved)[0],
        f"{prefix}cost_saved_upper": ends(saved)[1], f"{prefix}reward_gain": float(gained.mean()),
        f"{prefix}reward_gain_lower": ends(gained)[0], f"{prefix}rule_cost": float(cost.cost.mean()),
        f"{prefix}rule_reward": float(reward.reward.mean()),
        f"{prefix}rule_violating_share": float(cost.violating_share.mean())}


def described(played: Played, rule: TunedRule | None = None) -> dict[str, Any]:
    """A controller in tables: means with both ends of their intervals."""
    means = {"reward": played.reward, "cost": played.cost, "violating_share": played.violating_share, **played.measures}
    return {"figures": {name: [float(values.mean()), *ends(values)] for name, values in means.items()},
            "settings": {} if rule is None else dict(rule.settings)}
