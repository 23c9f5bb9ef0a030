"""How fast a policy adapts to a new application: the meta learner, transfer learning, and simpler ones.

    python -m benchmarks autoscaling-adaptation [--methods meta generic ...] [--seeds 5] [--applications 20]

Every method is fine-tuned to each held-out application in episodes of its own, all applications and seeds in one stack,
at several learning rates, of which each is told at its best. What is told is the paper's reward (section 5.5.2 and
Figure 5.8); trained for is the cost under a constraint, or with `--objective reward` the paper's reward. After every
few episodes all are judged on the same other episodes. The converged reward of an application is the highest that any
method reached there: so nobody looks fast by converging to little.

    drop             1 - reward before the first gradient / converged reward
    episodes         until the reward is 95 % of the converged one; those that never are count as the last episode
    seconds          processor time of fine-tuning until then, an application

Resumable: a method that is there for the same code and options is kept.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.harness.code_digest import code_digest
from benchmarks.harness.data_folder import add_data_folder
from benchmarks.harness.entries import Entries
from benchmarks.harness.machine import describe_machine, now_utc
from benchmarks.harness.result_file import RESULTS
from models.control.adaptation.exploration import Exploration
from models.control.adaptation.inputs import Forecast, Given, Inputs, Joined, Nothing
from models.control.adaptation.load_forecast import allocation_table
from models.control.adaptation.side_by_side import Ran
from models.control.adaptation.side_by_side import run as run_side_by_side
from models.control.adaptation.through_stacks import Batch, Stack, TrainingSettings, train
from models.control.adaptation.trajectories import Recorder, TrajectoryStore
from models.control.policy.policy import Policy
from models.control.training.smooth_objectives import SmoothObjective
from systems.autoscaling.benchmarks.adaptation.rival_policies import (
    EPISODE,
    SOURCES,
    TARGET,
    WARM_UP,
    Plan,
    first_policies,
    forecast_of,
    meta_learner,
    repeated_objective,
    trained,
    untrained,
)
from systems.autoscaling.benchmarks.loads import under_load
from systems.autoscaling.simulator.simulator import Autoscaling

OUTPUT = RESULTS / "autoscaling_adaptation.json"
FORMAT = "assay-autoscaling-adaptation/1"
JUDGED_AT = (0, 1, 2, 4, 7, 10, 15, 20, 30, 40)  # episodes
JUDGED_STEPS, JUDGED_WARM_UP, JUDGE_SEED, TUNING_SEED = 100, 10, 777, 810_000
RATES = (5e-5, 2e-4, 8e-4)  # Adam's; every method is tried at each, and told at its best
_CELLS = torch.tensor([-1.5, -0.75, -0.25, 0.25, 0.75, 1.5])  # normalised load a core
_LATENCY, _LOAD = 0, 6  # features: latency over SLO, load a core
Numbers = NDArray[np.float64]


class Told(Protocol):
    """What the N policies of a method are told, and what they learn from an episode."""

    def inputs(self) -> Inputs:
        """For one episode of each."""

    def observe(self, found: Ran) -> None:
        """An episode (N, 1) of each, recorded."""


class Untold:
    """Nothing, ever."""

    def inputs(self) -> Inputs:
        """See Told."""
        return Nothing()

    def observe(self, found: Ran) -> None:
        """See Told."""


class Embedded:
    """The embedding of the best trajectories so far."""

    def __init__(self, known: Exploration) -> None:
        self._known = known

    def inputs(self) -> Inputs:
        """See Told."""
        return self._known.told()

    def observe(self, found: Ran) -> None:
        """See Told."""
        self._known.add(found)


class Plus:
    """TL+: a forecast of the load, and the table from allocation to performance of all episodes so far."""

    def __init__(self, forecast: Forecast, store: TrajectoryStore, prior: Tensor) -> None:
        self._forecast, self._store, self._prior = forecast, store, prior

    def inputs(self) -> Inputs:
        """See Told."""
        there = self._store.rewards.isfinite()[..., None]
        load, latency = (torch.where(there, self._store.records[..., column], torch.nan).flatten(1)
                         for column in (_LOAD, _LATENCY))
        return Joined([self._forecast, Given(allocation_table(load, latency, _CELLS, self._prior), "cell", 3.0)])

    def observe(self, found: Ran) -> None:
        """See Told."""
        assert found.records is not None
        rewards = torch.from_numpy(found.reward[:, 0]).float()
        self._store.add(torch.arange(len(rewards)), found.records[:, 0], rewards)


# applications -> (S R,) policies, one a rate, and what N = S R A of them are told
Method = Callable[[Autoscaling, Plan, int], tuple[Policy, Told]]


def _at_each_rate(policy: Policy) -> Policy:
    """(S,) -> (S R,), those of a seed next to each other."""
    return policy.taken([seed for seed in range(policy.members[0]) for _ in RATES])


def _meta(environment: Autoscaling, plan: Plan, applications: int) -> tuple[Policy, Told]:
    learner = meta_learner(environment, plan, first_policies(environment, plan))
    learner = replace(learner, policy=_at_each_rate(learner.policy))
    return learner.policy, Embedded(Exploration(learner, applications, 8, EPISODE))


def _generic(environment: Autoscaling, plan: Plan, applications: int) -> tuple[Policy, Told]:
    policy = trained(environment, plan, Nothing(), begin=first_policies(environment, plan))
    return _at_each_rate(policy), Untold()


def _transfer(environment: Autoscaling, plan: Plan, applications: int) -> tuple[Policy, Told]:
    policy = trained(environment, plan.with_budget(2.0), Nothing(), sources=SOURCES[:len(plan.seeds)])
    return _at_each_rate(policy), Untold()


def _transfer_plus(environment: Autoscaling, plan: Plan, applications: int) -> tuple[Policy, Told]:
    forecast = Forecast(environment, forecast_of(environment))
    prior = torch.zeros(len(_CELLS) + 1)
    recorder = Recorder(environment, *_normalisation(environment, plan))
    # the sources' tables, of one episode under the rule that all begin as
    first = untrained(environment, plan, Nothing(), False)
    drawn = environment.draw("train", len(plan.seeds), EPISODE + 1, TUNING_SEED, applications=SOURCES[:len(plan.seeds)])
    found = run_side_by_side(environment, first, Nothing(), drawn, EPISODE, WARM_UP, recorder=recorder)
    assert found.records is not None
    records = found.records[:, 0]
    own = allocation_table(records[..., _LOAD], records[..., _LATENCY], _CELLS, prior)
    told = Joined([forecast, Given(own.repeat_interleave(plan.applications, dim=0), "cell", 3.0)])
    policy = trained(environment, plan.with_budget(2.0), told, sources=SOURCES[:len(plan.seeds)])
    store = TrajectoryStore.empty(len(plan.seeds) * len(RATES) * applications, 8, EPISODE // 4, recorder.numbers)
    return _at_each_rate(policy), Plus(forecast, store, prior)


def _scratch(environment: Autoscaling, plan: Plan, applications: int) -> tuple[Policy, Told]:
    return _at_each_rate(untrained(environment, plan, Nothing(), False)), Untold()


def _normalisation(environment: Autoscaling, plan: Plan) -> tuple[Tensor, Tensor]:
    policy = untrained(environment, replace(plan, seeds=(0,)), Nothing(), False)
    return policy.mean, policy.spread


METHODS: dict[str, tuple[str, Method]] = {
    "meta": ("meta learner (AWARE)", _meta),
    "generic": ("generic policy", _generic),
    "transfer": ("transfer from one application (TL)", _transfer),
    "transfer-plus": ("TL with forecast and allocation table (TL+)", _transfer_plus),
    "scratch": ("from scratch", _scratch),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py."""
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--applications", type=int, default=20, help="held-out ones that are adapted to; default: 20")
    parser.add_argument("--objective", choices=["constraint", "reward"], default="constraint")
    parser.add_argument("--load", choices=["azure", "made"], default="azure")
    parser.add_argument("--budget", type=float, default=1.0, help="of training, times the default's iterations")
    add_data_folder(parser)


