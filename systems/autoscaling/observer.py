"""The signals of autoscaling beside a live application: means and peak of the load, and when replicas were raised.

Means, peak and when replicas were raised follow simulator.py (`_measured`, `step`); tests hold one against the other.
What a step came to is equations.py's, there and here.
"""

import math
from collections.abc import Mapping

from models.control.contract.derived_signals import NUMBERS
from models.control.contract.observer import finite_state
from systems.autoscaling import equations as law
from systems.autoscaling.interface import CONTROLS, SIGNALS, STEP_SECONDS

LONG_AGO_S = next(signal.high for signal in SIGNALS if signal.name == "raised_s_ago")
MEANS = {"rate_1min_rps": 60.0, "rate_5min_rps": 300.0, "rate_25min_rps": 1500.0}  # s
PEAK, PEAK_S = "rate_peak_5min_rps", 300.0
RAISED = 1.001  # replicas over those before, where there are more
_DERIVED = (*MEANS, PEAK, "raised_s_ago")
_PRESENT = (*(control.current for control in CONTROLS), "ready_replicas")
_STATE = (*MEANS, PEAK, "raised_s_ago", "replicas")


class AutoscalingObserver:
    """Implements `Observer`."""

    measured = tuple(signal.name for signal in SIGNALS
                     if signal.name not in (*_DERIVED, *_PRESENT, "slo_ms"))

    guessed = ("raised_s_ago",)

    def __init__(self) -> None:
        self._state = dict.fromkeys(_STATE, math.nan) | {"raised_s_ago": 0.0}
        self._looks = False  # whether the replicas of the call before are known

    def observe(self, measured: Mapping[str, float], present: Mapping[str, float], seconds: float) -> dict[str, float]:
        """See `Observer`. Whoever raised replicas: that they are more than before is what counts.

        Where nobody looked (before the first call, after a restart, while they are unknown) they may have been raised:
        they count as raised now. So what is told is never more than the truth, but for its own least value.
        """
        state, passed = self._state, max(seconds, 0.0)
        rate = float(measured.get("rate_rps", math.nan))
        if math.isfinite(rate):
            for name, time in MEANS.items():
                weight = math.exp(-passed / time)
                state[name] = rate + weight * (state[name] - rate) if math.isfinite(state[name]) else rate
            peak = state[PEAK] if math.isfinite(state[PEAK]) else rate
            state[PEAK] = max(rate, peak - passed / PEAK_S * max(peak - rate, 0.0))
        replicas = float(present.get("replicas", math.nan))
        state["raised_s_ago"] = min(state["raised_s_ago"] + passed, LONG_AGO_S)
        if replicas > state["replicas"] * RAISED:  # by whoever acted at the last look, or later
            state["raised_s_ago"] = min(passed, STEP_SECONDS)
        if not (self._looks and math.isfinite(replicas)):
            state["raised_s_ago"] = 0.0
        self._looks = math.isfinite(replicas)
        if self._looks:
            state["replicas"] = replicas
        known = {name: float(measured.get(name, math.nan)) for name in self.measured}
        known |= {name: float(present.get(name, math.nan)) for name in _PRESENT}
        return known | {name: state[name] for name in _DERIVED} | {
            "raised_s_ago": max(state["raised_s_ago"], STEP_SECONDS)}

    def acted(self, values: Mapping[str, float]) -> None:
        """See `Observer`. Replicas that were raised count as such, also where someone lowers them at once."""
        if values.get("replicas", math.nan) > self._state["replicas"] * RAISED:
            self._state["raised_s_ago"] = 0.0

    def outcome(self, observation: Mapping[str, float]) -> dict[str, float]:
        """See `Observer`: the paper's reward (thesis, section 5.2.2).

        The cost is over the mean load in cores, which is taken for the CPU that a request uses now, times the mean rate
        of the last 25 minutes.
        """
        ratio, lost = observation["p99_ms"] / observation["slo_ms"], 1.0 - observation["served_share"]
        cpu, memory = observation["cpu_utilization"], observation["memory_utilization"]
        load = observation["cpu_used_cores"] / observation["rate_rps"] * observation["rate_25min_rps"]
        replicas, memory_gib = observation["replicas"], observation["memory_limit_mib"] / 1024.0
        cost = law.cost(replicas * observation["cpu_limit_cores"], replicas * memory_gib, load)
        if not all(map(math.isfinite, (ratio, cpu, memory, lost, cost))) or ratio <= 0:
            return dict.fromkeys(("reward", "cost", "violation", "violated"), math.nan)
        came = law.outcome(ratio, cpu, memory, lost, law.ALPHA, NUMBERS)
        return {"reward": came["reward"], "cost": cost, "violation": came["violation"],
                "violated": float(came["violated"])}

    def state(self) -> dict[str, float]:
        """See `Observer`."""
        return dict(self._state)

    def restore(self, state: Mapping[str, float]) -> None:
        """See `Observer`."""
        self._state = finite_state(state, _STATE, nullable=(*MEANS, PEAK, "replicas"))
        self._looks = False
