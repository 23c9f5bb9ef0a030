"""Five-field cron: checked, written so that all who read it read it alike, and its next run times.

Stands before pipelines/cluster.py (recurring runs) and pipelines/schedules/local.py (crontab, systemd timer): both take
a `Cron`, so that the same five fields mean the same times everywhere. Three readers differ:
  Kubeflow   robfig/cron v1.2.0 (kubeflow/pipelines 2.17.0: go.mod, backend/src/apiserver/server/api_converter.go): SIX
             fields, seconds first, the last one optional. So five fields are not refused but read shifted: `0 2 * * *`
             runs hourly. Weekday 0-6 (7 is refused), `?` is `*`, no L, W, # or H. Times are in the cluster's
             `cronScheduleTimezone`, UTC unless it was changed
             (manifests/kustomize/base/installs/generic/pipeline-install-config.yaml).
  crontab    Debian's cron 3.0pl1: five fields, weekday 0-7, no `?`, no `N/step` without a range.
  croniter   as crontab, and more (L, H, wrapping ranges, six fields with the seconds LAST); 7.0 reads the hour `0-0`
             as `*`.
The canonical text is what all three read alike: digits only, weekdays 0-6, no `?`, no `N/step` (written as a range), no
range of one value, and starred elements first (Debian's cron looks for the star in the first character of a field,
robfig/cron anywhere in it). Tests hold the run times against robfig/cron's rules.

Day of month and day of week: where one of them starts with `*`, both must match; where neither does, EITHER suffices
(robfig/cron spec.go, `dayMatches`; Debian's crontab(5)).
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from feature_store.errors import InputError, nearest

ALIASES = {"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
           "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *"}
_ELEMENT = re.compile(r"(?P<first>\*|\w+)(?:-(?P<last>\w+))?(?:/(?P<step>\w+))?")
# Any date does: it only anchors the search for one matching date, and keeps parsing free of a clock.
_REFERENCE = datetime(2024, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class FieldRange:
    """What one of the five fields may hold: name, bounds, and names of its values (the first for `low`)."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()


_WEEKDAY = FieldRange("day of week", 0, 6, ("sun", "mon", "tue", "wed", "thu", "fri", "sat"))
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_FIELDS = (FieldRange("minute", 0, 59), FieldRange("hour", 0, 23), FieldRange("day of month", 1, 31),
           FieldRange("month", 1, 12, _MONTHS), _WEEKDAY)


@dataclass(frozen=True)
class CronField:
    """One field: canonical text, the values it matches, and whether it counts as starred (`*`, `*/step`)."""

    text: str
    values: tuple[int, ...]
    star: bool


