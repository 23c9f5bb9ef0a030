"""An agent's signals that follow from what it measured before; the equations are the simulator's (interface.py).

Its allotment and the fair share come from whoever sees all limits (coordinator.py), latencies end to end, importance
and congestion from whoever reads the traces.
"""

import math
from collections.abc import Mapping

from models.control.contract.derived_signals import NUMBERS, near_latency, relative_change
from models.control.contract.observer import RememberedNumbers, known_outcome
from systems.microservices import interface as law
from systems.microservices.interface import SIGNALS

_DERIVED = ("mean_demand_cores", "rate_change", "near_latency_ms", "pressing_latency_ms", "usual_latency_ms")
_MEANS = {"mean_demand_cores": ("demand_cores", law.MEAN_WEIGHT), "usual_latency_ms": ("own_latency_ms",
                                                                                       law.USUAL_WEIGHT)}


class ServiceObserver(RememberedNumbers):
    """Implements `Observer`."""

    measured = tuple(signal.name for signal in SIGNALS if signal.name not in (*_DERIVED, "cores"))
    guessed = (*_MEANS, "rate_change")

    def __init__(self) -> None:
        super().__init__(*_MEANS, "rate_rps")

    def observe(self, measured: Mapping[str, float], present: Mapping[str, float], seconds: float) -> dict[str, float]:
        """See `Observer`. A step of another length than STEP_SECONDS weighs in the means as so many of them."""
        known = {name: float(measured.get(name, math.nan)) for name in self.measured}
        for mean, (name, weight) in _MEANS.items():
            self.add_to_mean(mean, known[name], weight, seconds / law.STEP_SECONDS)
        rate, before = known["rate_rps"], self.remembered["rate_rps"]
        changed = 0.0  # where nobody knows what was before
        if math.isfinite(rate + before) and max(rate, before) > 0:
            changed = relative_change(rate, before, NUMBERS)
        self.remembered["rate_rps"] = rate
        latency, objective, importance, own = (known[name] for name in (
            "latency_ms", "most_latency_ms", "importance", "own_latency_ms"))
        near = pressing = math.nan
        if math.isfinite(latency + objective):
            near = near_latency(latency, objective, NUMBERS)
            # who is not known to be off the critical path is suspected
            suspect = importance if math.isfinite(importance) else 1.0
            pressing = law.pressing_latency(near, objective, suspect, own, NUMBERS)
        return known | {"cores": float(present.get("cores", math.nan)), "near_latency_ms": near,
                        "pressing_latency_ms": pressing, **{name: self.remembered[name] for name in _MEANS},
                        "rate_change": changed if math.isfinite(rate) else math.nan}

    def outcome(self, observation: Mapping[str, float]) -> dict[str, float]:
        """See `Observer`: of this service alone (interface.py)."""
        needed = ("latency_ms", "most_latency_ms", "usage", "cores", "fair_cores", "importance",
                  "own_latency_ms")
        return known_outcome((observation[name] for name in needed), lambda: law.outcome(observation, NUMBERS))
