"""A governor's signals that follow from what it measured before; the equations are the simulator's (interface.py)."""

import math
from collections.abc import Mapping

from models.control.contract.derived_signals import NUMBERS
from models.control.contract.observer import RememberedNumbers, known_outcome
from systems.cpu_frequency import interface as law
from systems.cpu_frequency.interface import SIGNALS

_DERIVED = ("ips_gain", "mean_rate_rps", "pressing_latency_ms")
_LEAST_IPS, _MOST_IPS = next((one.low, one.high) for one in SIGNALS if one.name == "ips_1e9")


class FrequencyObserver(RememberedNumbers):
    """Implements `Observer`."""

    measured = tuple(signal.name for signal in SIGNALS
                     if signal.name not in (*_DERIVED, "frequency_ghz", "most_latency_ms"))
    guessed = ("ips_gain", "mean_rate_rps")

    def __init__(self) -> None:
        super().__init__("frequency_ghz", "ips_1e9", "mean_rate_rps")

    def observe(self, measured: Mapping[str, float], present: Mapping[str, float], seconds: float) -> dict[str, float]:
        """See `Observer`. A step is a second of STEP_SECONDS; another length weighs in the mean as so many of them."""
        known = {name: float(measured.get(name, math.nan)) for name in self.measured}
        clock, before = float(present.get("frequency_ghz", math.nan)), dict(self.remembered)
        ips, latency, room = (known[name] for name in ("ips_1e9", "latency_ms", "room_c"))
        if math.isfinite(ips):  # clipped before what follows of it, as in the simulator
            ips = NUMBERS.clamp(ips, _LEAST_IPS, _MOST_IPS)
        self.add_to_mean("mean_rate_rps", known["rate_rps"], law.MEAN_WEIGHT, seconds / law.STEP_SECONDS)
        gain = 0.0  # where nobody knows what was before, the clock counts as not risen
        if math.isfinite(before["ips_1e9"] + before["frequency_ghz"]):
            rose = clock > before["frequency_ghz"]
            gain = law.ips_gain(ips, before["ips_1e9"], rose, NUMBERS) if math.isfinite(ips) else math.nan
        self.remembered |= {"frequency_ghz": clock, "ips_1e9": ips}
        pressing = law.pressing_latency(latency, room, NUMBERS) if math.isfinite(latency + room) else math.nan
        return known | {"frequency_ghz": clock, "ips_gain": gain, "pressing_latency_ms": pressing,
                        "mean_rate_rps": self.remembered["mean_rate_rps"]}

    def outcome(self, observation: Mapping[str, float]) -> dict[str, float]:
        """See `Observer`: the paper's reward, and the share of the power limit (interface.py)."""
        needed = ("latency_ms", "most_latency_ms", "power_share", "ips_gain")
        return known_outcome((observation[name] for name in needed), lambda: law.outcome(observation, NUMBERS))
