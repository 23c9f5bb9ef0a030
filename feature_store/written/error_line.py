"""One line in plain English out of a pydantic ValidationError.

    workloads.nginx.hidden[0]: expected a whole number above 0, got 'x' (task.yaml, line 12), and 2 more

pydantic says where (`loc`) and what kind of error; what was expected is said in the words of the model's JSON Schema
at that place (schema_place.py), so that "a whole number above 0" is said of 'x' as well as of -1.
"""

import re
from dataclasses import dataclass
from datetime import date
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from feature_store.errors import InputError, nearest
from feature_store.strict_yaml import Lines
from feature_store.written.field_errors import EmptyFieldError, FieldError, at_line, line_of, path_text, value_text
from feature_store.written.schema_place import KEY, Place, follow, schema_of

# a text that a person means as a number: YAML 1.1 wants a dot in it
_EXPONENT = re.compile(r"[-+]?[0-9]+[eE][-+]?[0-9]+")
_NUMBER = re.compile(r"[-+]?[0-9]*\.?[0-9]+")


@dataclass(frozen=True)
class _Finding:
    """One thing that does not fit. line: None where the data come from no file; missing: a field is not there."""

    path: tuple[str | int, ...]
    message: str
    line: int | None
    missing: bool = False


def error_line(error: ValidationError, model: type[BaseModel], data: Any, what: str, where: str,
               lines: Lines | None = None) -> InputError:
    """The error to raise; arguments as of `check_written`."""
    schema = schema_of(model)
    errors = error.errors(include_url=False)
    # a list of one unusable entry counts as too short as well
    inside = {entry["loc"][:length] for entry in errors for length in range(len(entry["loc"]))}
    placed = [(entry, follow(schema, data, entry["loc"])) for entry in errors
              if entry["type"] != "too_short" or entry["loc"] not in inside]
    found = [_finding(entry, place, data, lines) for entry, place in _without_other_members(placed)]
    findings = list(dict.fromkeys(found))
    # what is there tells more than what is missing: often it is the missing field, misspelt
    first = min(findings, key=lambda finding: (finding.missing, finding.line or 0))
    more = f", and {len(findings) - 1} more" if len(findings) > 1 else ""
    return InputError(f"{path_text(first.path) or what}: {first.message} {at_line(where, first.line)}{more}")


def _without_other_members(placed: list[tuple[ErrorDetails, Place]]) -> list[tuple[ErrorDetails, Place]]:
    """Errors without those of union members that the value was not meant for.

    Of a union pydantic reports every member's errors. Where one of them goes deeper, or comes from a rule of ours, the
    members that only refuse the value's type say nothing; where all of them do, the first stands for all.
    """
    telling: set[tuple[str | int, ...]] = set()
    for entry, place in placed:
        telling |= {union for union in place.unions if union != place.path or entry["type"] == "value_error"}
    kept, reported = [], set()
    for entry, place in placed:
        refused_by_member = bool(place.unions) and place.unions[-1] == place.path and entry["type"] != "value_error"
        if refused_by_member and (place.path in telling or place.path in reported):
            continue
        if any(union in reported for union in place.unions if union not in telling):
            continue
        if refused_by_member:
            reported.add(place.path)
        kept.append((entry, place))
    return kept


def _finding(entry: ErrorDetails, place: Place, data: Any, lines: Lines | None) -> _Finding:
    path, kind = place.path, entry["type"]
    if kind == "missing":
        return _Finding(path[:-1], f"the field {str(path[-1])!r} is missing", line_of(lines, path[:-1], of_key=True),
                        missing=True)
    if kind == "extra_forbidden":
        hint = nearest(str(path[-1]), place.siblings)
        return _Finding(path, f"unknown field; {hint}", line_of(lines, path, of_key=True))
    if kind == "value_error":
        cause = entry.get("ctx", {}).get("error")
        if isinstance(cause, FieldError):
            path = (*path, *cause.path)
        if isinstance(cause, EmptyFieldError):
            expected = follow(place.root, data, (*entry["loc"], *cause.path)).phrase()
            return _Finding(path, f"expected {expected}, got nothing; leave the field out", line_of(lines, path))
        return _Finding(path, str(cause), line_of(lines, path))
    if kind == "invalid_key" or entry["loc"][-1:] == (KEY,):
        name, expected = path[-1], "a text" if kind == "invalid_key" else place.phrase()
        hint = "" if isinstance(name, str) else "; write it in quotes"
        return _Finding(path, f"expected {expected} as a name, got {value_text(name)}{hint}",
                        line_of(lines, path, of_key=True))
    return _Finding(path, _expected(entry, place), line_of(lines, path))


def _expected(entry: ErrorDetails, place: Place) -> str:
    value, choices, expected = entry["input"], place.choices(), place.phrase()
    message = f"expected {expected}, got {value_text(value)}"
    if expected.startswith("a text") and " or " not in expected and isinstance(value, int | float | date):
        return f"{message}; write it in quotes"
    if not isinstance(value, str):
        return message
    if choices:
        return f"{message}; {nearest(value, choices)}"
    if "number" in expected and _EXPONENT.fullmatch(value):
        mantissa, exponent = re.split("[eE]", value)
        return f"{message}; YAML reads {value} as text, write {mantissa}.0e{exponent}"
    if "number" in expected and _NUMBER.fullmatch(value):
        return f"{message}; write it without quotes"
    return message
