"""What is checked of an observation before anything is decided on it: complete, fresh, possible.

A signal that networks see as a logarithm has a smallest value above 0; a measured 0 counts as that value, as in the
environment. Everything else outside of what can be observed is no observation: a policy was neither trained nor proved
for it, and nothing else is told of it either: neither the observer, whose means it would spoil for an hour, nor the
fallback, which would follow it to an end of its range.

What is set beyond its range is known all the same: a control group without a limit has the host's memory. It hides
nothing of the service, so the fallback may bring it back.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from serving.contract import Contract, InputSpec
from serving.seen_spec import Familiar

_EXACT = 1e-6  # share of an end of the range by which arithmetic may miss it
_AHEAD_S = 5.0  # by which clocks of servers may differ: a sample from further in the future has no age


@dataclass(frozen=True)
class Checked:
    """An observation as it may be used.

    Attributes:
        row: input -> value; NaN for each that is in trouble or missing, but for present values, which are as they are.
        within: the same with what is `beyond` at the end of its range, as a policy may see it.
        troubles: input -> why the policy must not decide on it, a phrase; empty where it may.
        outside: inputs beyond the proved box, which the policy sees at its edge.
        beyond: signal of what is set -> how that is outside of what can be observed, a phrase; no trouble.
        age_s: of the oldest measurement whose age is known; NaN: of none.
    """

    row: Mapping[str, float]
    troubles: Mapping[str, str]
    outside: tuple[str, ...]
    age_s: float = math.nan
    within: Mapping[str, float] = field(default_factory=dict)
    beyond: Mapping[str, str] = field(default_factory=dict)

    @property
    def unfit(self) -> Mapping[str, str]:
        """Input -> why the policy does not decide on it."""
        return {**self.troubles, **self.beyond}


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
    return {} if familiar is None else familiar.strange(seen.within, distribution.margin, distribution.ignored)


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
    ends: dict[str, float] = {}
    troubles: dict[str, str] = {}
    beyond: dict[str, str] = {}
    outside = []
    for spec in contract.inputs:
        if spec.name not in names:
            continue
        raw = float(seen.get(spec.name, math.nan))
        value, trouble = _possible(spec, raw, spec.name in present, spec.name.removeprefix("ready_") in present)
        trouble = trouble or _aged(spec.name, ages_s.get(spec.name, 0.0), fresh_s.get(spec.name, math.inf))
        if trouble and spec.name in present and math.isfinite(raw):
            low, high = _ends(spec)
            beyond[spec.name], ends[spec.name] = trouble, min(max(raw, low), high)
            outside.append(spec.name)
        elif trouble:
            troubles[spec.name], value = trouble, raw if spec.name in present else math.nan
        elif not spec.minimum <= value <= spec.maximum:
            outside.append(spec.name)
        row[spec.name] = value
    age_s = max((ages_s[name] for name in row if name in ages_s), default=math.nan)
    return Checked(row, troubles, tuple(outside), age_s, row | ends, beyond)


def _aged(name: str, age_s: float, most_s: float) -> str:
    if math.isinf(age_s):
        return f"{name} has no age: the query `newest` gave no sample"
    if age_s < -_AHEAD_S:
        return (f"{name} is from {-age_s:.0f} s in the future; its clock must be right, and `newest` a Unix time in "
                "seconds")
    return "" if age_s <= most_s else f"{name} is {age_s:.0f} s old, more than {most_s:g} s"


def _ends(spec: InputSpec) -> tuple[float, float]:
    """Of what can be observed."""
    return (-math.inf if spec.physical_minimum is None else spec.physical_minimum,
            math.inf if spec.physical_maximum is None else spec.physical_maximum)


def _possible(spec: InputSpec, value: float, is_present: bool, is_counted: bool) -> tuple[float, str]:
    """The value as it may be fed, and what is wrong with it. Present values are never moved to a range; what is ready
    of them, counted, may be as many as are set."""
    if math.isnan(value):
        return value, f"{spec.name} is missing"
    low, high = _ends(spec)
    if 0.0 <= value < low and not is_present:
        return low, ""
    if high < value < math.inf and is_counted and not is_present:
        return high, ""
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
