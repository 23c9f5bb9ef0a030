"""What a learned policy of autoscaling starts from: anchors of its targets and rules that hold by construction.

Replicas are anchored at what the CPU that is used would take at half utilisation, as the HPA of Kubernetes does, memory
at what is used at 60 %, the CPU limit of a replica slowly at two cores: a policy whose network says nothing is a rule.
"""

import math

from models.learners.policy import Anchor, Gates

ANCHORS = {
    "target_cpu_limit_cores": Anchor({"cpu_limit_cores": 0.8}, 0.2 * math.log(2.0)),
    "target_memory_limit_mib": Anchor({"memory_limit_mib": 1.0, "memory_utilization": 0.5}, -0.5 * math.log(0.6)),
    "target_replicas": Anchor({"replicas": 0.3, "ready_replicas": 0.7, "cpu_utilization": 0.7}, -0.7 * math.log(0.5)),
}
GATES = Gates("p99_ms", "slo_ms", idle={
    "target_cpu_limit_cores": {"cpu_utilization": 0.2},
    "target_memory_limit_mib": {"memory_utilization": 0.4},
    "target_replicas": {"cpu_utilization": 0.2},
})
