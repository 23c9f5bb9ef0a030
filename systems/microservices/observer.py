"""An agent's signals that follow from what it measured before; the equations are the simulator's (interface.py).

Its allotment and the fair share come from whoever sees all limits (coordinator.py), latencies end to end, importance
and congestion from whoever reads the traces.
"""

import math
from collections.abc import Mapping

from models.control.contract.derived_signals import NUMBERS, near_latency, relative_change
from models.control.contract.observer import finite_state
from systems.microservices import interface as law
from systems.microservices.interface import SIGNALS

_DERIVED = ("mean_demand_cores", "rate_change", "near_latency_ms", "pressing_latency_ms", "usual_latency_ms")
_MEANS = {"mean_demand_cores": ("demand_cores", law.MEAN_WEIGHT), "usual_latency_ms": ("own_latency_ms",
                                                                                       law.USUAL_WEIGHT)}
_STATE = (*_MEANS, "rate_rps")


class ServiceObserver:
    """Implements `Observer`."""

    measured = tuple(signal.name for signal in SIGNALS if signal.name not in (*_DERIVED, "cores"))
    guessed = (*_MEANS, "rate_change")

    def __init__(self) -> None:
        self._state = dict.fromkeys(_STATE, math.nan)

    def observe(self, measured: Mapping[str, float], present: Mapping[str, float], seconds: float) -> dict[str, float]:
        """See `Observer`. A step of another length than STEP_SECONDS weighs in the means as so many of them."""
        known = {name: float(measured.get(name, math.nan)) for name in self.measured}
        for mean, (name, weight) in _MEANS.items():
            now, before = known[name], self._state[mean]
            passed = 1.0 - (1.0 - weight) ** (seconds / law.STEP_SECONDS)
            if math.isfinite(now):
                self._state[mean] = before + passed * (now - before) if math.isfinite(before) else now
        rate, before, changed = known["rate_rps"], self._state["rate_rps"], 0.0  # where nobody knows what was before
        if math.isfinite(rate + before) and max(rate, before) > 0:
            changed = relative_change(rate, before, NUMBERS)
        self._state["rate_rps"] = rate
        latency, objective, importance, own = (known[name] for name in (
            "latency_ms", "most_latency_ms", "importance", "own_latency_ms"))
        near = pressing = math.nan
        if math.isfinite(latency + objective):
            near = near_latency(latency, objective, NUMBERS)
            # who is not known to be off the critical path is suspected
            suspect = importance if math.isfinite(importance) else 1.0
            pressing = law.pressing_latency(near, objective, suspect, own, NUMBERS)
        return known | {"cores": float(present.get("cores", math.nan)), "near_latency_ms": near,
                        "pressing_latency_ms": pressing, **{name: self._state[name] for name in _MEANS},
                        "rate_change": changed if math.isfinite(rate) else math.nan}

    def acted(self, values: Mapping[str, float]) -> None:
        """See `Observer`: what was set is seen at the next look."""

    def outcome(self, observation: Mapping[str, float]) -> dict[str, float]:
        """See `Observer`: of this service alone (interface.py)."""
        needed = ("latency_ms", "most_latency_ms", "usage", "cores", "fair_cores", "importance",
                  "own_latency_ms")
        if not all(math.isfinite(observation[name]) for name in needed):
            return dict.fromkeys(("reward", "cost", "violation", "violated"), math.nan)
        return {name: float(value) for name, value in law.outcome(observation, NUMBERS).items()}

    def state(self) -> dict[str, float]:
        """See `Observer`."""
        return dict(self._state)

    def restore(self, state: Mapping[str, float]) -> None:
        """See `Observer`."""
        self._state = finite_state(state, _STATE, nullable=_STATE)
