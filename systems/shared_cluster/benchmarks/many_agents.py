"""Agents on one cluster: what they know of each other, how they learn, how many they are, and who comes and goes.

    python -m benchmarks shared-cluster-agents [--seeds 3]

As section 4.8 of the thesis measures SIMPPO, in simulation. Learners, in clusters of 12 functions: the task as it is;
its policy by PPO, which the paper uses (one aim in place of three, for it takes longer); without a word of the others;
with the mean of all of the others' states in place of the chosen ones (SIMPPO-All); trained alone, on a cluster of
twelve which it has for itself, and left there (the baseline), or put together (S-RL). Rules, tuned on the training
clusters. All act on the same held-out clusters, whose cores grow with their functions. Resumable: what is there for the
same code and task is kept.
"""

import argparse
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.harness.code_digest import code_digest
from benchmarks.harness.entries import Entries, made_by
from benchmarks.harness.machine import describe_machine, now_utc
from benchmarks.harness.markdown import mean_and_spread, paragraph, table
from benchmarks.harness.result_file import RESULTS
from benchmarks.harness.task_digest import with_task
from models.control.contract.signals import Feature, Signal
from models.control.simulation.rollout import Acting, acting_of
from models.control.training.rule_tuning import Tuner
from models.tasks.control.choosing import best_of, member_scores
from models.tasks.control.judging import play
from models.tasks.control.task import ControlTask
from models.tasks.control.training import train
from models.tasks.task import load_task
from systems.shared_cluster.functions import Clusters
from systems.shared_cluster.interface import FEATURES, GLOBAL, SIGNALS
from systems.shared_cluster.rules import RULES, UNLIMITED
from systems.shared_cluster.simulator import SharedCluster, State

OUTPUT = RESULTS / "shared_cluster_agents.json"
FORMAT = "assay-shared-cluster-agents/1"
AGENTS, CLUSTERS, STEPS, WARM_UP, SEED = 12, 96, 80, 20, 7
GROUPS = (5, 12, 35, 110, 130, 1000)
STARTS, CHANGES = (5, 20, 35, 50, 65, 80, 95, 110), (2, 5, 10, -2, -5, -10)
ROWS = 2400  # agents of an evaluation in groups of other sizes, about
AVERAGED = ("usage", "rate_change", "cores", "latency_ms", "demand_cores")
LEARNERS = ("alone", "task", "task, by PPO", "no word of the others", "all states averaged", "trained alone, together")
KINDS = ("learner", "rule", "group", "churn")
SEEDS = 3


class Unknowing(SharedCluster):
    """Agents see nothing of the others."""

    features = tuple(one for one in FEATURES if not {*one.terms} & {*GLOBAL})


class Averaged(SharedCluster):
    """Agents see the mean of each of the others' own states, whatever it is."""

    signals = (*SIGNALS, *(Signal(f"mean_{one.name}", one.unit, one.low, one.high, one.scale)
                           for one in SIGNALS if one.name in AVERAGED))
    features = (*Unknowing.features, *(Feature(f"mean {name}", {f"mean_{name}": 1.0}) for name in AVERAGED))

    def observe(self, state: State) -> Tensor:
        """See `Environment`."""
        found = []
        for signal in self.signals[len(SIGNALS):]:
            mean, _ = self._others(state.seen[signal.name.removeprefix("mean_")])
            found.append(mean.clamp(signal.low, signal.high))
        return torch.cat([super().observe(state), torch.stack(found, dim=1)], dim=1)


