"""Local schedules as timers of the user's systemd, for machines that have no crontab.

One of the two places that pipelines/local_schedule.py writes to. A schedule is two files in
~/.config/systemd/user, assay-<name>.service (oneshot: systemd starts no second one beside it) and
assay-<name>.timer. The timer's comment holds the five cron fields; OnCalendar holds the same times
(systemd.time(7)), in the machine's time zone. Missed times are not made up for (Persistent=false), as on the
cluster.
"""

import os
import shutil
import subprocess
from pathlib import Path

from feature_store.errors import SourceError
from pipelines.cron import Cron
from pipelines.local_job import LocalEntry, LocalJob

TARGET = "systemd user timer"
_MARKER = "# assay schedule "
_WEEKDAYS = ("Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat")
_TIMEOUT_S = 20


def available() -> bool:
    """Whether the user's systemd answers; in a container or over su it often does not."""
    return shutil.which("systemctl") is not None and _systemctl("show-environment").returncode == 0


def notes() -> tuple[str, ...]:
    """What stands in the way of the timers being started."""
    return ("user timers run only while you are logged in, unless `loginctl enable-linger` was run once",)


def install(job: LocalJob, cron: Cron) -> None:
    """Write both units, or put them in the place of those with this name, and start the timer.

    Raises:
        SourceError: systemd refuses (its own words are in the message).
    """
    folder = _unit_folder()
    folder.mkdir(parents=True, exist_ok=True)
    job.log.parent.mkdir(parents=True, exist_ok=True)
    (folder / f"{_unit(job.name)}.service").write_text(service_text(job), encoding="utf-8")
    (folder / f"{_unit(job.name)}.timer").write_text(timer_text(job.name, cron), encoding="utf-8")
    _must("daemon-reload")
    # restart: a running timer keeps its old times until then.
    _must("enable", f"{_unit(job.name)}.timer")
    _must("restart", f"{_unit(job.name)}.timer")


def entries() -> tuple[LocalEntry, ...]:
    """Our timers, by name."""
    found = []
    for path in sorted(_unit_folder().glob("assay-*.timer")):
        first = path.read_text(encoding="utf-8", errors="replace").split("\n")[0]
        name, separator, cron = first.removeprefix(_MARKER).partition(": ")
        if first.startswith(_MARKER) and separator:
            found.append(LocalEntry(name, cron, enabled=_systemctl("is-enabled", path.name).returncode == 0))
    return tuple(found)


def remove(name: str) -> None:
    """Stop the timer of that name and delete its units; nothing happens where there is none.

    Raises:
        SourceError: systemd refuses.
    """
    folder = _unit_folder()
    timer = folder / f"{_unit(name)}.timer"
    if not timer.exists():
        return
    _must("disable", "--now", timer.name)
    timer.unlink()
    (folder / f"{_unit(name)}.service").unlink(missing_ok=True)
    _must("daemon-reload")


def service_text(job: LocalJob) -> str:
    """The unit that runs the job."""
    environment = "\n".join(f"Environment={_quote(f'{key}={value}')}" for key, value in job.environment)
    # Only in ExecStart does systemd expand `$`. Through env, because the first word may hold no quote or `$`.
    command = " ".join(_quote(word).replace("$", "$$") for word in job.command)
    return (
        f"{_MARKER}{job.name}\n[Unit]\nDescription=assay schedule {job.name}\n\n"
        f"[Service]\nType=oneshot\nWorkingDirectory={_percent(str(job.directory))}\n{environment}\n"
        f"ExecStart=/usr/bin/env {command}\n"
        f"StandardOutput=append:{_percent(str(job.log))}\nStandardError=append:{_percent(str(job.log))}\n"
    )


def timer_text(name: str, cron: Cron) -> str:
    """The unit that says when."""
    calendar = "\n".join(f"OnCalendar={line}" for line in on_calendar(cron))
    return (
        f"{_MARKER}{name}: {cron.expression}\n[Unit]\nDescription=assay schedule {name}\n\n"
        f"[Timer]\n{calendar}\nAccuracySec=1s\nPersistent=false\n\n[Install]\nWantedBy=timers.target\n"
    )


def on_calendar(cron: Cron) -> tuple[str, ...]:
    """The cron's times as systemd calendar events; several lines are alternatives.

    A calendar event wants its weekday AND its date, so cron's either-day rule takes two lines.
    """
    month = _list(cron.month.values, 12)
    day = _list(cron.day_of_month.values, 31)
    time = f"{_list(cron.hour.values, 24)}:{_list(cron.minute.values, 60)}:00"
    every_weekday = len(cron.day_of_week.values) == 7
    weekdays = "" if every_weekday else ",".join(_WEEKDAYS[value] for value in cron.day_of_week.values) + " "
    if cron.either_day and not every_weekday:
        return f"{weekdays}*-{month}-* {time}", f"*-{month}-{day} {time}"
    if cron.either_day:
        return (f"*-{month}-* {time}",)
    return (f"{weekdays}*-{month}-{day} {time}",)


def _list(values: tuple[int, ...], size: int) -> str:
    return "*" if len(values) == size else ",".join(f"{value:02d}" for value in values)


def _quote(text: str) -> str:
    """A word for a unit file (systemd.service(5), "Command lines"): quoted, `%` doubled."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{_percent(escaped)}"'


def _percent(text: str) -> str:
    return text.replace("%", "%%")


def _unit(name: str) -> str:
    return f"assay-{name}"


def _unit_folder() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "systemd" / "user"


def _systemctl(*arguments: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            ["systemctl", "--user", *arguments],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SourceError(f"systemctl must answer within {_TIMEOUT_S} s, got {error}") from None


def _must(*arguments: str) -> None:
    run = _systemctl(*arguments)
    if run.returncode != 0:
        said = " ".join(run.stderr.split())
        raise SourceError(
            f"systemctl --user {' '.join(arguments)} must succeed, got exit code {run.returncode}: {said}"
        )
