"""The rival: rules that set a CPU limit alone, searched more than `assay run` does, for the same workload.

With memory and instances fixed most settings of the shipped rules do nothing and make their search blunt. Here each
has its CPU part alone: 384 settings a rule by Optuna on training episodes, whose front is then played on held-out ones.
What counts as the best rule is the cheapest there that violates at most 2 % of the steps, which favours the rules: a
policy is chosen without the held-out load.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from models.control.simulation.rollout import acting_of
from models.control.training.rule_tuning import Tuner
from models.tasks.control.comparing import JudgedEpisodes
from models.tasks.control.task import ControlTask
from models.tasks.control.workload import twin_of
from systems.autoscaling.rules.aimd import AimdCpu
from systems.autoscaling.rules.autopilot import AutopilotCpu
from systems.autoscaling.rules.deployed import DeployedCpu, DeployedMemory, DeployedReplicas
from systems.autoscaling.rules.rule import Rule
from systems.autoscaling.rules.rules import RULES, RuleFamily
from systems.autoscaling.rules.vertical import VerticalCpu, VerticalCpuP99

TRIALS, EPISODES, STEPS, SEED = 384, 64, 120, 0
TARGETS = (0.005, 0.01, 0.015, 0.02, 0.03, 0.04)  # shares of violating steps in training
CANDIDATES = 6
FAMILIES = {family.name: family for family in (
    RuleFamily("static", DeployedReplicas, DeployedCpu, DeployedMemory, "the same quota always"),
    RuleFamily("vertical-cpu", DeployedReplicas, VerticalCpu, DeployedMemory, "the formula of the HPA on the quota"),
    RuleFamily("vertical-cpu-p99", DeployedReplicas, VerticalCpuP99, DeployedMemory, "the same, and by latency"),
    RuleFamily("aimd-p99", DeployedReplicas, AimdCpu, DeployedMemory, "by latency"),
    RuleFamily("autopilot", DeployedReplicas, AutopilotCpu, DeployedMemory, "a moving window of the use"))}


def tuned(task: ControlTask, workload: str, features: Path, file: Path) -> dict[str, Any]:
    """Rule -> its settings and what came of them on held-out episodes; searched where `file` is missing."""
    if not file.exists():
        environment = twin_of(task, workload, features)
        file.write_text(json.dumps({name: _searched(task, environment, family)
                                    for name, family in FAMILIES.items()}, indent=1))
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def tuned_to(task: ControlTask, workload: str, features: Path, rule: str, shares: Sequence[float]) -> dict[str, Any]:
    """A shipped rule, searched as the others are: its settings for each share of violating steps, and CANDIDATES for a
    search elsewhere: the cheapest for shares from a quarter of the least to twice the most.
    """
    environment = twin_of(task, workload, features)
    tuner = Tuner(environment, RULES[rule], environment.draw("train", EPISODES, STEPS, SEED), STEPS, SEED,
                  task.judging.counted_from(STEPS))
    for target in (min(shares), max(shares)):
        tuner.search(TRIALS // 2, target)
    targets = np.geomspace(min(shares) / 4, 2 * max(shares), CANDIDATES)
    return {"rule": rule, "trials": len(tuner.trials),
            "tuned": {str(share): dict(tuner.best(share).settings) for share in shares},
            "candidates": [dict(tuner.best(float(target)).settings) for target in targets]}


def best(found: dict[str, Any], allowed: float) -> str:
    """The cheapest rule on held-out episodes that violates at most so many steps; `static` does not stand for it."""
    possible = {name: one for name, one in found.items() if one["violating_share"] <= allowed and name != "static"}
    return min(possible, key=lambda name: float(possible[name]["cost"]))


def made(found: dict[str, Any], name: str) -> Rule:
    """The rule."""
    return FAMILIES[name].make(found[name]["settings"])


def _searched(task: ControlTask, environment: Any, family: RuleFamily) -> dict[str, Any]:
    tuner = Tuner(environment, family, environment.draw("train", EPISODES, STEPS, SEED), STEPS, SEED,
                  task.judging.counted_from(STEPS))
    for target in (0.01, 0.03):
        tuner.search(TRIALS // 2, target)
    held_out, allowed = JudgedEpisodes(task, environment), task.objective.violating_share
    played = []
    for settings in {json.dumps(tuner.best(target).settings, sort_keys=True) for target in TARGETS}:
        found = held_out.play(acting_of(environment, family.make(json.loads(settings))))
        played.append({"settings": json.loads(settings), "cost": float(found.cost.mean()),
                       "violating_share": float(found.violating_share.mean()),
                       "cores": float(found.measures["cores"].mean()), "reward": float(found.reward.mean()),
                       "trials": len(tuner.trials)})
    kept = [one for one in played if one["violating_share"] <= allowed]
    return min(kept, key=lambda one: one["cost"]) if kept else min(played, key=lambda one: one["violating_share"])
