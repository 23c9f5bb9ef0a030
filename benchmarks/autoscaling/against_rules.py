"""What learned policies save against the rules that a platform engineer would run, at equal violations.

    python -m benchmarks autoscaling-rules [--seeds 5] [--effort 1.0] [--loads azure made]

Rules are tuned by Optuna on training applications (models/training/reinforcement/rule_tuning.py), for several targets;
policies are trained on the same applications, for several targets and seeds. All are judged on the 200 held-out
applications under loads that no training saw, on the same episodes. `cost` is what is allocated over the mean load;
savings are at 2 % violating steps, with bootstrap intervals over applications and seeds. Beside the best rule: the rule
tuned for each held-out application on other episodes of its own, which no policy is.

Resumable: a load that is there for the same code and options is kept.
"""

import argparse
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.autoscaling.fronts import Front, saving, table_of
from benchmarks.harness.code_digest import code_digest
from benchmarks.harness.data_folder import add_data_folder, required
from benchmarks.harness.entries import Entries
from benchmarks.harness.machine import describe_machine, now_utc
from benchmarks.harness.result_file import RESULTS
from models.controllers.rules import RULES, make
from models.environments.autoscaling.arrivals import read_traces
from models.environments.autoscaling.simulator import Autoscaling
from models.environments.environment import Environment
from models.environments.rollout import Rollout, roll_out
from models.learners.policy import Policy
from models.training.reinforcement.rule_tuning import Tuner, choose_each, side_by_side, tune

OUTPUT = RESULTS / "autoscaling_rules.json"
FORMAT = "assay-autoscaling-rules/1"
TARGETS = (0.003, 0.007, 0.015, 0.03, 0.06)  # shares of violating steps that are trained and tuned for
SHARE = 0.02  # at which savings are told
STEPS, WARM_UP, EPISODES = 280, 40, 2  # of judging; episodes of each held-out application
TRAINING_APPLICATIONS, TRAINING_STEPS = 256, 240  # of tuning
JUDGED = ("cost", "cores", "memory_gib", "reward", "violated", "violated_requests", "changes_an_hour")
LOADS = ("azure", "made")


def environment_of(load: str, folder: Path | None) -> Autoscaling:
    """The environment under real loads or made ones. Raises InputError where the real ones are not at hand."""
    if load == "made":
        return Autoscaling()
    return Autoscaling(traces=read_traces(required(folder) / "azure_functions" / "invocations_per_minute_1350.csv.gz"))


def figures_of(rollout: Rollout, applications: int) -> dict[str, np.ndarray[Any, Any]]:
    """name -> (A,), means over the episodes of an application."""
    hours = 15.0 / 3600.0
    values = {
        "cost": rollout.cost, "cores": rollout.measures["cores"], "memory_gib": rollout.measures["memory_gib"],
        "reward": rollout.reward, "violated": rollout.violated,
        "violated_requests": rollout.measures["violated_requests"] / rollout.measures["requests"],
        "changes_an_hour": (rollout.measures["starts"] + rollout.measures["stops"]) / hours}
    return {name: value.reshape(-1, applications).mean(axis=0) for name, value in values.items()}


class Judge:
    """The same episodes for every controller."""

    def __init__(self, environment: Environment, seed: int) -> None:
        self.environment = environment
        self.applications = 200
        numbers = environment.draw("held_out", self.applications, 2, 0).numbers.tolist()
        self.episodes = environment.draw("held_out", EPISODES * self.applications, STEPS + 1, seed,
                                         applications=numbers * EPISODES)

    def front(self, names: Sequence[str], controllers: Sequence[Any]) -> Front:
        """Each controller on all episodes."""
        rows = [figures_of(roll_out(self.environment, one, self.episodes, STEPS, WARM_UP), self.applications)
                for one in controllers]
        return Front(tuple(names), {name: np.stack([row[name] for row in rows]) for name in JUDGED})


def tuned_rules(environment: Environment, effort: float) -> dict[str, Tuner]:
    """Every rule, searched."""
    tuners = {}
    for name in RULES:
        started = time.monotonic()
        tuners[name] = tune(environment, name, TRAINING_APPLICATIONS, TRAINING_STEPS, SHARE, effort=effort)
        best = tuners[name].best(SHARE)
        print(f"rule {name}: cost {best.cost:.2f} at {best.violated:.2%} in training, {best.trials} settings, "
              f"{time.monotonic() - started:.0f} s", flush=True)
    return tuners


def rule_fronts(judge: Judge, tuners: Mapping[str, Tuner]) -> dict[str, Front]:
    """Every rule at the best settings for each target."""
    fronts = {}
    for name, tuner in tuners.items():
        chosen = {str(target): tuner.best(target).settings for target in TARGETS + (SHARE,)}
        fronts[name] = judge.front(list(chosen), [make(name, settings) for settings in chosen.values()])
    return fronts


def each_front(judge: Judge, tuner: Tuner) -> Front:
    """A rule with the settings that are best for each held-out application on other episodes of its own."""
    environment, count = judge.environment, judge.applications
    choices = [trial.settings for trial in tuner.front()]
    numbers = judge.episodes.numbers[:count].tolist()
    own = environment.draw("held_out", 2 * count, TRAINING_STEPS + 1, 4711, applications=numbers * 2)
    trials = Tuner(environment, tuner.rule, own, TRAINING_STEPS).evaluate(choices)
    cost, violated = (np.stack([getattr(trial.rollout, name).reshape(2, count).mean(axis=0) for trial in trials])
                      for name in ("cost", "violated"))
    rules = []
    for target in TARGETS:
        settings = [choices[row] for row in choose_each(cost, violated, target)]
        rules.append(make(tuner.rule, side_by_side(settings * EPISODES, 1)))
    return judge.front([str(target) for target in TARGETS], rules)


def policy_fronts(judge: Judge, environment: Autoscaling, hidden: tuple[int, ...], seeds: int,
                  ) -> tuple[list[Front], float]:
    """A front for each seed, and seconds of training in all."""
    from models.training.reinforcement.policies import generic_shape

    started = time.monotonic()
    pairs = [(seed, target) for seed in range(seeds) for target in TARGETS]
    training = ThroughEnvironment(environment.differentiable, environment, generic_shape(environment, hidden), Settings(),
                                  [seed for seed, _ in pairs], [target for _, target in pairs])
    trained = training.run()
    seconds = time.monotonic() - started
    members = [trained.policy.member(index) for index in range(len(pairs))]
    return [judge.front([str(target) for target in TARGETS], _functions(members, pairs, seed))
            for seed in range(seeds)], seconds


def _functions(members: Sequence[Policy], pairs: Sequence[tuple[int, float]], seed: int) -> list[Policy]:
    return [member for member, (own, _) in zip(members, pairs, strict=True) if own == seed]
