"""The inputs that a property is about: the specification's box, finite values and one-hot groups, under conditions.

Flow: compile.py takes the boxes of obligations from here, share.py what samples are drawn from.

Symbols: n inputs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from feature_store.errors import InputError
from models.verification.language.properties import Conditions, FloatArray, OutputOrder, Property
from models.verification.language.specification import Specification


@dataclass(frozen=True)
class Domain:
    """lower, upper (n,); choices, one_hot as of a Specification, without what the conditions exclude."""

    feature_names: tuple[str, ...]
    lower: FloatArray
    upper: FloatArray
    choices: Mapping[int, tuple[float, ...]]
    one_hot: tuple[tuple[int, ...], ...]

    def admitted(self, group: Sequence[int]) -> FloatArray:
        """The values (k, len(group)) of a one-hot group: which of its inputs may be the one."""
        members, rows = list(group), np.eye(len(group))
        inside = (self.lower[members] <= rows) & (rows <= self.upper[members])
        return np.asarray(rows[np.all(inside, axis=1)])


def narrowed(specification: Specification, conditions: Conditions = ()) -> Domain:
    """The specification's inputs for which all conditions hold. Raises InputError where there are none."""
    lower, upper = specification.lower.copy(), specification.upper.copy()
    choices = dict(specification.choices)
    names = specification.feature_names
    for one in conditions:
        where = f"(feature {names[one.feature]!r})"
        if one.lower > upper[one.feature] or one.upper < lower[one.feature]:
            raise InputError(f"when must meet the box [{lower[one.feature]:g}, {upper[one.feature]:g}], got "
                             f"[{one.lower:g}, {one.upper:g}] {where}")
        lower[one.feature] = max(lower[one.feature], one.lower)
        upper[one.feature] = min(upper[one.feature], one.upper)
        if one.feature in choices:
            left = tuple(value for value in choices[one.feature] if one.lower <= value <= one.upper)
            if not left:
                raise InputError(f"when must leave a value of {', '.join(f'{v:g}' for v in choices[one.feature])}, got "
                                 f"[{one.lower:g}, {one.upper:g}] {where}")
            choices[one.feature] = left
    domain = Domain(names, lower, upper, choices, specification.one_hot)
    for group in specification.one_hot:
        if not len(domain.admitted(group)):
            raise InputError("when must leave one input of a one-hot group that can be 1, got none "
                             f"({', '.join(names[i] for i in group)})")
    return domain


def require_met(rule: Property, lower: FloatArray, upper: FloatArray, feature_names: Sequence[str]) -> None:
    """Raises InputError where no point of the boxes lower, upper (R, n) meets all of an order's `at_least`.

    Every input is put as low as the comparisons allow; where that is above a wall, no point meets them.
    """
    if not isinstance(rule, OutputOrder) or not rule.at_least:
        return
    least = lower.copy()
    for _ in rule.at_least:  # a chain of comparisons is no longer than their number
        for more, less in rule.at_least:
            least[:, more] = np.maximum(least[:, more], least[:, less])
    if not (least <= upper).all(axis=1).any():
        raise InputError("at_least must be met by an input of the box, got none where "
                         f"{rule.compared(feature_names)}: are they in one unit?")
