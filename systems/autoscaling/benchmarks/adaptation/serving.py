"""Serving through changes of payload and load: retraining against none, the converged policy and a rule.

    python -m benchmarks autoscaling-serving [--seeds 3] [--applications 8] [--episodes 30]

In each of the scenarios of section 5.2.3 of the thesis (payloads that grow, loads that rise or fall), held-out
applications are served by a policy that was fine-tuned to them before the change; then the change comes and stays. On
the same episodes after it (Figure 5.9):

    AWARE          new trajectories make a new embedding, and gradients are taken while the mean reward of the last
                   episodes is below the serving threshold: 2.6 % under the reward before the change
    embedding      the same without gradients
    no retraining  embedding and weights of before
    generic        the generic policy without embedding or fine-tuning
    rule           HPA on CPU with VPA on memory, as deployed
    converged      fine-tuned to the changed application for as many further episodes

Policies are trained and retrained under a constraint (at most 4 % violating steps), or for the paper's reward alone
(`--objective reward`), under which they learn to run memory over its limit, which the reward pays for.

Resumable: a run that is there for the same code and options is kept.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.harness.code_digest import code_digest
from benchmarks.harness.data_folder import add_data_folder
from benchmarks.harness.entries import Entries
from benchmarks.harness.machine import describe_machine, now_utc
from benchmarks.harness.markdown import paragraph, table
from benchmarks.harness.result_file import RESULTS
from models.control.adaptation.exploration import Exploration
from models.control.adaptation.inputs import Inputs, Nothing
from models.control.adaptation.side_by_side import Ran
from models.control.adaptation.side_by_side import run as run_side_by_side
from models.control.adaptation.through_stacks import Batch, Stack, TrainingSettings, train
from models.control.policy.policy import Policy
from models.control.simulation.rollout import roll_out
from models.control.training.smooth_objectives import SmoothObjective
from systems.autoscaling.benchmarks.adaptation.rival_policies import (
    EPISODE,
    TARGET,
    WARM_UP,
    Plan,
    first_policies,
    meta_learner,
    repeated_objective,
    trained,
)
from systems.autoscaling.benchmarks.loads import under_load
from systems.autoscaling.rules.rules import make
from systems.autoscaling.simulator.applications import PAYLOADS
from systems.autoscaling.simulator.episodes import PAYLOAD_SCENARIOS, Episodes
from systems.autoscaling.simulator.simulator import Autoscaling

OUTPUT = RESULTS / "autoscaling_serving.json"
FORMAT = "assay-autoscaling-serving/1"
HELD_OUT = np.arange(800, 1000)
BEFORE, RATE = 10, 1e-4  # episodes of fine-tuning before the change; Adam's rate
THRESHOLD, RECENT = 0.026, 3  # of the reward before the change (section 5.5.3); episodes that the mean is over
RULE = "hpa-cpu-vpa-memory"
SERVERS = ("AWARE", "embedding", "no retraining", "generic", "rule", "converged")
FIGURES = ("reward", "violated", "cpu_utilization", "memory_utilization")
_SEED, _BEFORE_SEED, _CONVERGED_SEED = 910_000, 920_000, 930_000
Numbers = NDArray[np.float64]


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py."""
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--applications", type=int, default=8, help="of each scenario; default: 8")
    parser.add_argument("--episodes", type=int, default=30, help="after the change; default: 30")
    parser.add_argument("--objective", choices=["constraint", "reward"], default="constraint")
    parser.add_argument("--load", choices=["azure", "made"], default="azure")
    parser.add_argument("--budget", type=float, default=1.0, help="of training, times the default's iterations")
    add_data_folder(parser)


def run(options: argparse.Namespace) -> None:
    """Serves, where that is missing."""
    code = code_digest("systems.autoscaling.benchmarks.adaptation.serving", "")
    asked = {"code": code, "load": options.load, "objective": options.objective, "seeds": options.seeds,
             "applications": options.applications, "episodes": options.episodes, "budget": options.budget}
    results = Entries(options.output, FORMAT, lambda entry: (entry["objective"], entry["load"]), lambda _, entry: (
        (entry["objective"], entry["load"]) != (options.objective, options.load)
        or {name: entry[name] for name in asked} == asked))
    if results.has((options.objective, options.load)):
        return
    environment = under_load(options.load, options.data_folder)
    targets = (TARGET,) if options.objective == "constraint" else ()
    plan = Plan(seeds=tuple(range(options.seeds)), targets=targets).with_budget(options.budget)
    found = serve(environment, plan, options.applications, options.episodes)
    results.content |= {"machine": describe_machine()}
    results.add({**asked, "at": now_utc(), "scenarios": list(environment.scenarios), "served": {
        server: {figure: [" ".join(f"{value:.4g}" for value in row) for row in values.reshape(len(values), -1)]
                 for figure, values in figures.items()} for server, figures in found.items()}})
    for server, figures in found.items():
        print(f"{server:14} " + ", ".join(f"{figure} {values.mean():.3f}" for figure, values in figures.items()),
              file=sys.stderr, flush=True)


