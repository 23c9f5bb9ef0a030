"""What a contract says of the controller that acts where a policy may not: its rule, settings, and the safe ranges.

    "fallback": {"rule": "hpa-cpu", "settings": {"replicas_cpu_target": 0.6},
                 "safe_ranges": {"target_replicas": {"minimum": 1, "maximum": 64, "most_down": 0.25, "most_up": 1.0}}}

Whoever acts must not carry out a target beyond a safe range, nor a change by a larger share of the present value in one
step, nor one away from `safe_side` ("more", which may be left out, or "less") while the objective is missed or unseen,
nor one above its `ceilings`, where there are some ({"room_c": {"start": 3, "end": 1, "at_most": 2}}).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from feature_store.errors import InputError
from feature_store.finite_numbers import is_finite_number
from feature_store.names import check_label
from models.control.contract.signals import Ceiling, SafeSide, most_allowed

_WHERE = "contract.json, fallback"
_KEYS = {"rule", "settings", "safe_ranges"}


@dataclass(frozen=True)
class SafeRange:
    """Of one target, in its unit; most_down and most_up: shares of the present value that one step may change.
    safe_side: where it may go at any time (`Control.safe_side`). ceilings: input -> what it may be at most."""

    minimum: float
    maximum: float
    most_down: float
    most_up: float
    safe_side: SafeSide = "more"
    ceilings: Mapping[str, Ceiling] = field(default_factory=dict)

    def at_most(self, seen: Mapping[str, float]) -> float:
        """The most by the range and its ceilings; of an input that is not known nothing follows."""
        return most_allowed(self.maximum, self.ceilings, seen)

    def to_json(self) -> dict[str, Any]:
        """As in contract.json."""
        found = vars(self).copy()
        if self.safe_side == "more":
            del found["safe_side"]
        ceilings = {name: vars(one).copy() for name, one in found.pop("ceilings").items()}
        return {**found, "ceilings": ceilings} if ceilings else found


@dataclass(frozen=True)
class FallbackSpec:
    """rule, settings: the system makes the controller of them; safe_ranges: by output."""

    rule: str
    settings: Mapping[str, float | str]
    safe_ranges: Mapping[str, SafeRange]

    def to_json(self) -> dict[str, Any]:
        """As in contract.json."""
        return {"rule": self.rule, "settings": dict(self.settings),
                "safe_ranges": {name: one.to_json() for name, one in self.safe_ranges.items()}}


def fallback_spec(data: Any, outputs: Sequence[str], inputs: Sequence[str] = ()) -> FallbackSpec:
    """Reads it.

    Args:
        outputs: names of the model's, each of which has a safe range.
        inputs: names of the model's, of which ceilings are.

    Raises:
        InputError: a key is unknown or missing, a value is of a wrong type, a range is empty.
    """
    if not isinstance(data, Mapping) or set(data) != _KEYS:
        raise InputError(f"fallback must have the keys {', '.join(sorted(_KEYS))}, got {data!r} ({_WHERE})")
    check_label(data["rule"], "rule", _WHERE, False)
    settings, ranges = data["settings"], data["safe_ranges"]
    usable = isinstance(settings, Mapping) and all(
        isinstance(name, str) and (isinstance(value, str) or is_finite_number(value))
        for name, value in settings.items())
    if not usable:
        raise InputError(f"settings must be names with numbers or words, got {settings!r} ({_WHERE})")
    if not isinstance(ranges, Mapping) or set(ranges) != set(outputs):
        raise InputError(f"safe_ranges must be one for each of {', '.join(outputs)}, got {ranges!r} ({_WHERE})")
    return FallbackSpec(data["rule"], dict(settings), {name: _range(name, one, inputs) for name, one in ranges.items()})


def _range(name: str, data: Any, inputs: Sequence[str]) -> SafeRange:
    numbers = set(SafeRange.__dataclass_fields__) - {"safe_side", "ceilings"}
    usable = isinstance(data, Mapping) and numbers <= set(data) <= {*numbers, "safe_side", "ceilings"} and \
        all(is_finite_number(data[key]) for key in numbers) and data.get("safe_side", "more") in get_args(SafeSide)
    if not usable or data["minimum"] > data["maximum"] or not 0 <= data["most_down"] <= 1 or data["most_up"] < 0:
        raise InputError(f"safe range of {name} must have minimum <= maximum, most_down from 0 to 1, most_up from 0 "
                         f"and a safe_side, more or less, if any, got {data!r} ({_WHERE})")
    ceilings = data.get("ceilings", {})
    if not isinstance(ceilings, Mapping) or not all(
            isinstance(signal, str) and signal in inputs and isinstance(one, Mapping)
            and set(one) == set(Ceiling.__dataclass_fields__)
            and all(map(is_finite_number, one.values())) and one["start"] != one["end"]
            for signal, one in ceilings.items()):
        raise InputError(f"ceilings of {name} must be inputs with numbers start, end and at_most, start and end not "
                         f"equal, got {ceilings!r} ({_WHERE})")
    found = SafeRange(**{**data, "ceilings": {signal: Ceiling(**one) for signal, one in ceilings.items()}})
    least = found.maximum - sum(one.taken_off(found.maximum) for one in found.ceilings.values())
    if least < found.minimum:
        raise InputError(f"ceilings of {name} must leave its least value, {found.minimum:g}, got {least:g} where all "
                         f"of them hold ({_WHERE})")
    return found
