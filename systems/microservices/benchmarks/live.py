"""The recorded application under anomalies, live: the proved policy, rules, fixed limits, nobody.

    python -m benchmarks microservices-live [--runs 3] [--seconds 600]

The application of ../application/ with all its 19 services, RATE_RPS requests a second of five types, and anomalies of
eight kinds that come and go, one or several at once (../application/anomalies.py). All arms but one begin with CORES
cores, divided by what each service uses. In a run they get the same requests and anomalies at the same moments,
one arm after the other. FIXED has what the policy had on average, but fixed: each limit lower by that share. The
objective of a type of requests is OBJECTIVE times its 99th percentile in a quiet time with
those limits, measured before any arm. A second misses it where one of its requests took longer. Kubernetes' rule lowers
after 300 s at the earliest, so runs are to be longer than that.

Between anomalies are 6 to 9 s, and agents act on the requests of ten seconds: seconds without an anomaly are no quiet
ones for them.

The policy is trained by `assay run` once, for a node of this size and an application of this many services (--home
keeps it); the rules are tuned in the same run. Resumable: what is there of the same settings and task is kept, whatever
code made it, for a run takes an hour. Runs may be of several machines, each with a policy that was trained there; the
arms of one run are of one machine and one policy, and a run that was begun elsewhere begins anew. Needs root, and
control groups that may be written.
"""

import argparse
import hashlib
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks.control.live_agents import made_telemetry, promises, require_control_groups, trained
from benchmarks.harness.entries import Entries
from benchmarks.harness.isolation import ROOT
from benchmarks.harness.machine import describe_machine, load_average, now_utc
from benchmarks.harness.markdown import mean_and_spread, paragraph, table
from benchmarks.harness.result_file import RESULTS
from feature_store.errors import InputError
from pipelines.request import code_version
from recording.scaling.open_loop import ANSWERED
from systems.microservices.application.calls import TIMEOUT_S
from systems.microservices.benchmarks.live_application import (
    CORES,
    NAMES,
    RATE_RPS,
    WARM_UP_S,
    WORKLOAD,
    Arm,
    Played,
    played,
)
from systems.microservices.interface import LEAST_CORES, STEP_SECONDS

