"""What is checked of an observation before anything is decided on it: complete, fresh, possible.

A signal that networks see as a logarithm has a smallest value above 0; a measured 0 counts as that value, as in the
environment. Everything else outside of what can be observed is no observation: a policy was neither trained nor proved
for it, and nothing else is told of it either: neither the observer, whose means it would spoil for an hour, nor the
fallback, which would follow it to an end of its range.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from serving.contract import Contract, InputSpec
from serving.seen_spec import Familiar

_EXACT = 1e-6  # share of an end of the range by which arithmetic may miss it
_AHEAD_S = 5.0  # by which clocks of servers may differ: a sample from further in the future has no age


@dataclass(frozen=True)
class Checked:
    """An observation as it may be used.

    Attributes:
        row: input -> value; NaN for each that is in trouble or missing, but for present values, which are as they are.
        troubles: input -> why the policy must not decide on it, a phrase; empty where it may.
        outside: inputs beyond the proved box, which the policy sees at its edge.
        age_s: of the oldest measurement whose age is known; NaN: of none.
    """

    row: Mapping[str, float]
    troubles: Mapping[str, str]
    outside: tuple[str, ...]
    age_s: float = math.nan


@dataclass(frozen=True)
class Distribution:
    """What an operator says of being out of distribution.

    Attributes:
        margin: in place of the contract's, >= 1; None: the contract's.
        ignored: inputs that count for nothing there.
    """

    margin: float | None = None
    ignored: tuple[str, ...] = ()


def beyond_training(familiar: Familiar | None, seen: Checked, distribution: Distribution) -> dict[str, str]:
    """Range of what training saw -> how an observation is beyond it, a phrase; what is in trouble is beyond none."""
    return {} if familiar is None else familiar.strange(seen.row, distribution.margin, distribution.ignored)


def checked(contract: Contract, seen: Mapping[str, float], names: Collection[str], ages_s: Mapping[str, float] = {},
            fresh_s: Mapping[str, float] = {}) -> Checked:
    """Checks some inputs of what was seen.

    Args:
        seen: input -> raw value; NaN or left out: missing.
        names: of the inputs that are checked; the others are in no part of the answer.
        ages_s: input -> seconds since it was measured, where that is known.
        fresh_s: input -> the most that its age may be; left out: any.
    """
    present = set() if contract.driving is None else set(contract.driving.current.values())
    row: dict[str, float] = {}
    troubles: dict[str, str] = {}
    outside = []
    for spec in contract.inputs:
        if spec.name not in names:
            continue
        raw = float(seen.get(spec.name, math.nan))
        value, trouble = _possible(spec, raw, spec.name in present)
        trouble = trouble or _aged(spec.name, ages_s.get(spec.name, 0.0), fresh_s.get(spec.name, math.inf))
        if trouble:
            troubles[spec.name], value = trouble, raw if spec.name in present else math.nan
        elif not spec.minimum <= value <= spec.maximum:
            outside.append(spec.name)
        row[spec.name] = value
    age_s = max((ages_s[name] for name in row if name in ages_s), default=math.nan)
    return Checked(row, troubles, tuple(outside), age_s)


def _aged(name: str, age_s: float, most_s: float) -> str:
    if math.isinf(age_s):
        return f"{name} has no age: the query `newest` gave no sample"
    if age_s < -_AHEAD_S:
        return f"{name} is from {-age_s:.0f} s in the future; `newest` must be a Unix time in seconds"
    return "" if age_s <= most_s else f"{name} is {age_s:.0f} s old, more than {most_s:g} s"


def _possible(spec: InputSpec, value: float, is_present: bool) -> tuple[float, str]:
    """The value as it may be fed, and what is wrong with it. Present values are never moved to a range."""
    if math.isnan(value):
        return value, f"{spec.name} is missing"
    low = -math.inf if spec.physical_minimum is None else spec.physical_minimum
    high = math.inf if spec.physical_maximum is None else spec.physical_maximum
    if 0.0 <= value < low and not is_present:
        return low, ""
    if low <= value <= high:
        return value, ""
    for end in (low, high):
        if abs(value - end) <= _EXACT * abs(end):
            return end, ""
    unit = f" {spec.unit}" if spec.unit else ""
    return value, f"{spec.name} is {value:g}{unit}, outside of {low:g} to {high:g}"


def first_of(troubles: Sequence[str], most: int = 3) -> str:
    """The first few in one phrase."""
    more = f" and {len(troubles) - most} more" if len(troubles) > most else ""
    return "; ".join(troubles[:most]) + more
