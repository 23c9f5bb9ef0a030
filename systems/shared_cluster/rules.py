"""Agents without a network: equal shares, no limits at all, ENSURE's thresholds, and powers of the latency.

Each knows its own function alone, but for its fair share and its allotment, which all but `unlimited` stay within.
Where something is not measured the limit stays.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from models.control.contract.controller import Array, RuleFamily
from models.control.contract.one_target_rule import Decide, Memory, OneTargetRule, Seen
from models.control.contract.setting import Setting, Values
from systems.shared_cluster.interface import CONTROLS, MOST_CORES

UNLIMITED = "unlimited"
_NEEDED = ("cores", "usage", "demand_cores", "mean_demand_cores", "latency_ms", "most_latency_ms", "fair_cores",
           "allotment_cores")


def _ensure(seen: Seen, memory: Memory, settings: Values) -> Array:
    """Up by a step where the latency is above a threshold, down by one where it is far below and cores are idle.

    ENSURE (Suresh et al., ACSOS 2020), which the thesis uses as its heuristic (section 4.5.1), raises `cpu.shares` by a
    step while the latency is degraded by more than a threshold (15 % there) and lowers them when it is not.
    """
    over = seen["latency_ms"] / seen["most_latency_ms"]
    up = over > settings["up_threshold"]
    down = (over < settings["down_threshold"]) & (seen["usage"] < settings["idle_usage"])
    memory["waits"] = np.where(down, memory["waits"] + 1.0, 0.0)
    down &= memory["waits"] >= settings["patience"]
    return np.asarray(seen["cores"] * (1.0 + settings["step"] * up - settings["down_step"] * down))


def _latency(seen: Seen, memory: Memory, settings: Values) -> Array:
    """The limit times a power of latency over objective, and never less than what arrives needs: ours.

    Upwards at once, by the load's growth too; downwards slowly, for a core that is missing costs more than an idle one.
    """
    over = seen["latency_ms"] / (settings["margin"] * seen["most_latency_ms"])
    grows = np.maximum(seen["demand_cores"] / seen["mean_demand_cores"], 1.0) ** settings["trend"]
    wanted = seen["cores"] * np.where(over > 1.0, over ** settings["gain_up"] * grows, over ** settings["gain_down"])
    return np.maximum(wanted, settings["headroom"] * seen["demand_cores"])


def _rule(name: str, declared: Sequence[Setting], decide: Decide) -> OneTargetRule:
    return OneTargetRule(name, declared, decide, CONTROLS[0], _NEEDED, {"waits": 0.0},
                         at_most="" if name == UNLIMITED else "allotment_cores")


RULES: Mapping[str, RuleFamily] = {rule.name: rule for rule in (
    _rule("equal-shares", (Setting("share", 1.0, "1", 0.01, 4.0, (0.3, 1.5), meaning="of the fair share"),),
          lambda seen, _, to: to["share"] * seen["fair_cores"]),
    # limits as high as they go: the kernel's scheduler alone divides the cluster
    _rule(UNLIMITED, (), lambda seen, _, to: 0.0 * seen["cores"] + MOST_CORES),
    _rule("ensure", (
        Setting("up_threshold", 1.0, "1", 0.1, 10.0, (0.5, 1.2), meaning="latency over objective, from which it grows"),
        Setting("down_threshold", 0.8, "1", 0.0, 10.0, (0.3, 1.0), meaning="below which it shrinks"),
        Setting("idle_usage", 0.7, "share", 0.0, 1.0, (0.2, 1.0), meaning="below which it shrinks"),
        Setting("step", 0.2, "share", 0.01, 1.0, (0.05, 1.0), log=True, meaning="of the limit, up"),
        Setting("down_step", 0.1, "share", 0.01, 0.5, (0.02, 0.5), log=True, meaning="of the limit, down"),
        Setting("patience", 1.0, "intervals", 1.0, 100.0, (1.0, 6.0), whole=True, meaning="before it shrinks")),
        _ensure),
    _rule("latency", (
        Setting("margin", 0.85, "share", 0.1, 2.0, (0.5, 1.0), meaning="of the objective, that is aimed at"),
        Setting("gain_up", 0.5, "1", 0.0, 4.0, (0.1, 2.0), log=True, meaning="power of the latency, upwards"),
        Setting("gain_down", 0.1, "1", 0.0, 4.0, (0.01, 1.0), log=True, meaning="the same, downwards"),
        Setting("trend", 0.5, "1", 0.0, 4.0, (0.0, 2.0), meaning="power of the load over its mean, upwards"),
        Setting("headroom", 1.2, "1", 0.5, 4.0, (1.0, 2.0), meaning="least limit over what arrives")), _latency))}
