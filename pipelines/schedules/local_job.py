"""The job that a local schedule starts: one line for /bin/sh, which says folder, environment, command and log.

Written into a crontab line by crontab.py or into a unit by systemd_timer.py. Both start programs with almost no
environment, so the job carries PATH, HOME and ASSAY_HOME along; `left_out` says what else is set. That runs never
overlap is the command's own doing: `assay run --scheduled` and `assay monitor` take the lock of pipelines/run_lock.py.
"""

import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from feature_store.errors import InputError, MissingToolError, SourceError
from pipelines.schedules.schedule_info import check_schedule_name

_TIMEOUT_S = 20
# What Assay, MLflow, the clients of S3, PostgreSQL and Kubernetes, and those of proxies and certificates go by.
_READ = re.compile("ASSAY_.+|AWS_.+|MLFLOW_.+|PG[A-Z]+|KUBECONFIG|SSL_CERT_.+|REQUESTS_.+|(?i:(https?|no)_proxy)")
_SET_BY_US = ("ASSAY_HOME", "ASSAY_CONFIG", "MLFLOW_DISABLE_TELEMETRY")  # in every job too; the second as --config


@dataclass(frozen=True)
class LocalJob:
    """What to start.

    Attributes:
        name: the schedule's name.
        command: program (absolute path) and arguments.
        directory: the folder to run in.
        environment: names and values.
        log: file that output is appended to.
    """

    name: str
    command: tuple[str, ...]
    directory: Path
    environment: Mapping[str, str]
    log: Path

    @property
    def shell(self) -> str:
        """The job as one line for /bin/sh."""
        environment = " ".join(f"{key}={shlex.quote(value)}" for key, value in self.environment.items())
        return (f"cd {shlex.quote(str(self.directory))} && env {environment} {shlex.join(self.command)} "
                f">> {shlex.quote(str(self.log))} 2>&1")


@dataclass(frozen=True)
class LocalEntry:
    """A schedule that stands on this machine: its name, its five fields, and whether it is active."""

    name: str
    cron: str
    enabled: bool


def assay_job(
    name: str, arguments: Sequence[str], *, directory: Path, home: Path, environment: Mapping[str, str],
    program: Path | None = None,
) -> LocalJob:
    """The job `assay <arguments>`.

    Args:
        name: the schedule's name.
        arguments: the command of `assay` and its options.
        directory: the folder to run in.
        home: the state folder ($ASSAY_HOME or `.assay/`); the log goes to `<home>/logs/`.
        environment: where PATH and HOME are taken from, usually os.environ.
        program: the `assay` program; without it the one beside the running Python.

    Raises:
        InputError: a bad name, or a path with a line break.
        MissingToolError: there is no `assay` program.
    """
    # Not resolved: the Python of a virtual environment is a link, and `assay` stands beside the link.
    program = program or Path(sys.executable).with_name("assay")
    if not program.is_file():
        raise MissingToolError(f"assay: expected to be installed where it is scheduled, got no program ({program}); "
                               f"run {sys.executable} -m pip install -e .")
    path = ":".join(dict.fromkeys(environment.get("PATH", "/usr/bin:/bin").split(":")))  # a crontab line is short
    job = LocalJob(
        name=check_schedule_name(name),
        command=(str(program.absolute()), *arguments),
        directory=directory.absolute(),
        environment={"PATH": path, "HOME": environment.get("HOME", str(Path.home())),
                     "ASSAY_HOME": str(home.absolute())},
        log=home.absolute() / "logs" / f"schedule-{name}.log",
    )
    if set("\n\r\0") & set(job.shell):
        raise InputError(f"scheduled command: expected no line breaks, got {job.shell!r} (schedule {name}); "
                         "rename the folder or change the argument")
    return job


def left_out(environment: Mapping[str, str]) -> tuple[str, ...]:
    """A note on what a job may need of the environment that it was made in, and starts without.

    Nothing of it is written into a crontab or a unit, for there may be passwords among it.
    """
    names = sorted(name for name in environment if _READ.fullmatch(name) and name not in _SET_BY_US)
    return (f"set here and not carried into the job: {', '.join(names)}; what it needs of them, give to cron or "
            "systemd (docs/recipes/schedule.md)",) if names else ()


def call(command: Sequence[str], stdin: str = "") -> subprocess.CompletedProcess[bytes]:
    """Runs crontab or systemctl to its end, with `stdin` (UTF-8) as its input. Raises SourceError: it does not end."""
    try:
        return subprocess.run(command, input=stdin.encode("utf-8", "surrogateescape"), capture_output=True,
                              timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SourceError(f"{command[0]}: expected an answer within {_TIMEOUT_S} s, got {error}") from None


def must(command: Sequence[str], stdin: str = "") -> str:
    """What the command prints. Raises SourceError with its own words where it fails or does not end."""
    run = call(command, stdin)
    if run.returncode != 0:
        said = " ".join(run.stderr.decode(errors="replace").split())
        raise SourceError(f"{' '.join(command)}: expected success, got exit code {run.returncode}: {said}")
    return run.stdout.decode("utf-8", "surrogateescape")
