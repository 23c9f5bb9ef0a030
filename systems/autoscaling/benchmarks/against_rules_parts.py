"""Parts of the comparison of policies with tuned rules (against_rules.py), each a call in a process of its own.

Flow: `rule` and `policies` -> the best rules -> `each_application`, `rule_in_case`. Fronts are told as JSON.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from feature_store.errors import InputError
from models.control.contract.controller import RuleFamily
from models.control.contract.environment import Environment
from models.control.policy.policy import Gates, Policy
from models.control.simulation.rollout import Rollout, roll_out
from models.control.training.rule_for_each import for_each_application
from models.control.training.rule_tuning import BATCH, Settings, side_by_side, tune
from models.control.training.through_environment import OnProgress, ThroughEnvironment
from models.tasks.control.policies import demands_of, policy_shape
from models.tasks.control.training import training_settings
from models.tasks.task import load_task
from systems.autoscaling.benchmarks.cases import AS_TRAINED, cases
from systems.autoscaling.benchmarks.fronts import Front, Numbers
from systems.autoscaling.benchmarks.loads import series_of, under_load
from systems.autoscaling.rules.rules import RULES
from systems.autoscaling.simulator.simulator import Autoscaling

TARGETS = (0.002, 0.004, 0.01, 0.02, 0.04)  # shares of violating steps that are trained and tuned for
SHARE = 0.02  # at which savings are told
FEWER, FEWER_TRIALS = (0.004, 0.002), 24  # rules are searched for these shares too, so many settings each
STEPS, WARM_UP, EPISODES = 280, 40, 2  # of judging; episodes of each held-out application
APPLICATIONS = 200  # held out
TRAINING_APPLICATIONS, TRAINING_STEPS = 256, 240  # of tuning
JUDGED = ("cost", "cores", "memory_gib", "reward", "violated", "violated_requests", "changes_an_hour")
TASK = "autoscaling"  # whose policies these are: layers, conditions, training
LINEAR_RATE = 3.0  # times the learning rate of a network
OWN_EPISODES, OWN_TRIALS = 8, 60  # on which a rule is tuned for each application, beside its front in training
CHALLENGER = "proved"  # the policies that are tried in other cases
_FRONT_SHARE = 0.15  # settings that violate more are of no interest
_JUDGES = 12345  # seed of the judging episodes


@dataclass(frozen=True)
class Form:
    """A kind of policy.

    Attributes:
        linear: without hidden layers.
        provable: monotone by construction, with the conditions of the default specification as part of the network.
    """

    linear: bool
    provable: bool


FORMS = {"proved": Form(False, True), "network": Form(False, False), "linear": Form(True, False)}


class Judge:
    """The same episodes for every controller."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.numbers = environment.draw("held_out", APPLICATIONS, 2, 0).numbers.tolist()
        self.episodes = environment.draw("held_out", EPISODES * APPLICATIONS, STEPS + 1, _JUDGES,
                                         applications=self.numbers * EPISODES)

    def rule(self, family: RuleFamily, choices: Sequence[Settings]) -> Front:
        """A rule at each of these settings, many side by side."""
        count, rows = EPISODES * APPLICATIONS, list[Rollout]()
        size = max(1, BATCH // count)
        for first in range(0, len(choices), size):
            part = choices[first:first + size]
            rows += self._rolled_out(family.make(side_by_side(part, count)),
                                     self.episodes.take(torch.arange(count).repeat(len(part)))).split(len(part))
        return _front([f"{number + 1}" for number in range(len(choices))], rows)

    def each(self, family: RuleFamily, settings: Sequence[Settings], name: str) -> Front:
        """A rule with settings of its own for each application."""
        rule = family.make(side_by_side(list(settings) * EPISODES, 1))
        return _front([name], [self._rolled_out(rule, self.episodes)])

    def policies(self, names: Sequence[str], policies: Sequence[Policy]) -> Front:
        """Each policy."""
        return _front(names, [self._rolled_out(one, self.episodes) for one in policies])

    def _rolled_out(self, controller: Any, episodes: Any) -> Rollout:
        return roll_out(self.environment, controller, episodes, STEPS, WARM_UP)


def _front(names: Sequence[str], rollouts: Sequence[Rollout]) -> Front:
    rows = [_figures(one) for one in rollouts]
    return Front(tuple(names), {name: np.stack([row[name] for row in rows]) for name in JUDGED})


def _figures(rollout: Rollout) -> dict[str, Numbers]:
    """name -> (A,), means over the episodes of an application."""
    hours = 15.0 / 3600.0
    values = {
        "cost": rollout.cost, "cores": rollout.measures["cores"], "memory_gib": rollout.measures["memory_gib"],
        "reward": rollout.reward, "violated": rollout.violated,
        "violated_requests": rollout.measures["violated_requests"] / rollout.measures["requests"],
        "changes_an_hour": (rollout.measures["starts"] + rollout.measures["stops"]) / hours}
    return {name: value.reshape(-1, APPLICATIONS).mean(axis=0) for name, value in values.items()}


def rule(load: str, folder: Path | None, name: str, effort: float) -> dict[str, Any]:
    """Searches a rule on training applications, and judges all settings of its front there.

    Which of them stand on the front is read off the judging episodes, which favours the rule.
    """
    environment = under_load(load, folder)
    tuner = tune(environment, RULES[name], TRAINING_APPLICATIONS, TRAINING_STEPS, SHARE, effort=effort)
    for target in FEWER:
        tuner.refine(max(1, round(FEWER_TRIALS * effort)), target)
    choices = [dict(trial.settings) for trial in tuner.front() if trial.violated < _FRONT_SHARE]
    if not choices:
        raise InputError(f"rule {name}: expected settings that violate less than {_FRONT_SHARE:.0%} of the steps, "
                         f"got none in {len(tuner.trials)} trials under {load} loads; raise --effort, or leave the "
                         "rule out")
    return {"settings": choices, "front": Judge(environment).rule(RULES[name], choices).document()}


def rule_in_case(load: str, folder: Path | None, name: str, choices: Sequence[Settings], case: str) -> dict[str, Any]:
    """Front of a rule that was searched under the load, in another case."""
    other = cases(under_load(load, folder), series_of(load, folder))[case]
    return Judge(other).rule(RULES[name], choices).document()


def each_application(load: str, folder: Path | None, name: str, choices: Sequence[Settings], effort: float,
                     target: float) -> dict[str, Any]:
    """Front of one: a rule tuned for each held-out application on other episodes of its own, a search for each."""
    environment = under_load(load, folder)
    judge = Judge(environment)
    own = environment.draw("held_out", OWN_EPISODES * APPLICATIONS, TRAINING_STEPS + 1, 4711,
                           applications=judge.numbers * OWN_EPISODES)
    found = for_each_application(environment, RULES[name], choices, own, TRAINING_STEPS, target, OWN_EPISODES,
                                 round(OWN_TRIALS * effort))
    return judge.each(RULES[name], found, str(target)).document()


def policies(load: str, folder: Path | None, name: str, seeds: int, budget: float) -> dict[str, Any]:
    """Trains a policy of a form for each of TARGETS and each seed, and judges them.

    Returns:
        seconds of training in all; for each place the fronts, one a seed: AS_TRAINED, and of CHALLENGER the cases.
    """
    environment, started = under_load(load, folder), time.monotonic()
    trained = _trained(environment, FORMS[name], seeds, budget, partial(_say, f"{load}, {name}"))
    seconds = time.monotonic() - started
    places = {AS_TRAINED: environment, **(cases(environment, series_of(load, folder)) if name == CHALLENGER else {})}
    judges = {place: Judge(other) for place, other in places.items()}
    return {"seconds": seconds, "fronts": {
        place: [judge.policies([str(target) for target in TARGETS], of_seed).document() for of_seed in trained]
        for place, judge in judges.items()}}


def _trained(environment: Autoscaling, form: Form, seeds: int, budget: float,
             on_progress: OnProgress) -> list[list[Policy]]:
    """For each seed a policy for each of TARGETS, all of them side by side."""
    pairs = [(seed, target) for seed in range(seeds) for target in TARGETS]
    task = load_task(TASK)
    shape = policy_shape(task, environment)
    if not form.provable:
        shape = replace(shape, gates=Gates())
    settings = training_settings(task, round(task.training.rounds * budget))
    if form.linear:
        shape, settings = replace(shape, hidden=()), replace(settings, rate=LINEAR_RATE * settings.rate)
    trained = ThroughEnvironment(
        environment.differentiable, environment, shape, settings, [seed for seed, _ in pairs],
        [target for _, target in pairs], *([demands_of(task)] if form.provable else []), on_progress=on_progress).run()
    members = [trained.policy.member(index) for index in range(len(pairs))]
    return [members[seed * len(TARGETS):(seed + 1) * len(TARGETS)] for seed in range(seeds)]


def _say(what: str, event: Mapping[str, Any]) -> None:
    if event["round"] % 20 == 0:
        print(f"  {what}: " + ", ".join(f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
                               for name, value in event.items()), flush=True)
