"""What a schedule is called and how it is shown, the same on a cluster (pipelines/cluster.py) and on this machine."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from feature_store.errors import InputError, nearest

# Safe in a crontab line, a systemd unit name and a URL; 63 as in Kubernetes labels.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@dataclass(frozen=True)
class ScheduleInfo:
    """A schedule as `assay schedule` shows it.

    Attributes:
        name: the schedule's name.
        cron: five fields, or what stands there where that is no five-field cron (`every 600 s`).
        kfp_cron: the six fields on the cluster, seconds first; None for a local schedule.
        next_runs: the next run times, each in the time zone that the target schedules in; empty where the schedule is
            disabled or its times cannot be told.
        target: where it stands: `kfp <endpoint>`, `crontab` or `systemd user timer`.
        enabled: whether it will start runs.
        notes: sentences to show with it (time zone, what was replaced, what is missing).
    """

    name: str
    cron: str
    kfp_cron: str | None
    next_runs: tuple[datetime, ...]
    target: str
    enabled: bool
    notes: tuple[str, ...] = ()


def check_schedule_name(name: str) -> str:
    """The name, if it can name a schedule anywhere; raises InputError otherwise."""
    if _NAME.fullmatch(name) is None:
        raise InputError("schedule name: expected 1 to 63 letters, digits, '.', '_' or '-', the first a letter or "
                         f"digit, got {name!r}")
    return name


def no_such_schedule(name: str, known: Iterable[str], where: str) -> InputError:
    """The error for a name that no schedule has."""
    return InputError(f"schedule: expected the name of one that exists, got {name!r} ({where}); "
                      f"{nearest(name, set(known))}")