def run(options: argparse.Namespace) -> None:
    """Adapts what is missing."""
    code = code_digest("systems.autoscaling.benchmarks.adaptation.new_application", "")
    results = Entries(options.output, FORMAT, lambda entry: entry["method"], lambda _, entry: (
        entry["method"] not in options.methods
        or (entry["code"], entry["load"], entry["seeds"], entry["budget"], entry["objective"]) ==
        (code, options.load, options.seeds, options.budget, options.objective)))
    environment = under_load(options.load, options.data_folder)
    targets = (TARGET,) if options.objective == "constraint" else ()
    plan = Plan(seeds=tuple(range(options.seeds)), targets=targets).with_budget(options.budget)
    applications = [800 + 200 // options.applications * row for row in range(options.applications)]
    for name in options.methods:
        if results.has(name):
            continue
        began = time.process_time()
        policy, told = METHODS[name][1](environment, plan, len(applications))
        pretraining = time.process_time() - began
        objective = repeated_objective(plan.objective(), len(RATES) * len(applications))
        curves, seconds = adapt(environment, policy, told, applications, objective)
        chosen = int(curves["reward"].mean(axis=(0, 1, 3)).argmax())  # the largest area under the curve
        tried = curves["reward"].mean(axis=(1, 3))
        curves = {figure: values[:, :, chosen] for figure, values in curves.items()}
        results.content |= {"machine": describe_machine(), "judged_at": list(JUDGED_AT), "applications": applications}
        results.add({"method": name, "what": METHODS[name][0], "code": code, "load": options.load, "at": now_utc(),
                     "seeds": options.seeds, "budget": options.budget,
                     "objective": options.objective, "pretraining_cpu_s": pretraining,
                     "adaptation_cpu_s": [second / len(RATES) for second in seconds],
                     "rate": RATES[chosen], "rates": list(RATES), "rewards_by_rate": tried.T.round(4).tolist(),
                     **{figure: [" ".join(f"{value:.4g}" for value in row.flatten()) for row in values]
                        for figure, values in curves.items()}})
        print(f"{pretraining + seconds[-1]:6.0f} s of CPU time  {name}, reward by rate: {tried.T.round(3).tolist()}",
              file=sys.stderr, flush=True)


def adapt(environment: Autoscaling, policy: Policy, told: Told, applications: Sequence[int], objective: SmoothObjective,
          ) -> tuple[dict[str, Numbers], list[float]]:
    """Fine-tunes (S R,) policies, those of a seed next to each other, one a rate, to A applications each.

    Returns:
        figure -> (judged, S, R, A); processor seconds of fine-tuning until each judgement, judging left out.
    """
    tried, count = policy.members[0], len(applications)
    rates = torch.tensor(RATES).repeat(tried // len(RATES)).repeat_interleave(count) / RATES[-1]
    stack = Stack(policy.taken([start for start in range(tried) for _ in range(count)]), rates=rates)
    every = list(applications) * tried
    plain = len(environment.features)
    recorder = Recorder(environment, policy.mean[:plain], policy.spread[:plain])
    judged = environment.draw("held_out", 2 * count, JUDGED_STEPS + 1, JUDGE_SEED,
                              applications=[number for number in applications for _ in range(2)])
    rows = torch.arange(2 * count).repeat(tried)
    found: dict[str, list[Numbers]] = {"reward": [], "violated": [], "cpu_utilization": [], "memory_utilization": []}
    seconds: list[float] = []
    spent = 0.0

    def batch(iteration: int) -> Batch:
        return Batch(environment.draw("held_out", len(every), EPISODE + 1, TUNING_SEED + iteration,
                                      applications=every), told.inputs)

    for episode in range(JUDGED_AT[-1] + 1):
        if episode in JUDGED_AT:
            ran = run_side_by_side(environment, stack.policy, doubled(told.inputs()), judged.take(rows), JUDGED_STEPS,
                                   JUDGED_WARM_UP, ("cpu_utilization", "memory_utilization"))
            for figure, values in {"reward": ran.reward, "violated": ran.violated, **ran.measures}.items():
                found[figure].append(values.mean(axis=1).reshape(-1, len(RATES), count))
            seconds.append(spent)
        if episode == JUDGED_AT[-1]:
            break
        began = time.process_time()
        if not isinstance(told, Untold):  # what is told next comes from the same episode that the gradient comes from
            told.observe(run_side_by_side(environment, stack.policy, told.inputs(), batch(episode).episodes, EPISODE,
                                          WARM_UP, recorder=recorder))
        one_more = TrainingSettings(episode + 1, EPISODE, warm_up=WARM_UP, rate=RATES[-1], decay=False)
        train(environment.differentiable, stack, batch, objective, one_more)
        spent += time.process_time() - began
    return {figure: np.stack(values) for figure, values in found.items()}, seconds


def doubled(inputs: Inputs) -> Inputs:
    """For two episodes of each policy instead of one."""
    match inputs:
        case Given():
            return Given(inputs.values.repeat_interleave(2, dim=0), reach=inputs.reach)
        case Joined():
            return Joined([doubled(part) for part in inputs.parts])
    return inputs
