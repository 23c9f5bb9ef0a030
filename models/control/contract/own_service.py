"""A user's own service as a workload: what a system offers that can be begun from one; may be left out.

`assay init` asks `begin` for the files with which a user goes on; the page of a shadow run asks `replay` what would
have become of the same load under other controllers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import pandas as pd

    from models.control.contract.environment import Environment

DAY_S = 86_400.0
MINIMUM_ROWS = 60  # windows of a workload that a control task wants where it does not say


@dataclass(frozen=True)
class Service:
    """What a user says of it.

    Attributes:
        name: of the workload.
        label: its name in the labels of its series.
        prometheus: address of the server that knows it; "" where `csv` is given.
        csv: a file of recorded windows; None where `prometheus` is given.
        target: what a controller is to act on: section of the controller file -> its keys; empty: dry-run alone.
        objective: of the system's objective, in its unit; None: one is proposed.
        last_s: how far to look back, s.
        window_s: length of a window, s.
    """

    name: str
    label: str = ""
    prometheus: str = ""
    csv: Path | None = None
    target: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    objective: float | None = None
    last_s: float = 7 * DAY_S
    window_s: float = 60.0


@runtime_checkable
class OwnServiceSystem(Protocol):
    """A `ControlledSystem` that can be begun from a service that runs."""

    def begin(self, service: Service, tell: Callable[[str], None]) -> Mapping[str, str]:
        """Looks at what is recorded of the service; changes nothing.

        Args:
            tell: called with each line of what was found, and of what was not.

        Returns:
            Name of a file -> its text: task.yaml, and what goes with it.

        Raises:
            InputError: what is said of the service is unusable.
            SourceError: the server does not answer, or knows nothing of the service.
        """

    def replay(self, telemetry: pd.DataFrame, settings: Mapping[str, float | str],
               limits: Mapping[str, tuple[float, float]], *, bounded: bool = True) -> tuple[Environment, Any]:
        """The whole of a recorded load, once, in many variations of what is not known of the service.

        Args:
            telemetry: as of `ControlledSystem.twin`, a row a step of `step_seconds`.
            settings, limits: as of `ControlledSystem.twin`.
            bounded: targets are held to the controls' limits and rates; without, whatever was set can be set again.

        Returns:
            The environment, and its N episodes of as many steps as there are rows.

        Raises:
            InputError: the load or a setting is unusable.
        """
