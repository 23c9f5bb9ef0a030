"""CPU quota and memory limit of running processes on this host: one control group, version 1 or 2.

The group exists and holds the service; nothing is made, moved or killed here. What it means:

- Limits are of one replica, as everywhere in the autoscaling task: a group that holds `replicas` equal instances gets
  that many times the limit. An unlimited group has the host's cores and memory.
- The number of replicas is fixed. Another target is refused before anything is set, not replaced by the fixed one: a
  policy that asks for four replicas of half a core would get one replica of half a core. Whoever runs a policy that
  sets replicas here has to hold them fixed before it acts.
- CPU: the period that was found stays, the quota changes, in one write. The kernel allows no quota below 1 ms.
- Memory is never set below the working set and a margin, because the kernel would kill: it is lowered as far as that
  and a note says so, so that the CPU of the same decision is set all the same. Version 2 sets memory.high as well:
  lowered before memory.max, it has the kernel take back pages without a kill. Where the least of them is raised, one
  that lies above the target stays: a raise cuts nothing, nor does it set a limit where there is none.
- What is raised is written before what is lowered, memory first: a change that stops halfway leaves more, not less.
- What was found is on disk before the first change (serving/actuators/control_group/found_limits.py). Whoever takes the
  lease next gives back what a killed controller took away. What it had given stays until `restore`: nobody has looked
  yet whether it is needed. A limit that somebody else has set since is left as it is, and said.
- The lease is a lock file in the state folder: all controllers of a host must be given the same one. The best lies in
  /run, because limits do not outlive a reboot either. It is no lock on the group's own folder, which whoever may read
  that could take, as the service may from inside of its container, and so keep every controller out.
"""

import hashlib
import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from feature_store.control_group_limits import amount
from feature_store.errors import InputError
from serving.actuators.actuator import ActuatorError, Applied
from serving.actuators.control_group.file_lease import FileLease
from serving.actuators.control_group.found_limits import FoundLimits, forget_found, read_found, write_found
from serving.actuators.control_group.group import ControlGroup, lowers
from serving.actuators.control_group.replica_limits import CPU, LIMITS, MEMORY, MIB, ReplicaLimits
from serving.actuators.kind import ActuatorKind, require_held
from serving.contract import Contract
from serving.control.file_part import FilePart

