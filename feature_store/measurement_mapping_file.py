"""What may be written in the mapping of measurements. measurement_mapping.py makes a `MeasurementMapping` of it."""

import re
from collections.abc import Iterable, Mapping
from datetime import date
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from feature_store.bad_rows import BadRunsFields
from feature_store.errors import nearest
from feature_store.written.field_errors import FieldError
from feature_store.written.fields import ColumnName, PositiveNumber, Text, Unit
from feature_store.written.model import ListOf, Written

NUMBER: Final = "number"
CATEGORY: Final = "category"
RESERVED = ("workload", "cost")  # columns that every file of measurements has, or may have
# what only a column of one kind can have
_KIND_OF = {"values": NUMBER, "scale": NUMBER, "product": NUMBER, "pattern": CATEGORY, "within": CATEGORY}


def label(value: Any) -> str:
    """The text of a category's value. 2.0 and 2 are the same, whatever a missing value made of a column's type."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _label_of_scalar(value: Any) -> Any:
    return label(value) if isinstance(value, bool | int | float | date) else value


def _label_of_number(value: Any) -> Any:
    return label(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _pattern(pattern: str) -> str:
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        raise ValueError(f"expected a regular expression, got {pattern!r}: {error}") from error
    if groups != 1:
        raise ValueError(f"expected a regular expression with one group, got {groups} groups: {pattern!r}")
    return pattern


# YAML reads 2 as a number and true as a truth value; a category is a text all the same
Category = Annotated[str, BeforeValidator(_label_of_scalar, json_schema_input_type=str | float | bool)]
Condition = Annotated[str, BeforeValidator(_label_of_number, json_schema_input_type=str | float)]
Texts = Text | Annotated[ListOf[Text], Field(min_length=1)]
Pattern = Annotated[str, AfterValidator(_pattern)]
Values = Annotated[dict[Category, float], Field(min_length=1)]


def texts(given: Texts | None) -> tuple[str, ...]:
    """One text or several, as a tuple."""
    return () if given is None else (given,) if isinstance(given, str) else given


class ColumnFields(Written):
    """A number or a category that is made of columns of the file, or a product of numbers above."""

    column: Texts | None = Field(default=None, description="Its name in the file; a list: the first that holds a value")
    kind: Literal["number", "category"] = Field(default=NUMBER, description="What it holds")
    unit: Unit = Field(default="", description="Printed beside it")
    scale: PositiveNumber | None = Field(default=None, description="Factor of a number; default 1")
    values: Values | None = Field(default=None, description="Labels and the numbers that they stand for")
    pattern: Pattern | None = Field(default=None, description="Regular expression of a category; its one group counts")
    within: Text | None = Field(default=None, description="Category above that is set before a category: `A/2`")
    product: Annotated[ListOf[Text], Field(min_length=1)] | Text | None = Field(
        default=None, description="Numbers above that it is the product of")
    default: str | float | bool | None = Field(
        default=None, description="Where no column holds a value; put in after `values` and `pattern`, before `scale`")

    @model_validator(mode="after")
    def _fields_suit_the_kind(self) -> "ColumnFields":
        if (self.column is None) == (self.product is None):
            given = "neither" if self.column is None else "both"
            raise ValueError(f"expected either `column` or `product`, got {given}")
        for field, kind in _KIND_OF.items():
            if getattr(self, field) is not None and self.kind != kind:
                raise FieldError([field], f"expected kind: {kind} beside it, got kind: {self.kind}")
        for field in ("values", "default"):
            if getattr(self, field) is not None and self.product is not None:
                raise FieldError([field], "expected `column` beside it, got `product`")
        if self.kind == NUMBER and not is_number(self.default) and self.default is not None:
            raise FieldError(["default"], f"expected a number, got {self.default!r}")
        return self


class GroupFields(ColumnFields):
    """What splits may hold out: a category, where nothing else is said."""

    kind: Literal["number", "category"] = Field(default=CATEGORY, description="What it holds")


class NumberFields(Written):
    """A number that was measured: of the file's columns alone."""

    column: Texts = Field(description="Its name in the file; a list: the first that holds a value")
    kind: Literal["number"] = Field(default=NUMBER, description="What it holds")
    unit: Unit = Field(default="", description="Printed beside it")
    scale: PositiveNumber = Field(default=1.0, description="Factor of the file's numbers")
    values: Values | None = Field(default=None, description="Labels and the numbers that they stand for")
    default: float | None = Field(default=None, description="Where no column holds a value")


