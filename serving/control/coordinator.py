"""Looks at all who share cores, once an interval, and writes what their agents need of each other.

    cores: 8                          # that are to be shared
    look: /run/assay/look.json        # written here
    status: /run/functions            # NAME.json, a status of the last interval by whoever fronts it
    groups: {resize: functions/resize, hash: functions/hash}    # control group of each
    every_s: 10
    host_cores: 1                     # cores of this host that count as one, as in its agents' files
    root: /sys/fs/cgroup              # where control groups are mounted

A look is of one moment: limits as the control groups hold them, and the allotments that follow. It is written whole;
an agent acts on a look once, and only on the last one (serving/actuators/looked_at_limit.py). Who says nothing, or said
it long ago, keeps its place with what its limit is, and its agent is blind. Nobody gets another's cores by a limit that
somebody lifted: a limit above what the last look allotted counts as it did then. Whose control group is gone or cannot
be read is not told of, and keeps the cores that it had. A system says what is told of a look (`Teller`).

One coordinator alone writes a look: it holds a lock beside it (look.json.coordinator) while it runs. No agent acts
between limits as they are read and the look that counts them (look.json.lock): the coordinator waits for agents a tenth
of an interval, at most a second, and then looks all the same, lest one that was stopped while it acts stops all.
Looks that a suspended machine missed are left out.
"""

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from feature_store.errors import InputError
from feature_store.file_lock import shared_lock
from feature_store.strict_yaml import read_located_yaml
from feature_store.whole_files import read_regular, write_file
from serving.actuators.actuator import ActuatorError
from serving.actuators.cgroup import Cgroup
from serving.actuators.control_group.file_lease import FileLease
from serving.actuators.looked_at_limit import MOST_LOOK_BYTES, look_lock
from serving.control.file_part import FilePart
from serving.control.loop import LEAST_S, MOST_S
from serving.control.run import next_due

Status = Mapping[str, float]
_MOST_STATUS_BYTES = 2**20
_PATIENCE, _MOST_PATIENCE_S = 0.1, 1.0  # for agents that act: of an interval, and s
_ROUNDED = 1.001  # a kernel rounds what an agent sets
_RECENT = 10.0  # intervals


class LookedAt(Protocol):
    """Name -> measured signals; NaN where its own status does not say it."""

    def __call__(self, capacity: float, limits: Mapping[str, float], status: Mapping[str, Status],
                 before: Mapping[str, float], needs: Mapping[str, float]) -> Mapping[str, Mapping[str, float]]:
        """Signals of each, `allotment_cores` among them.

        Args:
        capacity: cores that are to be shared.
        limits: name -> cores that it may use; of a limit above what the last look allotted, what it was then.
        status: name -> its last status.
        before: `limits` an interval before; what is not there did not change.
        needs: name -> mean demand, cores; over these what is free is divided.
        """


@dataclass(frozen=True)
class Teller:
    """What a system makes of a look.

    Attributes:
        many: who shares, as a look names them, such as functions.
        status: numbers of a status; rate_rps, served_rps and used_cores among them.
        looked_at: see there.
        least_cores: that an agent keeps, whatever its allotment.
        mean_weight: of an interval of `every_s`, in the exponential mean of what one needs.
        every_s: length of an interval, unless the file says another.
    """

    many: str
    status: Sequence[str]
    looked_at: LookedAt
    least_cores: float
    mean_weight: float
    every_s: float


@dataclass(frozen=True)
class Shared:
    """Of a coordinator's file."""

    cores: float
    look: Path
    status: Path
    groups: Mapping[str, str]
    every_s: float
    root: Path
    host_cores: float


def read_shared(path: Path, teller: Teller) -> Shared:
    """Raises InputError."""
    part = FilePart(read_located_yaml(path, "coordinator's file")[0], "coordinator", str(path))
    part.only(("cores", "look", "status", "groups", "every_s", "host_cores", "root"))
    every_s = part.number("every_s", teller.every_s)
    if not LEAST_S <= every_s <= MOST_S:
        raise InputError(f"every_s must be {LEAST_S:g} to {MOST_S:g} seconds, got {every_s:g} ({path})")
    if os.path.isdir(look := part.text("look")):  # noqa: PTH112  (a name that is too long is none)
        raise InputError(f"look must be a file that is written, got a folder ({look}, {path})")
    return Shared(part.number("cores", math.nan), Path(look), Path(part.text("status")),
                  read_groups(part, teller.many, path), every_s, Path(part.text("root", "/sys/fs/cgroup")),
                  part.number("host_cores", 1.0))


