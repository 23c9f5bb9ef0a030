"""Errors about a field of a written file, and how a message shows the field's path, its value and its line.

Without pydantic: specification_language.py, which runs beside a controller too, raises them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from feature_store.errors import InputError
from feature_store.strict_yaml import Lines

LONGEST_VALUE = 80  # characters of a value in a message


class FieldError(ValueError):
    """Raised by a validator about a field inside of what it validates.

    Args:
        path: from what is validated to the field, keys and indices.
        message: "expected ..., got ...".
    """

    def __init__(self, path: Sequence[str | int], message: str) -> None:
        super().__init__(message)
        self.path = tuple(path)


class EmptyFieldError(FieldError):
    """A field that may be left out is there without a value. The message says what is expected of it."""

    def __init__(self, path: Sequence[str | int]) -> None:
        super().__init__(path, "")


def field_error(path: Sequence[str | int], message: str, where: str, lines: Lines | None = None) -> InputError:
    """The error to raise about one field, found where a model's validators cannot look.

    Args:
        path: of the field, keys and indices from the root of the document.
        message: "expected ..., got ...".
        where: source of the document.
        lines: of the document, where it comes from a text.
    """
    return InputError(f"{path_text(path)}: {message} {at_line(where, line_of(lines, path))}")


def at_line(where: str, line: int | None) -> str:
    """The end of a message: "(task.yaml, line 12)"."""
    return f"({where})" if line is None else f"({where}, line {line})"


def line_of(lines: Lines | None, path: Sequence[str | int], of_key: bool = False) -> int | None:
    """As `Lines.line`; None where the data come from no text."""
    return None if lines is None else lines.line(path, of_key)


def path_text(path: Sequence[str | int]) -> str:
    """`workloads.nginx.hidden[0]`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def value_text(value: Any) -> str:
    """A value of YAML as a message shows it, in at most some LONGEST_VALUE characters."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping | list | tuple):
        text = repr(list(value) if isinstance(value, tuple) else value)
        if len(text) <= LONGEST_VALUE:
            return text
        count, unit = len(value), "field" if isinstance(value, Mapping) else "entry"
        plural = unit if count == 1 else "fields" if unit == "field" else "entries"
        return f"a {'mapping' if isinstance(value, Mapping) else 'list'} of {count:,} {plural}"
    if isinstance(value, int) and value.bit_length() > 256:
        return "a number of more than 77 digits"
    text = repr(value) if isinstance(value, str | int | float) else str(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE - 1]}…"
