"""A part of a YAML file that an operator wrote, read strictly; every error names the place.

No pydantic: it is read beside a controller.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from feature_store.errors import InputError, nearest
from feature_store.finite_numbers import is_finite_number


class FilePart:
    """A mapping of the file, with the place that errors name."""

    def __init__(self, value: Any, place: str, where: str) -> None:
        self._place, self._where = place, where
        if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
            raise self._wrong("", "be a mapping of names", value)
        self._values: Mapping[str, Any] = value

    @property
    def names(self) -> tuple[str, ...]:
        """Names of what it holds."""
        return tuple(self._values)

    def only(self, keys: tuple[str, ...]) -> None:
        """Raises InputError: it holds a name that is none of these."""
        for name in self._values:
            if name not in keys:
                raise InputError(f"{self._place or 'key'} must be one of {', '.join(keys)}, got {name!r} "
                                 f"({self._where}); {nearest(name, keys)}")

    def part(self, name: str, default: Any = None) -> "FilePart":
        """A mapping in it."""
        return FilePart(self._get(name, default), self._named(name), self._where)

    def text(self, name: str, default: str | None = None) -> str:
        """A text; without a default it must be given. It may name a file: it has no NUL and no half characters."""
        value = self._get(name, default)
        if isinstance(value, str) and not _is_whole(value):
            raise self._wrong(name, "be a text without NUL and without half characters (surrogates)", value)
        if not isinstance(value, str) or (default is None and not value.strip()):
            raise self._wrong(name, "be a text", value)
        return value

    def folder(self, name: str, default: str | None = None) -> Path:
        """An absolute path without links and dots, so that whoever names that folder in another way, or from another
        one, means the same. Nothing is expanded, neither ~ nor a variable."""
        text = self.text(name, default)
        try:
            if (path := Path(text)).is_absolute():
                return path.resolve()
        except (OSError, ValueError, RuntimeError):  # links in a ring
            pass
        raise self._wrong(name, "be an absolute path of a folder, such as /run/assay", text)

    def number(self, name: str, default: float, least: float = math.nextafter(0.0, 1.0), most: float = math.inf
               ) -> float:
        """A finite number, from `least` to `most`."""
        value = self._get(name, default)
        if not is_finite_number(value) or not least <= value <= most:
            above = "" if math.isinf(most) else f", at most {most:g}"
            raise self._wrong(name, f"be a number {'> 0' if 0 < least < 1e-9 else f'>= {least:g}'}{above}", value)
        return float(value)

    def whole(self, name: str, default: int) -> int:
        """A whole number from 1."""
        value = self._get(name, default)
        if type(value) is not int or value < 1:
            raise self._wrong(name, "be a whole number >= 1", value)
        return value

    def numbers(self) -> dict[str, float]:
        """All of it, as finite numbers."""
        for name, value in self._values.items():
            if not is_finite_number(value):
                raise self._wrong(name, "be a finite number", value)
        return {name: float(value) for name, value in self._values.items()}

    def items(self, name: str) -> list[Any]:
        """A list; default: empty."""
        value = self._get(name, [])
        if not isinstance(value, list):
            raise self._wrong(name, "be a list", value)
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts; default: empty."""
        value = self.items(name)
        if not all(isinstance(one, str) and _is_whole(one) for one in value):
            raise self._wrong(name, "be a list of names", value)
        return tuple(value)

    def has_mapping(self, name: str) -> bool:
        """Whether what stands there is a mapping."""
        return isinstance(self._values[name], Mapping)

    def has_number(self, name: str) -> bool:
        """Whether what stands there is a number."""
        return is_finite_number(self._values[name])

    def _get(self, name: str, default: Any) -> Any:
        if name in self._values:
            return self._values[name]
        if default is None:
            raise InputError(f"{self._named(name)} must be given, got nothing ({self._where})")
        return default

    def _named(self, name: str) -> str:
        return ".".join(filter(None, (self._place, name)))

    def _wrong(self, name: str, rule: str, value: Any) -> InputError:
        return InputError(f"{self._named(name) or 'file'} must {rule}, got {_shown(value)} ({self._where})")


def _is_whole(text: str) -> bool:
    """Whether a file can be named by it, and it can be written down."""
    return not any(one == "\0" or "\ud800" <= one <= "\udfff" for one in text)


def _shown(value: Any) -> str:
    return "nothing" if value is None else repr(value[:80]) if isinstance(value, str) else str(value)[:80]
