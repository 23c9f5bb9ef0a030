"""Rules that a policy of autoscaling keeps by its form, and the signals that it is monotone in, as the default task has
them (models/training/reinforcement/monotone.py says why).
"""

from models.learners.policy import Gates

GATES = Gates("p99_ms", "slo_ms", idle={
    "target_cpu_limit_cores": {"cpu_utilization": 0.2},
    "target_memory_limit_mib": {"memory_utilization": 0.4},
    "target_replicas": {"cpu_utilization": 0.2},
})
MONOTONE = {"p99_ms": 1, "served_share": -1, "rate_rps": 1}
