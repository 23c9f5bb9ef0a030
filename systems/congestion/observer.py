"""A sender's signals that follow from what it measured before; the equations are the simulator's (equations.py)."""

import math
from collections.abc import Mapping

from models.control.contract.derived_signals import NUMBERS
from models.control.contract.observer import RememberedNumbers, known_outcome
from systems.congestion import equations as law
from systems.congestion.interface import SIGNALS

_MEANS = {"mean_rtt_slope": ("rtt_slope", law.SLOPE_WEIGHT), "mean_loss_share": ("loss_share", law.LOSS_WEIGHT)}
_DERIVED = ("rate_before_pps", "most_acked_pps", "acked_share", "most_acked_share", "queueing_s", *_MEANS)


class CongestionObserver(RememberedNumbers):
    """Implements `Observer`."""

    measured = tuple(signal.name for signal in SIGNALS
                     if signal.name not in (*_DERIVED, "rate_pps", "most_queueing_s"))
    guessed = ("rate_before_pps", "most_acked_pps", "acked_share", "most_acked_share", "queueing_s")

    def __init__(self) -> None:
        super().__init__("rate_pps", "most_acked_pps", "mean_loss_share")
        self.remembered["mean_rtt_slope"] = math.nan

    def observe(self, measured: Mapping[str, float], present: Mapping[str, float], seconds: float) -> dict[str, float]:
        """See `Observer`. The interval is what was measured of, not the time between two calls."""
        state = self.remembered
        known = {name: float(measured.get(name, math.nan)) for name in self.measured}
        rate = float(present.get("rate_pps", math.nan))
        before, state["rate_pps"] = state["rate_pps"], rate
        if all(map(math.isfinite, known.values())):
            acked, rtt, passed = (known[name] for name in ("acked_pps", "rtt_s", "interval_s"))
            state["most_acked_pps"] = law.faded_maximum(_or(state["most_acked_pps"], 0.25), acked, passed, rtt, NUMBERS)
            for name, (source, weight) in _MEANS.items():
                old = _or(state[name], 0.0)
                state[name] = old + weight * (known[source] - old)
        queueing = law.queueing(known["rtt_s"], known["min_rtt_s"], NUMBERS)
        known |= {name: state[name] for name in ("most_acked_pps", *_MEANS)}
        return known | {"rate_pps": rate, "rate_before_pps": _or(before, rate),
                        "acked_share": law.of_rate(known["acked_pps"], rate, NUMBERS),
                        "most_acked_share": law.of_rate(known["most_acked_pps"], rate, NUMBERS),
                        "queueing_s": queueing if math.isfinite(known["rtt_s"]) else math.nan}

    def outcome(self, observation: Mapping[str, float]) -> dict[str, float]:
        """See `Observer`: the paper's reward (equations.py); the bandwidth is taken for the most acknowledged."""
        needed = (*self.measured, "queueing_s", "most_acked_pps")
        return known_outcome((observation[name] for name in needed),
                             lambda: law.outcome(observation, observation["most_acked_pps"], NUMBERS))

    def restore(self, state: Mapping[str, float]) -> None:
        """See `Observer`. The slope of a moment is forgotten."""
        super().restore(state)
        self.remembered["mean_rtt_slope"] = math.nan


def _or(value: float, other: float) -> float:
    return value if math.isfinite(value) else other
