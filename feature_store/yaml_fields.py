"""Values out of parsed YAML (strict_yaml.py), each with an error that says where it stands."""

from collections.abc import Mapping
from typing import Any

from feature_store.errors import InputError, nearest


def fields_of(data: Any, known: set[str], where: str) -> dict[str, Any]:
    """`data` as a dict with no other keys than `known`."""
    if not isinstance(data, Mapping):
        raise InputError(f"a mapping must stand here, got {data!r} ({where})")
    for key in data:
        if key not in known:
            raise InputError(f"field must be known, got {key!r} ({where}); {nearest(str(key), known)}")
    return {str(key): value for key, value in data.items()}
