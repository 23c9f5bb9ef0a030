"""What may be written in the mapping of a user's telemetry. mapping.py makes a `TelemetryMapping` of it."""

import re
from difflib import get_close_matches
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from pydantic import AfterValidator, Field, model_validator

from feature_store.bad_rows import BadRowsFields
from feature_store.schema import IDENTITY
from feature_store.written.field_errors import FieldError
from feature_store.written.fields import ColumnName, PositiveNumber, PositiveWholeNumber, Text, WorkloadName
from feature_store.written.model import ListOf, Written


def _zone(zone: str) -> str:
    try:
        if zone != "UTC":  # known to pandas also where the machine has no time zone database
            ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        near = get_close_matches(zone, available_timezones(), n=1)
        raise ValueError(f"expected a zone of the time zone database, got {zone!r}; did you mean "
                         f"{near[0] if near else 'UTC'!r}?") from error
    return zone


# both names once, and a text between them: without one nobody could tell where the first name ends
_NAMES = re.compile(r"[^{}]*\{(workload|column)\}[^{}]+\{(?!\1)(workload|column)\}[^{}]*")


def _column_names(pattern: str) -> str:
    if not _NAMES.fullmatch(pattern):
        raise ValueError("expected {workload} and {column} once each with a text between them, such as "
                         f"'{{workload}}_{{column}}', got {pattern!r}")
    return pattern


class LabelFields(Written):
    """A text column of the schema: one constant for all rows, or a column of the file."""

    constant: Text | None = Field(default=None, description="One value for all rows")
    column: Text | None = Field(default=None, description="Column of the file that holds it")

    @model_validator(mode="after")
    def _exactly_one(self) -> "LabelFields":
        names = list(type(self).model_fields)
        given = [f"`{name}`" for name in names if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"expected one of {', '.join(f'`{name}`' for name in names)}, got "
                             f"{' and '.join(given) or 'none'}")
        return self


class WorkloadFields(LabelFields):
    """The workload's name: one for all rows, a column of the file, or a part of the names of columns."""

    constant: WorkloadName | None = Field(default=None, description="One workload for all rows")
    column_names: Annotated[Text, AfterValidator(_column_names)] | None = Field(
        default=None, description="Names of columns that each workload has its own of, such as "
                                  "`\"{workload}_{column}\"`; below `columns`, `column` is then that part of the name")


class HeaderFields(Written):
    """The rows of a CSV file above the first row of data."""

    rows: PositiveWholeNumber = Field(default=1, description="How many there are")
    names: PositiveWholeNumber = Field(default=1, description="Which of them, from 1, holds the names of the columns; "
                                                              "the others are not read")

    @model_validator(mode="after")
    def _names_are_in_the_header(self) -> "HeaderFields":
        if self.names > self.rows:
            raise FieldError(["names"], f"expected one of the header's {self.rows} rows, got {self.names}")
        return self


class TimeFields(Written):
    """Where the start of a row's window stands in the file."""

    column: Text = Field(description="Column of the file that holds it")
    unit: Literal["iso", "s", "ms", "us", "ns"] = Field(
        default="iso", description="Unit of the times since 1970, or `iso`: texts such as 2026-11-01T00:00:00Z")
    zone: Annotated[Text, AfterValidator(_zone)] = Field(
        default="UTC", description="Time zone of times that carry none")
    window_s: PositiveNumber | None = Field(default=None, json_schema_extra={"unit": "s"},
                                            description="Length of a row's window; default: the file does not say")


class ColumnFields(Written):
    """A numeric column: value * scale is in `unit`."""

    column: Text = Field(description="Its name in the file")
    unit: str | None = Field(default=None, description="Unit in the file; default: that of the schema or the task")
    scale: PositiveNumber = Field(default=1.0, description="Factor from the file's values to `unit`")


class MappingFile(Written):
    """A mapping of a user's own columns to the schema."""

    header: HeaderFields = Field(default=HeaderFields(), description="Where a CSV file's columns have their names")
    workload: WorkloadFields = Field(description="Which workload a row is of")
    environment: LabelFields = Field(
        default=LabelFields(constant="base"), description="Which machine and load range a row is of")
    combination: LabelFields = Field(
        default=LabelFields(constant="unknown"), description="Which workloads ran together")
    time: TimeFields | None = Field(
        default=None, description="When a row was measured; without it the rows get a synthetic order, and the checks "
                                  "of time are skipped")
    columns: dict[ColumnName, ColumnFields] = Field(
        min_length=1, description="Columns of the schema or of the task, and where each stands in the file")
    keep: ListOf[Text] = Field(default=(), description="Further columns, as they are (what the task splits by)")
    bad_rows: BadRowsFields | None = Field(
        default=None, description="Lets a few bad rows be dropped; without it one stops its workload")
    task: str | dict[str, Any] | None = Field(
        default=None, description="The task: the path of its file beside the mapping, or the task itself")

    @model_validator(mode="after")
    def _kept_columns_are_others(self) -> "MappingFile":
        for number, name in enumerate(self.keep):
            if name in self.columns or name in IDENTITY:
                raise FieldError(["keep", number],
                                 f"expected a name that no column has which the mapping makes, got {name!r}")
        return self
