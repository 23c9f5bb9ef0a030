"""A limit of cores in a control group, by a coordinator's looks at all who share them: actuator and reader in one.

    function:                         # its part of the controller's file; a system says how it is called
      name: resize                    # as the coordinator names it
      group: functions/resize         # its control group
      look: /run/assay/look.json      # written by the coordinator
      within_s: 20                    # an older look is none, nor is one from as far in the future
      host_cores: 1                   # cores of this host that count as one; must be the coordinator's
      root: /sys/fs/cgroup            # where control groups are mounted
      state: /run/assay               # an absolute path: leases and what was found, of all controllers of a host

A controller decides soon after each look, whatever `--every` says. What is set goes by the actuator for control groups
(serving/actuators/cgroup.py), which gives back what it found. A look is acted on once, and not after the next one: else
two agents could take the same free cores. Nor while the next one is made, which counts limits as they are: agents hold
the lock beside the look (`look_lock`) together while they act, and the coordinator alone while it looks.
"""

import json
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from feature_store.errors import SourceError
from feature_store.file_lock import shared_lock
from feature_store.whole_files import read_regular
from serving.actuators.actuator import ActuatorError, Applied
from serving.actuators.cgroup import Cgroup
from serving.actuators.control_group.replica_limits import CPU
from serving.actuators.kind import ActuatorKind
from serving.contract import Contract
from serving.control.file_part import FilePart
from serving.control.parts import Readings

MOST_LOOK_BYTES = 2**26  # some 50,000 who share


def look_lock(look: Path) -> Path:
    """The lock beside a look (feature_store/file_lock.py, `shared_lock`), made by its coordinator."""
    return Path(f"{look}.lock")


@dataclass(frozen=True)
class Target:
    """Of a controller's file."""

    name: str
    group: str
    look: Path
    within_s: float
    state: Path
    root: Path
    host_cores: float = 1.0


@dataclass(frozen=True)
class Named:
    """many: who shares, as a look names them; control, current: target and signal of the limit."""

    many: str
    control: str
    current: str


class LookedAtLimit:
    """Implements `Actuator` and `Reader`."""

    def __init__(self, target: Target, named: Named) -> None:
        self._named = named
        self._target, self._group = target, Cgroup(target.group, target.state, root=target.root)
        self._look = self._acted_on = ""
        self.interval_s: float | None = None  # until a tenth of an interval after the next look
        self.name = f"cores of {target.name}"
        self.acquire, self.release, self.restore = self._group.acquire, self._group.release, self._group.restore

    def present(self) -> Mapping[str, float]:
        """See `Actuator`."""
        return {self._named.current: self._group.present()["cpu_limit_cores"] / self._target.host_cores}

    def apply(self, targets: Mapping[str, float]) -> Applied:
        """See `Actuator`. Conflict, with nothing set: the look that was read is not the last one, or was acted on, or
        the next one is being made; nobody waits for that."""
        if set(targets) != {self._named.control}:
            raise ActuatorError("refused", f"{self._named.control} must be set alone, got "
                                f"{', '.join(targets) or 'nothing'}")
        with self._between_looks():
            if self._look in ("", self._acted_on) or self._look != self._last().get("look"):
                raise ActuatorError("conflict", f"{self.name} must be set by the coordinator's last look, once: decide "
                                                "again after the next one")
            self._acted_on = self._look
            done = self._group.apply({CPU: targets[self._named.control] * self._target.host_cores})
        notes = done.notes if self._target.host_cores == 1.0 else tuple(f"on the host: {note}" for note in done.notes)
        return Applied({self._named.control: done.values[CPU] / self._target.host_cores}, notes)

    def read(self) -> Readings:
        """See `Reader`."""
        self._look = ""  # until it is known to be one that may be acted on
        last, own = self._last(), self._target.host_cores
        try:
            look, theirs = last["look"], float(last.get("host_cores", 1.0))
            age_s = time.time() - 1e-9 * int(look)
            values = {name: float(value) for name, value in last[self._named.many][self._target.name].items()}
            every_s = float(last["every_s"])
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise SourceError(f"{self._target.look} must be a look at {self._target.name}, got "
                              f"{type(error).__name__}: {error}") from error
        if theirs != own:  # allotments are in the coordinator's cores: together the limits could exceed them
            raise SourceError(f"host_cores of {self._target.look} must be {own:g} as in the file of "
                              f"{self._target.name}, got {theirs:g}: write the same number into the coordinator's file "
                              "and into those of all agents")
        if abs(age_s) > self._target.within_s:
            raise SourceError(f"{self._target.look} must be at most {self._target.within_s:g} s old, got {age_s:.0f} "
                              "s: is the coordinator running, and this host's clock right?")
        self._look = look
        self.interval_s = max(1.1 * every_s - max(age_s, 0.0), 0.2 * every_s)
        return Readings(values, dict.fromkeys(values, age_s))

    @contextmanager
    def _between_looks(self) -> Iterator[None]:
        path = look_lock(self._target.look)
        with ExitStack() as held:
            try:
                free = held.enter_context(shared_lock(path, alone=False))
            except FileNotFoundError:  # of an earlier coordinator, which made none
                free = True
            except OSError as error:
                raise ActuatorError("forbidden", f"{path} must be a lock that agents can read, got {error.strerror}: "
                                                 f"give {self.name}'s agent the right to read it") from error
            if not free:
                raise ActuatorError("conflict", f"{self.name} must be set between two looks, got the coordinator while "
                                                "it looks: decide again after that")
            yield

    def _last(self) -> Any:
        try:
            found = json.loads(read_regular(self._target.look, MOST_LOOK_BYTES))
            return found if isinstance(found, dict) else {}
        except (OSError, ValueError, RecursionError) as error:
            raise SourceError(f"{self._target.look} must be a coordinator's look, got {error}") from error


def _read(part: FilePart) -> Target:
    part.only(("name", "group", "look", "within_s", "host_cores", "state", "root"))
    return Target(part.text("name"), part.text("group"), Path(part.text("look")), part.number("within_s", 20.0),
                  part.folder("state", "/run/assay"), Path(part.text("root", "/sys/fs/cgroup")),
                  part.number("host_cores", 1.0))


def _make(named: Named, target: Target, contract: Contract | None, held: Collection[str]) -> LookedAtLimit:
    return LookedAtLimit(target, named)


def kind_of(section: str, named: Named) -> ActuatorKind:
    """The kind of a system. section: of the controller's file."""
    return ActuatorKind(section, f"say which {section} it sets, its control group and where looks are written", _read,
                        partial(_make, named), gives_back=True, measures=True,
                        kept=lambda target: f"the state folder {target.state}")