OUTPUT = RESULTS / "microservices_live.json"
FORMAT = "assay-microservices-live/3"
TASK = ROOT / "systems/microservices/microservices.yaml"
HOME = ROOT / ".assay" / "microservices-live"
POLICY, FIXED, NOBODY = "policy", "as little, fixed", "deployed"
ARMS = (POLICY, FIXED, "aimd", "kubernetes", NOBODY, "critical-path")
BUSY, WINDOWS = 0.07, 4000  # of the node, that the mean load keeps busy; seconds of load to train on
CALIBRATED_S, OBJECTIVE = 120.0, 1.8
LEAST_S = 60.0
CALM_S = 2.0  # after an anomaly, until its requests are answered


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py."""
    parser.add_argument("--runs", type=int, default=3, help="of all arms; default: 3")
    parser.add_argument("--seconds", type=float, default=600.0, help="of an arm; default: 600")
    parser.add_argument("--home", type=Path, default=HOME,
                        help="state folder in which the policy is trained; default: .assay/microservices-live")


def run(options: argparse.Namespace) -> None:
    """Runs what is not there yet."""
    require_control_groups()
    if not options.seconds >= LEAST_S:
        raise InputError(f"--seconds must be at least {LEAST_S:g}, got {options.seconds:g}")
    home = options.home.resolve()
    policy = trained("microservices", WORKLOAD, made_telemetry(WINDOWS, STEP_SECONDS, RATE_RPS), home,
                     {"services": len(NAMES), "node_cores": CORES, "busy": BUSY})
    settings = {"seconds": options.seconds, "rate_rps": RATE_RPS, "cores": CORES, "objective": OBJECTIVE,
                "busy": BUSY, "task": _task_digest()}
    machine = describe_machine()
    made = {"policy": policy["function"], "machine": machine["cpu_model"]}
    entries = Entries(options.output, FORMAT, lambda one: (one["run"], ARMS.index(one["arm"])),
                      lambda before, entry: stands(settings, made, before, entry))
    entries.content |= {"machine": machine, **settings}
    os.nice(-15)  # whoever looks and decides; the services run at this, too, and share by their groups' weights
    for number in range(options.runs):
        missing = [arm for arm in in_order(number) if not entries.has((number, ARMS.index(arm)))]
        if not missing:
            continue
        promised = promises(entries.content["entries"], number) or _calibrated(number)
        for name in missing:
            arm = Arm(name, None if name in (POLICY, FIXED, NOBODY) else policy["rules"][name],
                      home if name == POLICY else None)
            limits, before = promised["limits"], load_average()
            if name == FIXED:
                share = next(one["limits"] for one in entries.content["entries"]
                             if (one["run"], one["arm"]) == (number, POLICY))
                limits = {service: max(share * cores, LEAST_CORES) for service, cores in limits.items()}
            came = played(arm, number, options.seconds, True, limits, promised["objectives_ms"])
            found = outcome(came, promised["objectives_ms"])
            entries.add({"run": number, "arm": name, "promised": promised, **found, "decided": came.decided,
                         "anomalies": len(came.anomalies), "beside": came.beside, "load_average": before,
                         "settings": arm.rule, **made, "code": code_version(), "date": now_utc()})
            print(f"run {number}, {name}: {100 * found['missed']:.1f} % of the seconds miss, "
                  f"{found['holds_again_s']:.1f} s until it holds again, limits {found['limits']:.2f}", flush=True)


def stands(settings: Mapping[str, Any], made: Mapping[str, str], before: Mapping[str, Any],
           entry: Mapping[str, Any]) -> bool:
    """Whether an entry of an earlier file stays: one of these settings, and of a run that is whole or goes on here.

    Args:
        made: policy and machine of what is measured now.
    """
    arms = {one["arm"] for one in before["entries"] if one["run"] == entry["run"]}
    return (all(before.get(name) == value for name, value in settings.items())
            and (arms == set(ARMS) or all(entry[name] == value for name, value in made.items())))


def _task_digest() -> str:
    return hashlib.sha256(json.dumps(yaml.safe_load(TASK.read_text()), default=str).encode()).hexdigest()[:16]


def in_order(number: int) -> list[str]:
    """The arms of a run: each run begins with another, for the machine's speed changes by the minute; FIXED comes after
    the policy."""
    others = [arm for arm in ARMS if arm != FIXED]
    first = number % len(others)
    arms = [*others[first:], *others[:first]]
    arms.insert(arms.index(POLICY) + 1, FIXED)
    return arms


def _calibrated(number: int) -> Mapping[str, Any]:
    """Limits to begin with, by what services use without limits, and the objectives that they can keep."""
    used = played(Arm("no limits"), 1000 + number, CALIBRATED_S / 2, False, {}, {}).used.mean(axis=0)
    limits = deployed(dict(zip(NAMES, used.tolist(), strict=True)))
    quiet = played(Arm(NOBODY), 2000 + number, CALIBRATED_S, False, limits, {})
    latency_ms = quiet.results.latency_ms(TIMEOUT_S)
    objectives = {str(name): round(OBJECTIVE * float(np.percentile(latency_ms[quiet.types == name], 99)), 1)
                  for name in np.unique(quiet.types)}
    return {"limits": {name: round(cores, 4) for name, cores in limits.items()}, "objectives_ms": objectives,
            "missed": outcome(quiet, objectives)["missed"]}


def deployed(used: Mapping[str, float]) -> dict[str, float]:
    """Limits that divide the node by what services use, each with what may be set at least."""
    whole, rest = sum(used.values()), CORES - LEAST_CORES * len(used)
    return {name: LEAST_CORES + rest * cores / whole for name, cores in used.items()}


def outcome(came: Played, objectives_ms: Mapping[str, float]) -> dict[str, float]:
    """missed: share of seconds of which a request took longer than its objective, missed_calm: of those without an
    anomaly; holds_again_s: how long it stays missed, seconds that miss over those that begin to; late: share of the
    requests; limits, most_limits: of the node, on average and at most; usage: of the limits; dropped: share of requests
    that failed or were not answered in time."""
    latency_ms = came.results.latency_ms(TIMEOUT_S)
    late = latency_ms > np.array([objectives_ms[str(name)] for name in came.types])
    second = (came.results.due - WARM_UP_S).astype(int)
    missed = np.bincount(second, late, minlength=len(came.limits)) > 0
    begins = missed & ~np.concatenate([[False], missed[:-1]])
    limits = came.limits.sum(axis=1) / CORES
    at_s = WARM_UP_S + np.arange(len(missed))
    calm = ~np.any([(one.start_s < at_s + 1.0) & (at_s < one.end_s + CALM_S) for one in came.anomalies], axis=0)
    return {"missed": float(missed.mean()), "missed_calm": float(missed[calm].mean()),
            "holds_again_s": float(missed.sum() / max(begins.sum(), 1)),
            "begins_a_minute": float(60.0 * begins.mean()), "late": float(late.mean()), "requests": len(late),
            "limits": float(limits.mean()), "most_limits": float(limits.max()),
            "usage": float(came.used.sum() / came.limits.sum()),
            "dropped": float((came.results.status != ANSWERED).mean())}


def live_table(results: Mapping[str, Any]) -> str:
    """A row an arm; of the runs that have most arms, so that all rows are of the same runs."""
    arms = Counter(one["run"] for one in results["entries"])
    entries = [one for one in results["entries"] if arms[one["run"]] == max(arms.values())]
    rows = []
    for arm in ARMS:
        if not (of := [one for one in entries if one["arm"] == arm]):
            continue

        def column(name: str, digits: int, times: float = 1.0, of: Sequence[Mapping[str, Any]] = of) -> str:
            return mean_and_spread([one[name] for one in of], digits, times)

        rows.append([f"**{arm}**" if arm == POLICY else arm, column("holds_again_s", 1), column("begins_a_minute", 1),
                     *(f"{column(name, 1, 100.0)} %" for name in ("missed", "missed_calm", "late")),
                     column("limits", 3), f"{column('usage', 1, 100.0)} %", f"{column('dropped', 2, 100.0)} %",
                     column("beside", 2)])
    runs, policies = {one["run"] for one in entries}, {one["policy"] for one in entries}
    machines, dates = sorted({one["machine"] for one in entries}), sorted({one["date"][:10] for one in entries})
    anomalies = sum(one["anomalies"] for one in entries if one["arm"] == NOBODY)
    note = paragraph(
        f"{len(runs)} run{'s' if len(runs) > 1 else ''} of {results['seconds']:g} s an arm with {anomalies} anomalies,",
        f"by {len(policies)} polic{'ies' if len(policies) > 1 else 'y'}; means ± standard deviation over runs, on",
        f"{results['machine']['cores']} cores of {' and '.join(machines)}; limits add up to at most {CORES:g} cores.",
        f"{' to '.join(dates[:1] + dates[1:][-1:])}.")
    return (table(["arm", "s until it holds again", "misses a minute", "seconds that miss",
                   "of those without an anomaly", "late requests", "limits over the node", "of it used",
                   "requests dropped", "cores for agents and statuses"], rows, range(1, 10)) + f"\n\n{note}")
