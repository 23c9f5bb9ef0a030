"""Schedules without a cluster: the user's crontab, else the user's systemd timers.

`assay schedule create --local` comes here; `assay schedule create` goes to pipelines/cluster.py. What is started is a
`LocalJob` (local_job.py), at the times of a `Cron` (cron.py) in the machine's time zone.
"""

from dataclasses import replace
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from feature_store.errors import InputError, MissingToolError
from pipelines.schedules import crontab, systemd_timer
from pipelines.schedules.cron import Cron, next_runs, parse_cron
from pipelines.schedules.local_job import LocalEntry, LocalJob
from pipelines.schedules.schedule_info import ScheduleInfo, no_such_schedule


class _Place(Protocol):
    """What both modules offer: a place where local schedules stand."""

    TARGET: str

    def available(self) -> bool: ...
    def notes(self) -> tuple[str, ...]: ...
    def install(self, job: LocalJob, cron: Cron) -> None: ...
    def entries(self) -> tuple[LocalEntry, ...]: ...
    def remove(self, name: str) -> None: ...


# In the order of preference: cron also runs while nobody is logged in.
_PLACES: tuple[_Place, ...] = (crontab, systemd_timer)


def create_local_schedule(job: LocalJob, cron: Cron, now: datetime | None = None) -> ScheduleInfo:
    """Schedules the job on this machine, in the machine's time zone; a schedule of the same name is replaced.

    Args:
        job: what to run.
        cron: when.
        now: the time to count the next runs from; without it the clock.

    Raises:
        MissingToolError: neither crontab nor a systemd user session is here.
        SourceError: crontab or systemd refuses.
        InputError: the command does not fit into a crontab line.
    """
    place, *others = _available_places()
    before = [entry.cron for entry in place.entries() if entry.name == job.name]
    place.install(job, cron)
    for other in others:
        other.remove(job.name)  # as left by a time when this machine had no cron
    info = _info(LocalEntry(job.name, cron.expression, enabled=True), place, now)
    replaced = [f"replaced the schedule of that name ({expression})" for expression in before[:1]]
    return replace(info, notes=(*replaced, *info.notes))


def list_local_schedules(now: datetime | None = None) -> tuple[ScheduleInfo, ...]:
    """All local schedules of this user. `now`, errors: as in `create_local_schedule`."""
    return tuple(_info(entry, place, now) for place in _available_places() for entry in place.entries())


def delete_local_schedule(name: str) -> ScheduleInfo:
    """Deletes a local schedule and returns it as it was; a run that it started goes on.

    Raises:
        InputError: no schedule has that name.
        MissingToolError, SourceError: as `create_local_schedule`.
    """
    schedules = {info.name: info for info in list_local_schedules()}
    if name not in schedules:
        raise no_such_schedule(name, schedules, "this machine")
    for place in _available_places():
        place.remove(name)
    return schedules[name]


def local_time_zone(localtime: Path = Path("/etc/localtime")) -> tzinfo:
    """The machine's time zone, which cron and systemd schedule in; $TZ of a shell does not reach them."""
    try:
        _, in_database, key = str(localtime.readlink()).partition("zoneinfo/") if localtime.is_symlink() else [""] * 3
        if in_database:
            return ZoneInfo(key)
        with localtime.open("rb") as file:
            return ZoneInfo.from_file(file, key="local")
    except (OSError, ValueError, ZoneInfoNotFoundError):
        return UTC


def _available_places() -> list[_Place]:
    """Where schedules can stand on this machine, the preferred one first."""
    places = [place for place in _PLACES if place.available()]
    if not places:
        raise MissingToolError("local scheduling: expected crontab or a systemd user session, got neither; "
                               "run apt-get install cron")
    return places


def _info(entry: LocalEntry, place: _Place, now: datetime | None) -> ScheduleInfo:
    """An entry as it is shown, with its next runs where it is active and its cron is one."""
    zone, notes = local_time_zone(), [*place.notes()]
    runs: tuple[datetime, ...] = ()
    try:
        cron = parse_cron(entry.cron)
        notes += [*cron.notes, f"times in {zone}, the time zone of this machine"]
        if entry.enabled:
            runs = next_runs(cron, (now or datetime.now(UTC)).astimezone(zone))
    except InputError as error:  # an entry that somebody edited: show it, do not fail the list
        notes.append(str(error))
    return ScheduleInfo(entry.name, entry.cron, None, runs, place.TARGET, entry.enabled, tuple(notes))
