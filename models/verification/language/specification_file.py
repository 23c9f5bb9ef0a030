"""What may be written in SPEC.yaml, and under `specification:` of a task file.

Here stands which fields there are and of which kind each is. Whether names are the model's and values agree is seen by
specification_language.py, which makes a `Specification` of it; its docstring shows every form. This module imports
pydantic; reading a file that our own writer wrote does without it.
"""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from feature_store.written.model import ListOf, Written
from models.verification.language.properties import DEFAULT_CONFIDENCE, DEFAULT_SAMPLES

Wall = Annotated[ListOf[float], Field(min_length=2, max_length=2, json_schema_extra={"expected": "[lower, upper]"})]
Walls = dict[str, Wall]
When = Annotated[Walls, Field(min_length=1)]
Amounts = dict[str, Annotated[float, Field(ge=0)]]
Point = Annotated[ListOf[float], Field(min_length=1)] | dict[str, float]
Share = Annotated[float, Field(gt=0, lt=1)]

_OUTPUT = "Output that it is about; may be left out where the model has one"
_WHEN = "Condition: `{name of an input: [lower, upper]}`; it then holds in that part of the box"


class MonotoneFields(Written):
    """The output never falls (increasing) or never rises (decreasing) in each of the features."""

    features: ListOf[str] = Field(min_length=1, description="Inputs that it is monotone in")
    direction: Literal["increasing", "decreasing"] = Field(default="increasing", description="Which way")
    output: str | None = Field(default=None, description=_OUTPUT)
    when: When | None = Field(default=None, description=_WHEN)


class RangeFields(Written):
    """The output, or its difference to another one or to an input, stays within limits."""

    output: str | None = Field(default=None, description=_OUTPUT)
    minimum: float | None = Field(default=None, description="Least value")
    maximum: float | None = Field(default=None, description="Largest value")
    minus: str | None = Field(default=None, description="Output or input that is subtracted")
    when: When | None = Field(default=None, description=_WHEN)


class OrderFields(Written):
    """`upper` is at least `factor` times `lower`, plus `margin`."""

    upper: str = Field(description="Output, or an input")
    lower: str = Field(description="Output, or an input")
    factor: float = Field(default=1.0, gt=0, description="What `lower` is multiplied by: 0.75 for a fall of at most a "
                                                         "quarter")
    margin: float = Field(default=0.0, description="By how much at least; below 0 it gives room")
    at_least: dict[str, str] | None = Field(
        default=None, description="Condition: `{name of an input: name of another}`; it then holds where the first is "
                                  "at least the second")
    when: When | None = Field(default=None, description=_WHEN)


class RobustFields(Written):
    """Within `radius` of a point the output differs by at most `change` from its value at the point."""

    points: ListOf[Point] = Field(min_length=1, description="Points: lists of numbers, or `{name of an input: number}`")
    radius: Annotated[float, Field(ge=0)] | Amounts = Field(
        description="One for all inputs, or `{name of an input: radius}`; inputs that are not named stay as they are")
    change: float = Field(gt=0, description="By how much the output may differ")
    output: str | None = Field(default=None, description=_OUTPUT)
    when: When | None = Field(default=None, description=_WHEN)


class _OneKind(Written):
    @model_validator(mode="after")
    def _has_one_kind(self) -> "_OneKind":
        given = sorted(self.model_fields_set)
        if len(given) != 1:
            raise ValueError(f"expected one kind ({', '.join(type(self).model_fields)}), got "
                             f"{', '.join(given) or 'none'}")
        return self


class CountedFields(_OneKind):
    """A property of which a share can be counted."""

    monotone: MonotoneFields | None = Field(default=None, description="Monotonicity")
    range: RangeFields | None = Field(default=None, description="Limits of an output or a difference")
    order: OrderFields | None = Field(default=None, description="Order of two outputs, or of an output and an input")


class ShareFields(Written):
    """A share of the box has a property, counted on random inputs."""

    of: CountedFields = Field(description="The property: `monotone`, `range` or `order`")
    at_least: Share = Field(description="The share")
    confidence: Share = Field(default=DEFAULT_CONFIDENCE, description="With which the share is at least that")
    samples: int = Field(default=DEFAULT_SAMPLES, ge=1, description="Random inputs that are counted")
    when: When | None = Field(default=None, description=_WHEN)


class PropertyFields(_OneKind):
    """One property, by its kind."""

    monotone: MonotoneFields | None = Field(default=None, description="Monotonicity")
    range: RangeFields | None = Field(default=None, description="Limits of an output or a difference")
    order: OrderFields | None = Field(default=None, description="Order of two outputs, or of an output and an input")
    robust: RobustFields | None = Field(default=None, description="Small changes of the input change the output little")
    share: ShareFields | None = Field(default=None, description="A property that only a share of the box must have")


class FiniteFields(Written):
    """An input that takes finitely many values."""

    values: ListOf[float] = Field(min_length=1, description="The values")


class _Properties(Written):
    properties: ListOf[PropertyFields] = Field(min_length=1, description="What must hold, all of it")
    inputs: dict[str, FiniteFields] = Field(default_factory=dict, description="Inputs that take finitely many values")
    one_hot: ListOf[Annotated[ListOf[str], Field(min_length=2)]] = Field(
        default=(), description="Groups of inputs of which exactly one is 1 and the others are 0")


class SpecificationFields(_Properties):
    """What must hold for every input of a box: `specification:` of a workload in a task file."""

    tolerance: float | None = Field(
        default=None, ge=0,
        description="Slope in the wrong direction that `monotone` allows, in shares of the target's range per range of "
                    "a feature; default 1.0e-4")
    box: Walls = Field(
        default_factory=dict, description="`[lower, upper]` of inputs, in the units of the task; default: the range of "
                                          "the training data")


class SpecificationFile(_Properties):
    """SPEC.yaml: what must hold of a network, whose inputs and outputs it names as well."""

    tolerance: Annotated[float, Field(ge=0)] | Amounts | None = Field(
        default=None,
        description="Slope in the wrong direction that `monotone` allows, in units of the output per unit of the "
                    "input, or `{name of an output: by how much it may go the wrong way over the box}`; default: "
                    "1.0e-4 of what the output does over the box")
    box: Walls = Field(
        default_factory=dict, description="`[lower, upper]` of inputs, in the units of the model's file; required but "
                                          "for inputs under `inputs` and `one_hot`")
    features: ListOf[str] | None = Field(
        default=None, description="Names of the network's inputs, flattened, in order; default `x0, x1, ...`")
    outputs: ListOf[str] | None = Field(default=None, description="Names of its outputs; default `y0, y1, ...`")
    units: dict[str, str] = Field(
        default_factory=dict, description="Units of inputs and outputs, which a counterexample is printed with; "
                                          "nothing is converted")
    rounding: Amounts = Field(default_factory=dict, description="The most that execution may add to an output")
