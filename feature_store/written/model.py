"""Reads what people write: a text of YAML, or values already parsed from one, into a strict pydantic model.

    class Layer(Written):
        width: int = Field(gt=0, description="Neurons of the layer.")

    parse_written(Layer, "width: x", "layer", "task.yaml")
    InputError: width: expected a whole number above 0, got 'x' (task.yaml, line 1)

Every file that people write has a model derived from `Written`; the JSON Schemas in docs/schemas and the field tables
in docs/reference are made from the same models. The YAML itself is read by feature_store/strict_yaml.py, which refuses
repeated keys and alias bombs; error_line.py makes one line of what pydantic says.

Nothing is converted: `"1"` is no number, `true` neither, `1` is a number where any number is meant, and NaN and
infinity are refused. A list is a `ListOf[...]`, which the model holds as a tuple. A union has at most one member for
each kind of value (text, number, list, mapping), so that an error can be told in the words of the one that was meant.

A field that is written without a value (`deadline:`) is refused where it may be left out: nobody can tell whether a
value was forgotten.

A rule that goes beyond a field's type is a validator that raises ValueError("expected ..., got ..."), or `FieldError`
where it concerns a field further inside.

Importing this module imports pydantic: what runs beside a controller, and `assay verify`, must not need it.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Strict, ValidationError, model_validator

from feature_store.strict_yaml import Lines, parse_located_yaml, read_located_yaml
from feature_store.written.error_line import error_line
from feature_store.written.field_errors import EmptyFieldError

if TYPE_CHECKING:  # a schema is made where there is an error to tell, or for the documents
    from pydantic import GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import CoreSchema

Item = TypeVar("Item")


class Written(BaseModel):
    """Base of the models of all files that people write: strict, frozen, without unknown fields."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _refuse_empty(cls, data: Any) -> Any:
        for name in cls._may_be_left_out() if isinstance(data, dict) else ():
            if name in data and data[name] is None:
                raise EmptyFieldError([name])
        return data

    @classmethod
    def _may_be_left_out(cls) -> list[str]:
        return [name for name, field in cls.model_fields.items() if not field.is_required() and field.default is None]

    @classmethod
    def __get_pydantic_json_schema__(cls, core: "CoreSchema", handler: "GetJsonSchemaHandler") -> "JsonSchemaValue":
        """As pydantic makes it, without the null that stands for a field that was left out."""
        schema = handler(core)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for name in cls._may_be_left_out():
            field = properties.get(name, {})
            field.pop("default", None)
            options = [option for option in field.get("anyOf", []) if option.get("type") != "null"]
            if len(options) == 1 and field.keys() & options[0].keys() <= {"anyOf"}:
                field.pop("anyOf")
                field.update(options[0])
            elif options:
                field["anyOf"] = options
        return schema


Model = TypeVar("Model", bound=BaseModel)


# strictly, a list would be no tuple; of its items it changes nothing
ListOf = Annotated[tuple[Item, ...], Strict(False)]


def read_written(model: type[Model], path: Path, what: str, context: Mapping[str, Any] | None = None,
                 seconds: float = math.inf) -> Model:
    """The content of a YAML file.

    Args:
        model: what the file must hold.
        path: the file; errors name it and the line.
        what: what the file is, as errors name it: "mapping file".
        context: for the model's validators (pydantic's validation context).
        seconds: refuse the file if reading its YAML takes longer.

    Raises:
        InputError: the file is unreadable, is not YAML as strict_yaml.py takes it, or does not fit the model.
    """
    data, lines = read_located_yaml(path, what, seconds)
    return check_written(model, data, what, str(path), lines, context)


def parse_written(model: type[Model], text: str, what: str, where: str,
                  context: Mapping[str, Any] | None = None) -> Model:
    """The content of a text of YAML; `where` names its source in errors. The rest as in `read_written`."""
    data, lines = parse_located_yaml(text, what, where)
    return check_written(model, data, what, where, lines, context)


def check_written(model: type[Model], data: Any, what: str, where: str, lines: Lines | None = None,
                  context: Mapping[str, Any] | None = None) -> Model:
    """The model of values that are parsed already, from YAML or JSON, or that code has made.

    Args:
        model: what `data` must be.
        data: plain values: dicts, lists, texts, numbers.
        what: what the data are, as errors name them.
        where: where they come from.
        lines: their lines in the file, where they were parsed from one.
        context: for the model's validators (pydantic's validation context).

    Raises:
        InputError: in one line, the first thing that does not fit, and how many more there are.
    """
    try:
        return model.model_validate(data, context=dict(context) if context else None)
    except ValidationError as error:
        raise error_line(error, model, data, what, where, lines) from None
