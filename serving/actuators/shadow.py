"""Watches a target beside whoever sets it, and sets nothing: what `assay control --shadow` has for an actuator.

Each step decides from what is set now, as if it acted, and what is recorded as done is what was there.
"""

from collections.abc import Mapping
from typing import Protocol

from serving.actuators.actuator import Applied


class Watched(Protocol):
    """A target that can be looked at; see `Actuator`."""

    @property
    def name(self) -> str:
        """Of the target, as the log says it."""

    def present(self) -> Mapping[str, float]:
        """Signal -> value of what is set. Raises ActuatorError: it cannot be read."""


class Shadow:
    """Implements `Actuator`.

    Args:
        watched: the target.
        current: control -> the signal that observes it.
    """

    def __init__(self, watched: Watched, current: Mapping[str, str]) -> None:
        self._watched, self._current = watched, dict(current)
        self._seen: Mapping[str, float] | None = None

    @property
    def name(self) -> str:
        """See `Actuator`."""
        return f"{self._watched.name}, in shadow"

    def present(self) -> Mapping[str, float]:
        """See `Actuator`."""
        self._seen = dict(self._watched.present())
        return self._seen

    def apply(self, targets: Mapping[str, float]) -> Applied:
        """Sets nothing; its values are what was set at the last look."""
        seen = self.present() if self._seen is None else self._seen
        return Applied({name: seen[signal] for name, signal in self._current.items() if signal in seen})

    def acquire(self, holder: str) -> str:
        """There is no lease: whoever sets the target goes on."""
        return ""

    def release(self, holder: str) -> None:
        """See `Actuator`."""

    def restore(self, *, lowering: bool = True) -> None:
        """Nothing was set."""
