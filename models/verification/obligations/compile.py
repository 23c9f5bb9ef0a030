"""Turns a network and its specification into what has to be proved, box by box: `obligations(graph, specification)`.

Inputs with finitely many values are fixed: the roots are one box per combination of them. A property under conditions
has roots of its own: what the conditions leave of them. Over the roots stand

    slopes       monotone in continuous features: signs of partial derivatives (derivative_query.py); those under the
                 same conditions together
    unsafe       range, order, robust, negated: outputs that must not occur (output_query.py)
    relation     range and order of outputs and inputs: the same, of the network whose outputs are y and x
    differences  monotone in a feature with values v[0] < v[1] < ...: per consecutive pair the network of differences
                 y(x with x[i] = v[j + 1]) - y(x with x[i] = v[j]) and the differences that must not occur

Rounding. An unsafe set is closed, and a property that holds with equality is not violated. So a constant that float64
has is lowered by one unit in its last place (at least TINY), which a proof leaves open; a constant that it does not
have is rounded up, which makes the unsafe set larger. The outputs that robustness refers to are known up to
`Graph.rounding`, and are those at a point and at what is fed for it: both make the unsafe set larger too.

Symbols: n inputs, o outputs, R roots, F slopes; low < high consecutive values of a feature.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from feature_store.errors import InputError
from models.verification.language.domain import Domain, narrowed, require_met
from models.verification.language.properties import (
    Conditions,
    InputValue,
    Monotonicity,
    OutputOrder,
    OutputRange,
    Robustness,
    Share,
    Side,
)
from models.verification.language.specification import Specification
from models.verification.language.unsafe_set import Alternative, UnsafeSet, unsafe_set
from models.verification.network.graph import FloatArray, Function, Graph
from models.verification.obligations.derived_graphs import above, pair_graph, related_graph
from models.verification.obligations.slopes import Slopes

Boxes = tuple[FloatArray, FloatArray]  # lower and upper walls, (R, n)
Case = tuple[FloatArray, FloatArray, Alternative]  # a box and what must not occur in it

MOST_COMBINATIONS = 100_000
TINY = 2.0**-1022  # the smallest normal number: smaller ones may be flushed to zero


@dataclass(frozen=True)
class SlopeObligation:
    """Slopes that must hold over boxes with walls lower, upper (R, n), where the conditions hold."""

    lower: FloatArray
    upper: FloatArray
    slopes: Slopes
    when: Conditions = ()


@dataclass(frozen=True)
class Step:
    """Over two values low < high of a feature.

    unsafe: which differences y[output] at x[feature] = high minus that at low, (1,), must not occur, with x[feature]
    held somewhere; when: the conditions that its boxes are of.
    """

    feature: int
    output: int
    low: float
    high: float
    unsafe: UnsafeSet
    when: Conditions


@dataclass(frozen=True)
class PairObligation(Step):
    """A step of a network. graph: x (n,) -> the difference, (1,), whatever x[feature] is."""

    graph: Graph


@dataclass(frozen=True)
class RelationObligation:
    """Over outputs and inputs. graph: x (n,) -> (y, x) (o + n,); unsafe: what must not occur of these."""

    graph: Graph
    unsafe: UnsafeSet


@dataclass(frozen=True)
class ShareObligation:
    """Not to be proved but to be counted (share.py), over the roots lower, upper (R, n)."""

    lower: FloatArray
    upper: FloatArray
    share: Share


@dataclass(frozen=True)
class Obligations:
    """All that must be proved; None and () where there is nothing of the kind. Each has boxes of its own."""

    slopes: tuple[SlopeObligation, ...]
    unsafe: UnsafeSet | None
    relation: RelationObligation | None
    differences: tuple[PairObligation, ...]
    shares: tuple[ShareObligation, ...]


def obligations(graph: Graph, specification: Specification) -> Obligations:
    """What must be proved of the graph, in the coordinates of the specification's box.

    Raises:
        InputError: the graph has other inputs or outputs than the specification; more than 100,000 combinations of
            finite inputs; conditions or `at_least` that no input meets; no admissible input near a robust point; a
            change that rounding covers.
    """
    require_fit(graph, specification)
    rules = specification.properties
    domains = {rule.when: narrowed(specification, rule.when) for rule in rules}
    boxes = {when: roots(domain, domain.choices) for when, domain in domains.items()}
    orders: dict[Conditions, dict[tuple[int, int, int], None]] = {}
    for rule in rules:
        if isinstance(rule, Monotonicity):
            orders.setdefault(rule.when, {}).update(dict.fromkeys((i, rule.output, rule.sign) for i in rule.features))
    slopes = tuple(SlopeObligation(*boxes[when], found, when) for when, of in orders.items()
                   if (found := _slopes(graph, specification, domains[when], list(of))) is not None)
    differences = tuple(_pair(graph, specification, domains[when], order, j, when) for when, of in orders.items()
                        for order in of if order[0] in specification.choices
                        for j in range(len(domains[when].choices[order[0]]) - 1))
    related = [case for rule in rules if isinstance(rule, OutputRange | OutputOrder) and rule.inputs
               for case in _violating(graph, rule, boxes[rule.when], specification)]
    return Obligations(slopes, unsafe_outputs(graph, specification, boxes),
                       RelationObligation(related_graph(graph), unsafe_set(related, apart=True)) if related else None,
                       differences,
                       tuple(ShareObligation(*boxes[rule.when], rule) for rule in rules if isinstance(rule, Share)))


def unsafe_outputs(function: Function, specification: Specification, boxes: Mapping[Conditions, Boxes]
                   ) -> UnsafeSet | None:
    """What range, order and robust say must not occur of the outputs alone; None where they say nothing.

    boxes: of each rule's conditions, (R, n) walls. Raises InputError as `obligations` does.
    """
    cases = list[Case]()
    for rule in specification.properties:
        match rule:
            case OutputRange() | OutputOrder() if not rule.inputs:
                cases += _violating(function, rule, boxes[rule.when], specification)
            case Robustness():
                cases += _near_points(function, rule, *boxes[rule.when])
    return unsafe_set(cases) if cases else None


def _violating(function: Function, rule: OutputRange | OutputOrder, boxes: Boxes, specification: Specification
               ) -> Iterator[Case]:
    require_met(rule, *boxes, specification.feature_names)
    columns = function.outputs + (function.inputs if rule.inputs else 0)
    for low, high in zip(*boxes, strict=True):
        yield from ((low, high, alternative) for alternative in _violations(rule, function.outputs, columns))


def _slopes(graph: Graph, specification: Specification, domain: Domain,
            orders: list[tuple[int, int, int]]) -> Slopes | None:
    """Of the orders (feature, output, sign) those in continuous features; None where there are none.

    Of an input that the box holds at one number no two values can be in the wrong order.
    """
    continuous = [(i, o, sign) for i, o, sign in orders
                  if i not in domain.choices and domain.lower[i] < domain.upper[i]]
    if not continuous:
        return None
    return Slopes(tuple(i for i, _, _ in continuous),
                  np.stack([sign * _unit(output, graph.outputs) for _, output, sign in continuous]),
                  np.array([specification.slope(i, output) for i, output, _ in continuous]))


def require_fit(function: Function, specification: Specification) -> None:
    """Raises InputError where the function has other inputs or outputs than the specification."""
    for what, size, names in (("inputs", function.inputs, specification.feature_names),
                              ("outputs", function.outputs, specification.output_names)):
        if size != len(names):
            raise InputError(f"specification must describe the network's {size} {what}, got {len(names)}")


def roots(domain: Domain, choices: Mapping[int, tuple[float, ...]]) -> Boxes:
    """Boxes (R, n): the domain's, once per combination of these choices and of its one-hot groups, fixed.

    Raises InputError above 100,000 combinations.
    """
    tables: list[tuple[tuple[int, ...], FloatArray]] = [
        ((i,), np.array(values, dtype=np.float64)[:, None]) for i, values in sorted(choices.items())]
    tables += [(group, domain.admitted(group)) for group in domain.one_hot]
    count = math.prod(len(table) for _, table in tables)
    if count > MOST_COMBINATIONS:
        names = ", ".join(domain.feature_names[i] for group, _ in tables for i in group)
        raise InputError(f"finite inputs must have at most {MOST_COMBINATIONS:,} combinations, got {count:,} ({names})")
    lower, upper = (np.repeat(wall[None].astype(np.float64), count, axis=0)
                    for wall in (domain.lower, domain.upper))
    number, before = np.arange(count), 1
    for group, table in tables:
        lower[:, list(group)] = upper[:, list(group)] = table[number // before % len(table)]
        before *= len(table)
    return lower, upper


def _pair(graph: Graph, specification: Specification, domain: Domain, order: tuple[int, int, int], j: int,
          when: Conditions) -> PairObligation:
    """The order (feature, output, sign) between the feature's values number j and j + 1."""
    feature, output, sign = order
    low, high = domain.choices[feature][j : j + 2]
    allowed = Fraction(specification.slope(feature, output)) * (Fraction(high) - Fraction(low))
    unsafe = unsafe_step(domain, feature, low, sign, allowed)
    return PairObligation(feature, output, low, high, unsafe, when, pair_graph(graph, output, feature, low, high))


