"""Twelve real functions on this machine, for more than it can serve: proved agents, the best rule, equal shares, the
kernel alone.

    python -m benchmarks shared-cluster-live [--runs 3] [--seconds 120]

A scale model of the task's cluster: CORES of its cores are this machine's but for LEFT_CORES. Each function
(live_function.py) is a process in a control group of its own under open-loop load; each has an agent, `assay control`,
that decides by the looks of one coordinator. What is no function runs at a higher priority. In a run all arms get the
same requests at the same moments, one arm after the other: a warm-up that does not count, then three parts of
`--seconds` in which all functions together need BUSY of the cluster, by shares that move all the time. The objective
of a function is OBJECTIVE times its 99th percentile with twice its fair share and a fifth of that busy, before any arm.

The policy is trained by `assay run` once, on a load of its own (--home keeps it). One gate is lowered: it may cost
-SAVES more than the best rule, with which it is level; the rule was tuned in the same run. Resumable: what is there is
kept, whatever code made it, for a run takes 32 minutes; runs of other `--seconds`, of another policy or on another
processor are dropped. Needs root and control groups that may be written.
"""

import argparse
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.control.live_agents import Agents, made_telemetry, promises, require_control_groups, trained
from benchmarks.harness.entries import Entries
from benchmarks.harness.isolation import ROOT
from benchmarks.harness.machine import describe_machine, load_average, now_utc
from benchmarks.harness.markdown import mean_and_spread, paragraph, table
from benchmarks.harness.result_file import RESULTS
from models.control.simulation.made_load import made_load
from pipelines.request import code_version
from recording.processes import Guard
from recording.scaling.open_loop import ANSWERED
from systems.shared_cluster import coordinator, groups
from systems.shared_cluster.benchmarks.live_cluster import NAMES, TIMEOUT_S, Cluster, Numbers, Played
from systems.shared_cluster.interface import STEP_SECONDS

