"""What an agent of one service observes and sets in an application of many, and what a second came to.

Table 3.2 of the thesis: SLO maintenance ratio, workload change, request composition, utilization; beside them the two
features of the localizer (Algorithm 3.2). One policy for all services (section 3.3.3, one-for-all). Of the resources of
Table 3.2 it sets the limit of CPU. An allotment keeps all limits together within the node, as on a shared cluster.

Symbols: `Of` is any type of numbers with arithmetic; `xp` holds log, clamp and where of that type.
"""

import math
from collections.abc import Mapping
from typing import Any

from models.control.contract.derived_signals import NEAR
from models.control.contract.signals import Control, Feature, Signal

STEP_SECONDS = 1.0  # thesis, section 3.2.4
ALPHA = 0.5  # of the reward; the thesis does not say it
LEAST_MS, MOST_MS = 2.0**-4, 2.0**18
LEAST_CORES, MOST_CORES = 2.0**-4, 2.0**6
MEAN_WEIGHT = 0.05  # of a second, in the exponential mean of what a service needs
USUAL_WEIGHT = 0.02  # of a second, in that of its own latency
BEHIND_MS = 1000.0  # who takes longer falls behind, which also counts where nobody waits for it (background), assumed
SUSPECT = 0.1  # relative importance from which on a service is suspected: a hundredth of the variance

SIGNALS = (
    Signal("cores", "cores", LEAST_CORES, MOST_CORES, "log", "that the service may use, its limit"),
    Signal("usage", "share", 2.0**-8, 1.0, "log", "of them, used, by whatever runs in its container"),
    Signal("demand_cores", "cores", 2.0**-8, 2.0**8, "log", "requests that arrive x core seconds of one"),
    Signal("mean_demand_cores", "cores", 2.0**-8, 2.0**8, "log", "its exponential mean"),
    Signal("rate_rps", "1/s", 2.0**-6, 2.0**16, "log", "requests that arrive at the service a second"),
    Signal("rate_change", "share", -1.0, 1.0, "linear", "of it, against the second before"),
    Signal("latency_ms", "ms", LEAST_MS, MOST_MS, "log", "99th percentile, end to end, of the type of requests that is "
                                                         "nearest to its objective, or furthest beyond"),
    Signal("near_latency_ms", "ms", LEAST_MS, MOST_MS, "log", "the same, a quarter to four times the objective"),
    Signal("pressing_latency_ms", "ms", LEAST_MS, MOST_MS, "log", "the same, but the least of who is not suspected, "
                                                                  "the most of who falls behind"),
    Signal("type_share", "share", 0.0, 1.0, "linear", "of all requests, those of this type"),
    Signal("importance", "1", 0.0, 1.0, "linear", "correlation of the service's latency with theirs, 0 off the "
                                                  "critical path"),
    Signal("congestion_intensity", "1", 1.0, 2.0**8, "log", "99th percentile over median of the service's latency"),
    Signal("own_latency_ms", "ms", LEAST_MS, MOST_MS, "log", "99th percentile of a request's time in the service"),
    Signal("usual_latency_ms", "ms", LEAST_MS, MOST_MS, "log", "its exponential mean"),
    Signal("allotment_cores", "cores", LEAST_CORES, MOST_CORES, "log", "that the service may have at most"),
    Signal("fair_cores", "cores", LEAST_CORES, MOST_CORES, "log", "the node over its services"),
    Signal("node_limits", "share", 2.0**-4, 4.0, "log", "of the node, the sum of all limits"),
    Signal("most_latency_ms", "ms", 2.0**-2, 2.0**16, "log", "objective of `latency_ms`"),
)

CONTROLS = (
    Control("target_cores", "cores", "cores", LEAST_CORES, MOST_CORES, most_down=0.5, most_up=1.0,
            meaning="limit of the service's cores"),
)

FEATURES = (
    Feature("latency over objective", {"near_latency_ms": 1.0, "most_latency_ms": -1.0}),
    Feature("pressing latency over objective", {"pressing_latency_ms": 1.0, "most_latency_ms": -1.0}),
    Feature("usage", {"usage": 1.0}),
    Feature("demand over limit", {"demand_cores": 1.0, "cores": -1.0}),
    Feature("demand over its mean", {"demand_cores": 1.0, "mean_demand_cores": -1.0}),
    Feature("demand", {"demand_cores": 1.0}),
    Feature("a request over the objective", {"demand_cores": 1.0, "rate_rps": -1.0, "most_latency_ms": -1.0}),
    Feature("workload change", {"rate_change": 1.0}),
    Feature("request composition", {"type_share": 1.0}),
    Feature("relative importance", {"importance": 1.0}),
    Feature("congestion intensity", {"congestion_intensity": 1.0}),
    Feature("own latency over objective", {"own_latency_ms": 1.0, "most_latency_ms": -1.0}),
    Feature("own latency over usual", {"own_latency_ms": 1.0, "usual_latency_ms": -1.0}),
    Feature("limit over fair share", {"cores": 1.0, "fair_cores": -1.0}),
    Feature("allotment over limit", {"allotment_cores": 1.0, "cores": -1.0}),
    Feature("all limits", {"node_limits": 1.0}),
)


def pressing_latency(near_latency_ms: Any, most_latency_ms: Any, importance: Any, own_latency_ms: Any, xp: Any) -> Any:
    """The latency end to end where the service is suspected of it, the most where it falls behind, else the least."""
    suspected = xp.where(importance >= SUSPECT, near_latency_ms, most_latency_ms / NEAR)
    return xp.where(own_latency_ms > BEHIND_MS, NEAR * most_latency_ms, suspected)


def outcome(seen: Mapping[str, Any], xp: Any) -> dict[str, Any]:
    """Reward, cost and violation of a second of one service, and whether it violated: its application misses an
    objective, or it falls behind itself.

    reward = ALPHA SM_t + (1 - ALPHA) RU / RLT (thesis, section 3.2.4, with one resource). SM_t is objective over
    latency of who is suspected, 1 of all others; and of who keeps the objective, for more than that is of no use.
    cost: limit over fair share, whose mean over the services is the share of the node that they ask for.

    Args:
        seen: signal -> value.
    """
    over, behind = seen["latency_ms"] / seen["most_latency_ms"], seen["own_latency_ms"] / BEHIND_MS
    maintained = 1.0 / xp.clamp(xp.where(seen["importance"] >= SUSPECT, over, 0.0 * over), 1.0, math.inf)
    worse = xp.where(over > behind, over, behind)
    return {"reward": ALPHA * maintained + (1.0 - ALPHA) * seen["usage"], "cost": seen["cores"] / seen["fair_cores"],
            "violation": xp.clamp(xp.log(worse), 0.0, math.inf), "violated": worse > 1.0}