def unsafe_step(domain: Domain, feature: int, low: float, sign: int, allowed: Fraction) -> UnsafeSet:
    """Which differences of an output must not occur on the way up from x[feature] = low: against `sign`, beyond
    `allowed`."""
    lower, upper = roots(domain, {**domain.choices, feature: (low,)})
    return UnsafeSet(lower, upper, np.full((len(lower), 1, 1, 1), -float(sign)),
                     np.full((len(lower), 1, 1), open_constant(-allowed)))


def _violations(rule: OutputRange | OutputOrder, outputs: int, columns: int) -> list[Alternative]:
    """How the rule can be violated, in terms of y, or of (y, x) where there are as many columns."""
    def row(side: Side | None) -> FloatArray:
        if side is None:
            return np.zeros((1, columns))
        return _unit(outputs + side.feature if isinstance(side, InputValue) else side, columns)[None]

    match rule:
        case OutputRange():
            sides = ((-1, rule.minimum), (1, rule.maximum))
            return [(sign * (row(rule.output) - row(rule.minus)), np.array([open_constant(-sign * Fraction(side))]))
                    for sign, side in sides if side is not None]
        case OutputOrder():
            compared = [row(InputValue(more)) - row(InputValue(less)) for more, less in rule.at_least]
            constants = np.array([open_constant(Fraction(rule.margin)), *[0.0] * len(compared)])
            return [(np.vstack([rule.factor * row(rule.lower) - row(rule.upper), *compared]), constants)]


