"""A measured quantity that a task names: an input, a configurable property, a target."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from feature_store.errors import InputError, nearest
from feature_store.schema import Column
from models.tasks.fields import is_number, mapping_at, refuse_unknown


@dataclass(frozen=True)
class Quantity:
    """A named measured quantity with its unit and the bounds physics gives it (None: unbounded)."""

    name: str
    unit: str
    minimum: float | None = None
    maximum: float | None = None
    description: str = ""


def quantities_at(entries: Any, known: Mapping[str, Column], where: str) -> tuple[Quantity, ...]:
    """A list of names (of the canonical schema) or of mappings with name, unit, minimum, maximum, description."""
    if not isinstance(entries, list):
        raise InputError(f"a list of columns must stand here, got {entries!r} ({where})")
    quantities = []
    for entry in entries:
        if isinstance(entry, str):
            if entry not in known:
                raise InputError(f"column must be in the schema or be described by a mapping, got {entry!r} "
                                 f"({where}); {nearest(entry, known)}")
            column = known[entry]
            quantities.append(Quantity(entry, column.unit, column.minimum, column.maximum, column.description))
        else:
            entry = mapping_at(entry, where)
            refuse_unknown(entry, {f.name for f in fields(Quantity)}, where)
            if "name" not in entry or "unit" not in entry:
                raise InputError(f"column must have a name and a unit, got {entry!r} ({where})")
            quantities.append(Quantity(**entry))
            for key in ("minimum", "maximum"):
                value = entry.get(key)
                if value is not None and not is_number(value):
                    raise InputError(f"{key} must be a number, got {value!r} ({where}: {entry['name']})")
    names = [quantity.name for quantity in quantities]
    if len(set(names)) < len(names):
        raise InputError(f"columns must be distinct, got {names} ({where})")
    return tuple(quantities)
