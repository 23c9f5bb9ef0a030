"""What every campaign of recordings here shares: what is there is not recorded again, and nothing is left behind.

Flow: a campaign plans its units and says which are on disk; the missing ones are recorded below a guard's temporary
folder, one after the other, so that a campaign that was stopped, or killed, goes on where it was.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from feature_store.process_end import sigterm_as_exit
from recording.processes import Guard

Unit = TypeVar("Unit")


@dataclass(frozen=True)
class ProgressEvent:
    """Something to tell the user.

    Attributes:
        kind: prepare, warning, dropped (finished in part or not at all), cleanup, done, or what a finished unit is
            called.
        message: one line.
        finished: units finished so far.
        total: units of the campaign.
    """

    kind: str
    message: str
    finished: int
    total: int


@dataclass(frozen=True)
class Campaign(Generic[Unit]):
    """A plan and what is there of it.

    Attributes:
        plan: all units.
        has: whether a unit's raw data are whole on disk.
        on_progress: called for everything worth telling.
    """

    plan: Sequence[Unit]
    has: Callable[[Unit], bool]
    on_progress: Callable[[ProgressEvent], None]

    def tell(self, kind: str, message: str) -> None:
        """Says how far it is, too."""
        finished = sum(map(self.has, self.plan))
        self.on_progress(ProgressEvent(kind, message, finished, len(self.plan)))

    @property
    def left(self) -> list[Unit]:
        """Units that are not there."""
        return [unit for unit in self.plan if not self.has(unit)]

    def record_missing(self, record: Callable[[Guard, list[Unit]], None], scratch: Path | None, ending: str) -> None:
        """Has the units that are not there recorded.

        Args:
            record: is given what ends all processes and removes all files, and the units.
            scratch: parent of the temporary folder; None: the system's.
            ending: what is done at the end, which may take its time on a slow disk.
        """
        with sigterm_as_exit(), Guard(scratch) as guard:
            try:
                record(guard, self.left)
            finally:
                self.tell("cleanup", ending)
