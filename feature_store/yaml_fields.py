"""Values out of parsed YAML, each with an error that says where it stands."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from feature_store.errors import InputError, nearest


class _Loader(yaml.SafeLoader):
    """YAML of plain values; of two equal keys PyYAML would drop the first without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        texts = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for text in texts:
            if texts.count(text) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"key {text!r} stands twice", node.start_mark)
        return super().construct_mapping(node, deep)


def read_yaml(path: Path, what: str) -> Any:
    """What a YAML file holds. Raises InputError: it is missing or no YAML, or a key stands twice; `what` it is."""
    if not path.is_file():
        raise InputError(f"{what} must exist, got {path}")
    try:
        return yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{what} must be valid YAML, got {error} ({path})") from error


def fields_of(data: Any, known: set[str], where: str) -> dict[str, Any]:
    """`data` as a dict with no other keys than `known`."""
    if not isinstance(data, Mapping):
        raise InputError(f"a mapping must stand here, got {data!r} ({where})")
    for key in data:
        if key not in known:
            raise InputError(f"field must be known, got {key!r} ({where}); {nearest(str(key), known)}")
    return {str(key): value for key, value in data.items()}


def number(value: Any, where: str) -> float:
    """A finite number; a bool is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"a number must stand here, got {value!r} ({where})")
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if not math.isfinite(found):
        raise InputError(f"a finite number must stand here, got {value!r} ({where})")
    return found
