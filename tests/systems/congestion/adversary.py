"""The fluid law in small steps of time, with a sender that does the worst that the proved rules of a step allow."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from systems.congestion.guarantee import Rules

STEP_S = 0.0002


class Seen(NamedTuple):
    """Of the interval that ends: what is acknowledged a second, the most of late, and queueing, seconds."""

    acked: float
    most: float
    queueing_s: float


def allowed(rules: Rules, rate: float, seen: Seen, most_queueing_s: float) -> tuple[float, float]:
    """The lowest and the highest rate that may come next."""
    low, high = (1 - rules.down) * rate, (1 + rules.up) * rate
    if seen.acked >= rules.start * rate:
        low = rate
    if seen.most <= rules.until * rate:
        high = rate
    if seen.queueing_s >= most_queueing_s:
        high = rate
        if seen.acked <= rules.draining * rate and rate >= rules.low:
            high = rate / rules.retreat
    if seen.queueing_s <= rules.calm_s:
        low = rate
        if seen.most >= rules.delivered * rate and rate <= rules.grows:
            low = rules.advance * rate
    return min(max(low, rules.least), rules.most), max(min(high, rules.most), rules.least)


def driven(rules: Rules, bandwidth: float, base_s: float, jitter_s: float, most_queueing_s: float, seconds: float,
           choose: Callable[[float, float, float, float, Seen], float], starts: tuple[float, float, float],
           late: Callable[[float], float]) -> np.ndarray:
    """(steps, 2) queueing in seconds and the rate over the link's.

    Args:
        choose: of the time, the two ends of what is allowed, queueing now (which no sender sees), and what is seen.
        starts: rate, queueing in seconds, the least round trip that is known less `base_s`.
        late: of a time: the delay of its acknowledgements, up to `jitter_s`.
    """
    count = round(seconds / STEP_S)
    rate, waiting, known = starts
    least, most = base_s + known, 0.25
    # when it is acknowledged, what was sent in a step, and after how long
    came, sent, delays = np.zeros(count), np.zeros(count), np.zeros(count)
    rows, first, began = np.zeros((count, 2)), 0, 0.0
    due = max(0.5 * least, 2.0 / rate, 0.005)
    for step in range(count):
        now = step * STEP_S
        rows[step] = waiting, rate / bandwidth
        back = now + base_s + waiting + late(now)
        came[step] = max(back, came[step - 1] if step else 0.0)
        sent[step], delays[step] = rate * STEP_S, came[step] - now
        waiting = max(waiting + STEP_S * (rate / bandwidth - 1.0), 0.0)
        if now + STEP_S < due:
            continue
        last = int(np.searchsorted(came[: step + 1], now + STEP_S))
        packets = sent[first:last].sum()
        if packets > 0:
            acked = packets / (now + STEP_S - began)
            trip = float(np.average(delays[first:last], weights=sent[first:last]))
            least = min(least, trip)
            most = acked + max(most - acked, 0.0) * np.exp(-(now + STEP_S - began) / (10.0 * trip))
            seen = Seen(acked, most, max(trip - least, 2.0**-12))
            rate = choose(now, *allowed(rules, rate, seen, most_queueing_s), waiting, seen)
        first, began = last, now + STEP_S
        due = began + max(0.5 * least, 2.0 / rate, 0.005)
    return rows