def _near_points(function: Function, rule: Robustness, lower: FloatArray, upper: FloatArray) -> Iterator[Case]:
    """The cases of every point: its surroundings cut with every root, and both ways in which the output may change.

    The change is measured from the output at the point and at what is fed for it, so from the further of the two.
    """
    output = rule.output
    given = np.stack([rule.points, rule.points if rule.fed is None else rule.fed], axis=1)  # (P, 2, n)
    references, slacks = (values(given.reshape(-1, function.inputs))[:, output].reshape(-1, 2)
                          for values in (function.value, function.rounding))
    for k, (point, ys, es) in enumerate(zip(rule.points, references.tolist(), slacks.tolist(), strict=True)):
        if not all(rule.change > 2 * e for e in es):  # NaN is not
            raise InputError(f"change must exceed the rounding of the output, {2 * max(es):g}, got {rule.change:g} "
                             f"(point {k})")
        begin = np.maximum(lower, -_sum_above(-point, rule.radius))
        end = np.minimum(upper, _sum_above(point, rule.radius))
        met = (begin <= end).all(axis=1)
        if not met.any():
            raise InputError(f"point must have inputs of the box within its radius, got none (point {k}: "
                             + ", ".join(f"{value:g}" for value in point) + ")")
        for sign in (-1, 1):  # the true output is in y - e .. y + e
            change = max(Fraction(-sign * y) + Fraction(e) for y, e in zip(ys, es, strict=True)) - Fraction(rule.change)
            alternative = sign * _unit(output, function.outputs)[None], np.array([above(change)])
            yield from ((a, b, alternative) for a, b in zip(begin[met], end[met], strict=True))


def _unit(place: int, size: int) -> FloatArray:
    """(size,): 1 at this place, else 0. Not a row of the identity, which is size times as large."""
    row = np.zeros(size)
    row[place] = 1.0
    return row


def _sum_above(a: FloatArray, b: FloatArray) -> FloatArray:
    """a + b, rounded up. Knuth's TwoSum gives the exact error of the nearest."""
    near = a + b
    part = near - a
    return np.where((a - (near - part)) + (b - part) > 0, np.nextafter(near, np.inf), near)


def open_constant(exact: Fraction) -> float:
    """The constant d with which {c y + d >= 0} stands for {c y + exact > 0}: a unit lower where it is exact."""
    near = above(exact)
    return near if near > exact else min(math.nextafter(near, -math.inf), near - TINY)
