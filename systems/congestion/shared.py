"""Congestion control that shares: trained and judged with two of a kind on a link.

    environment: systems.congestion.shared

What it learns holds of more than two; alone on a link it earns less (docs/benchmarks/congestion.md).
"""

from systems.congestion.environment import CongestionSystem

ENVIRONMENT = CongestionSystem(agents=2)
