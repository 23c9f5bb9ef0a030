"""Signals that follow from what is measured, by the same equation in a simulator and beside what is live.

Symbols: `xp` holds exp, log, clamp and where of the type of the numbers: NUMBERS here, TENSORS in a simulator
(models/control/simulation/tensors.py).
"""

import math
from types import SimpleNamespace
from typing import Any

NUMBERS = SimpleNamespace(exp=math.exp, log=math.log, clamp=lambda value, low, high: min(max(value, low), high),
                          where=lambda condition, yes, no: yes if condition else no)
NEAR = 4.0  # times the objective, and a part of it: beyond, a latency is seen as that


def allotment(held: Any, all_held: Any, capacity: Any, need_share: Any, xp: Any) -> Any:
    """What one may have at most; over all who share this adds up to the capacity (shared_limits.py).

    Args:
        held: its limit now.
        all_held: sum over all.
        capacity: that is to be shared.
        need_share: of what all need, its part; over all this adds up to 1.
    """
    free = xp.clamp(capacity - all_held, 0.0, math.inf)
    return held * xp.clamp(capacity / all_held, 0.0, 1.0) + free * need_share


def near_latency(latency_ms: Any, most_latency_ms: Any, xp: Any) -> Any:
    """The latency, near its objective: a network whose unit is the spread of all hardly sees what is missed."""
    return most_latency_ms * xp.clamp(latency_ms / most_latency_ms, 1.0 / NEAR, NEAR)


def relative_change(now: Any, before: Any, xp: Any) -> Any:
    """(now - before) / max{now, before}, between -1 and 1."""
    return (now - before) / xp.where(now > before, now, before)
