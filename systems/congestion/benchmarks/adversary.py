"""The fluid law in small steps of time, with senders that do the worst that the proved rules of a step allow."""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from models.control.contract.derived_signals import NUMBERS
from systems.congestion import equations as law
from systems.congestion.guarantee import Rules

STEPS = 250  # of a round trip


class Seen(NamedTuple):
    """Of the interval that ends: what is acknowledged a second, the most of late, and queueing, seconds."""

    acked: float
    most: float
    queueing_s: float


# The time, the two ends of what is allowed, queueing now (which no sender sees), and what is seen -> the next rate.
Choice = Callable[[float, float, float, float, Seen], float]


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
           choose: Choice, starts: tuple[float, float], late: Callable[[float], float]) -> np.ndarray:
    """(steps, 2) queueing in seconds and the rate over the link's.

    Args:
        starts: rate and queueing in seconds.
        late: of a time: the delay of its acknowledgements, up to `jitter_s`.
    """
    width = base_s / STEPS
    count = round(seconds / width)
    rate, waiting = starts
    least, probing, most = base_s, 0.0, 0.25
    # when it is acknowledged, what was sent in a step, and after how long
    came, sent, delays = np.zeros(count), np.zeros(count), np.zeros(count)
    rows, first, began = np.zeros((count, 2)), 0, 0.0
    due = law.interval(least, rate, NUMBERS)
    for step in range(count):
        now = step * width
        rows[step] = waiting, rate / bandwidth
        came[step] = max(now + base_s + waiting + late(now), came[step - 1] if step else 0.0)
        sent[step], delays[step] = rate * width, came[step] - now
        waiting = max(waiting + width * (rate / bandwidth - 1.0), 0.0)
        now += width
        if now < due - 0.5 * width:
            continue
        last = int(np.searchsorted(came[: step + 1], now))
        packets = sent[first:last].sum()
        if packets > 0:
            passed, trip = now - began, float(np.average(delays[first:last], weights=sent[first:last]))
            least, probing = law.least_round_trip(least, probing, trip, rate, passed, NUMBERS)
            most = law.faded_maximum(most, packets / passed, passed, trip, NUMBERS)
            seen = Seen(packets / passed, most, law.queueing(trip, least, NUMBERS))
            rate = choose(now, *allowed(rules, rate, seen, most_queueing_s), waiting, seen)
        first, began = last, now
        due = now + law.interval(least, rate, NUMBERS)
    return rows


class Greedy:
    """As fast as it may until its queue is seen, then as slow as it may until there is none."""

    def __init__(self, seen_s: float) -> None:
        self.seen_s, self.floods = seen_s, True

    def __call__(self, now: float, low: float, high: float, waiting: float, seen: Seen) -> float:
        """See `Choice`."""
        self.floods = waiting == 0.0 or (self.floods and seen.queueing_s <= self.seen_s)
        return high if self.floods else low


def _waves(seconds: float, share: float) -> Choice:
    return lambda now, low, high, waiting, seen: high if math.fmod(now, seconds) < share * seconds else low


def _at_random(seed: int) -> Choice:
    random, goes = np.random.default_rng(seed), [1.0]

    def choose(now: float, low: float, high: float, waiting: float, seen: Seen) -> float:
        if random.random() < 0.1:
            goes[0] = random.choice([0.0, 0.0, 1.0, 1.0, random.random()])
        return low + goes[0] * (high - low)
    return choose


def choices(base_s: float, most_queueing_s: float) -> Mapping[str, Choice]:
    """By name; each for one run."""
    of = base_s + most_queueing_s
    return {"fast": lambda now, low, high, waiting, seen: high, "slow": lambda now, low, high, waiting, seen: low,
            "greedy": Greedy(0.5 * most_queueing_s),
            **{f"waves of {round(many, 1)}, {share:g}": _waves(many * of, share)
               for many in (2.0, 5.0, 12.0, 30.0) for share in (0.3, 0.5)},
            **{f"random {seed}": _at_random(seed) for seed in range(4)}}
