"""What early online training costs an application, from scratch and bootstrapped (thesis, section 5.5.4 and Table 5.3).

    python -m benchmarks autoscaling-bootstrapping [--applications 5] [--episodes 20]

An agent is trained online on one held-out application by DDPG with the hyperparameters of Table 5.2, the paper's reward
and a network of its own, from several starts: none; a policy trained offline on ten episodes of the fallback
(section 5.3.4) by each offline method; the generic policy, trained across the training applications. Each agent sees
the same episodes, and so does the fallback beside it. The four segments of Table 5.3, of 100 episodes each there, are
a quarter of the episodes each. Differences to the fallback: utilisations relative, violations as a factor.

Bootstrapped agents begin with the fallback's experience in their buffer. "critic first": the critic learns from it, for
1,000 updates, before the actor moves. "proved, not trained online" is what Assay does: the generic policy of the task
file, trained under its constraint across the training applications and provable, acts as it is.

Resumable: an application and start that is there for the same code and options is kept.
"""

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from torch import Tensor

from benchmarks.harness.code_digest import code_digest
from benchmarks.harness.entries import Entries
from benchmarks.harness.machine import describe_machine, now_utc
from benchmarks.harness.result_file import RESULTS
from benchmarks.harness.task_digest import with_task
from feature_store.errors import InputError
from models.control.contract.environment import Environment, Outcome
from models.control.policy.policy import Policy
from models.control.simulation.rollout import acting_of
from models.control.training.methods import OFFLINE, method
from models.control.training.objective import ObjectiveSettings
from models.control.training.offline.offline_run import policy_for
from models.control.training.through_environment import ThroughEnvironment
from models.control.training.training_run import episode_seed, plain_shape
from models.control.training.trajectories import Transitions, collect, joined, transitions
from models.tasks.control.policies import demands_of, policy_shape
from models.tasks.control.training import training_settings
from models.tasks.task import load_task
from systems.autoscaling.benchmarks.early_tables import FIRST, MEASURES
from systems.autoscaling.rules.rules import make
from systems.autoscaling.simulator.simulator import Autoscaling

OUTPUT = RESULTS / "autoscaling_bootstrapping.json"
FORMAT = "assay-autoscaling-bootstrapping/1"
FALLBACK = "hpa-cpu-p99-vpa-memory"
BOOTSTRAP_EPISODES, CRITIC_FIRST = 10, 1000
PROVED_APPLICATIONS, PROVED_ROUNDS = 48, 66
REWARD = ObjectiveSettings(kind="reward")

Figures = dict[str, list[float]]  # name -> one number an episode


@dataclass(frozen=True)
class Start:
    """From where online training starts: an offline method, the generic policy, or nothing; `acts`: there is none."""

    offline: str = ""
    generic: bool = False
    critic_first: bool = False
    acts: bool = False


STARTS: Mapping[str, Start] = {
    "scratch": Start(),
    **{name: Start(offline=name) for name in OFFLINE},
    "td3_bc, critic first": Start(offline="td3_bc", critic_first=True),
    "generic": Start(generic=True),
    "generic, critic first": Start(generic=True, critic_first=True),
    "proved, not trained online": Start(acts=True),
}  # fmt: skip


class OneApplication:
    """An environment of one held-out application, whatever is drawn; remembers what came of single episodes."""

    def __init__(self, environment: Autoscaling, application: int) -> None:
        self._environment, self._application = environment, application
        self.episodes: list[list[Outcome]] = []
        self._remembers = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environment, name)

    def draw(self, split: str, count: int, steps: int, seed: int, scenario: str = "",
             applications: Sequence[int] | None = None) -> Any:
        """N episodes of the application."""
        self._remembers = count == 1
        if self._remembers:
            self.episodes.append([])
        return self._environment.draw("held_out", count, steps, seed, scenario, [self._application] * count)

    def step(self, state: Any, targets: Tensor) -> Any:
        """See `Environment.step`."""
        state, outcome = self._environment.step(state, targets)
        if self._remembers:
            self.episodes[-1].append(outcome)
        return state, outcome

    def figures(self, episodes: int) -> Figures:
        """Of the first so many single episodes."""
        found: Figures = {"reward": [], "violated": [], **{name: [] for name in MEASURES}}
        for steps in self.episodes[:episodes]:
            found["reward"].append(float(sum(float(step.reward) for step in steps)))
            found["violated"].append(float(np.mean([float(step.violated) for step in steps])))
            for name in MEASURES:
                found[name].append(float(np.mean([min(1.0, float(step.measures[name])) for step in steps])))
        return found


def generic_policy(environment: Environment, episodes: int) -> Policy:
    """Trained across the training applications for the paper's reward."""
    settings = method("ppo").settings(episodes=episodes, objective=REWARD)
    return method("ppo").train(environment, settings, 0).policy


