"""What must hold for every input of a box: properties of a network, and the inputs that they are about.

properties.py has the kinds of property; specification_language.py reads them all from task files and SPEC.yaml;
compile.py turns them into what has to be proved.

Monotonicity is equation 1 of vPALs: for all x0, x1 in the box with x0[i] >= x1[i] for the chosen
features i and equal elsewhere, f(x0) >= f(x1). For a piecewise linear f it is the sign of every
partial derivative in every activation region. `tolerance` is a slope: a pair may violate the order
by at most tolerance times its distance (1-norm), in the network's coordinates (in scaled ones: share of
the target's range per range of a feature), so that a region in which f is constant is not lost to
rounding. In raw units a slope means something else for every feature and output: there an amount over the whole box is
meant, and `allowed` has the slope of each (tolerance.py). The other kinds have no tolerance: their limits, margins and
changes are meant as they stand.

Symbols: n inputs, o outputs; lower, upper (n,) the box in the network's own coordinates.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from feature_store.errors import InputError
from models.verification.language.amounts import amount, plain
from models.verification.language.properties import (
    Conditions,
    Direction,
    Monotonicity,
    OutputOrder,
    OutputRange,
    Property,
    Robustness,
    Share,
)

FloatArray = NDArray[np.float64]

DEFAULT_TOLERANCE = 1e-4
NETWORK = "the network in real arithmetic with the weights stored in the model file"  # that a proof is about


@dataclass(frozen=True)
class Specification:
    """Properties over a box. `lower` and `upper`: (n,), float64, in the network's coordinates.

    choices: the values of an input that takes finitely many, ascending and inside its walls, by its index.
    one_hot: groups of inputs of which exactly one is 1 and the others are 0.
    units: of the inputs and outputs that have one, by name.
    over_the_box: (o,) the tolerance of each output where one feature goes through its whole box, in the output's unit;
    allowed: (n, o) the slope that this is of each feature; None, both: `tolerance` is the slope of all.
    rounding: what execution may add to a violation at most, by the number of the output, in its unit; a proof of which
    it may add more is refused. Outputs without a limit: see execution.py.
    """

    feature_names: tuple[str, ...]
    lower: FloatArray
    upper: FloatArray
    properties: tuple[Property, ...]
    tolerance: float = DEFAULT_TOLERANCE
    output_names: tuple[str, ...] = ("output",)
    choices: Mapping[int, tuple[float, ...]] = field(default_factory=dict)
    one_hot: tuple[tuple[int, ...], ...] = ()
    units: Mapping[str, str] = field(default_factory=dict)
    allowed: FloatArray | None = None
    over_the_box: FloatArray | None = None
    rounding: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._check_box()
        if not self.properties:
            raise InputError("specification must have at least one property, got none")
        if not (np.isfinite(self.tolerance) and self.tolerance >= 0):
            raise InputError(f"tolerance must be a number >= 0, got {self.tolerance!r}")
        for output, limit in self.rounding.items():
            if not 0 <= output < len(self.output_names) or not (np.isfinite(limit) and limit >= 0):
                raise InputError(f"rounding must be a number >= 0 for an output, got {limit!r} for output {output}")
        self._check_properties()
        self._check_finite_inputs()

    def _check_box(self) -> None:
        n = len(self.feature_names)
        if self.lower.shape != (n,) or self.upper.shape != (n,):
            raise InputError(f"box must have {n} lower and upper bounds, got shapes {self.lower.shape} and "
                             f"{self.upper.shape}")
        if not (np.isfinite(self.lower).all() and np.isfinite(self.upper).all()):
            raise InputError("box must be bounded, got an infinite or NaN wall")
        for name, low, high in zip(self.feature_names, self.lower, self.upper, strict=True):
            if low > high:
                raise InputError(f"box must have lower <= upper, got [{low:g}, {high:g}] (feature {name!r})")

    def _check_properties(self) -> None:
        directions: dict[tuple[int, int, Conditions], Direction] = {}
        for rule in self.properties:
            for output in rule.outputs:
                if not 0 <= output < len(self.output_names):
                    raise InputError(f"output index must be in 0..{len(self.output_names) - 1}, got {output}")
            inner = rule.of if isinstance(rule, Share) else rule
            for feature in (*(one.feature for one in rule.when),
                            *(inner.inputs if isinstance(inner, OutputRange | OutputOrder) else ())):
                self._require_index(feature)
            if isinstance(inner, Robustness) and inner.points.shape[1] != len(self.feature_names):
                raise InputError(f"points must have {len(self.feature_names)} features, got {inner.points.shape[1]}")
            for feature in inner.features if isinstance(inner, Monotonicity) else ():
                self._require_index(feature)
                if isinstance(rule, Monotonicity) and \
                        directions.setdefault((feature, rule.output, rule.when), rule.direction) != rule.direction:
                    raise InputError("directions must not contradict, got increasing and decreasing "
                                     f"(feature {self.feature_names[feature]!r})")
                if any(feature in group for group in self.one_hot):
                    raise InputError("monotone feature must be free to change alone, got one of a one-hot group "
                                     f"(feature {self.feature_names[feature]!r})")

    def _check_finite_inputs(self) -> None:
        taken: set[int] = set(self.choices)
        for feature, values in self.choices.items():
            self._require_index(feature)
            where = f"(feature {self.feature_names[feature]!r})"
            if not values or not all(a < b for a, b in pairwise(values)) or not np.isfinite(values).all():
                raise InputError(f"values must be at least one finite number, ascending and distinct, got "
                                 f"{list(values)} {where}")
            self._require_inside(feature, values)
        for group in self.one_hot:
            if len(group) < 2:
                raise InputError(f"one-hot group must have at least two inputs, got {len(group)}")
            for feature in group:
                self._require_index(feature)
                if feature in taken:
                    raise InputError("one-hot input must be in one group and have no values of its own, got another "
                                     f"(feature {self.feature_names[feature]!r})")
                taken.add(feature)
                self._require_inside(feature, (0.0, 1.0))

    def _require_index(self, feature: int) -> None:
        if not 0 <= feature < len(self.feature_names):
            raise InputError(f"feature index must be in 0..{len(self.feature_names) - 1}, got {feature}")

    def _require_inside(self, feature: int, values: Sequence[float]) -> None:
        low, high = self.lower[feature], self.upper[feature]
        if not (low <= values[0] and values[-1] <= high):
            raise InputError(f"values must be inside the box [{low:g}, {high:g}], got {values[0]:g}..{values[-1]:g} "
                             f"(feature {self.feature_names[feature]!r})")

    def slope(self, feature: int, output: int) -> float:
        """By how much the output may go the wrong way per unit of the feature."""
        return self.tolerance if self.allowed is None else float(self.allowed[feature, output])

    @property
    def orders(self) -> tuple[Monotonicity, ...]:
        """The properties of a specification that is monotonicity of one output alone.

        Raises InputError where that is not all: other kinds of property, several outputs.
        """
        rules = tuple(rule for rule in self.properties if isinstance(rule, Monotonicity))
        if len(rules) < len(self.properties) or len(self.output_names) > 1:
            raise InputError("specification must be monotone alone, of one output, to be proved by slopes, got: "
                             + self._clauses(self.properties))
        return rules

    @property
    def queries(self) -> tuple[tuple[int, int], ...]:
        """Distinct (feature index, sign) pairs that must be proved, in ascending order. Raises as `orders` does."""
        return tuple(sorted({(f, rule.sign) for rule in self.orders for f in rule.features}))

    @property
    def statement(self) -> str:
        """What a proof of this specification says, as a sentence for reports and certificates."""
        real = f"It is proved for {NETWORK}."
        bounded = {output for rule in self.properties for output in rule.outputs} & set(self.rounding)
        if bounded:  # of another output nobody looks at what execution adds
            limits = (amount(self.rounding[output], self.units.get(self.output_names[output], ""))
                      + (f" to {self.output_names[output]}" if len(self.output_names) > 1 else "")
                      for output in sorted(bounded))
            real = f"{real[:-1]}; its execution adds at most {', '.join(limits)}, as the checker bounds it."
        orders = [rule for rule in self.properties if isinstance(rule, Monotonicity)]
        plain_box = not (self.choices or self.one_hot or any(rule.when for rule in orders))
        if len(orders) == len(self.properties) and len(self.output_names) == 1 and plain_box:
            rules = "; ".join(f"{rule.direction} in {', '.join(self.feature_names[f] for f in rule.features)}"
                              for rule in orders)
            return (f"The output is {rules}, for every input in the box, with the other inputs equal: a pair may "
                    f"violate the order by at most {self._violation(0)}. {real}")
        shares = [rule for rule in self.properties if isinstance(rule, Share)]
        sentences = []
        if proved := [rule for rule in self.properties if not isinstance(rule, Share)]:
            sentences.append(f"For every input in {self._domain}: {self._clauses(proved)}. {real}")
        if shares:
            sentences.append(f"Over {'the box' if proved else self._domain}: {self._clauses(shares)}. Shares are "
                             "counted on random inputs, evaluated in float64 (Clopper-Pearson interval).")
        ordered = [output for output in range(len(self.output_names)) if self.ordered(output)]
        if ordered:
            of = [f" of {self.output_names[output]}" if len(self.output_names) > 1 else "" for output in ordered]
            sentences.append("; ".join(f"{'a' if number else 'A'} pair may violate the order{of[number]} by at most "
                                       f"{self._violation(output)}" for number, output in enumerate(ordered)) + ".")
        return " ".join(sentences)

    def ordered(self, output: int) -> list[int]:
        """The features that the output is monotone in, or a share of its pairs is."""
        inner = (rule.of if isinstance(rule, Share) else rule for rule in self.properties)
        return sorted({feature for rule in inner if isinstance(rule, Monotonicity) and rule.output == output
                       for feature in rule.features})

    def _violation(self, output: int) -> str:
        """What the tolerance comes to over the whole box, in units of the output."""
        unit, features = self.units.get(self.output_names[output], ""), self.ordered(output)
        each = [Fraction(self.slope(feature, output)) * (Fraction(self.upper[feature]) - Fraction(self.lower[feature]))
                for feature in features]
        whole = f"{amount(sum(each, Fraction(0)), unit)} over the box"
        if self.allowed is None:
            return f"{whole} ({plain(self.tolerance)}{unit and ' '}{unit} per unit of a feature)"
        return whole if len(features) == 1 else f"{whole} ({amount(max(each), unit)} for each feature)"

    @property
    def _domain(self) -> str:
        finite = [f"{self.feature_names[i]} is one of {', '.join(f'{plain(value)}' for value in values)}"
                  for i, values in sorted(self.choices.items())]
        finite += [f"exactly one of {', '.join(self.feature_names[i] for i in group)} is 1 and the others are 0"
                   for group in self.one_hot]
        return f"the box{', where ' if finite else ''}{' and '.join(finite)}"

    def _clauses(self, rules: Sequence[Property]) -> str:
        return "; ".join(rule.statement(self.feature_names, self.output_names) for rule in rules)
