"""Local schedules as lines of the user's crontab; the rest of the crontab stays as it is, byte for byte.

One of the two places that pipelines/schedules/local.py writes to. An entry is one line, which /bin/sh reads up to `#`:
  0 2 * * * cd <folder> && env PATH=... <program> run --task <task> ... >> <log> 2>&1 # assay schedule <name>
Every `%` is escaped: to cron an unescaped one ends the command (crontab(5)). No environment lines (`PATH=...`) are
written: in a crontab they would change every entry below them. python-crontab would write the other lines anew, in its
own spacing.
"""

import re
import shutil
from pathlib import Path

from feature_store.errors import InputError, SourceError
from pipelines.schedules.cron import Cron
from pipelines.schedules.local_job import LocalEntry, LocalJob, must

TARGET = "crontab"
# Debian's cron 3.0pl1 refuses more ("command too long"): MAX_COMMAND 1000, less the terminator; measured 998.
_MOST_BYTES = 998
_ENTRY = re.compile(r"(?P<off>#\s*)?(?P<cron>(?:\S+\s+){4}\S+)\s.*# assay schedule (?P<name>[A-Za-z0-9._-]+)\s*")


def available() -> bool:
    """Whether this machine has crontabs."""
    return shutil.which("crontab") is not None


def notes() -> tuple[str, ...]:
    """What stands in the way of the entries being started."""
    note = "no cron daemon was seen running on this machine: start it with `service cron start`"
    return (note,) if _daemon_missing(Path("/proc")) else ()


def install(job: LocalJob, cron: Cron) -> None:
    """Adds the entry, or puts it in the place of the one with its name.

    Raises:
        InputError: the command is too long for a crontab line, or holds a backslash before `%`.
        SourceError: crontab refuses (its own words are in the message).
    """
    if "\\%" in job.shell:  # cron takes a backslash off every `\%`, and has no way to write one that stays
        raise InputError(f"crontab command: expected no backslash before %, got {job.shell!r} (schedule {job.name})")
    command = f"{job.shell} # assay schedule {job.name}".replace("%", "\\%")
    if (size := len(command.encode())) > _MOST_BYTES:
        raise InputError(f"crontab command: expected at most {_MOST_BYTES} bytes, got {size} (schedule {job.name}); "
                         "create the schedule again with a shorter PATH")
    job.log.parent.mkdir(parents=True, exist_ok=True)
    _replace(job.name, f"{cron.expression} {command}\n")


def entries() -> tuple[LocalEntry, ...]:
    """Our entries, in the order of the crontab."""
    matches = [match for line in _read() if (match := _ENTRY.fullmatch(line.strip()))]
    return tuple(LocalEntry(match["name"], " ".join(match["cron"].split()), enabled=match["off"] is None)
                 for match in matches)


def remove(name: str) -> None:
    """Takes the entry of that name out; nothing happens where there is none. Raises SourceError: crontab refuses."""
    _replace(name, "")


def _replace(name: str, entry: str) -> None:
    """Puts `entry` in the place of the lines with that name, or at the end."""
    before = _read()
    ours = [k for k, line in enumerate(before) if (match := _ENTRY.fullmatch(line.strip())) and match["name"] == name]
    lines = [line for k, line in enumerate(before) if k not in ours]
    place = ours[0] if ours else len(lines)
    if entry and place and not lines[place - 1].endswith("\n"):
        lines[place - 1] += "\n"
    lines[place:place] = [entry] if entry else []
    if lines != before:
        # An empty crontab is removed, as it was before the first entry.
        must(["crontab", "-"] if lines else ["crontab", "-r"], "".join(lines))


def _read() -> list[str]:
    """The lines of the user's crontab with their ends; none where there is no crontab."""
    try:
        return re.findall(r"[^\n]*\n|[^\n]+", must(["crontab", "-l"]))
    except SourceError as error:
        if "no crontab for" in str(error):
            return []
        raise


def _daemon_missing(proc: Path) -> bool:
    """Whether the process table can be read and holds no cron daemon."""
    names = set()
    for comm in proc.glob("[0-9]*/comm"):
        try:
            names.add(comm.read_text().strip())
        except OSError:  # that process just ended
            continue
    return bool(names) and not {"cron", "crond"} & names
