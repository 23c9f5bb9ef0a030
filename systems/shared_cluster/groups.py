"""A function's limit of cores, in its control group, by the coordinator's looks: actuator and reader in one.

    assay control --actuator systems.shared_cluster.groups --controller resize.yaml ...

    function:                         # its part of the controller's file
      name: resize                    # as the coordinator names it
      group: functions/resize         # its control group
      look: /run/assay/look.json      # written by the coordinator
      within_s: 20                    # an older look is none
      root: /sys/fs/cgroup            # where control groups are mounted

It decides soon after each look, whatever `--every` says. What is set goes by the actuator for control groups
(serving/actuators/cgroup.py), which gives back what it found. A look is acted on once, and not after the next one: else
two agents could take the same free cores.
"""

import json
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from feature_store.errors import SourceError
from serving.actuators.actuator import ActuatorError, Applied
from serving.actuators.cgroup import Cgroup
from serving.actuators.control_group.replica_limits import CPU
from serving.actuators.kind import ActuatorKind
from serving.contract import Contract
from serving.control.file_part import FilePart
from serving.control.parts import Readings
from systems.shared_cluster.interface import CONTROLS

_CONTROL = CONTROLS[0]


@dataclass(frozen=True)
class Target:
    """Of a controller's file."""

    name: str
    group: str
    look: Path
    within_s: float
    state: Path
    root: Path


class FunctionLimit:
    """Implements `Actuator` and `Reader`."""

    def __init__(self, target: Target) -> None:
        self._target, self._group = target, Cgroup(target.group, target.state, root=target.root)
        self._look = self._acted_on = ""
        self.interval_s: float | None = None  # until a tenth of an interval after the next look
        self.name = f"cores of {target.name}"
        self.acquire, self.release, self.restore = self._group.acquire, self._group.release, self._group.restore

    def present(self) -> Mapping[str, float]:
        """See `Actuator`."""
        return {_CONTROL.current: self._group.present()["cpu_limit_cores"]}

    def apply(self, targets: Mapping[str, float]) -> Applied:
        """See `Actuator`. Conflict, with nothing set: the look that was read is not the last one, or was acted on."""
        if set(targets) != {_CONTROL.name}:
            raise ActuatorError("refused", f"{_CONTROL.name} must be set alone, got {', '.join(targets) or 'nothing'}")
        if self._look in ("", self._acted_on) or self._look != self._last()["look"]:
            raise ActuatorError("conflict", f"{self.name} must be set by the coordinator's last look, once: decide "
                                            "again after the next one")
        self._acted_on = self._look
        done = self._group.apply({CPU: targets[_CONTROL.name]})
        return Applied({_CONTROL.name: done.values[CPU]}, done.notes)

    def read(self) -> Readings:
        """See `Reader`."""
        last, age_s = self._last(), 0.0
        try:
            self._look = last["look"]
            age_s = max(0.0, time.time() - 1e-9 * int(self._look))
            values = {name: float(value) for name, value in last["functions"][self._target.name].items()}
            every_s = float(last["every_s"])
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise SourceError(f"{self._target.look} must be a look at {self._target.name}, got "
                              f"{type(error).__name__}: {error}") from error
        if age_s > self._target.within_s:
            raise SourceError(f"{self._target.look} must be at most {self._target.within_s:g} s old, got {age_s:.0f} "
                              "s: is the coordinator running?")
        self.interval_s = max(1.1 * every_s - age_s, 0.2 * every_s)
        return Readings(values, dict.fromkeys(values, age_s))

    def _last(self) -> Any:
        try:
            found = json.loads(self._target.look.read_text())
            return found if isinstance(found, dict) else {}
        except (OSError, ValueError) as error:
            raise SourceError(f"{self._target.look} must be a coordinator's look, got {error}") from error


def _read(part: FilePart) -> Target:
    part.only(("name", "group", "look", "within_s", "state", "root"))
    return Target(part.text("name"), part.text("group"), Path(part.text("look")), part.number("within_s", 20.0),
                  Path(part.text("state", "/run/assay")), Path(part.text("root", "/sys/fs/cgroup")))


def _make(target: Target, contract: Contract | None, held: Collection[str]) -> FunctionLimit:
    return FunctionLimit(target)


ACTUATOR = ActuatorKind("function", "say which function it sets, its control group and where looks are written", _read,
                        _make, gives_back=True, measures=True)
