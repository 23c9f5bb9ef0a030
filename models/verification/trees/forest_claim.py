"""What a property claims of a forest, part by part, in the terms in which it is said of a network (language/claim.py).

A forest is a step function, so an order has no slopes: it is that of the values before and after each threshold of the
feature, one after the other, for all values of the other inputs; the tolerance of a slope comes to nothing between
neighbouring numbers. Of an input with finitely many values it is that of consecutive values, with their tolerance, as
for networks.

Symbols: n inputs.
"""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np

from feature_store.errors import InputError
from models.verification.checker.time_limit import require_time
from models.verification.language.claim import VNNLIB, Claim, Part, read_outputs_claim
from models.verification.language.domain import Domain, narrowed
from models.verification.language.properties import Monotonicity, OutputOrder, OutputRange, Share, where
from models.verification.language.specification import NETWORK, Specification
from models.verification.language.specification_language import read_specification
from models.verification.network.fed_numbers import as_fed, hull
from models.verification.obligations.compile import Step, require_fit, roots, unsafe_outputs, unsafe_step
from models.verification.trees.forest import FLOAT32, Floats, Forest, rounded_inward
from models.verification.trees.forest_order import ForestOrder

FOREST = "the forest with the thresholds and values stored in the model file, which are added in real arithmetic"
MOST_STEPS = 100_000


def read_forest_claim(path: Path, forest: Forest, seconds: float) -> Claim:
    """Reads SPEC.yaml, or a VNN-LIB property by its ending.

    Raises:
        InputError: it does not fit the forest, takes longer than `seconds` to read, or is of a kind that is not decided
            of trees: shares, and comparisons of outputs with inputs.
    """
    if path.name.endswith(VNNLIB):
        return read_outputs_claim(path, forest, FLOAT32, seconds, f"It is proved for {FOREST}.")
    specification = as_fed(read_specification(path, forest, seconds), FLOAT32)
    require_fit(forest, specification)
    for rule in specification.properties:
        if isinstance(rule, Share) or (isinstance(rule, OutputRange | OutputOrder) and rule.inputs):
            kind = "share" if isinstance(rule, Share) else "a comparison of an output with an input"
            raise InputError("property of a forest must be monotone, robust, or a range or order of outputs, got "
                             f"{kind}")
    parts = tuple(replace(part, number=FLOAT32) for part in _parts(forest, specification))
    return Claim(parts, specification.statement.replace(NETWORK, FOREST), specification.feature_names,
                 specification.output_names, specification.units, specification)


def _parts(forest: Forest, specification: Specification) -> Iterator[Part]:
    domains = {rule.when: narrowed(specification, rule.when) for rule in specification.properties}
    boxes = {when: roots(domain, domain.choices) for when, domain in domains.items()}
    if (unsafe := unsafe_outputs(forest, specification, boxes)) is not None:
        yield Part("outputs", unsafe.lower, unsafe.upper, unsafe)
    for rule in specification.properties:
        if not isinstance(rule, Monotonicity):
            continue
        for feature in rule.features:
            order = _order(forest, specification, rule, domains[rule.when], feature)
            if order is not None:
                name = f"{rule.direction} in {specification.feature_names[feature]}"
                if forest.outputs > 1:
                    name = f"{specification.output_names[rule.output]} {name}"
                yield Part(name + where(rule.when, specification.feature_names), order.unsafe.lower, order.unsafe.upper,
                           order)


def _order(forest: Forest, specification: Specification, rule: Monotonicity, domain: Domain, feature: int
           ) -> ForestOrder | None:
    """A step for each two neighbouring values of the feature between which a tree has a threshold; None without any."""
    finite = domain.choices.get(feature)
    highs = np.array(finite[1:]) if finite else _first_behind_thresholds(forest, domain, feature)
    lows = np.array(finite[:-1]) if finite else _before(highs)
    slope = Fraction(specification.slope(feature, rule.output)) if finite else Fraction(0)
    steps, forests, boxes = list[Step](), list[Forest](), 0
    for low, high in zip(lows.tolist(), highs.tolist(), strict=True):
        require_time()
        difference = forest.step(feature, rule.output, low, high)
        if difference.values.any():
            unsafe = unsafe_step(domain, feature, low, rule.sign, slope * (Fraction(high) - Fraction(low)))
            steps.append(Step(feature, rule.output, low, high, unsafe, rule.when))
            forests.append(difference)
            boxes += len(unsafe.lower)
            if boxes > MOST_STEPS:
                raise InputError(f"feature must have at most {MOST_STEPS:,} thresholds in the box, once for each "
                                 "combination of the finite inputs, got more "
                                 f"({specification.feature_names[feature]})")
    return ForestOrder(tuple(steps), tuple(forests)) if steps else None


def _first_behind_thresholds(forest: Forest, domain: Domain, feature: int) -> Floats:
    """The float32 numbers in the box, but for the least, at which another box of some tree begins, in order."""
    low, high = rounded_inward(*(wall[feature] for wall in hull(domain.lower, domain.upper, FLOAT32)))
    begins = np.unique(forest.low[:, feature])
    return begins[(begins > low) & (begins <= high)]


def _before(values: Floats) -> Floats:
    """The next smaller float32 number of each."""
    return np.nextafter(values.astype(np.float32), np.float32(-np.inf)).astype(np.float64)
