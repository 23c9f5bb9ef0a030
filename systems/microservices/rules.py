"""Agents without a network: limits as they were deployed, the paper's baselines on every container, and rules of ours.

All stay within their allotment. Kubernetes and `headroom` know their own service alone, AIMD its own and whether the
objective is kept, `critical-path` also who is on the critical path. Where something is not measured the limit stays.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from models.control.contract.controller import Array, RuleFamily
from models.control.contract.one_target_rule import Decide, Memory, OneTargetRule, Seen
from models.control.contract.setting import Setting, Values
from systems.microservices.interface import CONTROLS, SUSPECT

_NEEDED = ("cores", "usage", "demand_cores", "mean_demand_cores", "latency_ms", "most_latency_ms", "importance",
           "own_latency_ms", "usual_latency_ms", "fair_cores", "allotment_cores")


def _kubernetes(seen: Seen, memory: Memory, settings: Values) -> Array:
    """The equation of the HorizontalPodAutoscaler (section 3.3.1's baseline), limits x usage / target, for a limit in
    place of replicas: a tolerance of a tenth, one decision each 15 s, down only to the highest wish in the window."""
    memory["since"] = memory["since"] + 1.0
    due = memory["since"] >= settings["period_s"]
    memory["since"] = np.where(due, 0.0, memory["since"])
    ratio = seen["usage"] / settings["target"]
    wanted = seen["cores"] * np.where(np.abs(ratio - 1.0) > 0.1, ratio, 1.0)
    kept = np.maximum(np.ceil(settings["window_s"] / settings["period_s"]), 1.0)
    recent = np.broadcast_to(memory["recent"], (int(np.max(kept)), len(due)))  # the youngest comes last
    recent = np.where(recent > 0.0, recent, seen["cores"])
    memory["recent"] = recent = np.where(due, np.vstack([recent[1:], wanted]), recent)
    within = np.arange(len(recent), 0, -1)[:, None] <= kept
    lower = np.minimum(np.where(within, recent, 0.0).max(axis=0), seen["cores"])
    return np.asarray(np.where(due, np.maximum(wanted, lower), seen["cores"]))


def _aimd(seen: Seen, memory: Memory, settings: Values) -> Array:
    """Up by a step where the objective is missed or cores are used up, else down by a share (section 3.3.1)."""
    missed = seen["latency_ms"] > settings["margin"] * seen["most_latency_ms"]
    up = missed | (seen["usage"] > settings["busy_usage"])
    down = ~up & (seen["usage"] < settings["idle_usage"])
    return np.asarray(np.where(up, seen["cores"] + settings["step"] * seen["fair_cores"],
                               seen["cores"] * (1.0 - settings["down_step"] * down)))


def _headroom(seen: Seen, memory: Memory, settings: Values) -> Array:
    """So much over what arrives, or lately arrived at most: the best rule of autoscaling, on every service alone."""
    memory["peak"] = np.maximum(seen["demand_cores"], settings["forgets"] * memory["peak"])
    return np.asarray(settings["headroom"] * memory["peak"] + settings["spare"] * np.sqrt(memory["peak"]))


def _critical_path(seen: Seen, memory: Memory, settings: Values) -> Array:
    """Least cores along a path by the law of queues, as much of them as the latency end to end asks for: ours.

    Waits of about demand / (cores - demand) add up along a path; the least cores for a sum of them are spare cores by
    the root of what each needs, times a factor that all on the path share. It rises at once with the latency over the
    objective for who is on the critical path, more for who is important there and slower than usual, and falls slowly.
    """
    over = seen["latency_ms"] / (settings["margin"] * seen["most_latency_ms"])
    suspected = np.where(seen["importance"] >= SUSPECT, seen["importance"] ** settings["sharp"], 0.0)
    slower = np.maximum(seen["own_latency_ms"] / seen["usual_latency_ms"], 1.0) ** settings["gain_own"]
    grows = np.where(over > 1.0, suspected * (settings["gain_up"] * np.log(over) + np.log(slower)),
                     settings["gain_down"] * np.log(over))
    memory["factor"] = np.clip(memory["factor"] * np.exp(np.minimum(grows, 1.0)), 0.1, 100.0)
    memory["peak"] = np.maximum(seen["demand_cores"], settings["forgets"] * memory["peak"])
    return np.asarray(settings["headroom"] * memory["peak"]
                      + memory["factor"] * settings["spare"] * np.sqrt(memory["peak"]))


def _rule(name: str, declared: Sequence[Setting], decide: Decide) -> OneTargetRule:
    return OneTargetRule(name, declared, decide, CONTROLS[0], _NEEDED, {
        "since": 0.0, "recent": 0.0, "peak": 0.0, "factor": 4.0}, at_most="allotment_cores")


_HEADROOM = Setting("headroom", 1.5, "1", 1.0, 10.0, (1.0, 5.0), log=True, meaning="of the peak")
_PEAK = (Setting("forgets", 0.95, "1/s", 0.0, 1.0, (0.8, 1.0), meaning="of the peak of what arrives"),
         Setting("spare", 0.1, "1", 0.0, 4.0, (0.01, 1.0), log=True, meaning="times the root of the peak, on top"))
RULES: Mapping[str, RuleFamily] = {rule.name: rule for rule in (
    _rule("deployed", (), lambda seen, memory, settings: seen["cores"]),
    _rule("kubernetes", (
        Setting("target", 0.7, "share", 0.01, 1.0, (0.1, 0.9), meaning="usage that is aimed at"),
        Setting("period_s", 15.0, "s", 1.0, 600.0, meaning="between decisions"),
        Setting("window_s", 300.0, "s", 0.0, 3600.0, (15.0, 300.0), meaning="of stabilization, downwards")),
        _kubernetes),
    _rule("aimd", (
        Setting("margin", 0.9, "share", 0.1, 2.0, (0.5, 1.0), meaning="of the objective, from which on it grows"),
        Setting("busy_usage", 0.8, "share", 0.0, 1.0, (0.3, 1.0), meaning="above which it grows too"),
        Setting("idle_usage", 0.5, "share", 0.0, 1.0, (0.1, 1.0), meaning="below which it shrinks"),
        Setting("step", 0.1, "share", 0.001, 1.0, (0.01, 1.0), log=True, meaning="of the fair share, up"),
        Setting("down_step", 0.1, "share", 0.001, 0.5, (0.005, 0.5), log=True, meaning="of the limit, down")), _aimd),
    _rule("headroom", (_HEADROOM, *_PEAK), _headroom),
    _rule("critical-path", (
        Setting("margin", 0.85, "share", 0.1, 2.0, (0.5, 1.0), meaning="of the objective, that is aimed at"),
        Setting("gain_up", 1.0, "1", 0.0, 8.0, (0.1, 4.0), log=True, meaning="power of the latency, upwards"),
        Setting("gain_down", 0.1, "1", 0.0, 4.0, (0.01, 0.5), log=True, meaning="the same, downwards"),
        Setting("gain_own", 0.3, "1", 0.0, 4.0, (0.0, 1.0), meaning="power of a service's latency over its usual one"),
        Setting("sharp", 0.5, "1", 0.0, 4.0, (0.0, 1.5), meaning="power of the importance"),
        _HEADROOM, *_PEAK), _critical_path))}
