"""Numbers as files of JSON and YAML hold them, whose types are anything."""

import math
from typing import Any


def is_finite_number(value: Any) -> bool:
    """Whether it is a number that a float holds: no truth value, NaN, infinity or integer beyond all floats."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False
