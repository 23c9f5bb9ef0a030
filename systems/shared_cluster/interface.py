"""What an agent of one function observes and sets on a cluster that many share, and what an interval came to.

Table 4.1 of the thesis: the function's own state, and an auxiliary global state of all the others. Cores stand for its
two vertical limits and containers (a container a begun core). What the paper's coordinator sends to each agent has one
number more here, its allotment: what it holds and its part of the cores that nobody holds. Allotments add up to the
cluster, so that agents that each stay within their own stay within it together, whatever they have learned.

Symbols: `Of` is any type of numbers with arithmetic; `xp` holds log, clamp and where of that type.
"""

import math
from collections.abc import Mapping
from typing import Any

from models.control.contract.derived_signals import NEAR
from models.control.contract.signals import Control, Feature, Signal

STEP_SECONDS = 10.0
ALPHA = 0.3  # thesis, Table 4.2
LEAST_MS = 2.0**-2
LEAST_CORES, MOST_CORES = 2.0**-4, 2.0**6
MEAN_WEIGHT = 0.25  # of an interval, in the exponential mean of what a function needs
OSCILLATES = 0.05  # a change of more than this share counts as a decision
FAIR = 1.001  # no more than the fair share, up to rounding

SIGNALS = (
    Signal("cores", "cores", LEAST_CORES, MOST_CORES, "log", "that the function may use, its limit"),
    Signal("usage", "share", 2.0**-8, 1.0, "log", "of them, used"),
    Signal("demand_cores", "cores", 2.0**-8, 2.0**8, "log", "requests that arrive x core seconds of one"),
    Signal("mean_demand_cores", "cores", 2.0**-8, 2.0**8, "log", "its exponential mean"),
    Signal("rate_rps", "1/s", 2.0**-6, 2.0**16, "log", "requests that arrive a second"),
    Signal("rate_change", "share", -1.0, 1.0, "linear", "of it, against the interval before"),  # AC(t), section 4.3.1
    Signal("latency_ms", "ms", LEAST_MS, 2.0**18, "log", "99th percentile"),
    Signal("near_latency_ms", "ms", LEAST_MS, 2.0**18, "log", "the same, a quarter to four times the objective"),
    Signal("pressing_latency_ms", "ms", LEAST_MS, 2.0**18, "log", "the same, but the least above the fair share"),
    Signal("allotment_cores", "cores", LEAST_CORES, MOST_CORES, "log", "that the function may have at most"),
    Signal("fair_cores", "cores", LEAST_CORES, MOST_CORES, "log", "the cluster over its functions"),
    Signal("cluster_limits", "share", 2.0**-4, 4.0, "log", "of the cluster, the sum of all limits"),
    Signal("cluster_change", "share", -1.0, 1.0, "linear", "of the cluster, what the others' limits gained"),
    Signal("others_preserved", "share", 0.0, 1.0, "linear", "mean of the others' objective over latency, at most 1"),
    Signal("others_preserved_spread", "share", 0.0, 1.0, "linear", "its standard deviation"),
    Signal("others_usage", "share", 0.0, 1.0, "linear", "mean of the others' usage"),
    Signal("others_usage_spread", "share", 0.0, 1.0, "linear", "its standard deviation"),
    Signal("most_latency_ms", "ms", 1.0, 2.0**16, "log", "objective of `latency_ms`"),
)
GLOBAL = tuple(signal.name for signal in SIGNALS if signal.name.startswith(("cluster", "others"))) + (
    "allotment_cores", "fair_cores")

CONTROLS = (
    Control("target_cores", "cores", "cores", LEAST_CORES, MOST_CORES, most_down=0.5, most_up=1.0,
            meaning="limit of the function's cores"),
)

FEATURES = (
    Feature("latency over objective", {"near_latency_ms": 1.0, "most_latency_ms": -1.0}),
    Feature("pressing latency over objective", {"pressing_latency_ms": 1.0, "most_latency_ms": -1.0}),
    Feature("usage", {"usage": 1.0}),
    Feature("demand over limit", {"demand_cores": 1.0, "cores": -1.0}),
    Feature("demand over its mean", {"demand_cores": 1.0, "mean_demand_cores": -1.0}),
    Feature("demand", {"demand_cores": 1.0}),
    Feature("a request over the objective", {"demand_cores": 1.0, "rate_rps": -1.0, "most_latency_ms": -1.0}),
    Feature("load's change", {"rate_change": 1.0}),
    Feature("limit over fair share", {"cores": 1.0, "fair_cores": -1.0}),
    Feature("allotment over limit", {"allotment_cores": 1.0, "cores": -1.0}),
    Feature("all limits", {"cluster_limits": 1.0}),
    Feature("change of all limits", {"cluster_change": 1.0}),
    *(Feature(name.replace("_", " "), {name: 1.0}) for name in
      ("others_preserved", "others_preserved_spread", "others_usage", "others_usage_spread")),
)


def pressing_latency(near_latency_ms: Any, most_latency_ms: Any, cores: Any, fair_cores: Any, xp: Any) -> Any:
    """The latency, where the function has no more than its fair share."""
    return xp.where(cores <= FAIR * fair_cores, near_latency_ms, most_latency_ms / NEAR)


def preserved(seen: Mapping[str, Any], xp: Any) -> Any:
    """SP(t) = objective / latency where it is missed, else 1 (thesis, section 4.3.1)."""
    return 1.0 / xp.clamp(seen["latency_ms"] / seen["most_latency_ms"], 1.0, math.inf)


def undesired(change: Any, before: Any, cluster_limits: Any, xp: Any) -> Any:
    """1 where a limit went up and down in two intervals, or all limits together are above the cluster; else 0.

    Args:
        change: share of the limit by which it changed.
        before: the same, an interval before.
    """
    turned = (change * before < 0) & (abs(change) > OSCILLATES) & (abs(before) > OSCILLATES)
    return xp.where(turned | (cluster_limits > 1.001), 1.0, 0.0)


def outcome(seen: Mapping[str, Any], penalty: Any, xp: Any) -> dict[str, Any]:
    """Reward, cost and violation of an interval of one function, and whether it violated.

    reward = ALPHA SP(t) + (1 - ALPHA) RU(t) - penalty (thesis, section 4.3.1; of its two utilisations that of the
    cores); cost: limit over fair share, whose mean over all functions is the share of the cluster that they hold.

    Args:
        seen: signal -> value.
        penalty: see `undesired`.
    """
    over = seen["latency_ms"] / seen["most_latency_ms"]
    return {"reward": ALPHA * preserved(seen, xp) + (1.0 - ALPHA) * seen["usage"] - penalty,
            "cost": seen["cores"] / seen["fair_cores"], "violation": xp.clamp(xp.log(over), 0.0, math.inf),
            "violated": seen["latency_ms"] > seen["most_latency_ms"]}