_RAISED = ("memory", "memory_high", "cpu")  # the order of writes: a lack of memory kills, a lack of CPU slows
_LOWERED = ("cpu", "memory_high", "memory")
_RESTORES = "restore"  # who has the lease meanwhile
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class Cgroup:
    """Implements `Actuator`.

    Args:
        group: path of the group below `parent`, such as "nginx" or "web/nginx".
        state: folder for the lease and for what was found; made where missing.
        parent: path of the group below which `group` must lie; "" for the mounted root. Neither is ever the root.
        root: where control groups are mounted.
        replicas: how many equal instances of the service the group holds, at least 1.

    Raises:
        InputError: a path that could lead out of `parent`; fewer replicas than one.
    """

    def __init__(
        self, group: str, state: Path, *, parent: str = "", root: Path = Path("/sys/fs/cgroup"), replicas: int = 1
    ) -> None:
        if replicas < 1:
            raise InputError(f"replicas must be at least 1, got {replicas} (cgroup)")
        self._group = ControlGroup(root, parent, group)
        self._one = ReplicaLimits(replicas, str(self._group))
        key = hashlib.sha256(self._group.key.encode()).hexdigest()[:12]
        self._path = state / f"cgroup-{group.rpartition('/')[2][:60]}-{key}.json"
        self._lease = FileLease(self._path.with_suffix(".lock"))
        self._found: FoundLimits | None = None
        self._saved: FoundLimits | None = None  # the same as it is on disk
        self._seen: dict[str, str] | None = None  # what the present decision started from
        self._knew = False  # whether what was found was known, since the lease was taken
        self._acted = False
        self._notes: tuple[str, ...] = ()  # for the next `apply`

    @property
    def name(self) -> str:
        """See `Actuator`."""
        return str(self._group)

    def present(self) -> Mapping[str, float]:
        """See `Actuator`: limits of one replica, cores and MiB; ready_replicas is 0 where no process runs."""
        limits = self._group.read()
        serving = self._one.replicas if self._group.has_processes() else 0
        self._seen = limits
        values = self._one.values((CPU, MEMORY), limits)
        return {"cpu_limit_cores": values[CPU], "memory_limit_mib": values[MEMORY],
                "replicas": float(self._one.replicas), "ready_replicas": float(serving)}

    def apply(self, targets: Mapping[str, float]) -> Applied:
        """See `Actuator`.

        Raises:
            ActuatorError: refused, with nothing set: no lease, an unknown control, a value that is no limit, another
                number of replicas. conflict, with nothing set: somebody changed a limit since `present`. Else the kind
                that the kernel's answer means, with what was set nevertheless.
        """
        if not self._lease.is_held():
            raise ActuatorError("refused", f"whoever sets limits must hold the lease, nobody here does ({self.name})")
        self._one.require(targets)
        present = self._group.read()
        if self._seen not in (None, present):
            raise ActuatorError("conflict", f"the limits of {self.name} were changed by somebody else: expected "
                                            f"{_phrase(self._seen)}, found {_phrase(present)}; decide again")
        changes, notes = self._one.planned(targets, present, self._group.working_set_bytes)
        notes += self._remember(changes, present)
        self._acted = True
        self._change(changes, present)
        self._seen = now = self._group.read()
        notes, self._notes = [*self._notes, *notes], ()
        return Applied(self._one.values(targets, now), tuple(notes))

    def acquire(self, holder: str) -> str:
        """See `Actuator`. Whoever takes the lease anew gives back what a killed controller took away.

        What cannot be given back, and why, is a note of the next `apply`; it is tried again by `restore`. Where the
        limits were read before, they have to be read again: the decision started from the killed controller's.
        """
        renewed, lost = self._lease.is_held(), self._lease.is_gone()
        if other := self._lease.acquire(holder):
            return other
        if renewed:
            self._write_again()
        else:
            self._ask_the_disk(lost)
            try:
                self._notes = tuple(str(left) for left in self._give_back(lowering=False))
            except ActuatorError as error:
                if self._found is None:  # what was found is unknown: the next change would write over it
                    self._lease.release(holder)
                    raise
                self._notes = (f"what an earlier controller found was not given back: {error}",)
        return ""

    def release(self, holder: str) -> None:
        """See `Actuator`."""
        self._lease.release(holder)

    def restore(self, *, lowering: bool = True) -> bool | None:
        """See `Actuator`. Does nothing where another controller has the lease and this one never acted: None.

        Raises:
            ActuatorError: conflict: somebody else set a limit since (it was left), or has the lease. gone: nothing is
                left to give back to. refused: the service uses more memory than the limit that was found; CPU was
                given back, the rest can be tried again. Or something was found below what stands.
        """
        held, lost, self._seen = self._lease.is_held(), self._lease.is_gone(), None
        if not held:
            if other := self._lease.acquire(_RESTORES):
                if self._acted:
                    raise ActuatorError("conflict", f"{other} has the lease on {self.name}, and gives back what stood")
                return None
            self._ask_the_disk(lost)
        try:
            left = self._give_back(lowering=lowering)
            if not lowering and self._found is not None:
                left.append(ActuatorError("refused", "; ".join(
                    f"{limit} of {self.name} stays at {kept.ours[-1]}, more than the {kept.found} that was found"
                    for limit, kept in self._found.limits.items()) + "; `assay release` gives it back"))
        finally:
            if not held:
                self._lease.release(_RESTORES)
        knew, self._knew = self._knew, False
        if left or self._notes:
            notes, self._notes = self._notes, ()
            raise ActuatorError(left[0].kind if left else "conflict", "; ".join((*map(str, left), *notes)))
        return knew

    def _write_again(self) -> None:
        """What was found, where its file was removed and the lease was not, as by a cleaner of old files."""
        if self._found is not None and self._found.limits and not os.path.lexists(self._path):
            with suppress(OSError):  # a full disk: then it is remembered here alone
                write_found(self._path, self._found)

    def _ask_the_disk(self, lost: bool) -> None:
        """What was found is read anew: another controller may have acted and given back meanwhile.

        Args:
            lost: nobody did, but the state folder was removed: what this one found is all that anybody knows of it.
        """
        found, self._found, self._saved, self._knew = self._found, None, None, False
        if lost and found is not None:
            self._found = found  # the file that is written now may be removed, too
            with suppress(OSError):  # a full disk
                write_found(self._path, found)

    def _remember(self, changes: Mapping[str, str], present: Mapping[str, str]) -> list[str]:
        """Puts on disk what is found and what is about to be set; nothing is changed before that."""
        target = self._target()
        known = self._found if self._found and self._found.target == target else FoundLimits(target)
        found = known.before(changes, present)
        notes = [f"{limit} was set to {present[limit]} by somebody else: that is what will be given back"
                 for limit in changes if limit in known.limits and not known.limits[limit].is_ours(present[limit])]
        if changes and (found != self._saved or not os.path.lexists(self._path)):
            try:
                write_found(self._path, found)
                self._saved = found
            except OSError as error:
                if notes or set(found.limits) != set(known.limits):
                    raise ActuatorError("refused", f"what {self.name} was set to must be on disk before it is changed, "
                                                   f"got {error}; nothing was set") from error
                notes.append(f"the state file could not be written ({error}): if this controller is killed, what it "
                             "sets now is taken for somebody else's and stays")
        self._found = found
        return notes

    def _change(self, changes: Mapping[str, str], present: Mapping[str, str]) -> None:
        """Writes limits in an order that is safe to stop in.

        Raises:
            ActuatorError: with the controls that were set nevertheless.
        """
        raised = [limit for limit in _RAISED if limit in changes and not lowers(present[limit], changes[limit])]
        lowered = [limit for limit in _LOWERED if limit in changes and limit not in raised]
        done: list[str] = []
        try:
            for limit in (*raised, *lowered):
                if limit == "memory" and limit in lowered:
                    self._require_room(changes[limit])
                self._group.write(limit, changes[limit])
                done.append(limit)
        except ActuatorError as error:
            self._seen = None
            if "memory_high" in lowered and "memory_high" in done:
                with suppress(ActuatorError):
                    self._group.write("memory_high", present["memory_high"])
                    done.remove("memory_high")
            complete = [control for control, limits in LIMITS.items()
                        if (mine := changes.keys() & set(limits)) and mine <= set(done)]
            partly = self._one.values(complete, {**present, **{limit: changes[limit] for limit in done}})
            raise ActuatorError(error.kind, str(error), partly) from error

    def _require_room(self, text: str) -> None:
        """Refuses to lower version 2's memory.max below what is used: it kills where version 1 says EBUSY."""
        if self._group.version == 2 and (used := self._group.used_bytes()) > amount(text):
            raise ActuatorError("refused", f"memory of {self.name} must not be limited to less than is used, got "
                                           f"{amount(text) / MIB:g} MiB for {used / MIB:.0f} MiB")

    def _give_back(self, *, lowering: bool = True) -> list[ActuatorError]:
        """Sets what was found. Returns why anything was left as it is for good, such as a limit that is not ours.

        Args:
            lowering: also what lies below what stands; else that is kept in mind, for a later time.

        Raises:
            ActuatorError: a limit cannot be set; what was found stays on disk.
        """
        try:
            found = self._found or read_found(self._path)
            self._knew = self._knew or found is not None
            left, later = self._set_back(found, lowering) if found else ([], None)
            if later is not None:  # on disk is what still holds: what has its limit already is given nothing
                self._found, self._saved = later, None
                return left
            forget_found(self._path)
        except ValueError as error:
            left = [ActuatorError("refused", f"{self._path} cannot be read ({error}): the limits of {self.name} stay "
                                             "as they are")]
            self._set_aside()
        except OSError as error:
            raise ActuatorError("refused", f"the state file of {self.name} must be usable, got {error}") from error
        self._found = self._saved = None
        return left

    def _set_back(self, found: FoundLimits, lowering: bool) -> tuple[list[ActuatorError], FoundLimits | None]:
        """Why anything was left as it is for good, and what is still to be set; None: nothing."""
        try:
            if found.target != self._target():
                return [ActuatorError("gone", f"{self.name} was made anew since it was changed: nothing to give "
                                              "back")], None
        except ActuatorError as error:
            if error.kind == "gone":
                return [error], None
            raise
        self._found = found
        present = self._group.read()
        mine = {limit: kept for limit, kept in found.limits.items() if kept.is_ours(present.get(limit, ""))}
        later = {} if lowering else {limit: kept for limit, kept in mine.items() if lowers(present[limit], kept.found)}
        self._change({limit: kept.found for limit, kept in mine.items()
                      if limit not in later and kept.found != present[limit]}, present)
        return [ActuatorError("conflict", f"{limit} of {self.name} was set to {present.get(limit)} by somebody else "
                                          f"and stays so; it had been {kept.found}")
                for limit, kept in found.limits.items() if limit not in mine], (
            FoundLimits(found.target, later) if later else None)

    def _set_aside(self) -> None:
        try:
            self._path.replace(self._path.with_suffix(".damaged"))
        except OSError as error:
            raise ActuatorError("refused", f"the state file of {self.name} must be usable, got {error}") from error

    def _target(self) -> str:
        """Which group this is, of all that ever had this path."""
        try:
            return f"{_BOOT.read_text().strip()} {self._group.identity()}"
        except OSError as error:
            raise ActuatorError("refused", f"this host's boot must have a name, got {error} ({self.name})") from error