def proved_policy(environment: Autoscaling) -> Policy:
    """Trained as the task file says, in few rounds, for half of the violating steps that it allows."""
    task = load_task("autoscaling")
    settings = replace(training_settings(task, PROVED_ROUNDS), applications=PROVED_APPLICATIONS)
    run = ThroughEnvironment(environment.differentiable, environment, policy_shape(task, environment), settings, [0],
                             [task.objective.violating_share / 2], demands_of(task))
    return run.run().policy.member(0)


def bootstrapping_data(application: OneApplication) -> Transitions:
    """What the fallback did in ten episodes of the application."""
    rule = make(FALLBACK)
    return joined([transitions(collect(application, acting_of(application, rule), "held_out", 1,
                                       application.steps, 900_000 + episode)) for episode in range(BOOTSTRAP_EPISODES)])


def measure(environment: Autoscaling, number_of: int, start: Start, generic: Policy | None,
            episodes: int) -> Figures:
    """Online training of one application from one start."""
    known = bootstrapping_data(OneApplication(environment, number_of))
    application = OneApplication(environment, number_of)
    policy: Policy | None = generic if start.generic else None
    if start.offline:
        found = method(start.offline)
        policy = found.train(policy_for(plain_shape(environment, (40, 40)), known, number_of), known,
                             found.settings(updates=800, objective=REWARD), number_of).policy
    settings = method("ddpg").settings(
        episodes=episodes, applications=1, objective=REWARD, validate_every=episodes, validation_applications=2,
        actor_from=CRITIC_FIRST if start.critic_first else 0)
    experience = known if start.offline or start.critic_first else None
    trained = method("ddpg").train(application, settings, number_of, None, None, policy, experience)
    if trained.stopped:
        raise InputError(f"application {number_of}: {trained.stopped}")
    return application.figures(episodes)


def fallback_figures(environment: Autoscaling, number_of: int, episodes: int) -> Figures:
    """The fallback on the same episodes."""
    application = OneApplication(environment, number_of)
    for episode in range(episodes):
        rule = acting_of(application, make(FALLBACK))
        collect(application, rule, "held_out", 1, environment.steps, episode_seed(number_of, episode))
    return application.figures(episodes)


def acting_figures(environment: Autoscaling, number_of: int, policy: Policy, episodes: int) -> Figures:
    """A policy that learns nothing, on the same episodes."""
    application = OneApplication(environment, number_of)
    for episode in range(episodes):
        collect(application, lambda seen, _: policy(seen), "held_out", 1, environment.steps,
                episode_seed(number_of, episode))
    return application.figures(episodes)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--applications", type=int, default=5, help="held-out applications, each an agent of its own")
    parser.add_argument("--episodes", type=int, default=20, help="of online training, of 100 steps")
    parser.add_argument("--generic-episodes", type=int, default=40, help="of the generic policy's training")
    parser.add_argument("--starts", nargs="+", choices=list(STARTS), default=list(STARTS))


def run(options: argparse.Namespace) -> None:
    environment = Autoscaling()
    digest = with_task(load_task("autoscaling"), code_digest("systems.autoscaling.benchmarks.bootstrapping", "models"))
    asked = {"episodes": options.episodes, "generic_episodes": options.generic_episodes}
    entries = Entries(options.output, FORMAT, lambda entry: (entry["application"], entry["start"]),
                      lambda before, entry: (before.get("code"), before.get("asked")) == (digest, asked))
    entries.content |= {"code": digest, "asked": asked, "machine": describe_machine(), "date": now_utc(),
                        "fallback": FALLBACK, "bootstrap_episodes": BOOTSTRAP_EPISODES}
    generic, proved = cache(lambda: generic_policy(environment, options.generic_episodes)), cache(
        lambda: proved_policy(environment))
    first = len(environment.applications) - 200
    for application in (first + 37 * rank % 200 for rank in range(options.applications)):
        for name in (FALLBACK, *options.starts):
            if entries.has((application, name)):
                continue
            started = time.process_time()
            if name == FALLBACK:
                found = fallback_figures(environment, application, options.episodes)
            elif STARTS[name].acts:
                found = acting_figures(environment, application, proved(), options.episodes)
            else:
                start = STARTS[name]
                found = measure(environment, application, start, generic() if start.generic else None, options.episodes)
            entries.add({"application": application, "start": name, "figures": found,
                         "cpu_s": round(time.process_time() - started, 1)})
            violated, reward = np.mean(found["violated"][:FIRST]), np.mean(found["reward"])
            print(f"application {application}, {name}: violated {violated:.1%} at first, reward {reward:.1f}",
                  flush=True)
