"""Local schedules as timers of the user's systemd, for machines that have no crontab.

One of the two places that pipelines/schedules/local.py writes to. A schedule is two files in ~/.config/systemd/user,
assay-<name>.service (oneshot: systemd starts no second one beside it) and assay-<name>.timer. The timer's first line
holds the five cron fields; OnCalendar holds the same times (systemd.time(7)), in the machine's time zone. Missed times
are not made up for (Persistent=false), as on the cluster.
"""

import os
import shutil
from pathlib import Path

from feature_store.whole_files import write_file
from pipelines.schedules.cron import Cron, CronField
from pipelines.schedules.local_job import LocalEntry, LocalJob, call, must

TARGET = "systemd user timer"
_MARKER = "# assay schedule "
_WEEKDAYS = ("Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat")
_SYSTEMCTL = ("systemctl", "--user")


def available() -> bool:
    """Whether the user's systemd answers; in a container or over su it often does not."""
    return shutil.which("systemctl") is not None and call([*_SYSTEMCTL, "show-environment"]).returncode == 0


def notes() -> tuple[str, ...]:
    """What stands in the way of the timers being started."""
    return ("user timers run only while you are logged in, unless `loginctl enable-linger` was run once",)


def install(job: LocalJob, cron: Cron) -> None:
    """Writes both units, or replaces those with this name, and starts the timer.

    Raises:
        SourceError: systemd refuses (its own words are in the message).
    """
    timer = _timer(job.name)
    timer.parent.mkdir(parents=True, exist_ok=True)
    job.log.parent.mkdir(parents=True, exist_ok=True)
    write_file(timer.with_suffix(".service"), service_text(job), mode=0o600)  # as a crontab: a password may be in it
    timer.write_text(timer_text(job.name, cron), encoding="utf-8")
    # restart: a running timer keeps its old times until then.
    for verb in (["daemon-reload"], ["enable", timer.name], ["restart", timer.name]):
        must([*_SYSTEMCTL, *verb])


def entries() -> tuple[LocalEntry, ...]:
    """Our timers, by name."""
    listed = []
    for path in sorted(_timer("*").parent.glob(_timer("*").name)):
        first = path.read_text(encoding="utf-8", errors="replace").split("\n")[0]
        name, separator, cron = first.removeprefix(_MARKER).partition(": ")
        if first.startswith(_MARKER) and separator:
            enabled = call([*_SYSTEMCTL, "is-enabled", path.name]).returncode == 0
            listed.append(LocalEntry(name, cron, enabled))
    return tuple(listed)


def remove(name: str) -> None:
    """Stops the timer of that name and deletes its units; nothing happens where there is none.

    Raises:
        SourceError: systemd refuses.
    """
    timer = _timer(name)
    if not timer.exists():
        return
    must([*_SYSTEMCTL, "disable", "--now", timer.name])
    timer.unlink()
    timer.with_suffix(".service").unlink(missing_ok=True)
    must([*_SYSTEMCTL, "daemon-reload"])


def service_text(job: LocalJob) -> str:
    """The unit that runs the job."""
    # systemd.service(5), "Command lines": in quotes, with these four signs doubled or escaped
    quoted = job.shell.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return (f"[Unit]\nDescription=assay schedule {job.name}\n\n"
            f'[Service]\nType=oneshot\nExecStart=/bin/sh -c "{quoted}"\n')


def timer_text(name: str, cron: Cron) -> str:
    """The unit that says when."""
    calendar = "\n".join(f"OnCalendar={line}" for line in on_calendar(cron))
    return (f"{_MARKER}{name}: {cron.expression}\n[Unit]\nDescription=assay schedule {name}\n\n"
            f"[Timer]\n{calendar}\nAccuracySec=1s\nPersistent=false\n\n[Install]\nWantedBy=timers.target\n")


def on_calendar(cron: Cron) -> tuple[str, ...]:
    """The cron's times as systemd calendar events; several lines are alternatives.

    A calendar event wants its weekday AND its date, so cron's either-day rule takes two lines.
    """
    month, day = _listed(cron.month, 12), _listed(cron.day_of_month, 31)
    time = f"{_listed(cron.hour, 24)}:{_listed(cron.minute, 60)}:00"
    every_weekday = len(cron.day_of_week.values) == 7
    weekdays = "" if every_weekday else ",".join(_WEEKDAYS[value] for value in cron.day_of_week.values) + " "
    if not cron.either_day:
        return (f"{weekdays}*-{month}-{day} {time}",)
    by_weekday = f"{weekdays}*-{month}-* {time}"
    return (by_weekday,) if every_weekday else (by_weekday, f"*-{month}-{day} {time}")


def _listed(field: CronField, size: int) -> str:
    return "*" if len(field.values) == size else ",".join(f"{value:02d}" for value in field.values)


def _timer(name: str) -> Path:
    folder = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "systemd" / "user"
    return folder / f"assay-{name}.timer"
