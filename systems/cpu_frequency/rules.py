"""Governors without a network: the kernel's, as its documentation states them, a race to idle, and leading loads.

Documentation/admin-guide/pm/cpufreq.rst, "Generic Scaling Governors"; thresholds in use are those of
drivers/cpufreq/cpufreq_{ondemand,conservative}.c. They decide once a second here, in the kernel some hundred times;
boosting after waits for I/O is left out. `least_ghz` and `most_ghz` are scaling_min_freq and scaling_max_freq. Where
something is not measured the clock stays.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from models.control.contract.controller import Array, RuleFamily
from models.control.contract.setting import Setting, Value, Values, checked
from systems.cpu_frequency.interface import AT_LIMIT_C
from systems.cpu_frequency.processors import LEVELS

Seen = Mapping[str, Array]
Memory = dict[str, Array]
Decide = Callable[[Seen, Memory, Values], Array]
_NEEDED = ("frequency_ghz", "delivered_ghz", "usage", "stall_share", "latency_ms", "most_latency_ms", "room_c")
_LEVELS = np.array(LEVELS)[:, None]


@dataclass(frozen=True)
class Rule:
    """Implements `RuleFamily`."""

    name: str
    declared: Sequence[Setting]
    decide: Decide

    def make(self, settings: Mapping[str, Value]) -> "RuleController":
        """See `RuleFamily`."""
        return RuleController(self, checked(settings, self.declared, self.name))


class RuleController:
    """Implements `Controller`."""

    def __init__(self, rule: Rule, values: Values) -> None:
        self.name, self._rule, self._values = rule.name, rule, values
        self._memory: Memory = {}

    @property
    def settings(self) -> Mapping[str, float | str]:
        """See `Controller`."""
        return {name: float(value) for name, value in self._values.items()}

    def start(self, applications: int) -> None:
        """See `Controller`."""
        self._memory = {"asked_ghz": np.full(applications, np.nan), "waits": np.zeros(applications)}

    def act(self, observation: Mapping[str, Array], seconds: float) -> dict[str, Array]:
        """See `Controller`."""
        seen = {name: np.asarray(observation[name], dtype=np.float64) for name in _NEEDED}
        known = np.all([np.isfinite(values) for values in seen.values()], axis=0)
        usable, before = {name: np.where(known, values, 1.0) for name, values in seen.items()}, dict(self._memory)
        clock = self._rule.decide(usable, self._memory, self._values)
        self._memory = {name: np.where(known, values, before[name]) for name, values in self._memory.items()}
        clock = np.where(known, clock, np.nan_to_num(seen["frequency_ghz"], nan=LEVELS[0]))
        return {"target_frequency_ghz": np.clip(clock, LEVELS[0], LEVELS[-1])}


def _ondemand(seen: Seen, memory: Memory, settings: Values) -> Array:
    """In proportion to the load, from the lowest clock at 0 to the highest at 1; above a threshold the highest, for
    `sampling_down_factor` times as long."""
    least, most = settings["least_ghz"], settings["most_ghz"]
    above = seen["usage"] > settings["up_threshold"]
    waits = np.where(above, settings["sampling_down_factor"], memory["waits"]) - 1.0
    memory["waits"] = np.maximum(waits, 0.0)
    return np.asarray(np.where(waits >= 0.0, most, least + seen["usage"] * (most - least)))


def _conservative(seen: Seen, memory: Memory, settings: Values) -> Array:
    """A step of the highest clock up above a threshold, down below another, `sampling_down_factor` times slower.

    The documentation names one threshold and a direction on each side of it; the kernel's code has two, 80 % and 20 %.
    """
    most = settings["most_ghz"]
    asked = np.where(np.isfinite(memory["asked_ghz"]), memory["asked_ghz"], seen["frequency_ghz"])
    above, below = seen["usage"] > settings["up_threshold"], seen["usage"] < settings["down_threshold"]
    waits = np.where(above, 0.0, memory["waits"] + 1.0)
    down = below & (waits >= settings["sampling_down_factor"])
    memory["waits"], step = np.where(down, 0.0, waits), settings["freq_step"] * most
    memory["asked_ghz"] = np.clip(asked + step * above - step * down, settings["least_ghz"], most)
    return memory["asked_ghz"]


def _leading_loads(seen: Seen, memory: Memory, settings: Values) -> Array:
    """The least clock whose predicted latency keeps a margin below the objective: ours.

    A busy second at f becomes (1 - s) f / f' + s at f', by the share s of it that waits for memory (Keramidas et al.,
    CF 2010); the latency that, times free cores now over free cores then to a power. Down it goes by `patience`.
    """
    now, usage = seen["delivered_ghz"], seen["usage"] * settings["growth"]
    longer = (1.0 - seen["stall_share"]) * now / _LEVELS + seen["stall_share"]
    fewer = (1.0 - np.minimum(usage, 0.98)) / np.maximum(1.0 - usage * longer, 0.02)
    latency = seen["latency_ms"] * longer * fewer ** settings["queueing"]
    keeps = (latency <= settings["margin"] * seen["most_latency_ms"]) & (usage * longer <= settings["most_usage"])
    wanted = np.where(keeps, _LEVELS, np.inf).min(axis=0)
    wanted = np.where(np.isfinite(wanted), wanted, LEVELS[-1])
    wanted = np.where(wanted < now, now + (wanted - now) * settings["patience"], wanted)
    # a latency that is missed where there is no room is the cooling's: no rise against it
    return np.asarray(np.where(seen["room_c"] > AT_LIMIT_C, wanted, np.minimum(wanted, seen["frequency_ghz"])))


_MOST = Setting("most_ghz", LEVELS[-1], "GHz", LEVELS[0], LEVELS[-1], (1.5, LEVELS[-1]), meaning="scaling_max_freq")
_LEAST = Setting("least_ghz", LEVELS[0], "GHz", LEVELS[0], LEVELS[-1], (LEVELS[0], 2.2), meaning="scaling_min_freq")
_UP = Setting("up_threshold", 0.8, "share", 0.01, 1.0, (0.3, 0.95), meaning="load above which the clock goes up")
_DOWN_FACTOR = Setting("sampling_down_factor", 1.0, "1", 1.0, 100.0, (1.0, 10.0), whole=True, meaning="slower down")
RULES: Mapping[str, RuleFamily] = {rule.name: rule for rule in (
    # the highest clock within the limits; the lowest; f = 1.25 f_0 util / max, of the clock at which it was measured
    Rule("performance", (_MOST,), lambda seen, _, to: 0.0 * seen["usage"] + to["most_ghz"]),
    Rule("powersave", (_LEAST,), lambda seen, _, to: 0.0 * seen["usage"] + to["least_ghz"]),
    Rule("schedutil", (
        _LEAST, _MOST, Setting("headroom", 1.25, "1", 0.1, 10.0, (1.0, 3.5), log=True, meaning="clock over work")),
        lambda seen, _, to: np.clip(to["headroom"] * seen["usage"] * seen["delivered_ghz"], to["least_ghz"],
                                    to["most_ghz"])),
    Rule("ondemand", (_LEAST, _MOST, _UP, _DOWN_FACTOR), _ondemand),
    Rule("conservative", (
        _LEAST, _MOST, _UP, _DOWN_FACTOR,
        Setting("down_threshold", 0.2, "share", 0.0, 1.0, (0.1, 0.6), meaning="load below which it goes down"),
        Setting("freq_step", 0.05, "share", 0.01, 1.0, (0.02, 0.3), log=True, meaning="of the highest clock")),
        _conservative),
    # the highest clock while there is work, the lowest where there is nearly none
    Rule("race-to-idle", (
        _MOST, Setting("idle_share", 0.1, "share", 0.0, 1.0, (0.02, 0.6), meaning="usage that is nearly no work")),
        lambda seen, _, to: np.where(seen["usage"] > to["idle_share"], to["most_ghz"], LEVELS[0])),
    Rule("leading-loads", (
        Setting("margin", 0.85, "share", 0.1, 2.0, (0.5, 1.0), meaning="of the objective"),
        Setting("queueing", 0.5, "1", 0.0, 4.0, (0.0, 1.5), meaning="power of the free cores"),
        Setting("most_usage", 0.85, "share", 0.1, 1.0, (0.5, 0.98), meaning="cores that may be busy"),
        Setting("growth", 1.05, "1", 1.0, 3.0, (1.0, 1.4), meaning="of the load in a step"),
        Setting("patience", 0.5, "share", 0.01, 1.0, (0.1, 1.0), meaning="of the way down, a step")), _leading_loads))}
