"""Which properties of a specification a counterexample breaks, and by how much, in the output's unit.

Symbols: P points, n inputs, o outputs; x (P, n), y (P, o).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.verification.language.properties import (
    Conditions,
    InputValue,
    Monotonicity,
    OutputOrder,
    OutputRange,
    Property,
    Side,
)
from models.verification.language.specification import Specification

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Broken:
    """A property that a counterexample breaks, and by how much beyond what it allows, in its output's unit."""

    rule: Property
    amount: float


def missed_by(rule: OutputRange | OutputOrder, x: Array, y: Array) -> tuple[NDArray[np.bool_], Array]:
    """Each (P,): where the rule's conditions hold; by how much it is missed there, not above 0 where it is kept."""
    def side(of: Side) -> Array:
        return x[:, of.feature] if isinstance(of, InputValue) else y[:, of]

    applies = _holds(rule.when, x)
    match rule:
        case OutputRange():
            value = side(rule.output) - (0.0 if rule.minus is None else side(rule.minus))
            low = -np.inf if rule.minimum is None else rule.minimum
            high = np.inf if rule.maximum is None else rule.maximum
            return applies, np.maximum(low - value, value - high)
        case OutputOrder():
            for more, less in rule.at_least:
                applies &= x[:, more] >= x[:, less]
            return applies, rule.factor * side(rule.lower) + rule.margin - side(rule.upper)


def broken(specification: Specification, x: Array, y: Array) -> list[Broken]:
    """What a counterexample of one point or of two (P is 1 or 2) breaks, the worst first.

    Of two points, the lower first, the orders between them; changes near points (robust) and shares are left out.
    """
    found = [_between(rule, specification, x, y) if isinstance(rule, Monotonicity) and len(x) > 1
             else _at(rule, x, y) if isinstance(rule, OutputRange | OutputOrder) and len(x) == 1
             else Broken(rule, 0.0) for rule in specification.properties]
    return sorted((one for one in found if one.amount > 0), key=lambda one: -one.amount)


def _at(rule: OutputRange | OutputOrder, x: Array, y: Array) -> Broken:
    (applies,), (amount,) = missed_by(rule, x, y)
    return Broken(rule, float(amount) if applies else 0.0)


def _between(rule: Monotonicity, specification: Specification, x: Array, y: Array) -> Broken:
    differs = np.flatnonzero(x[0] != x[1]).tolist()
    if len(differs) != 1 or differs[0] not in rule.features or not _holds(rule.when, x).all():
        return Broken(rule, 0.0)
    allowed = specification.slope(differs[0], rule.output) * (x[1] - x[0])[differs[0]]
    return Broken(rule, float(rule.sign * (y[0] - y[1])[rule.output] - allowed))


def _holds(conditions: Conditions, x: Array) -> NDArray[np.bool_]:
    """(P,): where all conditions hold. A runtime is fed with float32: walls are rounded as its inputs are."""
    applies = np.ones(len(x), dtype=np.bool_)
    for one in conditions:
        value, low, high = (np.asarray(side, dtype=np.float32) for side in (x[:, one.feature], one.lower, one.upper))
        applies &= (low <= value) & (value <= high)
    return applies
