"""Looks at all functions once an interval and writes what their agents need of each other: SIMPPO's coordinator.

    python -m systems.shared_cluster.coordinator cluster.yaml [--looks 60]

The file and what a look is: serving/control/coordinator.py. A status is STATUS of the last interval.
"""

import math
import sys
from collections.abc import Mapping
from functools import partial
from statistics import fmean, pstdev

from models.control.contract.derived_signals import NUMBERS, allotment
from serving.control.coordinator import Teller, demand_cores, run
from systems.shared_cluster import interface as law

STATUS = ("rate_rps", "served_rps", "used_cores", "latency_ms", "most_latency_ms")


def looked_at(capacity: float, limits: Mapping[str, float], status: Mapping[str, Mapping[str, float]],
              before: Mapping[str, float], needs: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """See `LookedAt`."""
    total, all_needs = sum(limits.values()), sum(needs.values())
    changes = {name: (cores - before.get(name, cores)) / capacity for name, cores in limits.items()}
    own: dict[str, dict[str, float]] = {}
    for name, cores in limits.items():
        of = status[name]
        known = of["latency_ms"] > 0 and of["most_latency_ms"] > 0
        preserved = law.preserved(of, NUMBERS) if known else math.nan
        own[name] = {"usage": min(of["used_cores"] / cores, 1.0), "demand_cores": demand_cores(of, capacity),
                     "preserved": preserved}
    found = {}
    for name, cores in limits.items():
        others = [one for other, one in own.items() if other != name] or [own[name]]
        shares = {part: [one[part] for one in others if math.isfinite(one[part])] or [1.0]
                  for part in ("preserved", "usage")}
        found[name] = {
            **{part: status[name][part] for part in ("rate_rps", "latency_ms", "most_latency_ms")},
            "usage": own[name]["usage"], "demand_cores": own[name]["demand_cores"],
            "allotment_cores": allotment(cores, total, capacity, needs[name] / all_needs, NUMBERS),
            "fair_cores": capacity / len(limits), "cluster_limits": total / capacity,
            "cluster_change": sum(changes.values()) - changes[name],
            "others_preserved": fmean(shares["preserved"]), "others_preserved_spread": pstdev(shares["preserved"]),
            "others_usage": fmean(shares["usage"]), "others_usage_spread": pstdev(shares["usage"])}
    return found


TELLER = Teller("functions", STATUS, looked_at, law.LEAST_CORES, law.MEAN_WEIGHT, law.STEP_SECONDS)
main = partial(run, TELLER, "python -m systems.shared_cluster.coordinator", __doc__)

if __name__ == "__main__":
    sys.exit(main())
