"""An agent's signals that follow from what it measured before; the equations are the simulator's (interface.py).

Its allotment, the fair share and what the others do come from whoever sees all functions (guarantee.py says what that
has to be for the agents to stay within the cluster).
"""

import math
from collections.abc import Mapping

from models.control.contract.derived_signals import NUMBERS, near_latency, relative_change
from models.control.contract.observer import RememberedNumbers, known_outcome
from systems.shared_cluster import interface as law
from systems.shared_cluster.interface import SIGNALS

_DERIVED = ("mean_demand_cores", "rate_change", "near_latency_ms", "pressing_latency_ms")


class FunctionObserver(RememberedNumbers):
    """Implements `Observer`."""

    measured = tuple(signal.name for signal in SIGNALS if signal.name not in (*_DERIVED, "cores"))
    guessed = ("mean_demand_cores", "rate_change")

    def __init__(self) -> None:
        super().__init__("cores", "mean_demand_cores", "rate_rps")
        self._changes = (math.nan, math.nan)  # of the last two intervals, as shares of the limit

    def observe(self, measured: Mapping[str, float], present: Mapping[str, float], seconds: float) -> dict[str, float]:
        """See `Observer`. An interval is one of STEP_SECONDS; another length weighs in the mean as so many of them."""
        known = {name: float(measured.get(name, math.nan)) for name in self.measured}
        cores, before = float(present.get("cores", math.nan)), dict(self.remembered)
        rate, latency, fair = (known[name] for name in ("rate_rps", "latency_ms", "fair_cores"))
        self.add_to_mean("mean_demand_cores", known["demand_cores"], law.MEAN_WEIGHT, seconds / law.STEP_SECONDS)
        changed = 0.0  # where nobody knows what was before
        if math.isfinite(rate + before["rate_rps"]) and max(rate, before["rate_rps"]) > 0:
            changed = relative_change(rate, before["rate_rps"], NUMBERS)
        stood = before["cores"] if before["cores"] > 0 else math.nan
        self._changes = (self._changes[1], (cores - stood) / stood)
        self.remembered |= {"cores": cores, "rate_rps": rate}
        objective, near = known["most_latency_ms"], math.nan
        if math.isfinite(latency + objective):
            near = near_latency(latency, objective, NUMBERS)
        pressing = law.pressing_latency(near, objective, cores, fair, NUMBERS) if math.isfinite(cores + fair) else near
        return known | {"cores": cores, "mean_demand_cores": self.remembered["mean_demand_cores"],
                        "rate_change": changed if math.isfinite(rate) else math.nan, "near_latency_ms": near,
                        "pressing_latency_ms": pressing}

    def outcome(self, observation: Mapping[str, float]) -> dict[str, float]:
        """See `Observer`: of this function alone (interface.py); two changes that are not known count as none."""
        needed = ("latency_ms", "most_latency_ms", "usage", "cores", "fair_cores", "cluster_limits")
        before, now = (change if math.isfinite(change) else 0.0 for change in self._changes)
        return known_outcome((observation[name] for name in needed), lambda: law.outcome(
            observation, law.undesired(now, before, observation["cluster_limits"], NUMBERS), NUMBERS))
