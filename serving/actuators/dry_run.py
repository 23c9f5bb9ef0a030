"""Carries out nothing: what would have been set stands in memory, so that the next decision starts from it."""

import math
from collections.abc import Collection, Mapping

from feature_store.errors import InputError, nearest
from serving.actuators.actuator import Applied
from serving.actuators.kind import ActuatorKind
from serving.contract import Contract
from serving.control.file_part import FilePart


class DryRun:
    """Implements `Actuator`.

    Args:
        present: signal -> value to begin with.
        current: control -> the signal that observes it.

    Raises:
        InputError: a present value is missing, or not above 0; a name is none of a present value.
    """

    def __init__(self, present: Mapping[str, float], current: Mapping[str, str]) -> None:
        if missing := sorted(set(current.values()) - set(present)):
            got = ", ".join(present) or "nothing"
            raise InputError(f"dry_run must give {', '.join(sorted(current.values()))}, got {got}; "
                             f"{missing[0]} is not there")
        known = [*sorted(current.values()), *(f"ready_{name}" for name in sorted(current.values()))]
        for name, value in present.items():
            if name not in known:
                raise InputError(f"dry_run must be of {', '.join(known)}, got {name!r}; {nearest(name, known)}")
            if not 0 < value < math.inf:
                raise InputError(f"dry_run.{name} must be a number > 0, got {value:g}: nobody acts on it")
        self._present, self._current = dict(present), dict(current)
        self._found = dict(present)

    @property
    def name(self) -> str:
        """See `Actuator`."""
        return "dry-run"

    def present(self) -> Mapping[str, float]:
        """See `Actuator`."""
        return dict(self._present)

    def apply(self, targets: Mapping[str, float]) -> Applied:
        """See `Actuator`."""
        now = {self._current[name]: value for name, value in targets.items()}
        # what is asked for serves at once: ready_replicas follow replicas
        ready = {f"ready_{name}": value for name, value in now.items()}
        self._present |= now | {name: value for name, value in ready.items() if name in self._present}
        return Applied(dict(targets))

    def acquire(self, holder: str) -> str:
        """Nobody else can act on it."""
        return ""

    def release(self, holder: str) -> None:
        """See `Actuator`."""

    def restore(self, *, lowering: bool = True) -> None:
        """See `Actuator`."""
        self._present = dict(self._found)


def _read(part: FilePart) -> Mapping[str, float]:
    return part.numbers()


def _make(present: Mapping[str, float], contract: Contract | None, held: Collection[str]) -> DryRun:
    assert contract is not None and contract.driving is not None
    return DryRun(present, contract.driving.current)  # beyond its range, too: the fallback brings it back


KIND = ActuatorKind("dry_run", "say what is set at the beginning", _read, _make, keeps=False)
