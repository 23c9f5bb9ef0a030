"""Governors without a network: the kernel's, as its documentation states them, a race to idle, and leading loads.

Documentation/admin-guide/pm/cpufreq.rst, "Generic Scaling Governors"; thresholds in use are those of
drivers/cpufreq/cpufreq_{ondemand,conservative}.c. They decide once a second here, in the kernel some hundred times;
boosting after waits for I/O is left out. `least_ghz` and `most_ghz` are scaling_min_freq and scaling_max_freq. Where
something is not measured the clock stays.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from models.control.contract.controller import Array, RuleFamily
from models.control.contract.one_target_rule import Decide, Memory, OneTargetRule, Seen
from models.control.contract.setting import Setting, Values
from systems.cpu_frequency.interface import AT_LIMIT_C, CONTROLS
from systems.cpu_frequency.processors import LEVELS

_NEEDED = ("frequency_ghz", "delivered_ghz", "usage", "stall_share", "latency_ms", "most_latency_ms", "room_c")
_LEVELS = np.array(LEVELS)[:, None]


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


def _rule(name: str, declared: Sequence[Setting], decide: Decide) -> OneTargetRule:
    return OneTargetRule(name, declared, decide, CONTROLS[0], _NEEDED, {"asked_ghz": np.nan, "waits": 0.0})


_MOST = Setting("most_ghz", LEVELS[-1], "GHz", LEVELS[0], LEVELS[-1], (1.5, LEVELS[-1]), meaning="scaling_max_freq")
_LEAST = Setting("least_ghz", LEVELS[0], "GHz", LEVELS[0], LEVELS[-1], (LEVELS[0], 2.2), meaning="scaling_min_freq")
_UP = Setting("up_threshold", 0.8, "share", 0.01, 1.0, (0.3, 0.95), meaning="load above which the clock goes up")
_DOWN_FACTOR = Setting("sampling_down_factor", 1.0, "1", 1.0, 100.0, (1.0, 10.0), whole=True, meaning="slower down")
RULES: Mapping[str, RuleFamily] = {rule.name: rule for rule in (
    # the highest clock within the limits; the lowest; f = 1.25 f_0 util / max, of the clock at which it was measured
    _rule("performance", (_MOST,), lambda seen, _, to: 0.0 * seen["usage"] + to["most_ghz"]),
    _rule("powersave", (_LEAST,), lambda seen, _, to: 0.0 * seen["usage"] + to["least_ghz"]),
    _rule("schedutil", (
        _LEAST, _MOST, Setting("headroom", 1.25, "1", 0.1, 10.0, (1.0, 3.5), log=True, meaning="clock over work")),
        lambda seen, _, to: np.clip(to["headroom"] * seen["usage"] * seen["delivered_ghz"], to["least_ghz"],
                                    to["most_ghz"])),
    _rule("ondemand", (_LEAST, _MOST, _UP, _DOWN_FACTOR), _ondemand),
    _rule("conservative", (
        _LEAST, _MOST, _UP, _DOWN_FACTOR,
        Setting("down_threshold", 0.2, "share", 0.0, 1.0, (0.1, 0.6), meaning="load below which it goes down"),
        Setting("freq_step", 0.05, "share", 0.01, 1.0, (0.02, 0.3), log=True, meaning="of the highest clock")),
        _conservative),
    # the highest clock while there is work, the lowest where there is nearly none
    _rule("race-to-idle", (
        _MOST, Setting("idle_share", 0.1, "share", 0.0, 1.0, (0.02, 0.6), meaning="usage that is nearly no work")),
        lambda seen, _, to: np.where(seen["usage"] > to["idle_share"], to["most_ghz"], LEVELS[0])),
    _rule("leading-loads", (
        Setting("margin", 0.85, "share", 0.1, 2.0, (0.5, 1.0), meaning="of the objective"),
        Setting("queueing", 0.5, "1", 0.0, 4.0, (0.0, 1.5), meaning="power of the free cores"),
        Setting("most_usage", 0.85, "share", 0.1, 1.0, (0.5, 0.98), meaning="cores that may be busy"),
        Setting("growth", 1.05, "1", 1.0, 3.0, (1.0, 1.4), meaning="of the load in a step"),
        Setting("patience", 0.5, "share", 0.01, 1.0, (0.1, 1.0), meaning="of the way down, a step")), _leading_loads))}