class TargetFields(Written):
    """What a run took."""

    name: ColumnName = Field(default="target", description="Its name")
    column: Texts = Field(description="Its name in the file; a list: the first that holds a value")
    unit: Unit = Field(default="", description="Printed beside it")
    scale: PositiveNumber = Field(default=1.0, description="Factor of the file's numbers")


class WorkloadFields(Written):
    """The workload's name: a category of the file's columns alone."""

    column: Texts = Field(description="Its name in the file; a list: the first that holds a value")
    kind: Literal["category"] = Field(default=CATEGORY, description="What it holds")
    unit: Unit = Field(default="", description="Printed beside it")
    pattern: Pattern | None = Field(default=None, description="Regular expression; its one group counts")
    default: Category | None = Field(default=None, description="Where no column holds a value")


class FailureFields(Written):
    """A run failed where the column meets one of these conditions."""

    column: Text = Field(description="Its name in the file")
    is_not: Condition | Annotated[ListOf[Condition], Field(min_length=1)] | None = Field(
        default=None, description="The value is none of these")
    equals: float | None = Field(default=None, description="The number is this")
    at_least: float | None = Field(default=None, description="The number is this or more")
    missing: Literal[True] | None = Field(default=None, description="`true`: there is no value")

    @model_validator(mode="after")
    def _has_a_condition(self) -> "FailureFields":
        if (self.is_not, self.equals, self.at_least, self.missing) == (None, None, None, None):
            raise ValueError("expected a condition (is_not, equals, at_least or missing) beside `column`, got none")
        return self


class MeasurementMappingFile(Written):
    """A mapping of a file of measurements: one row a run of a workload under a configuration."""

    workload: WorkloadFields = Field(description="Name of the workload")
    configuration: dict[ColumnName, ColumnFields] = Field(
        min_length=1, description="What may be chosen; the order is the order of a model's inputs")
    target: TargetFields = Field(description="What a run took")
    cost: NumberFields | None = Field(default=None, description="What a run cost, for recommendations")
    metrics: dict[ColumnName, NumberFields] = Field(
        default_factory=dict, description="What was measured while it ran; may be missing in some runs")
    groups: dict[ColumnName, GroupFields] = Field(default_factory=dict, description="What splits may hold out")
    failed: ListOf[FailureFields] = Field(default=(), description="Which runs failed")
    bad_rows: BadRunsFields | None = Field(
        default=None, description="Lets a few bad runs be dropped; without it one stops the load")
    task: dict[str, Any] | None = Field(default=None, description="What the `sizing` task of `assay run` is made from")

    @model_validator(mode="after")
    def _columns_fit_each_other(self) -> "MeasurementMappingFile":
        _check_made_of_above("configuration", self.configuration)
        _check_made_of_above("groups", self.groups)
        taken = set(RESERVED)
        places = [(["target", "name"], [self.target.name]), (["configuration"], self.configuration),
                  (["metrics"], self.metrics), (["groups"], self.groups)]
        for place, names in places:
            for name in names:
                if name in taken:
                    path = place if place[-1] == "name" else [*place, name]
                    raise FieldError(path, f"expected a name that no other column has, got {name!r}")
                taken.add(name)
        return self


def _check_made_of_above(section: str, columns: Mapping[str, ColumnFields]) -> None:
    """Raises FieldError where a column is made of one that does not stand above it, or is of the other kind."""
    above: dict[str, str] = {}
    for name, column in columns.items():
        for field, kind in (("product", NUMBER), ("within", CATEGORY)):
            for other in texts(getattr(column, field)):
                if above.get(other) != kind:
                    hint = nearest(other, _of_kind(above, kind))
                    raise FieldError([section, name, field],
                                     f"expected a {kind} that stands above, got {other!r}; {hint}")
        above[name] = column.kind


def _of_kind(columns: Mapping[str, str], kind: str) -> Iterable[str]:
    return [name for name, its_kind in columns.items() if its_kind == kind]


def is_number(value: Any) -> bool:
    """Whether a value of YAML is a number; a truth value is none."""
    return isinstance(value, int | float) and not isinstance(value, bool)
