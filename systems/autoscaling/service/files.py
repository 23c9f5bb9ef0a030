"""The files of a service: task, load map and controller, with comments for who goes on with them."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd
import yaml

from models.control.contract.own_service import Service
from systems.autoscaling.interface import CONTROLS, STEP_SECONDS
from systems.autoscaling.observer import AutoscalingObserver
from systems.autoscaling.service.exporters import SHARES
from systems.autoscaling.service.fit import Fitted
from systems.autoscaling.service.queries import Query
from systems.autoscaling.twin.twin import SETTINGS

TASK = Path(__file__).resolve().parents[1] / "autoscaling.yaml"
UNMEASURED = {"io_utilization": 0.0, "network_utilization": 0.0, "served_share": 1.0}  # where nothing measures them
PRESENT = ("replicas", "ready_replicas", "cpu_limit_cores", "memory_limit_mib")  # what says what is set
SLO = next(one for one in SETTINGS if one.name == "slo_ms")
_ROOM = 2.0  # times what was seen: how far limits leave room


def proposed_objective_ms(history: pd.DataFrame) -> float | None:
    """Twice the median of the 99th percentile, in two digits; None: it was not measured."""
    if "p99_ms" not in history or not (history["p99_ms"] > 0).any():
        return None
    return min(max(float(f"{2.0 * history.loc[history['p99_ms'] > 0, 'p99_ms'].median():.2g}"), SLO.low), SLO.high)


def proposed_limits(history: pd.DataFrame, target: Mapping[str, Mapping[str, str]]) -> dict[str, list[float]]:
    """Control -> [lower, upper]: what was seen with room around it, inside of what a policy can set at all."""
    found = {}
    for control in CONTROLS:
        seen = history[control.current].dropna() if control.current in history else pd.Series(dtype=float)
        seen = seen[seen > 0]
        if seen.empty:
            continue
        low, high = (control.low, min(max(_ROOM * seen.max(), control.low), control.high))
        if control.name == "target_memory_limit_mib":
            # a limit may be the host's memory, a quarter of which says nothing of the service: what it lived on does,
            # in half of the windows or more; just after a start it lives on less
            quarter = min(seen.min(), high) / 4.0
            used = [one for one in history.get("memory_used_mib", ()) if one > 0]
            low = max(control.low, min(quarter, median(used or [quarter])))
        if control.whole and "cgroup" in target:  # instances in a group are fixed
            low = high = float(seen.iloc[-1])
        high = float(math.ceil(high)) if control.whole else float(f"{high:.4g}")
        found[control.name] = [max(float(f"{low:.4g}"), control.low), min(high, control.high)]
    return found


def task_text(service: Service, fitted: Fitted, objective_ms: float, proposed: bool,
              limits: Mapping[str, list[float]], window: str) -> str:
    """The shipped task with this service for its workload.

    Args:
        proposed: the objective is ours, not the user's.
        window: what was looked at, in words.
    """
    shipped = TASK.read_text(encoding="utf-8")
    head = _that_can_be_met(shipped.partition("workloads:\n")[0], limits)
    lines = [f"# Task of {service.name}, made by `assay init` from {window}. Everything above `workloads` is as it is",
             "# shipped: what is demanded of every policy, with a comment for each demand.",
             head.partition("\n")[2].rstrip("\n"),
             "# The policy is trained for these settings. Those that are commented out are open: training varies them.",
             "# Put your own numbers in where you know better.",
             "workloads:", f"  {json.dumps(service.name)}:", "    settings:"]
    note = "proposed: twice the median p99; change it to what you promise" if proposed else "as you said"
    lines.append(f"      slo_ms: {objective_ms:g}    # objective of the 99th percentile; {note}")
    lines += [f"      {name}: {value:g}    # {fitted.told[name]}" for name, value in fitted.settings.items()]
    lines += [f"      # {name}: open, {why}" for name, why in fitted.open.items()]
    lines.append("    # [lower, upper] of what may be set" + ("" if limits else "; nothing was seen of it"))
    lines.append("    limits:" if limits else "    limits: {}")
    lines += [f"      {name}: [{low:g}, {high:g}]" for name, (low, high) in limits.items()]
    return "\n".join(lines) + "\n"


def _that_can_be_met(task: str, limits: Mapping[str, list[float]]) -> str:
    """Without demands that begin where a limit ends: of four replicas and more, where there is one."""
    present = {control.current: limits[control.name] for control in CONTROLS if control.name in limits}
    kept = []
    for line in task.splitlines():
        rules = yaml.safe_load(line) if line.lstrip().startswith("- order:") else []
        when = {name: wall for rule in rules for one in rule.values() for name, wall in one.get("when", {}).items()}
        if all(when[name][0] <= high and low <= when[name][1] for name, (low, high) in present.items() if name in when):
            kept.append(line)
    return "\n".join(kept) + "\n"


def load_text(service: Service, rate: Query, scrape_s: float) -> str:
    """The load map: what `assay run` asks the server for, over the same ranges as `assay init` did."""
    content = {"window_s": service.window_s, "last_s": service.last_s, "scrape_interval_s": scrape_s,
               "workloads": {service.name: {"rate_rps": rate.promql}}}
    return (f"# The load of {service.name}, for `assay run --telemetry URL --mapping load.yaml`; last_s is how far it "
            "looks back.\n" + _yaml(content))


def controller_text(service: Service, queries: Mapping[str, Query], newest: str, scrape_s: float,
                    history: pd.DataFrame, objective_ms: float) -> str:
    """The controller's file: each signal by its query, by what is set, or fixed with a comment why."""
    # a rate needs two samples; longer windows would mix the steps before
    window = f"{max(STEP_SECONDS, math.ceil(2.5 * scrape_s)):g}s"
    signals: dict[str, Any] = {}
    fixed: dict[str, float] = {}
    for name in AutoscalingObserver.measured:
        if name in queries:
            signals[name] = _asked(queries[name], window)
        elif name in SHARES and SHARES[name][0] in queries:
            of, *over = SHARES[name]  # Prometheus does not know the limits, but the actuator does
            signals[name] = {"of": of, "over": over}
        elif name in UNMEASURED:
            fixed[name] = UNMEASURED[name]
    parts = [f"# What a controller of {service.name} measures and sets, made by `assay init`. All keys: "
             "docs/reference/control.md\n", _yaml({"prometheus": service.prometheus})]
    if newest:
        parts.append(f"# older measurements count as none; the slowest is scraped every {scrape_s:g} s\n" + _yaml(
            {"newest": newest, "fresh_s": max(45.0, 3.0 * scrape_s)}))
    parts.append("# each must give one number; `of` and `over`: a measurement over what is set\n" + _yaml(
        {"signals": signals}))
    if missing := [name for name in AutoscalingObserver.measured if name not in {*signals, *fixed}]:
        parts.append("".join(f"  # {name}: not found; a policy needs it, put its query here\n" for name in missing))
    if fixed:
        parts.append("# nothing measures these: a policy is told these numbers, whatever training saw\n" + _yaml({
            "fixed": fixed, "out_of_distribution": {"ignore": list(fixed)}}))
    parts.append("# for `--generic`, whose policy was trained for no service; a trained one has its own promise\n"
                 f"# settings: {{slo_ms: {objective_ms:g}}}\n")
    held = ["target_replicas"] if "cgroup" in service.target else []
    shield: dict[str, Any] = {"hysteresis": 0.02, "cool_down_s": 60}
    parts.append(_yaml({"shield": {**({"hold": held} if held else {}), **shield}}))
    watched = {name: _asked(queries[name], window) for name in PRESENT if name in queries}
    watched |= {name: float(history[name].dropna().iloc[-1]) for name in PRESENT
                if name not in watched and name in history and history[name].notna().any()}
    if watched and service.prometheus:
        parts.append("# with `assay control --shadow --actuator watch`: what is set now, from that server; a number\n"
                     "# is what was set when this file was made, and no longer true once somebody changes it\n"
                     + _yaml({"watch": {"signals": watched}}))
    for section, keys in service.target.items():
        parts.append(f"# with `--actuator {section}`: what it acts on\n" + _yaml({section: dict(keys)}))
    return "".join(parts)


def _asked(query: Query, window: str) -> Any:
    promql = query.promql.replace("{window}", window)
    return promql if query.scale == 1.0 else {"query": promql, "scale": query.scale}


def _yaml(content: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(content), sort_keys=False, width=10_000, allow_unicode=True)