def _phrase(limits: Mapping[str, str] | None) -> str:
    return ", ".join(f"{limit} {text}" for limit, text in (limits or {}).items())


@dataclass(frozen=True)
class CgroupTarget:
    """Of a `Cgroup`, in a controller file. state: one folder for all controllers, of leases and what was found; an
    absolute path."""

    group: str
    parent: str = ""
    state: str = "/run/assay"
    root: str = "/sys/fs/cgroup"
    replicas: int = 1


def _read(part: FilePart) -> CgroupTarget:
    part.only(tuple(CgroupTarget.__dataclass_fields__))
    default = CgroupTarget("")
    return CgroupTarget(part.text("group"), part.text("parent", ""), str(part.folder("state", default.state)),
                        part.text("root", default.root), part.whole("replicas", default.replicas))


def _make(target: CgroupTarget, contract: Contract | None, held: Collection[str]) -> Cgroup:
    require_held(contract, held, LIMITS, "cgroup")
    return Cgroup(target.group, Path(target.state), parent=target.parent, root=Path(target.root),
                  replicas=target.replicas)


KIND = ActuatorKind("cgroup", "name the group", _read, _make, gives_back=True,
                    kept=lambda target: f"the state folder {target.state}",
                    watch=lambda target, contract, held, server: _make(target, contract, held))
