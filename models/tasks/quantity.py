"""A measured quantity that a task names: an input, a configurable property, a target."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from feature_store.schema import CONFIGURATION, METRICS, TARGETS, Column
from feature_store.written.fields import ColumnName, Unit
from feature_store.written.model import Written


class Quantity(Written):
    """A named measured quantity with its unit and the bounds physics gives it (None: unbounded)."""

    name: ColumnName = Field(description="Column of the telemetry")
    unit: Unit = Field(description="Unit of its values; may be empty")
    minimum: float | None = Field(default=None, description="Least value that can be, in that unit")
    maximum: float | None = Field(default=None, description="Largest value that can be, in that unit")
    description: str = Field(default="", description="What it is")


class _OrColumnOf:
    """Marks a Quantity that may also be written as the name of a column of the canonical schema."""

    def __init__(self, columns: Mapping[str, Column]) -> None:
        self.columns = columns

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        names = core_schema.literal_schema(list(self.columns))
        return core_schema.no_info_after_validator_function(
            self._quantity, core_schema.union_schema([names, handler(source)]))

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {**handler(core), "expected": "a column of the schema or a mapping"}

    def _quantity(self, written: str | Quantity) -> Quantity:
        if isinstance(written, Quantity):
            return written
        column = self.columns[written]
        bounds = {"minimum": column.minimum, "maximum": column.maximum}
        return Quantity(name=written, unit=column.unit, description=column.description,
                        **{side: bound for side, bound in bounds.items() if bound is not None})


Metric = Annotated[Quantity, _OrColumnOf(METRICS)]
ConfigurableProperty = Annotated[Quantity, _OrColumnOf(CONFIGURATION)]
Target = Annotated[Quantity, _OrColumnOf(TARGETS)]
