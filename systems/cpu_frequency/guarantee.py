"""A package that never gets hotter than its limit, or takes more than its cap: what follows, in the thermal law, of a
clock that is proved.

    T' = E + (T - E) exp(-1 s / (R C)),    E = air + R P(f, all cores busy and active, T)

A specification that bounds the clock where there is little room below the limit (`range` with `when: {room_c: ...}`)
leaves, for each amount of room, a level; by it and the hottest that the package may be there, a second of the law ends
at most at the limit: so it does for ever. Power, and with it T', grows with activity, busy cores, clock, temperature
and resistance: the worst of each stands for all. Turbo limits, power limits and throttling of the hardware are not
counted on. The largest resistance of which this is so is part of what is guaranteed, and so is the most power of a
second, which a cap must not be below: a clock that is bounded (`range` of all, or the workload's limits with it) keeps
it. No torch, no onnx.

Which processor a bundle is for, its levels alone say: all of one's are nobody else's. Open stays: of fewer, which are
neighbours among two processors' levels, the guarantee of either is accepted; the sentence names the processor.
"""

import json
import math
import time
from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType, SimpleNamespace
from typing import Any

from feature_store.finite_numbers import is_finite_number
from models.control.contract.guarantee import Shipped, judged
from models.control.contract.signals import ROUNDING
from models.verification.checker.archive import Rejected
from models.verification.closed_loop.answer import GuaranteeCheck
from models.verification.language.amounts import amount, plain
from systems.cpu_frequency.interface import CONTROLS, SIGNALS, STEP_SECONDS
from systems.cpu_frequency.processors import AIR_C, HEAT_J_PER_K, MOST_CAP_W, PROCESSORS, Processor, power_w

FORMAT = "assay-cpu-heat/2"
ASSUMED = ("A package is one heat capacity behind one resistance to the air, its sensor is exact, and a clock that is "
           "set runs at once. It rests on the bounds of the clock that are proved of the file itself, and on the "
           "shield, which keeps them for whoever acts as long as the temperature is read; a clock that an operator "
           "holds is the operator's.")
WORDS = {"change": "Air at most", "bound": "Power at most", "caption": "For ever, from any temperature up to the limit"}
HOTTER_C, WITHIN_C, MOST_S = 15.0, 0.1, 36_000  # a start above the limit, what counts as back, how long is looked
MOST_RESISTANCE = 3.0  # K/W that is claimed: with far more float64 would not tell a second from none
_TARGET = CONTROLS[0].name
_PLAIN = {"output", "minimum", "maximum", "when"}  # a `range` with more is of something else than the clock
(_ROOM,) = (signal for signal in SIGNALS if signal.name == "room_c")


def bounds_of(properties: Sequence[Mapping[str, Any]], highest_ghz: float) -> list[tuple[float, float]]:
    """(room, most GHz), by room: with at most so much room the clock is at most that; the last: with any.

    Args:
        properties: as specification.yaml has them, proved.
        highest_ghz: of the workload's limits.
    """
    found = {math.inf: highest_ghz}
    for one in (one["range"] for one in properties if "range" in one):
        when = one.get("when") or {}
        if set(one) <= _PLAIN and one["output"] == _TARGET and one.get("maximum") is not None and \
                set(when) <= {_ROOM.name}:
            low, high = when.get(_ROOM.name, (_ROOM.low, math.inf))
            if low <= _ROOM.low:  # less room is seen as that
                found[high] = min(found.get(high, math.inf), one["maximum"])
    ordered = sorted(found)
    return [(room, min(found[wider] for wider in ordered if wider >= room)) for room in ordered]


def worst(of: Processor, air_c: float, resistance: float,
          bounds: Sequence[tuple[float, float]]) -> tuple[float, float, int] | None:
    """(W, degrees, s): the most power of a second, the hottest afterwards, and after how many seconds a package that is
    HOTTER_C above the limit is WITHIN_C of it; None: it may get hotter than the limit, or does not come back."""
    numbers, share = SimpleNamespace(**of.numbers), math.exp(-STEP_SECONDS / (resistance * HEAT_J_PER_K))

    def level(most_ghz: float) -> float:
        """What is set of a target: the next level above, unless the one below is nearer than ROUNDING.

        Of all levels of the processor: a workload's limits leave neighbours, of which no target is below the least.
        """
        return min((one for one in of.levels if one >= most_ghz - ROUNDING), default=of.levels[-1])

    def after(temperature_c: float, ghz: float) -> tuple[float, float]:
        power = float(power_w(numbers, ghz, numbers.cores, 1.0, temperature_c))
        ends_c = air_c + resistance * power
        return power, ends_c + (temperature_c - ends_c) * share

    rooms = [0.0, *(room for room, _ in bounds[:-1])]
    ends = [after(of.limit_c - room, level(most)) for room, (_, most) in zip(rooms, bounds, strict=True)]
    hottest = max(temperature for _, temperature in ends)
    if not hottest <= of.limit_c - 1e-9:  # rounding
        return None
    now, seconds = of.limit_c + HOTTER_C, 0
    while now > of.limit_c + WITHIN_C and seconds < MOST_S:
        now, seconds = after(now, level(bounds[0][1]))[1], seconds + 1
    return None if seconds == MOST_S else (max(power for power, _ in ends), hottest, seconds)


