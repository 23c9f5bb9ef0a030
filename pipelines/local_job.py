"""The job that a local schedule starts: one command with its folder, environment and log.

Written into a crontab line by pipelines/crontab.py or into a unit by pipelines/systemd_timer.py. Both start
programs with almost no environment, so the job carries PATH, HOME and ASSAY_HOME along. That runs never
overlap is the command's own doing: `assay run --scheduled` takes the lock of pipelines/run_lock.py.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from feature_store.errors import InputError, MissingToolError
from pipelines.schedule import check_schedule_name

# What marks a line or unit as ours, besides its name; `assay run` requires it in scheduled runs anyway.
SCHEDULED_FLAG = "--scheduled"


@dataclass(frozen=True)
class LocalJob:
    """What to start.

    Attributes:
        name: the schedule's name.
        command: program (absolute path) and arguments.
        directory: the folder to run in: the one with mlflow.yaml.
        environment: pairs of name and value.
        log: file that output is appended to.
    """

    name: str
    command: tuple[str, ...]
    directory: Path
    environment: tuple[tuple[str, str], ...]
    log: Path


@dataclass(frozen=True)
class LocalEntry:
    """A schedule found on this machine: its name, the five fields that stand there, whether it is active."""

    name: str
    cron: str
    enabled: bool


def training_job(
    name: str,
    task: str,
    *,
    directory: Path,
    home: Path,
    environment: Mapping[str, str],
    arguments: Sequence[str] = (),
    program: Path | None = None,
) -> LocalJob:
    """The job `assay run --task <task> --scheduled`.

    Args:
        name: the schedule's name.
        task: the task to train.
        directory: the folder with mlflow.yaml.
        home: the state folder ($ASSAY_HOME or `.assay/`); the log goes to `<home>/logs/`.
        environment: where PATH and HOME are taken from, usually os.environ.
        arguments: further arguments of `assay run`.
        program: the `assay` program; without it the one beside the running Python.

    Raises:
        InputError: a bad name, or a path with a line break.
        MissingToolError: there is no `assay` program.
    """
    # Not resolved: the Python of a virtual environment is a link, and `assay` stands beside the link.
    program = program or Path(sys.executable).with_name("assay")
    if not program.is_file():
        raise MissingToolError(
            f"assay must be installed to be scheduled, got no program ({program}); "
            f"run {sys.executable} -m pip install -e ."
        )
    home = home.absolute()
    job = LocalJob(
        name=check_schedule_name(name),
        command=(str(program.absolute()), "run", "--task", task, *arguments, SCHEDULED_FLAG),
        directory=directory.absolute(),
        environment=(
            ("PATH", _path_without_repeats(environment.get("PATH", "/usr/bin:/bin"))),
            ("HOME", environment.get("HOME", str(Path.home()))),
            ("ASSAY_HOME", str(home)),
        ),
        log=home / "logs" / f"schedule-{name}.log",
    )
    _check_one_line(job)
    return job


def _path_without_repeats(path: str) -> str:
    """PATH shortened where it repeats itself: a crontab line holds 998 signs."""
    return ":".join(dict.fromkeys(path.split(":")))


def _check_one_line(job: LocalJob) -> None:
    """Neither a crontab line nor a unit line can hold a line break."""
    values = [*job.command, str(job.directory), str(job.log), *(value for _, value in job.environment)]
    for value in values:
        if any(sign in value for sign in "\n\r\0"):
            raise InputError(
                f"scheduled command must be free of line breaks, got {value!r} (schedule {job.name}); "
                "rename the folder or change the argument"
            )
