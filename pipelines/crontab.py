"""Local schedules as entries of the user's crontab; the rest of the crontab stays as it is, byte for byte.

One of the two places that pipelines/local_schedule.py writes to. An entry is two lines:
  # assay schedule <name> 0 2 * * * cd <folder> && env PATH=... HOME=... ASSAY_HOME=... <program> run --task
  <task> --scheduled >> <log> 2>&1
Everything is quoted for /bin/sh, then every `%` is escaped: to cron an unescaped one ends the command
(crontab(5)). No environment lines (`PATH=...`) are written: in a crontab they would change every entry below
them.
"""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

from feature_store.errors import InputError, SourceError
from pipelines.cron import Cron
from pipelines.local_job import SCHEDULED_FLAG, LocalEntry, LocalJob

TARGET = "crontab"
_MARKER = "# assay schedule "
# Debian's cron 3.0pl1 refuses more ("command too long"): MAX_COMMAND 1000, less the terminator; measured 998.
_MAX_COMMAND = 998
_JOB_LINE = re.compile(r"(?P<off>#\s*)?(?P<cron>\S+\s+\S+\s+\S+\s+\S+\s+\S+)\s+(?P<command>\S.*)")
_TIMEOUT_S = 20


def available() -> bool:
    """Whether this machine has crontabs."""
    return shutil.which("crontab") is not None


def notes() -> tuple[str, ...]:
    """What stands in the way of the entries being started."""
    if _daemon_missing(Path("/proc")):
        return ("no cron daemon was seen running on this machine: start it with `service cron start`",)
    return ()


def install(job: LocalJob, cron: Cron) -> None:
    """Add the entry, or put it in the place of the one with its name.

    Raises:
        InputError: the command is too long for a crontab line.
        SourceError: crontab refuses (its own words are in the message).
    """
    command = _command(job)
    if len(command.encode()) > _MAX_COMMAND:
        raise InputError(
            f"crontab command must be at most {_MAX_COMMAND} bytes, got {len(command.encode())} "
            f"(schedule {job.name}); create the schedule again with a shorter PATH"
        )
    entry = f"{_MARKER}{job.name}\n{cron.expression} {command}\n".encode()
    job.log.parent.mkdir(parents=True, exist_ok=True)
    _write(_with_entry(_read(), job.name, entry))


def entries() -> tuple[LocalEntry, ...]:
    """Our entries, in the order of the crontab."""
    lines = _read().decode(errors="replace").split("\n")
    found = []
    for marker, line in zip(lines, [*lines[1:], ""], strict=True):
        match = _JOB_LINE.fullmatch(line.strip())
        if marker.startswith(_MARKER) and match is not None and SCHEDULED_FLAG in line:
            cron = " ".join(match["cron"].split())
            found.append(LocalEntry(marker.removeprefix(_MARKER).strip(), cron, enabled=match["off"] is None))
    return tuple(found)


def remove(name: str) -> None:
    """Take the entry of that name out; nothing happens where there is none.

    Raises:
        SourceError: crontab refuses.
    """
    content = _read()
    without = _with_entry(content, name, b"")
    if without != content:
        _write(without)


def _command(job: LocalJob) -> str:
    """The job as the command of a crontab line."""
    environment = " ".join(f"{key}={shlex.quote(value)}" for key, value in job.environment)
    shell = (
        f"cd {shlex.quote(str(job.directory))} && env {environment} {shlex.join(job.command)} "
        f">> {shlex.quote(str(job.log))} 2>&1"
    )
    if "\\%" in shell:
        # cron takes a backslash off every `\%`, and has no way to write one that stays.
        raise InputError(
            f"crontab command must not hold a backslash before %, got {shell!r} (schedule {job.name})"
        )
    return shell.replace("%", "\\%")


def _with_entry(content: bytes, name: str, entry: bytes) -> bytes:
    """The crontab with `entry` in the place of the one with that name, or at the end."""
    lines = content.splitlines(keepends=True)
    marker = f"{_MARKER}{name}".encode()
    kept: list[bytes] = []
    place: int | None = None
    skip_job = False
    for line in lines:
        if skip_job and SCHEDULED_FLAG.encode() in line:
            skip_job = False
            continue
        skip_job = line.rstrip() == marker
        if skip_job:
            place = len(kept) if place is None else place
        else:
            kept.append(line)
    if place is None:
        place = len(kept)
    if entry and place == len(kept) and kept and not kept[-1].endswith(b"\n"):
        kept[-1] += b"\n"
    return b"".join([*kept[:place], entry, *kept[place:]])


def _read() -> bytes:
    """The user's crontab; empty where there is none."""
    run = _crontab(["-l"], b"")
    if run.returncode == 0:
        return run.stdout
    if b"no crontab for" in run.stderr:
        return b""
    raise _refused(run)


def _write(content: bytes) -> None:
    """Install the crontab; an empty one is removed, as it was before the first entry."""
    run = _crontab(["-"], content) if content else _crontab(["-r"], b"")
    if run.returncode != 0:
        raise _refused(run)


def _crontab(arguments: list[str], content: bytes) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            ["crontab", *arguments], input=content, capture_output=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SourceError(f"crontab must answer within {_TIMEOUT_S} s, got {error}") from None


def _refused(run: subprocess.CompletedProcess[bytes]) -> SourceError:
    said = " ".join(run.stderr.decode(errors="replace").split())
    return SourceError(f"crontab must accept this user and entry, got exit code {run.returncode}: {said}")


def _daemon_missing(proc: Path) -> bool:
    """Whether the process table can be read and holds no cron daemon."""
    names = []
    for comm in proc.glob("[0-9]*/comm"):
        try:
            names.append(comm.read_text().strip())
        except OSError:  # that process just ended
            continue
    return bool(names) and not {"cron", "crond"} & set(names)
