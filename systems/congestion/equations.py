"""What follows from measurements, by the same arithmetic in simulation (tensors) and beside a real sender (numbers).

Symbols: `Of` is any type of numbers with arithmetic; `xp` holds exp, log, clamp and where of that type.
"""

import math
from collections.abc import Mapping
from typing import Any

from models.control.contract.derived_signals import NUMBERS

# Of the paper's reward, by a packet a second, a second of round trip and all packets lost: PCC-RL's (its `Network`,
# "Very high thpt"), 0.001 * (10 * packets/s - 1e3 * latency - 2e3 * loss).
THROUGHPUT, LATENCY, LOSS = 0.01, 1.0, 2.0
MOST_FADES_ROUND_TRIPS = 10.0
# Of a probe of the least round trip: packets in flight at most, as BBR's ProbeRTT; seconds and round trips it lasts
PROBE_PACKETS, PROBE_S, PROBE_ROUND_TRIPS = 4.0, 5.0, 16.0
SLOPE_WEIGHT, LOSS_WEIGHT = 0.25, 0.0625  # of an interval, in its exponential mean
LEAST_QUEUEING_S, LEAST_SHARE = 2.0**-12, 2.0**-6
LEAST_INTERVAL_S, MOST_INTERVAL_S, LEAST_PACKETS = 0.005, 16.0, 2.0


def interval(min_rtt_s: Any, rate_pps: Any, xp: Any) -> Any:
    """Seconds until the next decision: half the least round trip, or what LEAST_PACKETS take.

    Not of the present round trip: the longer a queue, the longer it would go on to grow.
    """
    packets_s = LEAST_PACKETS / rate_pps
    beyond = xp.clamp(packets_s - 0.5 * min_rtt_s, 0.0, math.inf)
    return xp.clamp(0.5 * min_rtt_s + beyond, LEAST_INTERVAL_S, MOST_INTERVAL_S)


def least_round_trip(least_s: Any, probing_s: Any, rtt_s: Any, rate_pps: Any, seconds: Any, xp: Any) -> tuple[Any, Any]:
    """The least round trip and for how long a probe of it has lasted, after an interval.

    It is forgotten for the latest at the end of a probe alone: so long with so few packets in flight that a queue of
    its own is gone. Over time alone a queue that stands would become what counts as none.
    """
    probing_s = (probing_s + seconds) * (rate_pps * rtt_s <= PROBE_PACKETS)
    goes_on = probing_s < PROBE_S + PROBE_ROUND_TRIPS * least_s
    return xp.where(goes_on & (least_s < rtt_s), least_s, rtt_s), probing_s * goes_on


class LeastRoundTrip:
    """`least_round_trip` beside a sender. seconds: None until something was heard."""

    def __init__(self) -> None:
        self.seconds: float | None = None
        self._probing_s = 0.0

    def heard(self, rtt_s: float, rate_pps: float, seconds: float) -> float:
        """Of an interval; gives the least."""
        before = rtt_s if self.seconds is None else self.seconds
        self.seconds, self._probing_s = least_round_trip(before, self._probing_s, rtt_s, rate_pps, seconds, NUMBERS)
        return self.seconds


def faded_maximum(before: Any, acked_pps: Any, seconds: Any, rtt_s: Any, xp: Any) -> Any:
    """The most that was acknowledged a second: BBR's estimate of the bandwidth, with a fading window."""
    below = xp.clamp(before - acked_pps, 0.0, math.inf)
    return acked_pps + below * xp.exp(-seconds / (MOST_FADES_ROUND_TRIPS * rtt_s))


def of_rate(acked_pps: Any, rate_pps: Any, xp: Any) -> Any:
    """What was acknowledged, as a share of what is sent."""
    return xp.clamp(acked_pps / rate_pps, LEAST_SHARE, 1.0 / LEAST_SHARE)


def queueing(rtt_s: Any, min_rtt_s: Any, xp: Any) -> Any:
    """The round trip beyond the least."""
    return xp.clamp(rtt_s - min_rtt_s, LEAST_QUEUEING_S, 64.0)


def unfairness(acked_pps: Any, fair_pps: Any, xp: Any) -> Any:
    """What a sender on a link that is shared lacks, in the reward's unit: 0 at a fair share, and steeper below it.

    Of the reward, which is linear in packets a second and so the same however a link is divided, this makes one whose
    throughput counts as fair (1 + log share): proportional fairness (Kelly, Maulloo and Tan 1998).

    Args:
        fair_pps: a fair share of the link.
    """
    share = xp.clamp(acked_pps / fair_pps, LEAST_SHARE, math.inf)
    return THROUGHPUT * fair_pps * (share - 1.0 - xp.log(share))


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
