"""The kinds of property that a specification is made of, each with the sentence that says it.

Numbers stand in sentences with all their digits: one that is rounded may say more than is proved.

Each may have conditions, `when`: it then holds in the part of the box where all of them do.

Symbols: n inputs, o outputs, P points; x (n,) an input, y(x) (o,) the outputs there, in the network's coordinates.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from feature_store.errors import InputError
from models.verification.language.amounts import plain

FloatArray = NDArray[np.float64]
Direction = Literal["increasing", "decreasing"]
Names = Sequence[str]

DEFAULT_CONFIDENCE, DEFAULT_SAMPLES = 0.999, 20_000


@dataclass(frozen=True)
class Condition:
    """lower <= x[feature] <= upper; equal walls: the input has that value."""

    feature: int
    lower: float
    upper: float

    def __post_init__(self) -> None:
        _require_finite("wall of a condition", self.lower)
        _require_finite("wall of a condition", self.upper)
        if self.lower > self.upper:
            raise InputError(f"when must give [lower, upper], lower <= upper, got [{self.lower:g}, {self.upper:g}]")

    def statement(self, feature_names: Names) -> str:
        """The condition in words."""
        name = feature_names[self.feature]
        if self.lower == self.upper:
            return f"{name} is {plain(self.lower)}"
        return f"{name} is {plain(self.lower)} to {plain(self.upper)}"


Conditions = tuple[Condition, ...]


@dataclass(frozen=True)
class InputValue:
    """An input as a side of an order or a difference: x[feature]."""

    feature: int


Side = int | InputValue  # the number of an output, or an input


def where(conditions: Conditions, feature_names: Names) -> str:
    """The conditions as the end of a sentence; "" where there are none."""
    return ", where " + " and ".join(one.statement(feature_names) for one in conditions) if conditions else ""


def side_name(side: Side, feature_names: Names, output_names: Names) -> str:
    """What a side is called."""
    return feature_names[side.feature] if isinstance(side, InputValue) else output_names[side]


def _numbers(*sides: Side | None) -> tuple[int, ...]:
    """The outputs among the sides."""
    return tuple(side for side in sides if isinstance(side, int))


@dataclass(frozen=True)
class Monotonicity:
    """The output never falls (increasing) or never rises (decreasing) in each of `features` (column indices)."""

    features: tuple[int, ...]
    direction: Direction
    output: int = 0
    when: Conditions = ()

    def __post_init__(self) -> None:
        if not self.features:
            raise InputError("expected at least one input to be monotone in, got none")
        if self.direction not in ("increasing", "decreasing"):
            raise InputError(f"direction: expected increasing or decreasing, got {self.direction!r}")

    @property
    def sign(self) -> int:
        """+1 for increasing, -1 for decreasing."""
        return 1 if self.direction == "increasing" else -1

    @property
    def outputs(self) -> tuple[int, ...]:
        """The outputs it is about."""
        return (self.output,)

    def statement(self, feature_names: Names, output_names: Names) -> str:
        """What holds, in words."""
        return (f"{output_names[self.output]} is {self.direction} in "
                f"{', '.join(feature_names[i] for i in self.features)}, with the other inputs equal"
                + where(self.when, feature_names))


@dataclass(frozen=True)
class OutputRange:
    """minimum <= y[output] - minus <= maximum; None: no bound on that side, nothing that is subtracted."""

    output: int
    minimum: float | None = None
    maximum: float | None = None
    minus: Side | None = None
    when: Conditions = ()

    def __post_init__(self) -> None:
        if self.minimum is None and self.maximum is None:
            raise InputError("range must have a minimum or a maximum, got neither")
        for name, side in (("minimum", self.minimum), ("maximum", self.maximum)):
            if side is not None:
                _require_finite(name, side)
        if self.minimum is not None and self.maximum is not None and self.minimum > self.maximum:
            raise InputError(f"range must have minimum <= maximum, got [{self.minimum:g}, {self.maximum:g}]")
        if self.minus == self.output:
            raise InputError(f"minus must be another output or an input, got output {self.output} twice")

    @property
    def outputs(self) -> tuple[int, ...]:
        """The outputs it is about."""
        return _numbers(self.output, self.minus)

    @property
    def inputs(self) -> tuple[int, ...]:
        """The inputs whose values it is about."""
        return (self.minus.feature,) if isinstance(self.minus, InputValue) else ()

    def statement(self, feature_names: Names, output_names: Names) -> str:
        """What holds, in words."""
        sides = [f"at {word} {plain(side)}" for word, side in (("least", self.minimum), ("most", self.maximum))
                 if side is not None]
        name = output_names[self.output]
        if self.minus is not None:
            name += f" minus {side_name(self.minus, feature_names, output_names)}"
        return f"{name} is {' and '.join(sides)}{where(self.when, feature_names)}"


@dataclass(frozen=True)
class OutputOrder:
    """upper >= factor lower + margin, of two outputs or of an output and an input; a negative margin gives room.

    at_least: pairs of inputs; it holds where the first of each is at least the second.
    """

    upper: Side
    lower: Side
    margin: float = 0.0
    when: Conditions = ()
    factor: float = 1.0
    at_least: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        if self.upper == self.lower:
            raise InputError(f"order must be of two outputs, got output {self.upper} twice")
        if not self.outputs:
            raise InputError("order must have an output as one of its sides, got two inputs")
        _require_finite("margin", self.margin)
        if not 0 < self.factor < math.inf:
            raise InputError(f"factor must be a number > 0, got {self.factor!r}")
        if same := [more for more, less in self.at_least if more == less]:
            raise InputError(f"at_least must compare two inputs, got input {same[0]} twice")

    @property
    def outputs(self) -> tuple[int, ...]:
        """The outputs it is about."""
        return _numbers(self.upper, self.lower)

    @property
    def inputs(self) -> tuple[int, ...]:
        """The inputs whose values it is about."""
        sides = tuple(side.feature for side in (self.upper, self.lower) if isinstance(side, InputValue))
        return sides + tuple(feature for pair in self.at_least for feature in pair)

    def statement(self, feature_names: Names, output_names: Names) -> str:
        """What holds, in words."""
        margin = f" {'plus' if self.margin > 0 else 'minus'} {plain(abs(self.margin))}" if self.margin else ""
        upper, lower = (side_name(side, feature_names, output_names) for side in (self.upper, self.lower))
        least = lower if self.factor == 1 else f"{plain(self.factor)} times {lower}"
        only = f", where {self.compared(feature_names)}" if self.at_least else ""
        return f"{upper} is at least {least}{margin}{where(self.when, feature_names)}{only}"


    def compared(self, feature_names: Names) -> str:
        """What `at_least` demands, in words."""
        return " and ".join(f"{feature_names[more]} is at least {feature_names[less]}" for more, less in self.at_least)


@dataclass(frozen=True)
class Robustness:
    """|y(x)[output] - y(p)[output]| <= change for every point p and every x of the box with |x - p| <= radius.

    points (P, n); radius (n,), 0: the feature stays as it is; change > 0, in units of the output. fed (P, n): what a
    network is fed for the points, from whose outputs the change is measured as well; None: the points themselves.
    """

    points: FloatArray
    radius: FloatArray
    change: float
    output: int = 0
    when: Conditions = ()
    fed: FloatArray | None = None

    def __post_init__(self) -> None:
        if self.points.ndim != 2 or not self.points.size or self.radius.shape != self.points.shape[1:]:
            raise InputError(f"points and radius must be of shapes (P, n) and (n,), got {self.points.shape} and "
                             f"{self.radius.shape}")
        if not np.isfinite(self.points).all():
            raise InputError("points must be finite, got NaN or infinity")
        if not (np.isfinite(self.radius).all() and (self.radius >= 0).all() and (self.radius > 0).any()):
            raise InputError("radius must be >= 0 in every feature and > 0 in one, got "
                             + ", ".join(f"{side:g}" for side in self.radius))
        if not 0 < self.change < math.inf:
            raise InputError(f"change must be a number > 0, got {self.change!r}")

    @property
    def outputs(self) -> tuple[int, ...]:
        """The outputs it is about."""
        return (self.output,)

    def statement(self, feature_names: Names, output_names: Names) -> str:
        """What holds, in words."""
        if (self.radius == self.radius[0]).all():
            near = f"{plain(self.radius[0])} in every feature"
        else:
            near = ", ".join(f"{plain(side)} in {name}"
                             for name, side in zip(feature_names, self.radius, strict=True) if side > 0)
            near += " and equal in the others" if (self.radius == 0).any() else ""
        each = "the given point" if len(self.points) == 1 else f"each of {len(self.points)} given points"
        return (f"{output_names[self.output]} differs by at most {plain(self.change)} from its value at {each} "
                f"wherever the input is within {near}{where(self.when, feature_names)}")


@dataclass(frozen=True)
class Share:
    """With `confidence`, a share of at least `at_least` of the inputs satisfies `of`; of pairs, where it is an order.

    0 < at_least < 1, 0 < confidence < 1; samples: how many inputs are drawn to show it.
    """

    of: Monotonicity | OutputRange | OutputOrder
    at_least: float
    confidence: float = DEFAULT_CONFIDENCE
    samples: int = DEFAULT_SAMPLES
    when: Conditions = ()

    def __post_init__(self) -> None:
        if self.of.when:
            raise InputError("expected the condition beside `of`, got it inside of it")
        if isinstance(self.of, OutputOrder) and self.of.at_least:
            raise InputError("expected no `at_least` in what is counted, got one")
        for name, value in (("at_least", self.at_least), ("confidence", self.confidence)):
            if not 0 < value < 1:
                raise InputError(f"{name} must be between 0 and 1, both excluded, got {value!r}")
        if self.samples < 1:
            raise InputError(f"samples must be >= 1, got {self.samples}")
        needed = math.ceil(math.log((1 - self.confidence) / 2) / math.log(self.at_least))
        if self.samples < needed:
            raise InputError(f"samples must be at least {needed:,} to show a share of {self.at_least!r} with "
                             f"confidence {self.confidence!r} even if all satisfy it, got {self.samples:,}")

    @property
    def outputs(self) -> tuple[int, ...]:
        """The outputs it is about."""
        return self.of.outputs

    def statement(self, feature_names: Names, output_names: Names) -> str:
        """What holds, in words."""
        what = "pairs of inputs that differ in one feature" if isinstance(self.of, Monotonicity) else "inputs"
        return (f"for a share of at least {plain(self.at_least)} of all {what}{where(self.when, feature_names)}, with "
                f"confidence {plain(self.confidence)}: " + self.of.statement(feature_names, output_names))


Property = Monotonicity | OutputRange | OutputOrder | Robustness | Share


def _require_finite(name: str, value: float) -> None:
    if not math.isfinite(value):
        raise InputError(f"{name} must be a finite number, got {value!r}")
