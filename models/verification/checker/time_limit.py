"""A deadline for all that reads, bounds and checks: `with time_limit(seconds)`, and `require_time()` in long loops.

The stages of a verdict are many and each may meet a file that it works on for hours: so the deadline is said once, and
looked at wherever a loop goes over what a file makes large. What a step between two looks takes comes on top.
"""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_DEADLINE: ContextVar[float] = ContextVar("deadline", default=math.inf)


class OutOfTime(BaseException):
    """The deadline has passed. No Exception: who makes an error of its own of any other has to let this one through."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Ends what is done inside after so many seconds, or at the deadline that stands already."""
    before = _DEADLINE.set(min(_DEADLINE.get(), time.monotonic() + seconds))
    try:
        yield
    finally:
        _DEADLINE.reset(before)


def seconds_left() -> float:
    """Until the deadline; infinite where there is none."""
    return _DEADLINE.get() - time.monotonic()


def require_time() -> None:
    """Raises OutOfTime where the deadline has passed."""
    if time.monotonic() > _DEADLINE.get():
        raise OutOfTime
