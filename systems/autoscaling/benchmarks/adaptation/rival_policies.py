"""The policies that `python -m benchmarks autoscaling-rivals` compares: how each is trained and told what.

All have the same layers, seeds, training applications and loads, iterations and first episodes; they differ in what
they are told (models/control/adaptation/inputs.py) and in whether they are fine-tuned. Those that are told something
begin as a trained generic policy that ignores it, and are trained on as long as that policy is: so what they lose or
gain is what they are told, and not the luck of a short training. A policy has L settings, one for
each target of its objective, and S seeds.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from models.control.adaptation.exploration import explore
from models.control.adaptation.inputs import Given, Inputs, Nothing, Window
from models.control.adaptation.load_forecast import Autoregression, fit_autoregression
from models.control.adaptation.meta_learner import MetaLearner, MetaSettings, MetaTraining
from models.control.adaptation.side_by_side import Ran, member_rows, run
from models.control.adaptation.through_stacks import Batch, Stack, TrainingSettings, train
from models.control.adaptation.trajectory_encoder import EncoderSettings
from models.control.adaptation.widening import widened
from models.control.policy.policy import Policy, PolicyShape
from models.control.training.rollouts import random_walk
from models.control.training.smooth_objectives import CostAndViolations, PaperReward, SmoothObjective
from models.control.training.through_environment import stack as stacked
from systems.autoscaling.simulator.applications import numbers_of
from systems.autoscaling.simulator.simulator import Autoscaling

HIDDEN_LAYERS = (64, 64)
TARGET = 0.04  # of violating steps, where policies are trained under one constraint
EPISODE, WARM_UP = 60, 10
_SERIES_SEED, _EXPLORE_SEED, _TUNING_SEED = 11, 500_000, 600_000
SOURCES = (17, 190, 363, 536, 709)  # that transfer learning starts from, one a seed; any would do


@dataclass(frozen=True)
class Plan:
    """What is common to all rivals.

    Attributes:
        seeds: (S,).
        targets: (L,) shares of violating steps; () trains for the paper's reward.
        iterations: of training.
        applications: of a seed, an iteration.
        tuned: iterations of fine-tuning.
        tuned_seeds: how many of the seeds are fine-tuned.
        trajectories: M.
    """

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    targets: tuple[float, ...] = (0.01, 0.02, 0.04)
    iterations: int = 60
    applications: int = 24
    tuned: int = 40
    tuned_seeds: int = 1
    trajectories: int = 4
    hidden: tuple[int, ...] = HIDDEN_LAYERS
    rate: float = 5e-3
    further_rate: float = 2e-3
    tuned_rate: float = 3e-4

    def with_budget(self, budget: float) -> "Plan":
        """So many times the iterations of training."""
        return replace(self, iterations=max(1, round(self.iterations * budget)))

    @property
    def policies(self) -> int:
        """K."""
        return len(self.seeds) * max(1, len(self.targets))

    def training(self, further: bool) -> TrainingSettings:
        """How all of them are trained, from the beginning or from a trained generic policy."""
        rate = self.further_rate if further else self.rate
        return TrainingSettings(self.iterations, EPISODE, warm_up=WARM_UP, rate=rate)

    def objective(self) -> SmoothObjective:
        """Of all K policies."""
        return CostAndViolations(torch.tensor(self.targets * len(self.seeds))) if self.targets else PaperReward()


@dataclass(frozen=True)
class Beginning:
    """A trained generic policy (K,) and its objective, with the multipliers that it came to."""

    policy: Policy
    objective: SmoothObjective

    def continued(self) -> SmoothObjective:
        """The same objective for another policy."""
        return copy.deepcopy(self.objective)


@dataclass(frozen=True)
class Rival:
    """A trained policy (K,) and what it is told in judged episodes: (A) applications, times each is judged."""

    policy: Policy
    told: Callable[[Sequence[int], int], Inputs]


def training_applications(environment: Autoscaling) -> list[int]:
    """Numbers of the applications that train."""
    return numbers_of("train", len(environment.applications)).tolist()


def untrained(environment: Autoscaling, plan: Plan, inputs: Inputs, linear: bool) -> Policy:
    """(K,) of which those of one seed begin equal: about as the rule that they are anchored at."""
    hidden = () if linear else plan.hidden
    shape = PolicyShape(environment.signals, environment.controls, environment.features, hidden,
                        anchors=environment.anchors).with_inputs(inputs.names, inputs.reach)
    each = max(1, len(plan.targets))
    policy = stacked([Policy(shape, torch.Generator().manual_seed(seed)) for seed in plan.seeds for _ in range(each)])
    normalise(environment, policy, inputs)
    return policy


@torch.no_grad()
def told_more(policy: Policy, inputs: Inputs) -> Policy:
    """The same policies with further inputs that they ignore."""
    wide = widened(policy, inputs.names, inputs.reach)
    if isinstance(inputs, Window):
        plain = len(policy.mean)
        repeats = len(inputs.names) // plain
        wide.mean[plain:], wide.spread[plain:] = policy.mean.repeat(repeats), policy.spread.repeat(repeats)
    return wide


@torch.no_grad()
def normalise(environment: Autoscaling, policy: Policy, inputs: Inputs) -> None:
    """By what is seen while targets walk at random; further inputs but earlier features are about of unit spread."""
    plain = len(environment.features)
    bare = Policy(replace(policy.shape, signals=policy.shape.signals[:len(environment.signals)],
                          features=policy.shape.features[:plain]))
    bare.normalise(random_walk(environment.differentiable, policy.current, 100, 0))
    policy.mean[:plain], policy.spread[:plain] = bare.mean, bare.spread
    if isinstance(inputs, Window):
        repeats = len(inputs.names) // plain
        policy.mean[plain:], policy.spread[plain:] = bare.mean.repeat(repeats), bare.spread.repeat(repeats)


def first_policies(environment: Autoscaling, plan: Plan) -> Beginning:
    """The generic policies that the others begin as."""
    objective = plan.objective()
    return Beginning(trained(environment, plan, Nothing(), objective=objective), objective)


def trained(environment: Autoscaling, plan: Plan, inputs: Inputs, linear: bool = False, sources: Sequence[int] = (),
            objective: SmoothObjective | None = None, begin: Beginning | None = None) -> Policy:
    """(K,) trained on all training applications.

    Args:
        environment: see Autoscaling.
        plan: how.
        inputs: what the policies are told.
        linear: without hidden layers.
        sources: (S,) applications, one for each seed, that it is trained on alone; (): all.
        objective: None: the plan's.
        begin: what it goes on from; None: from the beginning.
    """
    if begin is not None:
        stack, objective = Stack(told_more(begin.policy, inputs)), begin.continued()
    else:
        stack = Stack(untrained(environment, plan, inputs, linear))
    seeds, each, count = len(plan.seeds), max(1, len(plan.targets)), plan.applications
    numbers = torch.tensor(training_applications(environment))
    settings = plan.training(begin is not None)

    def batch(iteration: int) -> Batch:
        generator = torch.Generator().manual_seed(iteration)
        chosen = torch.cat([numbers[torch.randperm(len(numbers), generator=generator)[:count]] for _ in range(seeds)])
        if sources:
            chosen = torch.tensor(sources).repeat_interleave(count)
        episodes = environment.differentiable.draw("train", seeds * count, EPISODE + 1, iteration,
                                                   applications=chosen.tolist())
        return Batch(episodes.take(member_rows(seeds, each, count)), lambda: inputs)

    train(environment.differentiable, stack, batch, objective or plan.objective(), settings)
    return stack.policy


def same(inputs: Inputs) -> Callable[[Sequence[int], int], Inputs]:
    """Told the same whatever the applications are."""
    return lambda applications, times: inputs


def meta_learner(environment: Autoscaling, plan: Plan, begin: Beginning, kind: str = "gru",
                 identify: bool = False) -> MetaLearner:
    """The meta learner, or identification."""
    width = len(environment.hidden) if identify else 8
    encoder = EncoderSettings(kind, embedding=width, trajectories=plan.trajectories)
    settings = MetaSettings(encoder, plan.training(True), plan.seeds, plan.targets, plan.applications, identify)
    policy = told_more(begin.policy, Given(torch.zeros(1, width)))
    return MetaTraining(environment, environment.differentiable, policy, settings, training_applications(environment),
                        objective=begin.continued()).run()


def told_trajectories(environment: Autoscaling, plan: Plan, begin: Beginning, kind: str = "gru",
                      identify: bool = False) -> Rival:
    """The meta learner, or identification; in judging M episodes of every application come first."""
    learner = meta_learner(environment, plan, begin, kind, identify)

    def told(applications: Sequence[int], times: int) -> Inputs:
        known = explore(environment, learner, "held_out", applications, plan.trajectories, EPISODE, WARM_UP,
                        _EXPLORE_SEED)
        return Given(known.embedding().repeat(1, times, 1).flatten(0, 1))

    return Rival(learner.policy, told)


def fine_tuned(environment: Autoscaling, plan: Plan, policy: Policy, inputs: Inputs, applications: Sequence[int],
               multipliers: Tensor) -> Policy:
    """(K A,) one for each held-out application, fine-tuned in episodes of its own; the (K,) multipliers stay."""
    count = len(applications)
    repeated = multipliers.repeat_interleave(count)
    objective = CostAndViolations(torch.ones_like(repeated), repeated, rate=0.0)
    stack = Stack(policy.taken([k for k in range(plan.policies) for _ in range(count)]))
    every = [number for number in applications for _ in range(2)] * plan.policies

    def batch(iteration: int) -> Batch:
        return Batch(environment.draw("held_out", len(every), EPISODE + 1, _TUNING_SEED + iteration,
                                      applications=every), lambda: inputs)

    train(environment.differentiable, stack, batch, objective,
          TrainingSettings(plan.tuned, EPISODE, warm_up=WARM_UP, rate=plan.tuned_rate))
    return stack.policy


def judge(environment: Autoscaling, rival: Rival, applications: Sequence[int], times: int, steps: int, warm_up: int,
          seed: int, measures: Sequence[str]) -> Ran:
    """(K, A times) on episodes that are the same for every rival."""
    episodes = environment.draw("held_out", len(applications) * times, steps + 1, seed,
                                applications=list(applications) * times)
    members = rival.policy.members[0]
    inputs = rival.told(applications, times)
    return run(environment, rival.policy, inputs, episodes.take(member_rows(1, members, len(episodes))), steps, warm_up,
               measures)


def repeated_objective(objective: SmoothObjective, applications: int) -> SmoothObjective:
    """Of a policy for each application, with the (S,) multipliers that training came to."""
    state = objective.state()
    if not state:
        return PaperReward()
    multipliers = state["multipliers"].repeat_interleave(applications)
    return CostAndViolations(torch.full_like(multipliers, TARGET), multipliers, rate=0.0)


def forecast_of(environment: Autoscaling) -> Autoregression:
    """ARIMA(8, 1, 0) of the rates of training episodes, by least squares."""
    return fit_autoregression(environment.draw("train", 512, 240, _SERIES_SEED).rate.T.log())
