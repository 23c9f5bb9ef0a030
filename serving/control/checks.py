"""What is checked of an observation before anything is decided on it: complete, fresh, possible.

A signal that networks see as a logarithm has a smallest value above 0; a measured 0 counts as that value, as in the
environment. Everything else outside of what can be observed is no observation: a policy was neither trained nor proved
for it, and the fallback acts.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from serving.contract import Contract, InputSpec

_EXACT = 1e-6  # share of an end of the range by which arithmetic may miss it


@dataclass(frozen=True)
class Checked:
    """An observation as it may be fed.

    Attributes:
        row: input -> value; of those in trouble what was seen, NaN where nothing was.
        troubles: why the policy must not decide on it, a phrase each; empty where it may.
        outside: inputs beyond the proved box, which the policy sees at its edge.
    """

    row: Mapping[str, float]
    troubles: tuple[str, ...]
    outside: tuple[str, ...]


def checked(contract: Contract, seen: Mapping[str, float], ages_s: Mapping[str, float] = {},
            fresh_s: Mapping[str, float] = {}) -> Checked:
    """Checks what was seen.

    Args:
        seen: input -> raw value; NaN or left out: missing.
        ages_s: input -> seconds since it was measured, where that is known.
        fresh_s: input -> the most that its age may be; left out: any.
    """
    row: dict[str, float] = {}
    troubles, outside = [], []
    for spec in contract.inputs:
        value = float(seen.get(spec.name, math.nan))
        value, trouble = _possible(spec, value)
        age, most = ages_s.get(spec.name, 0.0), fresh_s.get(spec.name, math.inf)
        if not trouble and not age <= most:
            trouble = f"{spec.name} is {age:.0f} s old, more than {most:g} s"
        if trouble:
            troubles.append(trouble)
        elif not spec.minimum <= value <= spec.maximum:
            outside.append(spec.name)
        row[spec.name] = value
    return Checked(row, tuple(troubles), tuple(outside))


def _possible(spec: InputSpec, value: float) -> tuple[float, str]:
    """The value as it may be fed, and what is wrong with it."""
    if math.isnan(value):
        return value, f"{spec.name} is missing"
    low = -math.inf if spec.physical_minimum is None else spec.physical_minimum
    high = math.inf if spec.physical_maximum is None else spec.physical_maximum
    if 0.0 <= value < low:
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