def read_groups(part: FilePart, many: str, path: Path) -> dict[str, str]:
    """Control group of each, by its name, which names files. Raises InputError."""
    names = part.part("groups")
    groups = {name: names.text(name) for name in names.names}
    if not groups or any("/" in name or "\0" in name or name.startswith(".") for name in groups):
        raise InputError(f"groups must name the control group of each of the {many}, got "
                         f"{', '.join(repr(name)[1:-1] for name in groups) or 'none'} ({path})")
    firsts = dict[PurePosixPath, str]()
    for name, group in groups.items():
        if (first := firsts.setdefault(PurePosixPath(group), name)) != name:
            raise InputError(f"groups must name each control group once, got {group} for {first} and for {name} "
                             f"({path}); two names of it would get its cores twice")
    return groups


def demand_cores(status: Status, capacity: float) -> float:
    """Requests that arrive x core seconds of one, at most all cores there are: of one that hangs hardly any is served.
    NaN where none was served."""
    served = status["served_rps"]
    return min(status["rate_rps"] * status["used_cores"] / served, capacity) if served > 0 else math.nan


class Coordinator:
    """Remembers what a look needs of those before it. Raises InputError: control groups cannot be there."""

    def __init__(self, shared: Shared, teller: Teller) -> None:
        self._shared, self._teller = shared, teller
        self._groups = {name: Cgroup(group, shared.look.parent, root=shared.root)
                        for name, group in shared.groups.items()}
        # a mean weighs an interval of another length as so many of the system's, as observers do
        self._weight = 1.0 - (1.0 - teller.mean_weight) ** (shared.every_s / teller.every_s)
        self._limits: dict[str, float] = {}  # as they counted in the last look
        self._allotted = self._of_a_look_before()
        self._kept: dict[str, float] = {}  # of whom nothing was told
        self._needs: dict[str, float] = {}  # of whom one was known

    def look(self) -> list[str]:
        """Looks, and writes what it saw. Returns of whom nothing is told, and why, and that an agent acted meanwhile.

        Raises:
            ActuatorError: a control group is gone or cannot be read that was in no look before, or all of them are.
            OSError: what was seen cannot be written.
        """
        status = {name: self._status(name) for name in self._groups}
        patience_s = min(_PATIENCE * self._shared.every_s, _MOST_PATIENCE_S)
        with shared_lock(lock := look_lock(self._shared.look), alone=True, patience_s=patience_s) as held:
            notes = self._look(status)
        if not held:
            notes.append(f"a look must be made between what agents do, got one that has been acting for more than "
                         f"{patience_s:g} s ({lock}): the look may count its limit before that; is it stopped?")
        return notes

    def _look(self, status: dict[str, dict[str, float]]) -> list[str]:
        shared, teller, limits = self._shared, self._teller, dict[str, float]()
        kept, notes = dict[str, float](), list[str]()
        for name, group in self._groups.items():
            try:
                cores = group.present()["cpu_limit_cores"] / shared.host_cores
                limits[name] = self._counted(name, cores)
            except ActuatorError as error:
                if name not in self._allotted or len(kept) + 1 == len(self._groups):
                    raise
                notes.append(f"{name} is not told of: {error}")
                limits[name] = kept[name] = self._at_least(min(self._kept.get(name, math.inf), self._allotted[name]))
                status[name] = dict.fromkeys(teller.status, math.nan)
        for name, of in status.items():
            if math.isfinite(demand := demand_cores(of, shared.cores)):
                mean = self._needs.get(name, demand)
                self._needs[name] = mean + self._weight * (demand - mean)
        needs = {name: 0.0 if name in kept else self._needs.get(name, 0.0) or cores for name, cores in limits.items()}
        found = teller.looked_at(shared.cores, limits, status, self._limits, needs)
        told = {name: {part: value for part, value in of.items() if math.isfinite(value)} for name, of in found.items()
                if name not in kept}
        write_file(shared.look, json.dumps({"look": str(time.time_ns()), "every_s": shared.every_s,
                                            "host_cores": shared.host_cores, teller.many: told, "kept": kept}))
        self._limits, self._kept = limits, kept
        self._allotted = {name: of["allotment_cores"] for name, of in found.items()}
        return notes

    def _counted(self, name: str, cores: float) -> float:
        """What a limit counts as: itself, and above what the last look allotted what it counted as then. So a limit
        that somebody lifted takes no free cores either, look by look, which others gave back and may need again. Who
        was never allotted anything counts as a fair share where its limit is none."""
        whole = self._shared.cores
        allotted = self._allotted.get(name, cores if cores <= whole else whole / len(self._groups))
        if cores <= _ROUNDED * self._at_least(allotted):
            return cores
        return self._at_least(min(self._limits.get(name, allotted), allotted))

    def _at_least(self, cores: float) -> float:
        """What an agent may keep counts, or limits would stay above the whole (shared_limits.py)."""
        return max(cores, self._teller.least_cores)

    def _of_a_look_before(self) -> dict[str, float]:
        """What the last look allotted, or kept, of a coordinator before this one; empty where it tells nothing, or is
        old: since then somebody may have set all limits anew."""
        try:
            last = json.loads(read_regular(self._shared.look, MOST_LOOK_BYTES))
            age_s = time.time() - 1e-9 * int(last["look"])
            if last["host_cores"] != self._shared.host_cores or not 0 <= age_s <= _RECENT * self._shared.every_s:
                return {}
            allotted = {name: float(of["allotment_cores"]) for name, of in last[self._teller.many].items()}
            allotted |= {name: float(cores) for name, cores in last["kept"].items()}
            return {name: cores for name, cores in allotted.items() if name in self._groups and 0 < cores < math.inf}
        except (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
            return {}

    def _status(self, name: str) -> dict[str, float]:
        """What its front says; NaN where it does not, or where that cannot be: none of it is below 0."""
        path, names = self._shared.status / f"{name}.json", self._teller.status
        unknown = dict.fromkeys(names, math.nan)
        try:
            if abs(time.time() - path.stat().st_mtime) > 2.0 * self._shared.every_s:  # or ahead of the clock
                return unknown
            said = json.loads(read_regular(path, _MOST_STATUS_BYTES))
            if said.get("host_cores", self._shared.host_cores) != self._shared.host_cores:  # other cores than ours
                return unknown
            told = {part: float(said.get(part, math.nan)) for part in names}
            return {part: value if 0.0 <= value < math.inf else math.nan for part, value in told.items()}
        except (OSError, ValueError, TypeError, AttributeError, OverflowError, RecursionError):
            return unknown


def run(teller: Teller, program: str, description: str | None, arguments: list[str] | None = None) -> int:
    """Looks until it is ended.

    Exit codes: 0 done; 2 bad input, or another coordinator writes this look. Where all looks failed that were asked
    for, as the last one did: 1 a control group cannot be read, or nothing be locked; 2 what was seen cannot be written.
    """
    parser = argparse.ArgumentParser(prog=program, description=description,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="the coordinator's file")
    parser.add_argument("--looks", type=int, help="end after so many, at least 1; default: never")
    given: Any = parser.parse_args(arguments)
    try:
        if given.looks is not None and given.looks < 1:
            raise InputError(f"--looks must be at least 1, got {given.looks}; leave it out to look until it is ended")
        shared = read_shared(given.file, teller)
        return _looks(Coordinator(shared, teller), shared, given.file, given.looks)
    except InputError as error:
        print(error, file=sys.stderr)
        return InputError.exit_code
    except KeyboardInterrupt:
        return 0


def _looks(coordinator: Coordinator, shared: Shared, file: Path, asked: int | None) -> int:
    """Exit code. Raises InputError: another coordinator writes this look."""
    lease, holder = FileLease(Path(f"{shared.look}.coordinator")), f"coordinator of {file.absolute()}"
    due, said, made, failed = time.monotonic(), "", False, 0
    try:
        for number in range(asked or sys.maxsize):
            try:
                if other := lease.acquire(holder):
                    raise InputError(f"look must be written by one coordinator alone, got one that {other} writes "
                                     f"({shared.look}); end that one, or name another look")
                now, made = "\n".join(coordinator.look()), True
            except (ActuatorError, OSError) as error:  # nobody acts on what was not seen whole
                now, failed = f"no look: {error}", getattr(error, "exit_code", InputError.exit_code)
            if now and now != said:
                with suppress(OSError, ValueError):  # a full disk, a closed pipe
                    print(now, file=sys.stderr)
            said = now
            if number + 1 != asked:
                due = next_due(due, time.monotonic(), shared.every_s)
                time.sleep(max(0.0, due - time.monotonic()))
        return 0 if made else failed
    finally:
        lease.release(holder)
