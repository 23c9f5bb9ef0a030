"""What a governor observes and sets, and what a second came to: Table A.4 of the thesis, with what tells apart
services and processors that differ in scale. One arithmetic for simulation (tensors) and a live processor (numbers).

The clock is in GHz, not MHz: a target counts as a level that it is above by at most 1e-3 (signals.py, `ROUNDING`),
which must be more than what float32 and the proof may add to a target that stays: 2e-5 GHz, but 0.02 MHz.

Symbols: `Of` is any type of numbers with arithmetic; `xp` holds log, clamp and where of that type.
"""

import math
from collections.abc import Mapping
from typing import Any

from models.control.contract.signals import Anchor, Control, Feature, Signal
from systems.cpu_frequency.processors import LEVELS

STEP_SECONDS = 1.0  # thesis, section 5.6.2
# Weight of the first part of the paper's reward; the thesis gives none, half is assumed (as it says of its autoscaler).
ALPHA = 0.5
AT_LIMIT_C = 3.0  # of room: a second heats by less, and a thermal sensor tells 1 degree (Intel SDM, 3B, 15.8.5)
LEAST_MS = 2.0**-4
MEAN_WEIGHT = 1.0 / 16.0  # of a second, in the exponential mean of the load

SIGNALS = (
    Signal("frequency_ghz", "GHz", 1.0, 4.0, "log", "clock that is set"),
    Signal("delivered_ghz", "GHz", 0.5, 4.0, "log", "clock of the last second, within turbo, power and heat"),
    Signal("ips_1e9", "1e9/s", 2.0**-8, 8.0, "log", "instructions a second, mean of the cores"),
    Signal("ips_gain", "share", -1.0, 1.0, "linear", "of them, gained by a step in which the clock rose; else 0"),
    Signal("usage", "share", 2.0**-6, 1.0, "log", "time in which cores are busy"),
    Signal("stall_share", "share", 0.0, 1.0, "linear", "of the busy time, waiting for memory (leading loads)"),
    Signal("rate_rps", "1/s", 2.0**-4, 2.0**20, "log", "requests that arrive a second"),
    Signal("mean_rate_rps", "1/s", 2.0**-4, 2.0**20, "log", "their exponential mean over 16 seconds"),
    Signal("latency_ms", "ms", LEAST_MS, 2.0**16, "log", "99th percentile of the last second"),
    Signal("pressing_latency_ms", "ms", LEAST_MS, 2.0**16, "log", "the same, but the least where there is no room"),
    Signal("room_c", "degC", 0.25, 64.0, "log", "degrees below the processor's limit of temperature"),
    Signal("power_share", "share", 2.0**-6, 2.0, "log", "mean power of the package, of its limit"),
    Signal("most_latency_ms", "ms", 1.0, 2.0**12, "log", "objective of `latency_ms`"),
)

# The safe side is more. The objective is a latency: were it less, a shield would forbid every rise while the objective
# is missed or unseen, and a service that is too slow would stay so for ever. What a high clock endangers, heat, the
# processor bounds by itself, in hardware and at once (PROCHOT, the power limit); what a low one endangers, nobody does.
# SmartOverclock's own safe action is the nominal clock (Wang et al., SOL, ASPLOS 2022); it has no objective of latency.
# The gates keep heat in sight nevertheless: without room the latency does not press, and idle means no room.
CONTROLS = (
    Control("target_frequency_ghz", "frequency_ghz", "GHz", LEVELS[0], LEVELS[-1], most_down=0.4001, most_up=0.6667,
            meaning="clock of the cores", safe_side="more", levels=LEVELS),
)

FEATURES = (
    Feature("latency over objective", {"latency_ms": 1.0, "most_latency_ms": -1.0}),
    Feature("pressing latency over objective", {"pressing_latency_ms": 1.0, "most_latency_ms": -1.0}),
    Feature("usage", {"usage": 1.0}),
    Feature("load over its mean", {"rate_rps": 1.0, "mean_rate_rps": -1.0}),
    Feature("clock", {"frequency_ghz": 1.0}),
    Feature("delivered over set", {"delivered_ghz": 1.0, "frequency_ghz": -1.0}),
    Feature("work at one GHz", {"usage": 1.0, "delivered_ghz": 1.0}),
    Feature("instructions a cycle", {"ips_1e9": 1.0, "usage": -1.0, "delivered_ghz": -1.0}),
    Feature("instructions gained", {"ips_gain": 1.0}),
    Feature("stalls", {"stall_share": 1.0}),
    Feature("room", {"room_c": 1.0}),
    Feature("power", {"power_share": 1.0}),
    Feature("objective", {"most_latency_ms": 1.0}),
)

# Half way to the clock at which cores are busy for two thirds of the time.
ANCHORS = {"target_frequency_ghz": Anchor({"frequency_ghz": 0.5, "delivered_ghz": 0.5, "usage": 0.5},
                                          0.5 * math.log(1.5))}


def ips_gain(ips: Any, before: Any, rose: Any, xp: Any) -> Any:
    """The reward's (IPS_t - IPS_t-1) / IPS_t where the clock rose, at least -1; else 0."""
    return xp.where(rose, xp.clamp((ips - before) / ips, -1.0, 1.0), 0.0 * ips)


def pressing_latency(latency_ms: Any, room_c: Any, xp: Any) -> Any:
    """The latency, where a higher clock may be set against it."""
    return xp.where(room_c > AT_LIMIT_C, latency_ms, 0.0 * latency_ms + LEAST_MS)


def outcome(seen: Mapping[str, Any], xp: Any) -> dict[str, Any]:
    """Reward, cost and violation of a second, and whether it violated.

    reward = ALPHA ((IPS_t - IPS_t-1) / IPS_t where the clock rose) + (1 - ALPHA) SP_t, with the preservation ratio of
    the objective SP_t = min(1, objective / latency) (thesis, Table A.4); cost: mean power over the package's limit.

    Args:
        seen: signal -> value.
    """
    over = seen["latency_ms"] / seen["most_latency_ms"]
    preserved = 1.0 / xp.clamp(over, 1.0, math.inf)
    return {"reward": ALPHA * seen["ips_gain"] + (1.0 - ALPHA) * preserved, "cost": seen["power_share"],
            "violation": xp.clamp(xp.log(over), 0.0, math.inf),
            "violated": seen["latency_ms"] > seen["most_latency_ms"]}