OUTPUT = RESULTS / "shared_cluster_live.json"
FORMAT = "assay-shared-cluster-live/1"
HOME = ROOT / ".assay" / "shared-cluster-live"
SYSTEM, WORKLOAD, WINDOWS, MEAN_RPS = "shared_cluster", "cluster", 2000, 50.0
POLICY, RULE, KERNEL = "policy", "latency", "kernel alone"
ARMS = (POLICY, RULE, "equal shares", KERNEL)
CORES = 48.0
LEFT_CORES = 0.3  # of this machine, to generators, agents and coordinator
BUSY = (0.45, 1.15, 0.45)  # of the cluster, that all functions together need in the three parts
PARTS = ("enough", "too little", "enough again")
WARM_UP_S, CALIBRATED_S, OBJECTIVE = 90.0, 60.0, 1.5
SAVES = -0.05


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py."""
    parser.add_argument("--runs", type=int, default=3, help="of all arms; default: 3")
    parser.add_argument("--seconds", type=_seconds, default=120.0,
                        help=f"of each of the three parts, at least {STEP_SECONDS:g}; default: 120")
    parser.add_argument("--home", type=Path, default=HOME,
                        help="state folder in which the policy is trained; default: .assay/shared-cluster-live")


def _seconds(text: str) -> float:
    if not STEP_SECONDS <= (seconds := float(text)) < np.inf:
        raise argparse.ArgumentTypeError(f"expected at least {STEP_SECONDS:g}, an interval of the agents, got {text}")
    return seconds


def run(options: argparse.Namespace) -> None:
    """Runs what is not there yet."""
    require_control_groups()
    core, home = ((os.cpu_count() or 1) - LEFT_CORES) / CORES, options.home.resolve()
    policy = trained(SYSTEM, WORKLOAD, made_telemetry(WINDOWS, STEP_SECONDS, MEAN_RPS), home,
                     {"functions": len(NAMES), "cluster_cores": CORES, "busy": BUSY[0]}, SAVES)
    machine = describe_machine()
    settings = {"core": core, "seconds": options.seconds, "policy": policy}
    entries = Entries(options.output, FORMAT, lambda one: (one["run"], ARMS.index(one["arm"])),
                      lambda before, _: before["machine"]["cpu_model"] == machine["cpu_model"] and all(
                          before.get(name) == value for name, value in settings.items()))
    os.nice(-15)  # all that is started from here; a function only shares the cores of its group
    entries.content |= {"machine": {**machine, "date": now_utc()}, "code": code_version(), **settings}
    for number in range(options.runs):
        missing = [arm for arm in ARMS if not entries.has((number, ARMS.index(arm)))]
        if not missing:
            continue
        promised = promises(entries.content["entries"], number) or calibrated(number, core)
        for arm in missing:
            found = played(arm, number, core, promised, options.seconds, home, policy["rules"])
            entries.add({"run": number, "arm": arm, "promised": promised, **found})
            print(f"run {number}, {arm}: " + "; ".join(
                f"{name}, {100 * one['missed']:.1f} % missed, limits {one['limits']:.2f}"
                for name, one in found["parts"].items()), flush=True)


def calibrated(number: int, core: float) -> Mapping[str, Any]:
    """Work of a request of each function, in core seconds of the cluster, and its objective."""
    with Guard() as guard:
        cluster = Cluster(guard, core)
        seen = cluster.play(np.full((3, len(NAMES)), 1.0), 1000 + number)
        work_s = seen.used.sum(axis=0) / [len(one.due) for one in seen.results]
    fair = CORES / len(NAMES)
    with Guard() as guard:
        cluster = Cluster(guard, core)
        cluster.limit(2.0 * fair)
        rates = np.tile(0.4 * fair / work_s, (int(CALIBRATED_S / STEP_SECONDS), 1))
        seen = cluster.play(rates, 2000 + number)
    objective = [OBJECTIVE * np.percentile(one.latency_ms(TIMEOUT_S), 99) for one in seen.results]
    return {"work_s": [round(one, 4) for one in work_s], "objective_ms": [round(one, 1) for one in objective]}


def rates_of(seed: int, busy: Sequence[float], work_s: Numbers) -> Numbers:
    """(T, F) requests a second: in interval t all functions together need busy[t] of the cluster, by shares that move.
    """
    random = np.random.default_rng(seed)
    load = np.exp(made_load(random, len(busy), len(NAMES), random.uniform(20.0, 60.0, len(NAMES)), 0.02, 3.0))
    need = load * np.exp(0.5 * random.standard_normal(len(NAMES)))
    need *= CORES * np.asarray(busy)[:, None] / need.sum(axis=1, keepdims=True)
    return np.asarray(need / work_s)


def played(arm: str, number: int, core: float, promised: Mapping[str, Any], seconds: float,
           home: Path, rules: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """One arm of one run. rules: settings of each."""
    steps, warm_up = int(seconds // STEP_SECONDS), int(WARM_UP_S // STEP_SECONDS)
    busy = [BUSY[0]] * warm_up + [share for share in BUSY for _ in range(steps)]
    rates, before = rates_of(number, busy, np.array(promised["work_s"])), load_average()
    with Guard() as guard:
        cluster = Cluster(guard, core)
        if arm != KERNEL:
            cluster.limit(CORES / len(NAMES))
        agents, of = Agents(guard, guard.folder, core), dict(zip(NAMES, cluster.groups, strict=True))
        if arm in (POLICY, RULE):
            node = agents.coordinate(coordinator.__name__, CORES, cluster.status, of)
        if arm == POLICY:
            agents.control(SYSTEM, WORKLOAD, home, groups.__name__, "function", of)
        elif arm == RULE:
            agents.decide_by_rule(SYSTEM, RULE, rules[RULE], node)
        seen = cluster.play(rates, number, promised["objective_ms"])
        decided = agents.end(warm_up, len(busy))
    parts = {name: _part(seen, warm_up + place * steps, steps, promised["objective_ms"])
             for place, name in enumerate(PARTS)}
    return {"parts": parts, "decided": decided, "load_average": before}


def _part(seen: Played, first: int, steps: int, objective_ms: Sequence[float]) -> dict[str, float]:
    """Of the intervals from `first` on: share of functions that miss, mean of the logarithm of latency over objective,
    share of requests that were answered in time; limits over the cluster, on average and at most; used of it."""
    over, answered, count = [], 0, 0
    for one, most in zip(seen.results, objective_ms, strict=True):
        interval, latency = (one.due // STEP_SECONDS).astype(int), one.latency_ms(TIMEOUT_S)
        for step in range(first, first + steps):
            here = interval == step
            if here.any():
                over.append(float(np.percentile(latency[here], 99)) / most)
                answered, count = answered + int((one.status[here] == ANSWERED).sum()), count + int(here.sum())
    seconds = slice(int(first * STEP_SECONDS), int((first + steps) * STEP_SECONDS))
    limits, used = (cores[seconds].sum(axis=1) / CORES for cores in (seen.limits, seen.used))
    return {"missed": float(np.mean(np.array(over) > 1.0)), "log_latency": float(np.log(over).mean()),
            "answered": answered / max(count, 1), "requests": count, "limits": float(limits.mean()),
            "most_limits": float(limits.max()), "used": float(used.mean())}


def live_table(results: Mapping[str, Any]) -> str:
    """A row an arm and part."""
    entries, rows = results["entries"], []
    for name in PARTS:
        for arm in ARMS:
            if not (of := [one["parts"][name] for one in entries if one["arm"] == arm]):
                continue
            rows.append([
                name, f"**{arm}**" if arm == POLICY else arm,
                "-" if arm == KERNEL else mean_and_spread([one["limits"] for one in of], 2),
                mean_and_spread([one["used"] for one in of], 2),
                f"{mean_and_spread([100 * one['missed'] for one in of], 1)} %",
                f"x {np.exp(np.mean([one['log_latency'] for one in of])):.2f}",
                f"{100 * np.mean([one['answered'] for one in of]):.1f} %"])
    runs = len({one["run"] for one in entries})
    machine = results["machine"]
    note = paragraph(
        f"Twelve functions on {CORES:g} cores, each {results['core']:.4f} of one of the {machine['cores']} cores of",
        f"{machine['cpu_model']}; {runs} run{'s' if runs > 1 else ''} of three parts of {results['seconds']:g} s,",
        "means ± standard deviation. Latency: geometric mean of the 99th percentile of an interval over its",
        f"objective. {machine['date'][:10]}.")
    return (table(["load", "arm", "limits over the cluster", "used of it", "functions that miss", "latency",
                   "answered within 30 s"], rows, range(2, 7)) + f"\n\n{note}")