def statement(of: Processor, air_c: float, resistance: float, cap_w: float, watts: float, seconds: int) -> str:
    """What is guaranteed, in words."""
    capped = "" if cap_w == MOST_CAP_W else f", which is within its cap of {plain(cap_w)} W"
    most_w = min(float(amount(watts)), cap_w)  # rounded up, but for a cap that is kept
    return (f"In the thermal law, an {of.name} with air of at most {plain(air_c)} degC and a resistance of at most "
            f"{plain(resistance)} K/W to it never gets hotter than its limit of {plain(of.limit_c)} degC, from any "
            f"temperature up to that, whatever the load and the programs, and takes at most {plain(most_w)} W in "
            f"any second{capped}; from {plain(HOTTER_C)} degrees above the limit it is within {plain(WITHIN_C)} "
            f"of it after {math.ceil(seconds * STEP_SECONDS)} s. By the clock alone, without turbo or power limit or "
            "throttling.")


def guarantees(properties: Sequence[Mapping[str, Any]], settings: Mapping[str, float | str],
               limits: Mapping[str, tuple[float, float]] = MappingProxyType({})) -> Mapping[str, Any]:
    """See `GuaranteedSystem.guarantees`. settings: of the workload, none left out."""
    began = time.monotonic()
    (of,) = (one for one in PROCESSORS if one.name == settings["processor"])
    bounds, air_c = bounds_of(properties, of.levels[-1]), float(settings["ambient_c"])
    # ever more of it is ever hotter: the largest thousandth of K/W that holds
    thousandth = next((one for one in range(round(1000 * MOST_RESISTANCE), 0, -1)
                       if worst(of, air_c, one / 1000, bounds)), 0)
    found, cap_w = worst(of, air_c, thousandth / 1000, bounds) if thousandth else None, float(settings["power_cap_w"])
    reason = "" if found else ("No resistance keeps the package at its limit: the clock is not bounded enough where "
                               "there is little room.")
    if found and found[0] > cap_w:
        reason = (f"The package may take {amount(found[0], 'W')} in a second, its cap is {plain(cap_w)} W: bound the "
                  "clock by the workload's limits, and let a `range` say so.")
    low, high = limits.get(_TARGET, (of.levels[0], of.levels[-1]))
    levels = tuple(one for one in of.levels if low <= one <= high)
    if other := _all_of_another(of, levels):
        reason = (f"The levels that may be set, {levels[0]:g} to {levels[-1]:g} GHz, are those of the {other.name}: a "
                  f"guarantee of the {of.name} could not be told from one of another processor; choose other limits.")
    one: dict[str, Any] = {"change": air_c, "change_unit": "degC", "status": "UNKNOWN", "statement": "", "bound": None,
                           "bound_unit": "W", "steps": None, "growth": None, "leaves": 0, "reason": reason,
                           "seconds": 0.0}
    shipped = None
    if found and not reason:
        content = json.dumps({"format": FORMAT, "processor": of.name, "air_c": air_c, "resistance": thousandth / 1000,
                              "cap_w": cap_w}).encode()
        checked = check(content, properties, {_TARGET: levels})
        assert checked.accepted, checked.reason
        shipped = Shipped(content, checked)
        one |= {"status": "PROVED", "statement": checked.statement, "bound": found[0], "steps": found[2]}
    one["seconds"] = time.monotonic() - began
    return {"assumed": ASSUMED, "words": WORDS, "found": [one], "shipped": shipped}


def check(content: bytes, properties: Sequence[Mapping[str, Any]],
          levels: Mapping[str, Sequence[float]]) -> GuaranteeCheck:
    """Whether a shipped guarantee follows of what is proved, for the levels that may be set; never raises on a bad
    one."""
    return judged(content, FORMAT, ("processor", "air_c", "resistance", "cap_w"),
                  partial(_says, properties, tuple(levels.get(_TARGET, ()))))


def _says(properties: Sequence[Mapping[str, Any]], levels: tuple[float, ...], document: Mapping[str, Any]) -> str:
    of = next((one for one in PROCESSORS if one.name == document["processor"]), None)
    air_c, resistance, cap_w = document["air_c"], document["resistance"], document["cap_w"]
    if of is None:
        raise Rejected(f"processor must be a known one, got {document['processor']!r:.40}")
    neighbours = levels and levels == tuple(one for one in of.levels if levels[0] <= one <= levels[-1])
    if not neighbours or _all_of_another(of, levels):
        listed = ", ".join(f"{one:g}" for one in levels) or "none"
        raise Rejected(f"levels that may be set must be those of the {of.name}, or neighbours of them that are not all "
                       f"of another one's, got {listed} GHz: it is the guarantee of another processor")
    known = all(is_finite_number(one) for one in (air_c, resistance, cap_w))
    if not (known and -50.0 <= air_c <= AIR_C and 0 < resistance <= MOST_RESISTANCE and 0 < cap_w <= MOST_CAP_W):
        raise Rejected(f"air must be -50 to {AIR_C:g} degC, resistance above 0, at most {MOST_RESISTANCE:g} K/W, and "
                       f"the cap of power at most {MOST_CAP_W:g} W, got {air_c!r}, {resistance!r} and {cap_w!r}")
    found = worst(of, air_c, resistance, bounds_of(properties, of.levels[-1]))
    if found is None:
        raise Rejected("the clock must be bounded so that the package keeps its limit, got bounds that do not")
    if not found[0] <= cap_w:
        raise Rejected(f"power must be within its cap of {plain(cap_w)} W, got {amount(found[0], 'W')} in a second")
    return statement(of, air_c, resistance, cap_w, found[0], found[2])


def _all_of_another(of: Processor, levels: tuple[float, ...]) -> Processor | None:
    """Whose levels these are, all of them, where it is not this one."""
    return next((one for one in PROCESSORS if one.name != of.name and one.levels == levels), None)
