"""A governor's signals that follow from what it measured before; the equations are the simulator's (interface.py)."""

import math
from collections.abc import Mapping

from models.control.contract.derived_signals import NUMBERS
from models.control.contract.observer import finite_state
from systems.cpu_frequency import interface as law
from systems.cpu_frequency.interface import SIGNALS

_DERIVED = ("ips_gain", "mean_rate_rps", "pressing_latency_ms")
_STATE = ("frequency_ghz", "ips_1e9", "mean_rate_rps")


class FrequencyObserver:
    """Implements `Observer`."""

    measured = tuple(signal.name for signal in SIGNALS
                     if signal.name not in (*_DERIVED, "frequency_ghz", "most_latency_ms"))
    guessed = ("ips_gain", "mean_rate_rps")

    def __init__(self) -> None:
        self._state = dict.fromkeys(_STATE, math.nan)

    def observe(self, measured: Mapping[str, float], present: Mapping[str, float], seconds: float) -> dict[str, float]:
        """See `Observer`. A step is a second of STEP_SECONDS; another length weighs in the mean as so many of them."""
        known = {name: float(measured.get(name, math.nan)) for name in self.measured}
        clock, before = float(present.get("frequency_ghz", math.nan)), dict(self._state)
        rate, ips, latency, room = (known[name] for name in ("rate_rps", "ips_1e9", "latency_ms", "room_c"))
        if math.isfinite(rate):
            passed = 1.0 - (1.0 - law.MEAN_WEIGHT) ** (seconds / law.STEP_SECONDS)
            mean = before["mean_rate_rps"]
            self._state["mean_rate_rps"] = mean + passed * (rate - mean) if math.isfinite(mean) else rate
        gain = 0.0  # where nobody knows what was before, the clock counts as not risen
        if math.isfinite(before["ips_1e9"] + before["frequency_ghz"]):
            rose = clock > before["frequency_ghz"]
            gain = law.ips_gain(ips, before["ips_1e9"], rose, NUMBERS) if ips > 0 else math.nan
        self._state |= {"frequency_ghz": clock, "ips_1e9": ips}
        pressing = law.pressing_latency(latency, room, NUMBERS) if math.isfinite(latency + room) else math.nan
        return known | {"frequency_ghz": clock, "ips_gain": gain, "pressing_latency_ms": pressing,
                        "mean_rate_rps": self._state["mean_rate_rps"]}

    def acted(self, values: Mapping[str, float]) -> None:
        """See `Observer`: what was set is seen at the next look."""

    def outcome(self, observation: Mapping[str, float]) -> dict[str, float]:
        """See `Observer`: the paper's reward, and the share of the power limit (interface.py)."""
        needed = (observation[name] for name in ("latency_ms", "most_latency_ms", "power_share", "ips_gain"))
        if not all(map(math.isfinite, needed)):
            return dict.fromkeys(("reward", "cost", "violation", "violated"), math.nan)
        return {name: float(value) for name, value in law.outcome(observation, NUMBERS).items()}

    def state(self) -> dict[str, float]:
        """See `Observer`."""
        return dict(self._state)

    def restore(self, state: Mapping[str, float]) -> None:
        """See `Observer`."""
        self._state = finite_state(state, _STATE, nullable=_STATE)
