"""What follows for ever from how fast a scaler catches up: S and N, by arithmetic alone.

Known of every step of the fluid law (catching_up.py), V = b + (a - c) dt being the next backlog before it is cut off:

    V >= v0   =>   c' >= min(f c, a + h)        h: headroom, less the margin of "nothing is taken away"
    always         c' >= kept_share c - margin  the limits of change

While V >= v0 it follows by induction, where (f - 1) (load_low + h) >= d,

    c(t + n) >= min(f^n c(t), a(t + n - 1) + h),   so   a(t + n) - c(t + n) <= max(a(t + n) - f^n c(t), d - h)

and V(t + n) is at most V(t) plus dt times the sum of that. From the starts, with V <= B + (load_high - least) dt, it is
below v0 after the first n for which the sum says so. Later it reaches v0 only in a step behind one with V < v0: there
c > a - v0 / dt, so that the next capacity is at least kept_share of that, the next load at most a + d, and the backlog
at most v0. S is the most that the sum then comes to, over all loads a.

Rounding: sums of some hundred float64 numbers; GROWN covers it.
"""

import math
from dataclasses import dataclass

from systems.autoscaling.guarantee.catching_up import KEPT, ScalerLaw

# Loads are taken in so many intervals, each with its largest load and its least capacity; steps at most.
INTERVALS, MOST_STEPS = 256, 100_000
GROWN = 1 + 1e-9


@dataclass(frozen=True)
class BacklogBound:
    """The backlog is at most `backlog` core seconds after `steps` steps and for ever after."""

    backlog: float
    steps: int


def backlog_bound(law: ScalerLaw, backlog: float, headroom: float, growth: float, start: float) -> BacklogBound | None:
    """S and N.

    Args:
        backlog: v0; headroom, growth: of what is proved for every number of replicas.
        start: B.

    Returns:
        None where nothing follows: capacity does not outgrow the load, or v0 may be within the objective.
    """
    margin = law.replicas_high * KEPT
    above = headroom - margin
    outgrows = growth > 1 and above > law.change and (growth - 1) * (law.load_low + above) >= law.change
    if not (law.misses(backlog) and outgrows):
        return None
    steps = _steps_until(law, start + (law.load_high - law.least) * law.step_s, backlog, above, growth)
    if steps is None:
        return None
    width = (law.load_high - law.load_low) / INTERVALS
    most = backlog
    for k in range(INTERVALS):
        low, high = law.load_low + k * width, law.load_low + (k + 1) * width
        load = min(high + law.change, law.load_high)
        capacity = max(law.kept_share * (low - backlog / law.step_s) - margin, law.least)
        most = max(most, _peak(law, backlog, load, capacity, above, growth))
    return BacklogBound(most * GROWN, steps + 1) if math.isfinite(most) else None


def _peak(law: ScalerLaw, backlog: float, load: float, capacity: float, above: float, growth: float) -> float:
    """The most that V comes to, from that backlog, load and capacity on."""
    value = most = backlog + (load - capacity) * law.step_s
    for _ in range(MOST_STEPS):
        if value < backlog:
            return most
        capacity, load = capacity * growth, min(load + law.change, law.load_high)
        value += max(load - capacity, law.change - above) * law.step_s
        most = max(most, value)
    return math.inf


def _steps_until(law: ScalerLaw, value: float, backlog: float, above: float, growth: float) -> int | None:
    """Steps until V is below v0 from the worst start."""
    capacity, steps = law.least, 0
    while value >= backlog:
        capacity, steps = min(capacity * growth, 2 * (law.load_high + above)), steps + 1
        value = (value + max(law.load_high - capacity, law.change - above) * law.step_s) * (1 + 2**-50)
        if steps > MOST_STEPS:
            return None
    return steps