def chosen_applications(environment: Autoscaling, each: int) -> list[int]:
    """`each` held-out applications of every scenario: those that the payload makes most of, or every so many."""
    chosen: list[int] = []
    for scenario in environment.scenarios:
        if scenario in PAYLOAD_SCENARIOS:
            column = PAYLOADS.index(scenario.removeprefix("payload_"))
            share = environment.applications.payload_share[800:, column].numpy()
            chosen += HELD_OUT[np.argsort(-share, kind="stable")[:each]].tolist()
        else:
            chosen += HELD_OUT[::len(HELD_OUT) // each][:each].tolist()
    return chosen


def after_change(environment: Autoscaling, seed: int, applications: Sequence[int], each: int, seeds: int) -> Episodes:
    """Episodes of `applications` (scenario by scenario, for every seed the same), from the change on."""
    size = len(applications) // seeds
    parts = []
    for position, scenario in enumerate(environment.scenarios):
        own = list(applications[position * each:(position + 1) * each])
        drawn = environment.draw("held_out", each, 2 * EPISODE + 2, seed * 100 + position, scenario, own)
        parts.append(second_half(drawn))
    return joined(parts).take(torch.arange(size).repeat(seeds))


def second_half(episodes: Episodes) -> Episodes:
    """From the middle on."""
    half = episodes.steps // 2
    return replace(episodes, **{name: getattr(episodes, name)[half:] for name in ("rate", "cpu_s", "stolen", "noise")})


def joined(parts: Sequence[Episodes]) -> Episodes:
    """Several side by side."""
    first = parts[0]
    applications = replace(first.applications, **{
        name: torch.cat([getattr(part.applications, name) for part in parts]) for name in vars(first.applications)})
    series = {name: torch.cat([getattr(part, name) for part in parts], dim=-1)
              for name in ("numbers", "rate", "cpu_s", "stolen", "noise", "start")}
    return Episodes(applications=applications, **series)


def serve(environment: Autoscaling, plan: Plan, each: int, episodes: int) -> dict[str, dict[str, Numbers]]:
    """server -> figure -> (episodes, S, scenarios, each)."""
    seeds = len(plan.seeds)
    applications = chosen_applications(environment, each)
    every, shape = applications * seeds, (seeds, len(environment.scenarios), each)
    begin = first_policies(environment, plan)
    learner = meta_learner(environment, plan, begin)
    known = Exploration(learner, len(applications), 8, EPISODE)
    starts = [seed for seed in range(seeds) for _ in applications]
    stack = Stack(learner.policy.taken(starts))
    objective = repeated_objective(begin.objective, len(applications))
    before = _before(environment, stack, known, every, objective)
    frozen, told_before = deepcopy(stack.policy), known.told()
    generic = trained(environment, plan, Nothing(), begin=begin).taken(starts)
    best = Stack(deepcopy(stack.policy))
    updated = _copy(known)

    def changed(seed: int) -> Episodes:
        return after_change(environment, seed, every, each, seeds)

    found: dict[str, list[Ran | Any]] = {name: [] for name in SERVERS}
    recent: list[Numbers] = []
    for episode in range(episodes):
        drawn = changed(_SEED + episode)
        served = {"AWARE": _run(environment, stack.policy, known.told(), drawn, learner),
                  "embedding": _run(environment, frozen, updated.told(), drawn, learner),
                  "no retraining": _run(environment, frozen, told_before, drawn, learner),
                  "generic": _run(environment, generic, Nothing(), drawn, learner)}
        for name, ran in served.items():
            found[name].append(_figures(ran))
        found["rule"].append(_rule(environment, drawn))
        known.add(served["AWARE"])
        updated.add(served["embedding"])
        recent = [*recent[-RECENT + 1:], served["AWARE"].reward[:, 0]]
        serving = np.mean(recent, axis=0) >= (1.0 - THRESHOLD) * before
        _retrain(environment, stack, Batch(drawn, known.told), serving, objective)
    _converge(environment, best, updated.told(), episodes, changed, objective)
    for episode in range(episodes):
        drawn = changed(_SEED + episode)
        found["converged"].append(_figures(_run(environment, best.policy, updated.told(), drawn, learner)))
    return {server: {figure: np.stack([one[figure] for one in rows]).reshape(-1, *shape) for figure in FIGURES}
            for server, rows in found.items()}


def _before(environment: Autoscaling, stack: Stack, known: Exploration, every: Sequence[int],
            objective: SmoothObjective) -> Numbers:
    """(N,) reward of the last episodes of fine-tuning before the change; the gradients are all of the first one."""
    rewards = []

    def drawn(episode: int) -> Episodes:
        return environment.draw("held_out", len(every), EPISODE + 1, _BEFORE_SEED + episode, applications=list(every))

    first = drawn(0)
    for episode in range(BEFORE):
        ran = _run(environment, stack.policy, known.told(), drawn(episode), known.learner)
        rewards.append(ran.reward[:, 0])
        known.add(ran)
        _descend(environment, stack, Batch(first, known.told), objective)
    return np.asarray(np.mean(rewards[-5:], axis=0))


def _descend(environment: Autoscaling, stack: Stack, batch: Batch, objective: SmoothObjective) -> None:
    """One more episode of gradients."""
    settings = TrainingSettings(stack.iteration + 1, EPISODE, warm_up=WARM_UP, rate=RATE, decay=False)
    train(environment.differentiable, stack, lambda _: batch, objective, settings)


@torch.no_grad()
def _retrain(environment: Autoscaling, stack: Stack, batch: Batch, serving: NDArray[np.bool_],
             objective: SmoothObjective) -> None:
    """One episode of gradients for those that do not serve."""
    kept = torch.from_numpy(serving)
    before = [part[kept].clone() for part in stack.policy.parameters()]
    with torch.enable_grad():
        _descend(environment, stack, batch, objective)
    for part, old in zip(stack.policy.parameters(), before, strict=True):
        part[kept] = old


def _converge(environment: Autoscaling, best: Stack, told: Inputs, episodes: int, changed: Callable[[int], Episodes],
              objective: SmoothObjective) -> None:
    """Fine-tunes to the changed applications in other episodes, and takes the rate down in the end."""
    def batch(iteration: int) -> Batch:
        return Batch(changed(_CONVERGED_SEED + iteration), lambda: told)

    train(environment.differentiable, best, batch, objective,
          TrainingSettings(2 * episodes, EPISODE, warm_up=WARM_UP, rate=RATE, decay=True))


def _run(environment: Autoscaling, policy: Policy, inputs: Inputs, drawn: Any, learner: Any) -> Ran:
    return run_side_by_side(environment, policy, inputs, drawn, EPISODE, WARM_UP, FIGURES[2:], learner.recorder)


def _figures(ran: Ran) -> dict[str, Numbers]:
    return {"reward": ran.reward, "violated": ran.violated, **ran.measures}


def _rule(environment: Autoscaling, drawn: Any) -> dict[str, Numbers]:
    found = roll_out(environment, make(RULE), drawn, EPISODE, WARM_UP)
    return {"reward": found.reward, "violated": found.violated, **{name: found.measures[name] for name in FIGURES[2:]}}


def _copy(known: Exploration) -> Exploration:
    twin = copy(known)
    twin.store = deepcopy(known.store)
    return twin


# --- table and plot --------------------------------------------------------------------------------------------------

def served_of(entry: Mapping[str, Any], server: str, figure: str) -> Numbers:
    """(episodes, S, scenarios, each)."""
    values = np.array([[float(number) for number in row.split()] for row in entry["served"][server][figure]])
    return values.reshape(len(values), entry["seeds"], len(entry["scenarios"]), -1)


def conditions_line(results: Mapping[str, Any]) -> str:
    """What the tables are of."""
    entry = results["entries"][0]
    trained_for = "the paper's reward alone" if entry["objective"] == "reward" else "at most 4 % violating steps"
    return paragraph(f"Trained for {trained_for}; {entry['seeds']} seeds, {entry['applications']} applications in each "
                     f"of {len(entry['scenarios'])} scenarios, {entry['episodes']} episodes after the change.")


def serving_table(results: Mapping[str, Any]) -> str:
    """One row a server, of the entry under a constraint where there is one."""
    entry = results["entries"][0]
    best = served_of(entry, "converged", "reward").mean()
    still = served_of(entry, "no retraining", "violated").mean()
    published = {"AWARE": ("-3.6", "3.1 times fewer"), "no retraining": ("-11.2", "")}
    rows = []
    for server in SERVERS:
        reward, violated, cpu, memory = (served_of(entry, server, figure) for figure in FIGURES)
        by_seed = 100 * (reward.mean(axis=(0, 2, 3)) / best - 1.0)
        rows.append([server, f"{reward.mean():.3f}", f"{by_seed.mean():+.1f} ± {by_seed.std(ddof=1):.1f}",
                     f"{100 * violated.mean():.1f}", f"{still / max(violated.mean(), 1e-9):.2f}",
                     f"{100 * cpu.mean():.1f}", f"{100 * memory.mean():.1f}", *published.get(server, ("", ""))])
    return table(["served by", "reward", "against the converged policy, %", "violating steps, %",
                  "times fewer than without retraining", "CPU utilisation, %", "memory utilisation, %",
                  "thesis: reward, %", "thesis: violations"], rows, right=(1, 2, 3, 4, 5, 6, 7))


def scenarios_table(results: Mapping[str, Any]) -> str:
    """One row a scenario: reward lost without retraining, and with it."""
    entry = results["entries"][0]
    rewards = {server: served_of(entry, server, "reward").mean(axis=(0, 1, 3)) for server in SERVERS}
    rows = [[scenario.replace("_", " "), *(f"{100 * (rewards[server][at] / rewards['converged'][at] - 1.0):+.1f}"
                                           for server in SERVERS[:-1])]
            for at, scenario in enumerate(entry["scenarios"])]
    return table(["reward against the converged policy, %", *SERVERS[:-1]], rows, right=tuple(range(1, len(SERVERS))))
