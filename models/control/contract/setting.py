"""What can be set of a rule, and how given values are checked.

A setting is one number (or one word of a few) for all applications, or an array with one for each: many settings tried
on the same applications are then one batch.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feature_store.errors import InputError, nearest

Value = float | str | NDArray[Any]
Values = Mapping[str, NDArray[Any]]  # name -> () or (N,)


@dataclass(frozen=True)
class Setting:
    """One setting.

    Attributes:
        name: as in files; ends in its unit where it has one.
        default: as documented by the source of the rule.
        unit: of the value; "1" for shares and ratios, "" for words.
        low: smallest value allowed.
        high: largest value allowed.
        search: smallest and largest value that tuning tries; None: tuning leaves the default.
        log: whether tuning searches on a logarithmic scale.
        whole: whether tuning tries whole numbers alone.
        choices: the words allowed; () for a number.
        searched: whether tuning tries the words.
        meaning: one phrase for a reader.
    """

    name: str
    default: float | str
    unit: str = "1"
    low: float = 0.0
    high: float = math.inf
    search: tuple[float, float] | None = None
    log: bool = False
    whole: bool = False
    choices: tuple[str, ...] = ()
    searched: bool = False
    meaning: str = ""


def filled(settings: Mapping[str, float | str], declared: Sequence[Setting]) -> dict[str, float | str]:
    """All declared settings, the default of those that are not given."""
    return {one.name: settings.get(one.name, one.default) for one in declared}


def checked(settings: Mapping[str, Value], declared: Sequence[Setting], where: str) -> dict[str, NDArray[Any]]:
    """All declared settings as arrays, defaults filled in.

    Args:
        settings: name -> one value, or one for each application.
        declared: what may be set.
        where: name of the rule, for messages.

    Returns:
        name -> () or (N,), in the declared order.

    Raises:
        InputError: an unknown name, a value that is out of range or of the wrong type.
    """
    names = [setting.name for setting in declared]
    for name in settings:
        if name not in names:
            raise InputError(f"setting must be one of the rule's, got {name!r}; {nearest(name, names)} ({where})")
    return {setting.name: _checked(settings.get(setting.name, setting.default), setting, where) for setting in declared}


def _checked(value: Value, setting: Setting, where: str) -> NDArray[Any]:
    at = f"({where}, setting {setting.name})"
    if setting.choices:
        words = np.asarray(value)
        if words.ndim > 1 or not np.isin(words, setting.choices).all():
            raise InputError(f"value must be one of {', '.join(setting.choices)}, got {value!r} {at}")
        return words
    try:
        numbers = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"value must be a number, got {value!r} {at}") from None
    if numbers.ndim > 1 or not ((numbers >= setting.low) & (numbers <= setting.high) & np.isfinite(numbers)).all():
        raise InputError(f"value must be a number from {setting.low:g} to {setting.high:g}, got {value!r} {at}")
    return numbers