@dataclass(frozen=True)
class Cron:
    """A checked five-field cron expression: what the user wrote (`@daily`, `0 2 * * MON`), and its canonical fields."""

    source: str
    minute: CronField
    hour: CronField
    day_of_month: CronField
    month: CronField
    day_of_week: CronField

    @property
    def expression(self) -> str:
        """The five canonical fields, as crontab takes them."""
        fields = (self.minute, self.hour, self.day_of_month, self.month, self.day_of_week)
        return " ".join(field.text for field in fields)

    @property
    def kfp(self) -> str:
        """The six fields, seconds first, as Kubeflow Pipelines takes them."""
        return f"0 {self.expression}"

    @property
    def either_day(self) -> bool:
        """Whether day of month and day of week are both restricted, so that matching EITHER suffices."""
        return not (self.day_of_month.star or self.day_of_week.star)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user may not expect of this expression."""
        note = "day of month and day of week are both given: cron runs on days that match either of them"
        return (note,) if self.either_day else ()


def parse_cron(text: str) -> Cron:
    """Checks a five-field cron expression or an alias such as `@daily`.

    Raises:
        InputError: wrong number of fields, a value out of range, a sign that not every cron reads, or a date that never
            comes (31 February). The message names field, what was expected and what came.
    """
    source = text.strip()
    if source.startswith("@") and source.lower() not in ALIASES:
        raise InputError(f"cron: expected an alias that every target knows, got {source!r}; "
                         f"{nearest(source.lower(), ALIASES)}")
    words = ALIASES.get(source.lower(), source).split()
    if len(words) != 5:
        hint = ('for 02:00 every day write "0 2 * * *" in quotes' if len(words) != 6
                else "leave the seconds out: Kubeflow's six-field form is made for you")
        raise InputError("cron: expected five fields (minute hour day-of-month month day-of-week), "
                         f"got {len(words)} ({source!r}); {hint}")
    cron = Cron(source, *(_field(word, field, source) for word, field in zip(words, _FIELDS, strict=True)))
    next_runs(cron, _REFERENCE, count=1)
    return cron


def next_runs(cron: Cron, after: datetime, count: int = 3) -> tuple[datetime, ...]:
    """The next `count` run times strictly after `after`, in its time zone.

    Around a change of daylight saving time the readers differ (Debian's cron makes up for a skipped hour, Kubeflow does
    not); in UTC, Kubeflow's default, there is no such change.

    Raises:
        InputError: `after` has no time zone, or the expression matches no date.
    """
    from croniter import CroniterBadDateError, croniter

    if after.tzinfo is None:
        raise InputError(f"time: expected one with a time zone, got {after.isoformat()} (next run times)")
    # implement_cron_bug: `*/2` in a day field counts as `*` in the either-day rule, as in both other crons.
    times = croniter(cron.expression, after, implement_cron_bug=True)
    try:
        return tuple(times.get_next(datetime) for _ in range(count))
    except CroniterBadDateError:
        raise InputError(f"cron: expected a date that comes, got {cron.source!r}: no such day in those months; "
                         "check day of month and month") from None


def from_kfp_cron(text: str) -> Cron | None:
    """The five-field meaning of a cron found on a cluster, or None where it has none (seconds, `@every`).

    Kubeflow takes five fields too and reads them seconds first, with any weekday: this is what it then does.
    """
    words = text.split()
    if len(words) == 5:
        words.append("*")
    if len(words) == 6 and words.pop(0) != "0":
        return None
    try:
        return parse_cron(" ".join(words))
    except InputError:
        return None


def _field(word: str, allowed: FieldRange, source: str) -> CronField:
    """A field is a list of elements, separated by commas."""
    where = f"{allowed.name} of {source!r}"
    elements = [_element(element, allowed, where) for element in word.split(",")]
    texts = sorted((text for text, _ in elements), key=lambda text: not text.startswith("*"))
    values = tuple(sorted({value for _, values in elements for value in values}))
    return CronField("*" if "*" in texts else ",".join(texts), values, star=texts[0].startswith("*"))


def _element(element: str, allowed: FieldRange, where: str) -> tuple[str, list[int]]:
    """Canonical text and values of `*`, a value, a range, or one of these with a step."""
    is_open_day = element == "?" and allowed.name.startswith("day")
    match = _ELEMENT.fullmatch("*" if is_open_day else element)
    if match is None or (match["first"] == "*" and match["last"]):
        raise InputError(f"cron: expected *, a value, a range or one of these with /step, got {element!r} ({where}); "
                         "? can only be a whole day field, and L, W and # are known neither to Kubeflow nor to crontab")
    low, high = allowed.low, allowed.high
    if match["first"] != "*":
        low = _value(match["first"], allowed, where)
        if match["last"] or not match["step"]:
            high = _value(match["last"] or match["first"], allowed, where)
        if (match["last"] or "").lower() == "sun" and low > 0:
            high = 7  # fri-sun: Sunday closes the week
    if low > high:
        raise InputError(f"cron: expected a range that does not run backwards, got {element!r} ({where}); "
                         f"write two ranges: {low}-{allowed.high},{allowed.low}-{high}")
    step = _number(match["step"] or "1")
    if not 1 <= step <= max(high - low, 1):  # a larger one matches the first value alone, never what `*/90` means
        raise InputError(f"cron: expected a step of 1 to {max(high - low, 1)}, got {match['step']!r} in {element!r} "
                         f"({where}); a longer interval belongs into the next field")
    values = list(range(low, high + 1, step))
    every = f"/{step}" if step > 1 else ""
    if match["first"] == "*":
        return f"*{every}", values
    if high > allowed.high:  # robfig/cron has no weekday 7: list the days, Sunday as 0
        values = sorted({value % 7 for value in values})
        return ",".join(map(str, values)), values
    return (str(low) if low == high else f"{low}-{high}{every}"), values


def _value(word: str, allowed: FieldRange, where: str) -> int:
    """A number or a name, inside the field's range; Sunday may be 7."""
    if word.lower() in allowed.names:
        return allowed.names.index(word.lower()) + allowed.low
    high = allowed.high + (allowed is _WEEKDAY)
    if not allowed.low <= _number(word) <= high:
        names = f" or {allowed.names[0].upper()}..{allowed.names[-1].upper()}" if allowed.names else ""
        raise InputError(f"cron: expected a {allowed.name} of {allowed.low} to {high}{names}, got {word!r} ({where})")
    return int(word)


def _number(word: str) -> int:
    return int(word) if word.isascii() and word.isdigit() else -1
