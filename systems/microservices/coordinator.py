"""Looks at all services of an application once a second and writes what their agents need of each other.

    python -m systems.microservices.coordinator node.yaml [--looks 600]

The file and what a look is: serving/control/coordinator.py. A status is STATUS of the last seconds: what a service's
control group and front say of it, and what follows from the traces of the application (critical path and localizer), as
statuses.py derives it.
"""

import sys
from collections.abc import Mapping
from functools import partial

from models.control.contract.derived_signals import NUMBERS, allotment
from serving.control.coordinator import Status, Teller, demand_cores, run
from systems.microservices import interface as law

_TOLD = ("rate_rps", "latency_ms", "most_latency_ms", "type_share", "importance", "congestion_intensity",
         "own_latency_ms")
STATUS = (*_TOLD, "served_rps", "used_cores")


def looked_at(capacity: float, limits: Mapping[str, float], status: Mapping[str, Status], before: Mapping[str, float],
              needs: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """See `LookedAt`."""
    total, all_needs = sum(limits.values()), sum(needs.values())
    return {name: {**{part: status[name][part] for part in _TOLD},
                   "usage": min(status[name]["used_cores"] / cores, 1.0),
                   "demand_cores": demand_cores(status[name], capacity),
                   "allotment_cores": allotment(cores, total, capacity, needs[name] / all_needs, NUMBERS),
                   "fair_cores": capacity / len(limits), "node_limits": total / capacity}
            for name, cores in limits.items()}


TELLER = Teller("services", STATUS, looked_at, law.LEAST_CORES, law.MEAN_WEIGHT, law.STEP_SECONDS)
main = partial(run, TELLER, "python -m systems.microservices.coordinator", __doc__)

if __name__ == "__main__":
    sys.exit(main())
