"""Five-field cron: checked, brought to one canonical text, converted for Kubeflow, and its next run times.

Stands before pipelines/cluster.py (recurring runs) and pipelines/local_schedule.py (crontab, systemd timer):
both take a `Cron`, so that the same five fields mean the same times everywhere. Three readers differ:
  Kubeflow   robfig/cron v1.2.0 (kubeflow/pipelines 2.17.0: go.mod, backend/src/apiserver/server/
             api_converter.go): SIX fields, seconds first, the last one optional. So five fields are not
             refused but read shifted: `0 2 * * *` runs hourly. Weekday 0-6 (7 is refused), `?` is `*`,
             no L, W, # or H. Times are in the cluster's `cronScheduleTimezone`, UTC unless it was changed
             (manifests/kustomize/base/installs/generic/pipeline-install-config.yaml).
  crontab    Debian's cron 3.0pl1: five fields, weekday 0-7, no `?`, no `N/step` without a range.
  croniter   as crontab, and more (L, H, wrapping ranges, six fields with the seconds LAST).
The canonical text (pipelines/cron_fields.py) is the part that all three read alike; tests hold the run times
against robfig/cron's rules.

Day of month and day of week: where one of them starts with `*`, both must match; where neither does, EITHER
suffices (robfig/cron spec.go, `dayMatches`; Debian's crontab(5)).
"""

from dataclasses import dataclass
from datetime import UTC, datetime

from feature_store.errors import InputError, nearest
from pipelines.cron_fields import (
    DAY_OF_MONTH,
    DAY_OF_WEEK,
    HOUR,
    MINUTE,
    MONTH,
    CronField,
    parse_field,
)

ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
# Any date does: it only anchors the search for one matching date, and keeps parsing free of a clock.
_REFERENCE = datetime(2024, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Cron:
    """A checked five-field cron expression.

    Attributes:
        source: what the user wrote (`@daily`, `0 2 * * MON`).
        minute, hour, day_of_month, month, day_of_week: the canonical fields.
    """

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
        if not self.either_day:
            return ()
        return ("day of month and day of week are both given: cron runs on days that match either of them",)


def parse_cron(text: str) -> Cron:
    """Check a five-field cron expression or an alias such as `@daily`.

    Raises:
        InputError: wrong number of fields, a value out of range, a sign that not every cron reads, or a date
            that never comes (31 February). The message names field, rule and value.
    """
    words = _words(text)
    ranges = (MINUTE, HOUR, DAY_OF_MONTH, MONTH, DAY_OF_WEEK)
    fields = [parse_field(word, allowed, text) for word, allowed in zip(words, ranges, strict=True)]
    cron = Cron(text.strip(), *fields)
    next_runs(cron, _REFERENCE, count=1)
    return cron


def next_runs(cron: Cron, after: datetime, count: int = 3) -> tuple[datetime, ...]:
    """The next `count` run times strictly after `after`, in its time zone.

    Around a change of daylight saving time the readers differ (Debian's cron makes up for a skipped hour,
    Kubeflow does not); in UTC, Kubeflow's default, there is no such change.

    Raises:
        InputError: `after` has no time zone, or the expression matches no date.
    """
    from croniter import CroniterBadDateError, croniter

    if after.tzinfo is None:
        raise InputError(f"time must carry a time zone, got {after.isoformat()} (next run times)")
    # implement_cron_bug: `*/2` in a day field counts as `*` in the either-day rule, as in both other crons.
    times = croniter(cron.expression, after, implement_cron_bug=True)
    try:
        return tuple(times.get_next(datetime) for _ in range(count))
    except CroniterBadDateError:
        raise InputError(
            f"cron must match a date that comes, got {cron.source!r}: no such day in those months; "
            "check day of month and month"
        ) from None


def from_kfp_cron(text: str) -> Cron | None:
    """The five-field meaning of a cron found on a cluster, or None where it has none (seconds, `@every`).

    Kubeflow takes five fields too and reads them seconds first, with any weekday: this is what it then does.
    """
    words = text.split()
    if len(words) == 5 and not text.startswith("@"):
        words.append("*")
    if len(words) == 6:
        if words[0] != "0":
            return None
        words = words[1:]
    try:
        return parse_cron(" ".join(words))
    except InputError:
        return None


def _words(text: str) -> list[str]:
    """The five words of an expression or alias."""
    stripped = text.strip()
    if stripped.startswith("@"):
        if stripped.lower() not in ALIASES:
            raise InputError(
                f"cron alias must be one that every target knows, got {stripped!r}; "
                f"{nearest(stripped.lower(), ALIASES)}"
            )
        return ALIASES[stripped.lower()].split()
    words = stripped.split()
    if len(words) == 6:
        raise InputError(
            "cron must have five fields (minute hour day-of-month month day-of-week), got six "
            f"({stripped!r}); leave the seconds out: Kubeflow's six-field form is made for you"
        )
    if len(words) != 5:
        raise InputError(
            f"cron must have five fields (minute hour day-of-month month day-of-week), got {len(words)} "
            f"({stripped!r}); "
            'for 02:00 every day write "0 2 * * *" in quotes'
        )
    return words
