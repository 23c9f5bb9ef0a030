"""An agent's signals that follow from what it measured before; the equations are the simulator's (interface.py).

Its allotment, the fair share and what the others do come from whoever sees all functions (guarantee.py says what that
has to be for the agents to stay within the cluster).
"""

import math
from collections.abc import Mapping

from models.control.contract.derived_signals import NUMBERS, near_latency, relative_change
from models.control.contract.observer import finite_state
from systems.shared_cluster import interface as law
from systems.shared_cluster.interface import SIGNALS

_DERIVED = ("mean_demand_cores", "rate_change", "near_latency_ms", "pressing_latency_ms")
_STATE = ("cores", "mean_demand_cores", "rate_rps")


class FunctionObserver:
    """Implements `Observer`."""

    measured = tuple(signal.name for signal in SIGNALS if signal.name not in (*_DERIVED, "cores"))
    guessed = ("mean_demand_cores", "rate_change")

    def __init__(self) -> None:
        self._state = dict.fromkeys(_STATE, math.nan)
        self._changes = (math.nan, math.nan)  # of the last two intervals, as shares of the limit

    def observe(self, measured: Mapping[str, float], present: Mapping[str, float], seconds: float) -> dict[str, float]:
        """See `Observer`. An interval is one of STEP_SECONDS; another length weighs in the mean as so many of them."""
        known = {name: float(measured.get(name, math.nan)) for name in self.measured}
        cores, before = float(present.get("cores", math.nan)), dict(self._state)
        demand, rate, latency, fair = (known[name] for name in ("demand_cores", "rate_rps", "latency_ms", "fair_cores"))
        if math.isfinite(demand):
            passed = 1.0 - (1.0 - law.MEAN_WEIGHT) ** (seconds / law.STEP_SECONDS)
            mean = before["mean_demand_cores"]
            self._state["mean_demand_cores"] = mean + passed * (demand - mean) if math.isfinite(mean) else demand
        changed = 0.0  # where nobody knows what was before
        if math.isfinite(rate + before["rate_rps"]) and max(rate, before["rate_rps"]) > 0:
            changed = relative_change(rate, before["rate_rps"], NUMBERS)
        self._changes = (self._changes[1], (cores - before["cores"]) / before["cores"])
        self._state |= {"cores": cores, "rate_rps": rate}
        objective, near = known["most_latency_ms"], math.nan
        if math.isfinite(latency + objective):
            near = near_latency(latency, objective, NUMBERS)
        pressing = law.pressing_latency(near, objective, cores, fair, NUMBERS) if math.isfinite(cores + fair) else near
        return known | {"cores": cores, "mean_demand_cores": self._state["mean_demand_cores"],
                        "rate_change": changed if math.isfinite(rate) else math.nan, "near_latency_ms": near,
                        "pressing_latency_ms": pressing}

    def acted(self, values: Mapping[str, float]) -> None:
        """See `Observer`: what was set is seen at the next look."""

    def outcome(self, observation: Mapping[str, float]) -> dict[str, float]:
        """See `Observer`: of this function alone (interface.py); two changes that are not known count as none."""
        needed = ("latency_ms", "most_latency_ms", "usage", "cores", "fair_cores", "cluster_limits")
        if not all(math.isfinite(observation[name]) for name in needed):
            return dict.fromkeys(("reward", "cost", "violation", "violated"), math.nan)
        before, now = (change if math.isfinite(change) else 0.0 for change in self._changes)
        penalty = law.undesired(now, before, observation["cluster_limits"], NUMBERS)
        return {name: float(value) for name, value in law.outcome(observation, penalty, NUMBERS).items()}

    def state(self) -> dict[str, float]:
        """See `Observer`."""
        return dict(self._state)

    def restore(self, state: Mapping[str, float]) -> None:
        """See `Observer`."""
        self._state = finite_state(state, _STATE, nullable=_STATE)
