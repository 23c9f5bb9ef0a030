"""What follows from measurements, by the same arithmetic in simulation (tensors) and beside a real sender (numbers).

Symbols: `Of` is any type of numbers with arithmetic; `xp` holds exp, log and clamp of that type.
"""

import math
from collections.abc import Mapping
from typing import Any

# Of the paper's reward, by a packet a second, a second of round trip and all packets lost: PCC-RL's (its `Network`,
# "Very high thpt"), 0.001 * (10 * packets/s - 1e3 * latency - 2e3 * loss).
THROUGHPUT, LATENCY, LOSS = 0.01, 1.0, 2.0
MIN_FADES_S, MOST_FADES_ROUND_TRIPS = 60.0, 10.0
SLOPE_WEIGHT, LOSS_WEIGHT = 0.25, 0.0625  # of an interval, in its exponential mean
LEAST_QUEUEING_S = 2.0**-12
LEAST_INTERVAL_S, MOST_INTERVAL_S, LEAST_PACKETS = 0.005, 16.0, 2.0


def interval(rtt_s: Any, rate_pps: Any, xp: Any) -> Any:
    """Seconds until the next decision: half a round trip, or what LEAST_PACKETS take."""
    packets_s = LEAST_PACKETS / rate_pps
    beyond = xp.clamp(packets_s - 0.5 * rtt_s, 0.0, math.inf)
    return xp.clamp(0.5 * rtt_s + beyond, LEAST_INTERVAL_S, MOST_INTERVAL_S)


def faded_minimum(before: Any, rtt_s: Any, seconds: Any, xp: Any) -> Any:
    """The least round trip: where a path became longer for good, it is forgotten over a minute."""
    above = xp.clamp(rtt_s - before, 0.0, math.inf)
    return rtt_s - above * xp.exp(-seconds / MIN_FADES_S)


def faded_maximum(before: Any, acked_pps: Any, seconds: Any, rtt_s: Any, xp: Any) -> Any:
    """The most that was acknowledged a second: BBR's estimate of the bandwidth, with a fading window."""
    below = xp.clamp(before - acked_pps, 0.0, math.inf)
    return acked_pps + below * xp.exp(-seconds / (MOST_FADES_ROUND_TRIPS * rtt_s))


def queueing(rtt_s: Any, min_rtt_s: Any, xp: Any) -> Any:
    """The round trip beyond the least."""
    return xp.clamp(rtt_s - min_rtt_s, LEAST_QUEUEING_S, 64.0)


def outcome(seen: Mapping[str, Any], bandwidth_pps: Any, xp: Any) -> dict[str, Any]:
    """Reward, cost and violation of an interval, and whether it violated, as of its type of numbers.

    The cost is what the reward lacks to that of an empty link whose bandwidth is used to the full.

    Args:
        seen: signal -> value.
        bandwidth_pps: of the link; beside a real one, the most that was acknowledged.
    """
    reward = THROUGHPUT * seen["acked_pps"] - LATENCY * seen["rtt_s"] - LOSS * seen["loss_share"]
    over = seen["queueing_s"] / seen["most_queueing_s"]
    return {"reward": reward, "cost": xp.clamp(THROUGHPUT * bandwidth_pps - reward, 0.0, math.inf),
            "violation": xp.clamp(xp.log(over), 0.0, math.inf),
            "violated": seen["queueing_s"] > seen["most_queueing_s"]}
