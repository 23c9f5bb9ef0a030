"""What a kind of task offers whose champions can be monitored (`assay monitor`); may be left out."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from models.monitoring.findings import Looked

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Watched:
    """One champion, and what can be known of it.

    Attributes:
        bundle: checked (serving/bundle.py).
        before: that of the champion before; None: there is none, or it cannot be opened.
        telemetry: the workload's rows as `ingest` made them; None where the kind watches logs.
        training: the rows that it was trained on, as far as they can be found; None: nowhere.
        log: folder of its controller, which may be missing.
        past, keep: folder of the last look, which may be missing; a new one, for what the next look needs.
        memory: `Looked.memory` of the last look at this champion; {} before the first.
        look: number of this look, from 1.
        champions: of the task.
        now: UTC.
    """

    bundle: Any
    before: Any
    telemetry: "pd.DataFrame | None"
    training: "pd.DataFrame | None"
    log: Path
    past: Path
    keep: Path
    memory: Mapping[str, Any]
    look: int
    champions: int
    now: datetime


@runtime_checkable
class MonitoredKind(Protocol):
    """A `Kind` that can say how its champions fare."""

    watches_telemetry: bool  # else it reads the logs of controllers

    def watch(self, task: Any, workload: str, watched: Watched) -> Looked:
        """One look at a champion. Pure but for the folders that it is given.

        Raises:
            InputError: telemetry or log is of another task.
        """
