"""One field of a five-field cron expression: checked, and brought to a canonical text.

Used by pipelines/cron.py alone, whose docstring says which crons read which signs. The canonical text has
digits only, weekdays 0-6, no `?`, no `N/step` (written out as a range), no range of one value (croniter 7
reads the hour `0-0` as `*`), and starred elements first (Debian's cron looks for the star in the first
character of a field, robfig/cron anywhere in it).

Symbols: minute 0-59, hour 0-23, day of month 1-31, month 1-12, day of week 0-6 (0 = Sunday; 7 is read as 0).
"""

import re
from dataclasses import dataclass

from feature_store.errors import InputError

_ELEMENT = re.compile(r"(?P<first>\*|\?|\w+)(?:-(?P<last>\w+))?(?:/(?P<step>\w+))?")


@dataclass(frozen=True)
class FieldRange:
    """What one of the five fields may hold: name, bounds, and names for its values (the first for `low`)."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()


MINUTE = FieldRange("minute", 0, 59)
HOUR = FieldRange("hour", 0, 23)
DAY_OF_MONTH = FieldRange("day of month", 1, 31)
MONTH = FieldRange(
    "month", 1, 12, ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
)
DAY_OF_WEEK = FieldRange("day of week", 0, 6, ("sun", "mon", "tue", "wed", "thu", "fri", "sat"))


@dataclass(frozen=True)
class CronField:
    """One field: canonical text, the values it matches, and whether it counts as starred (`*`, `*/step`)."""

    text: str
    values: tuple[int, ...]
    star: bool


def parse_field(word: str, allowed: FieldRange, expression: str) -> CronField:
    """One field, canonical.

    Args:
        word: the field, a comma-separated list of elements.
        allowed: what this field may hold.
        expression: the whole expression, for messages.

    Raises:
        InputError: naming field, rule and value.
    """
    where = f"{allowed.name} of {expression.strip()!r}"
    texts: list[str] = []
    values: set[int] = set()
    for element in word.split(","):
        text, element_values = _parse_element(element, allowed, where)
        if text == "*":
            return CronField("*", tuple(range(allowed.low, allowed.high + 1)), star=True)
        texts.append(text)
        values.update(element_values)
    texts.sort(key=lambda text: not text.startswith("*"))
    return CronField(",".join(texts), tuple(sorted(values)), star=texts[0].startswith("*"))


def _parse_element(element: str, allowed: FieldRange, where: str) -> tuple[str, tuple[int, ...]]:
    """The canonical text and the values of one element of the list."""
    match = _ELEMENT.fullmatch(element)
    if match is None:
        raise InputError(
            f"cron element must be *, a value, a range or one of these with /step, got {element!r} "
            f"({where}); L, W and # are known neither to Kubeflow nor to crontab"
        )
    first, last, step = match["first"], match["last"], match["step"]
    if first in ("*", "?"):
        return _parse_star(first, last, step, element, allowed, where)
    low = _value(first, allowed, where)
    if last is not None:
        high = _value(last, allowed, where)
        if allowed is DAY_OF_WEEK and last.lower() == "sun" and low > 0:
            high = 7  # fri-sun: Sunday closes the week
    else:
        high = low if step is None else allowed.high
    if low > high:
        raise InputError(
            f"cron range must not run backwards, got {element!r} ({where}); "
            f"write two ranges: {low}-{allowed.high},{allowed.low}-{high}"
        )
    return _range(low, high, _step(step, high - low, element, where), allowed)


def _range(low: int, high: int, step: int, allowed: FieldRange) -> tuple[str, tuple[int, ...]]:
    """The canonical text and the values of `low-high/step`."""
    values = tuple(range(low, high + 1, step))
    if allowed is DAY_OF_WEEK and high == 7:
        # robfig/cron has no weekday 7: list the days, Sunday as 0.
        listed = tuple(sorted({value % 7 for value in values}))
        return ",".join(map(str, listed)), listed
    if low == high:
        return str(low), values
    return f"{low}-{high}" + (f"/{step}" if step > 1 else ""), values


def _parse_star(
    first: str, last: str | None, step_text: str | None, element: str, allowed: FieldRange, where: str
) -> tuple[str, tuple[int, ...]]:
    """`*`, `*/step`, or `?` where a day is left open."""
    open_day = first == "?" and step_text is None and allowed in (DAY_OF_MONTH, DAY_OF_WEEK)
    if last is not None or not (first == "*" or open_day):
        raise InputError(
            f"cron element must be * or */step, or ? alone in a day field, got {element!r} ({where}); "
            "write * there"
        )
    step = _step(step_text, allowed.high - allowed.low, element, where)
    return "*" + (f"/{step}" if step > 1 else ""), tuple(range(allowed.low, allowed.high + 1, step))


def _value(word: str, allowed: FieldRange, where: str) -> int:
    """A number or a name, inside the field's range; Sunday may be 7."""
    if word.lower() in allowed.names:
        return allowed.names.index(word.lower()) + allowed.low
    high = 7 if allowed is DAY_OF_WEEK else allowed.high
    if not (word.isascii() and word.isdigit()):
        names = f" or {allowed.names[0].upper()}..{allowed.names[-1].upper()}" if allowed.names else ""
        raise InputError(
            f"cron {allowed.name} must be {allowed.low} to {high}{names}, got {word!r} ({where})"
        )
    if not allowed.low <= int(word) <= high:
        raise InputError(f"cron {allowed.name} must be {allowed.low} to {high}, got {int(word)} ({where})")
    return int(word)


def _step(text: str | None, width: int, element: str, where: str) -> int:
    """A step of 1 to `width`: a larger one matches the first value alone, never what `*/90` minutes means."""
    if text is None:
        return 1
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= max(width, 1)):
        raise InputError(
            f"cron step must be 1 to {max(width, 1)}, got {text!r} in {element!r} ({where}); "
            "a longer interval belongs into the next field"
        )
    return int(text)