class Alone(Unknowing):
    """One function of a cluster of AGENTS, with its load there, and the whole cluster for itself."""

    def draw(self, split: str, count: int, steps: int, seed: int, scenario: str = "",
             applications: Sequence[int] | None = None) -> Clusters:
        """See `Environment`; an application is a function of a cluster, all of one cluster beside each other."""
        chosen = np.arange(count) if applications is None else np.asarray(applications)
        clusters, place = np.unique(chosen // AGENTS, return_inverse=True)
        together = SharedCluster(AGENTS).draw(split, len(clusters), steps, seed, scenario, clusters.tolist())
        rows = torch.from_numpy(place * AGENTS + chosen % AGENTS)
        return replace(together, agents=1, **{
            name: getattr(together, name)[..., rows] for name in ("function", "rate_rps", "relaxed", "noise")},
            capacity=together.capacity[place], bandwidth=together.bandwidth[place])


ENVIRONMENTS: Mapping[str, Callable[[int], SharedCluster]] = {
    "alone": Alone, "trained alone, together": Unknowing, "no word of the others": Unknowing,
    "all states averaged": Averaged}


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py."""
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"of training and tuning; default: {SEEDS}")


def run(options: argparse.Namespace) -> None:
    """Measures what is not there yet."""
    torch.set_num_threads(1)
    code = with_task(load_task("shared_cluster"), code_digest(
        "systems.shared_cluster.benchmarks.many_agents", ("systems.shared_cluster", "models.control")))
    entries = Entries(options.output, FORMAT, lambda one: (KINDS.index(one["kind"]), one["name"], one["seed"]),
                      made_by(code))
    entries.content |= {"code": code, "machine": {**describe_machine(), "date": now_utc()}}

    def missing(kind: str, names: Iterable[str], seed: int) -> list[str]:
        return [name for name in names if not entries.has((KINDS.index(kind), name, seed))]

    def keep(kind: str, name: str, seed: int, found: Mapping[str, Any]) -> None:
        entries.add({"kind": kind, "name": name, "seed": seed, "code": code, **found})
        print(f"{kind} {name}, seed {seed}: " + ", ".join(
            f"{part} {value:.3g}" for part, value in found.items() if isinstance(value, float)), flush=True)

    for seed in range(options.seeds):
        for name in missing("rule", RULES, seed):
            keep("rule", name, seed, _tuned(name, seed))
        policies: dict[str, Acting] = {}
        for name in missing("learner", LEARNERS, seed):
            trained = "alone" if name == "trained alone, together" else name
            policies[trained] = policies.get(trained) or _trained(trained, seed)
            environment = ENVIRONMENTS.get(name, SharedCluster)(1 if name == "alone" else AGENTS)
            keep("learner", name, seed, _figures(environment, policies[trained]))
        groups = missing("group", map(str, GROUPS), seed)
        changes = missing("churn", map(str, STARTS), seed)
        if groups or changes:
            act = policies.get("task") or _trained("task", seed)
            for name in groups:
                keep("group", name, seed, _figures(SharedCluster(int(name)), act))
            for name in changes:
                keep("churn", name, seed, _drops(int(name), act))


def _trained(name: str, seed: int) -> Acting:
    """A policy of the task by a learner, the best of its aims on training clusters."""
    task: ControlTask = load_task("shared_cluster")
    agents = 1 if name == "alone" else AGENTS
    training = task.training.model_copy(update={
        "applications": task.training.applications * (AGENTS // agents),
        **({"method": "ppo", "aims": (1.0,)} if "PPO" in name else {})})
    task = task.model_copy(update={"training": training})
    environment = ENVIRONMENTS.get(name, SharedCluster)(agents)
    with TemporaryDirectory() as folder:
        found = train(task, environment, training.rounds, seed, Path(folder) / "policy.npz", lambda event: None)
    best = best_of(task, member_scores(task, environment, found.policies, seed))
    return acting_of(environment, found.policies.member(best))


def _tuned(name: str, seed: int) -> dict[str, Any]:
    task, environment = load_task("shared_cluster"), SharedCluster(AGENTS)
    tuner = Tuner(environment, RULES[name], environment.draw("train", 64, 41, seed), 40, seed, 10)
    if RULES[name].declared:
        tuner.search(task.training.rule_trials // 2, task.objective.violating_share)
        tuner.refine(task.training.rule_trials // 2, task.objective.violating_share)
    settings = tuner.best(task.objective.violating_share).settings if RULES[name].declared else {}
    return {**_figures(environment, acting_of(environment, RULES[name].make(settings))), "settings": dict(settings)}


def _figures(environment: SharedCluster, act: Acting, scenario: str = "") -> dict[str, float]:
    """Means over held-out clusters, whose functions are as many in all whatever the size of a cluster.

    `latency`: geometric mean of latency over objective; `decision_us`: for each agent, with its observation.
    """
    rows = AGENTS * CLUSTERS if environment.agents in (1, AGENTS) else ROWS
    count = max(2, rows // environment.agents)
    episodes = environment.draw("held_out", count, STEPS + 1, SEED, scenario)
    began = time.perf_counter()
    played = play(environment, episodes, STEPS, act, WARM_UP)
    seconds = time.perf_counter() - began
    column = [signal.name for signal in environment.signals].index
    seen = played.observations[WARM_UP:]
    over = np.log(seen[..., column("latency_ms")] / seen[..., column("most_latency_ms")])
    fair = 1.0 if environment.agents > 1 else AGENTS  # who is alone has the shares of all
    return {"cost": fair * float(played.cost.mean()), "violating_share": float(played.violating_share.mean()),
            "reward": float(played.reward.mean()), "latency": float(np.exp(over.mean())),
            "usage": float(played.measures["usage"].mean()),
            "decision_us": 1e6 * seconds / (STEPS * count * environment.agents)}


def _drops(start: int, act: Acting) -> dict[str, Any]:
    """The share of its reward that a cluster loses when functions come or go while it runs, without any training."""
    found = {str(change): churned(start, start + change, act) for change in CHANGES if start + change >= 2}
    return {"drops": {change: (before - after) / before for change, (before, after) in found.items()}}


@torch.no_grad()
def churned(start: int, end: int, act: Acting) -> tuple[float, float]:
    """Mean reward of clusters before so many functions become others, from WARM_UP on, and for as long after that.

    Who is there before and after goes on as it was; the cluster's cores and bandwidth grow with its functions
    (section 4.8.4).
    """
    most, half = max(start, end), STEPS // 2
    drawn = SharedCluster(most).draw("held_out", max(2, ROWS // most), STEPS + 1, SEED)
    first, then = SharedCluster(start), SharedCluster(end)
    state, rewards = first.reset(_members(drawn, start, 0)), list[float]()
    for step in range(half):
        state, outcome = first.step(state, act(first.observe(state), step * first.step_seconds))
        rewards.append(float(outcome.reward.mean()))
    after = then.reset(_members(drawn, end, half))
    kept = torch.arange(min(start, end))
    was, now = ((torch.arange(len(drawn.capacity))[:, None] * agents + kept).flatten() for agents in (start, end))
    after = after._replace(
        stretch=state.stretch, backlog=after.backlog.index_copy(0, now, state.backlog[was]),
        change=after.change.index_copy(0, now, state.change[was]),
        seen={name: values.index_copy(0, now, state.seen[name][was]) for name, values in after.seen.items()})
    for step in range(half, STEPS - WARM_UP):
        after, outcome = then.step(after, act(then.observe(after), step * then.step_seconds))
        rewards.append(float(outcome.reward.mean()))
    return float(np.mean(rewards[WARM_UP:half])), float(np.mean(rewards[half:]))


def _members(drawn: Clusters, agents: int, begin: int) -> Clusters:
    """The first functions of each cluster, from a step on, on as large a part of it."""
    rows = (torch.arange(len(drawn.capacity))[:, None] * drawn.agents + torch.arange(agents)).flatten()
    share = agents / drawn.agents
    return replace(drawn, agents=agents, relaxed=drawn.relaxed[rows], capacity=share * drawn.capacity,
                   bandwidth=share * drawn.bandwidth,
                   **{name: getattr(drawn, name)[begin:, rows] for name in ("function", "rate_rps", "noise")})


def _of(results: Mapping[str, Any], kind: str, name: str, figure: str) -> list[Any]:
    return [one[figure] for one in results["entries"] if (one["kind"], one["name"]) == (kind, name)]


def learners_table(results: Mapping[str, Any]) -> str:
    """A row a learner and a rule."""
    alone = float(np.mean(_of(results, "learner", "alone", "latency")))
    rows = []
    for kind, names in (("learner", LEARNERS), ("rule", RULES)):
        for name in names:
            if latency := _of(results, kind, name, "latency"):
                worse = [100.0 * (one / alone - 1.0) for one in latency]
                rows.append([f"**{name}**" if name == "task" else f"rule: {name}" if kind == "rule" else name,
                             mean_and_spread(_of(results, kind, name, "cost"), 3),
                             f"{mean_and_spread(_of(results, kind, name, 'violating_share'), 1, 100.0)} %",
                             mean_and_spread(_of(results, kind, name, "reward"), 3), f"{np.mean(worse):+.1f} %"])
    seeds = len(_of(results, "learner", "task", "cost"))
    return "\n".join([
        table(("agents", "limits over the cluster", "functions that miss", "reward", "latency against alone"), rows,
              (1, 2, 3, 4)), "",
        paragraph(f"Means of {seeds} seeds of training and tuning ± their standard deviation, on {CLUSTERS} held-out "
                  f"clusters of {AGENTS} functions. `{UNLIMITED}` counts limits that nobody can use. Latency: "
                  "geometric mean of the 99th percentile over its objective. "
                  f"{results['machine']['date'][:10]}.")])


def groups_table(results: Mapping[str, Any]) -> str:
    """A row a size of a cluster: the task's policy, trained with 12."""
    rows = [[name, mean_and_spread(_of(results, "group", name, "cost"), 3),
             f"{mean_and_spread(_of(results, 'group', name, 'violating_share'), 1, 100.0)} %",
             mean_and_spread(_of(results, "group", name, "reward"), 3),
             f"{float(np.median(_of(results, 'group', name, 'decision_us'))):.1f}"]
            for name in map(str, GROUPS) if _of(results, "group", name, "cost")]
    return table(("functions", "limits over the cluster", "that miss", "reward", "step of an agent, µs"), rows,
                 (0, 1, 2, 3, 4))


def churn_table(results: Mapping[str, Any]) -> str:
    """A row a size: the share of reward that is lost when functions come or go, in percent."""
    rows: list[Sequence[str]] = []
    for name in map(str, STARTS):
        drops = _of(results, "churn", name, "drops")
        rows.append([name, *(f"{100.0 * float(np.mean([one[str(change)] for one in drops])):.1f}"
                             if drops and str(change) in drops[0] else "-" for change in CHANGES)])
    return table(("functions", *(f"{change:+d}" for change in CHANGES)), rows, range(7))
