"""Fields of a task file: each is of the kind that it is read as, or an InputError says where it stands."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from feature_store.errors import InputError, nearest


@contextmanager
def located(where: str) -> Iterator[None]:
    """Adds the place to the InputErrors of the block."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{error} ({where})") from error


def mapping_at(value: Any, where: str) -> Mapping[str, Any]:
    """The mapping that stands there. Raises InputError for anything else."""
    if not isinstance(value, Mapping):
        raise InputError(f"a mapping must stand here, got {value!r} ({where})")
    return value


def flag_at(value: Any, where: str) -> bool:
    """The truth value that stands there. Raises InputError for anything else."""
    if not isinstance(value, bool):
        raise InputError(f"true or false must stand here, got {value!r} ({where})")
    return value


def names_at(value: Any, where: str) -> tuple[str, ...]:
    """The list of texts that stands there. Raises InputError for anything else."""
    if not isinstance(value, list) or not value or not all(isinstance(name, str) for name in value):
        raise InputError(f"a list of column names must stand here, got {value!r} ({where})")
    return tuple(value)


def widths_at(value: Any, where: str) -> tuple[int, ...]:
    """The list of whole numbers above 0 that stands there. Raises InputError for anything else."""
    if not isinstance(value, list) or not value:
        raise InputError(f"a list of layer widths must stand here, got {value!r} ({where})")
    for width in value:
        check_number(width, f"width of a layer ({where})", whole=True)
    return tuple(value)


def is_number(value: Any) -> bool:
    """Whether it is a finite number, and no truth value."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def check_number(value: Any, what: str, whole: bool, zero: bool = False) -> None:
    """Raises InputError where a value is no number above 0 (with `zero`: from 0), or no whole one where it must be."""
    kind = "a whole number" if whole else "a number"
    if not is_number(value) or (whole and not isinstance(value, int)) or value < 0 or (value == 0 and not zero):
        hint = "; YAML reads 2e-3 as text, write 2.0e-3" if isinstance(value, str) and "e" in value else ""
        raise InputError(f"{what} must be {kind} {'from' if zero else 'above'} 0, got {value!r}{hint}")


def refuse_unknown(data: Mapping[str, Any], known: set[str], where: str) -> None:
    """Raises InputError for the first key that is not among the known ones, with the nearest of them."""
    for key in data:
        if key not in known:
            raise InputError(f"field must be known, got {key!r} ({where}); {nearest(str(key), known)}")
