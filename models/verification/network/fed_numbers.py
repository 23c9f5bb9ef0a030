"""The numbers that a network is fed with for the inputs of a box, in the type that its file takes.

0.1 is no float32: a network of float32 gets 0.100000001490116 for it, which lies outside of the box [0, 0.1]. So that
a proof covers what runs, boxes are proved with what is fed for their walls, `hull`; counterexamples are sought, and
count, within the box as it is written. An input that the box holds at one number is fed with the nearest one of the
type: both and what lies between are proved. A finite value is taken as the number that is fed for it, `as_fed`. A
change (`robust`) is measured from the output at the point and at what is fed for it, whichever is further.

What a type has no finite number for is left as it is: nothing can be fed for it.

Symbols: n inputs; walls lower, upper (n,) or (R, n).
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feature_store.errors import InputError
from models.verification.language.properties import Condition, Property, Robustness
from models.verification.language.specification import Specification

FloatArray = NDArray[np.float64]
Number = np.dtype[Any]
FLOAT64: Number = np.dtype(np.float64)


def fed(values: FloatArray, number: Number) -> FloatArray:
    """The nearest number of the type to each value."""
    with np.errstate(over="ignore"):
        near = values.astype(number).astype(np.float64)
    return np.where(np.isfinite(near), near, values)


def held(lower: FloatArray, upper: FloatArray) -> NDArray[np.bool_]:
    """Which inputs the walls hold at one number: they are equal, or two float64 on either side of one that has none."""
    return np.asarray(upper <= np.nextafter(lower, np.inf))


def hull(lower: FloatArray, upper: FloatArray, number: Number) -> tuple[FloatArray, FloatArray]:
    """The smallest box that holds the given one and everything that is fed for its points."""
    return np.minimum(lower, fed(lower, number)), np.maximum(upper, fed(upper, number))


def inward(lower: FloatArray, upper: FloatArray, number: Number) -> tuple[FloatArray, FloatArray]:
    """The walls of the type's numbers in the box; the number that is fed, twice, where a side has none."""
    with np.errstate(over="ignore"):
        low, high = lower.astype(number), upper.astype(number)
        low = np.where(low < lower, np.nextafter(low, number.type(np.inf)), low)
        high = np.where(high > upper, np.nextafter(high, number.type(-np.inf)), high)
    none = low > high
    return (np.where(none, fed(lower, number), low.astype(np.float64)),
            np.where(none, fed(lower, number), high.astype(np.float64)))


def as_fed(specification: Specification, number: Number) -> Specification:
    """The specification with the numbers that are fed for its finite values, and beside the points of `robust`.

    Raises InputError where two values become one.
    """
    choices, lower, upper = dict(specification.choices), specification.lower.copy(), specification.upper.copy()
    conditions = {one: _as_fed(one, specification.choices[one.feature], number) for rule in specification.properties
                  for one in rule.when if one.feature in specification.choices}
    for feature, values in specification.choices.items():
        near = fed(np.array(values), number)
        if len(set(near.tolist())) < len(values):
            raise InputError(f"values must be distinct as numbers of {number}, which the network takes, got "
                             f"{list(values)} (feature {specification.feature_names[feature]!r})")
        choices[feature] = tuple(near.tolist())
        lower[feature], upper[feature] = min(lower[feature], near[0]), max(upper[feature], near[-1])
    rules = (replace(rule, when=tuple(conditions.get(one, one) for one in rule.when))
             for rule in specification.properties)
    return replace(specification, choices=choices, lower=lower, upper=upper,
                   properties=tuple(_points_as_fed(rule, list(choices), number) for rule in rules))


def _points_as_fed(rule: Property, finite: list[int], number: Number) -> Property:
    """A `robust` with what is fed for its points; their finite values are those that are fed, as everywhere."""
    if not isinstance(rule, Robustness):
        return rule
    points, near = rule.points.copy(), fed(rule.points, number)
    points[:, finite] = near[:, finite]
    return replace(rule, points=points, fed=near)


def _as_fed(condition: Condition, values: tuple[float, ...], number: Number) -> Condition:
    """The condition with walls that admit what is fed for the values that it admits."""
    admitted = fed(np.array([value for value in values if condition.lower <= value <= condition.upper]), number)
    if not len(admitted):
        return condition
    return Condition(condition.feature, min(condition.lower, float(admitted[0])),
                     max(condition.upper, float(admitted[-1])))
