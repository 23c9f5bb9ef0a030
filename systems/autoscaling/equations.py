"""What a step came to, by the same equations in simulation (tensors) and beside a live service (numbers).

Symbols: `xp` holds exp, log, clamp and where of that type of numbers.
"""

import math
from typing import Any

from systems.autoscaling.interface import GIB_IN_CORES

ALPHA = 0.5  # weight of the objective in the paper's reward
LOST, LOST_WEIGHT = 0.01, 4.0  # share of lost requests that violates; its weight beside log latency


def outcome(p99_over_slo: Any, cpu_utilization: Any, memory_utilization: Any, lost: Any, alpha: float, xp: Any,
            ) -> dict[str, Any]:
    """Reward (thesis, section 5.2.2), violation and whether it violated, as of the type of numbers.

    Args:
        p99_over_slo: > 0.
        lost: share of requests.
        alpha: weight of the objective, in [0, 1].
    """
    preservation = xp.clamp(1.0 / p99_over_slo, 0.0, 1.0)
    use = xp.clamp(cpu_utilization, 0.0, 1.0) + xp.clamp(memory_utilization, 0.0, 1.0)
    return {"reward": alpha * preservation * 2.0 + (1.0 - alpha) * use,
            "violation": xp.clamp(xp.log(p99_over_slo), 0.0, math.inf) + LOST_WEIGHT * lost,
            "violated": (p99_over_slo > 1.0) | (lost > LOST)}


def cost(cores: Any, memory_gib: Any, load_cores: Any) -> Any:
    """What all replicas may use, over the mean load; all in cores."""
    return (cores + GIB_IN_CORES * memory_gib) / load_cores
