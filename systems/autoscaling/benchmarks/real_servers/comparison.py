"""The learned, proved policy against a static quota and the best tuned rule, on real servers under real load.

    python -m benchmarks closed-loop --data-folder FOLDER [--servers nginx redis] [--runs 3] [--what compared suspect]

A run: one real server for each controller, side by side, under the same open-loop requests at the same moments (a
stretch of an Azure Functions day that nothing was trained on), real Prometheus, and a control loop each that sets the
CPU quota of the server's control group every 15 s, as it was trained. 75 s warm up, 600 s count.

compared   static: the cheapest quota at the objective in the environment; rule: the cheapest of the tuned rules there;
           policy: promoted by its gates, checked before it acts
suspect    policies that should not act, forced past all checks, behind the shield alone: trained without conditions and
           proved of nothing but ranges; hardly trained; trained for another application, this one a second time with
           the check whether what it sees is what its training saw

Resumable: runs that are there are kept, whatever code made them; name another --output to begin anew. Needs control
groups of version 1 or 2 that may be written, nginx, redis-server and prometheus.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.data_folder import add_data_folder, required
from benchmarks.harness.entries import Entries
from benchmarks.harness.isolation import ROOT
from benchmarks.harness.machine import describe_machine, load_average, now_utc
from benchmarks.harness.result_file import RESULTS
from models.tasks.task import load_task
from recording.tools import require_tools
from serving.control.made import acting_for
from systems.autoscaling.benchmarks.real_servers.forecast import forecast_p99_ms
from systems.autoscaling.benchmarks.real_servers.loads import Functions, played_load, training_load
from systems.autoscaling.benchmarks.real_servers.policies import FinishedRun, Forced, RuleAlone, champion, trained
from systems.autoscaling.benchmarks.real_servers.rules import best, made, tuned
from systems.autoscaling.benchmarks.real_servers.settings import FIRST, MEMORY_MIB, SLO_MS
from systems.autoscaling.benchmarks.real_servers.stage import Arm, Played, play, steps_to_json, to_json
from systems.autoscaling.benchmarks.real_servers.venues import OneInstance

OUTPUT = RESULTS / "closed_loop.json"
FORMAT = "assay-closed-loop/1"
SERVERS = ("nginx", "redis")
KINDS = ("compared", "suspect")
POLICIES = ROOT / ".assay" / "closed-loop"


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py."""
    add_data_folder(parser)
    parser.add_argument("--servers", nargs="+", choices=SERVERS, default=list(SERVERS))
    parser.add_argument("--runs", type=int, default=3, help="of each server; default: 3")
    parser.add_argument("--what", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--policies", type=Path, default=POLICIES,
                        help="folder of the trained policies, trained where missing; default: .assay/closed-loop")


def run(options: argparse.Namespace) -> None:
    """Runs what is not there yet."""
    require_tools(["prometheus", "nginx", "redis-server"])
    folder = required(options.data_folder)
    proved, order = _trained(folder, options.policies, "proved"), [(server, number) for number in range(options.runs)
                                                                   for server in options.servers]
    entries = Entries(options.output, FORMAT, lambda one: (KINDS.index(one["kind"]), one["server"], one["run"]),
                      lambda _, __: True)
    entries.content["machine"] = {**describe_machine(), "date": now_utc()}
    for kind in options.what:
        for server, number in order:
            if entries.has((KINDS.index(kind), server, number)) or (kind == "suspect" and server != SERVERS[0]):
                continue
            arms = (_compared(options.policies, proved, server) if kind == "compared"
                    else _suspect(folder, options.policies, proved, server))
            entries.add(_run(folder, kind, server, number, arms))


def _trained(folder: Path, policies: Path, kind: str, options: tuple[str, ...] = ()) -> FinishedRun:
    telemetry = policies / "load.parquet"
    if not telemetry.exists():
        policies.mkdir(parents=True, exist_ok=True)
        training_load(Functions(folder), SERVERS).to_parquet(telemetry, index=False)
    return trained(policies, kind, telemetry, options)


def _compared(policies: Path, proved: FinishedRun, server: str) -> list[Arm]:
    policy = champion(proved, server)
    task = load_task(policies / "proved.yaml")
    rules = tuned(task, server, proved.features, policies / f"rules_{server}.json")
    rule = best(rules, task.objective.violating_share)
    return [Arm("static", policy.contract, RuleAlone(), made(rules, "static")),
            Arm(f"rule: {rule}", policy.contract, RuleAlone(), made(rules, rule)),
            Arm("policy", policy.contract, policy, acting_for(policy.contract)[1])]


def _suspect(folder: Path, policies: Path, proved: FinishedRun, server: str) -> list[Arm]:
    weak, young, other = (
        _trained(folder, policies, "weakened", ("--workload", server, "--budget", "0.3")),
        _trained(folder, policies, "unproved", ("--workload", server, "--budget", "0.01")),
        _trained(folder, policies, "other", ("--workload", server, "--budget", "0.1")))
    own = champion(proved, server).contract
    forced = {"specification weakened": weak, "hardly trained": young, "another application's": other}
    return [*(Arm(name, own, Forced(one.bundle(server)), acting_for(own)[1], False) for name, one in forced.items()),
            Arm("another application's, checked", own, Forced(other.bundle(server)), acting_for(own)[1])]


def _run(folder: Path, kind: str, server: str, number: int, arms: Sequence[Arm]) -> dict[str, Any]:
    functions = Functions(folder)
    training_load(functions, SERVERS)  # these are taken
    for _ in range(SERVERS.index(server) * 8 + number):
        functions.day()  # of other runs
    load = played_load(functions, 100 * SERVERS.index(server) + number)
    shuffled = [arms[index] for index in np.random.default_rng(number).permutation(len(arms))]
    before = load_average()
    print(f"{kind}, {server}, run {number + 1}: {', '.join(arm.name for arm in shuffled)}", flush=True)
    played = play(server, OneInstance(), shuffled, load, lambda text: print(f"  {text}", flush=True))
    forecast = forecast_p99_ms(server, np.stack([one.rate for one in played], axis=1),
                               np.stack([one.quota for one in played], axis=1), MEMORY_MIB[server])
    told = [[float(f"{value:.4g}") for value in column] for column in forecast.T]
    return {"kind": kind, "server": server, "run": number, "at": now_utc(), "load_average": before,
            "load_rps": list(load.rates), "order": [one.name for one in shuffled],
            "arms": [{**to_json(one), "steps": steps_to_json(one), **_figures(one, MEMORY_MIB[server]),
                      "forecast_p99_ms": column}
                     for one, column in zip(played, told, strict=True)]}


def _figures(played: Played, memory_limit: float) -> dict[str, float]:
    """Of the intervals that count."""
    counted = slice(FIRST, None)
    p99, failed, quota, used, memory, rate = (getattr(played, name)[counted] for name in
                                              ("p99_ms", "failed", "quota", "used", "memory_mib", "rate"))
    violated = (p99 > SLO_MS) | (failed > 0.01)
    utilisation = np.minimum(used / quota, 1.0)
    reward = np.minimum(1.0, SLO_MS / p99) + 0.5 * (utilisation + np.minimum(memory / memory_limit, 1.0))
    return {"violating_share": float(violated.mean()), "violated_requests": float((violated * rate).sum() / rate.sum()),
            "cores": float(quota.mean()), "used_cores": float(used.mean()), "reward": float(reward.mean()),
            "failed_share": float((failed * rate).sum() / rate.sum())}
