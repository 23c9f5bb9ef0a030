"""A processor's clock through the kernel's files, and what is read of it: actuator and reader in one.

    assay control --actuator systems.cpu_frequency.sysfs --controller clock.yaml ...

    clock:                                       # its part of the controller's file
      policies: [policy0, policy1]               # below `cpufreq`, default /sys/devices/system/cpu/cpufreq
      temperature: /sys/class/hwmon/hwmon1/temp1_input     # millidegrees
      limit_c: 84.5                              # of the processor
      status: /run/shop.json                     # written once a second by whoever counts: STATUS, name -> number
      within_s: 5                                # an older one is none: its writer has died
      powercap: /sys/class/powercap/intel-rapl:0           # the default: energy_uj, constraint_0_power_limit_uw
      power_limit_w: 155                         # only where there is no such limit to read, as on AMD
      state: /run/assay                          # an absolute path: leases and what was found, of all controllers

Set is scaling_setspeed where the governor is `userspace`, else scaling_max_freq, in kHz (kernel, admin-guide/pm/
cpufreq.rst), never the governor or the power limit. What was found is on disk before the first change, and given back
by `restore`; what somebody else set since stays. What the kernel makes of what was set counts as set here: it may round
to a clock of its table. Tried on a tree of plain files of this form alone: no machine at hand shows its clock.
"""

import errno
import json
import math
import os
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from feature_store.errors import InputError, SourceError
from feature_store.whole_files import read_regular
from serving.actuators.actuator import ActuatorError, Applied
from serving.actuators.control_group.file_lease import FileLease
from serving.actuators.control_group.found_limits import FoundLimits, forget_found, read_found, write_found
from serving.actuators.kind import ActuatorKind
from serving.contract import Contract
from serving.control.file_part import FilePart
from serving.control.parts import Readings
from systems.cpu_frequency.interface import CONTROLS, SIGNALS

STATUS = ("rate_rps", "latency_ms", "ips_1e9", "usage", "stall_share")
WITHIN_S = 5.0  # of a status a second: a busy machine may delay some
_STATUS_BYTES = 100_000  # of a status at most
_CONTROL, _KHZ = CONTROLS[0].name, 1e6
(_ROOM,) = (signal for signal in SIGNALS if signal.name == "room_c")
_COLDEST_C, _HOTTEST_C = 1.0, 150.0  # what is no reading of a sensor is none of heat: 0, -128, degrees for millidegrees
_BOOT = Path("/proc/sys/kernel/random/boot_id")  # what was found before a restart stands again by itself


@dataclass(frozen=True)
class Target:
    """The files of a processor. within_s: the most age of `status`. power_limit_w: 0 where it is read."""

    policies: tuple[Path, ...]
    temperature: Path
    limit_c: float
    status: Path
    within_s: float
    powercap: Path
    power_limit_w: float
    state: Path


class Clock:
    """Implements `Actuator` and `Reader`. Raises InputError: a policy is named twice, whatever the spelling."""

    interval_s: float | None = None  # as the operator says

    def __init__(self, target: Target) -> None:
        target = replace(target, policies=_resolved(target.policies))
        self._target, ordered = target, sorted(map(str, target.policies))
        self._path = target.state / f"clock-{_key(ordered)}.json"
        self._leases = [FileLease(target.state / f"clock-{_key([policy])}.lock") for policy in ordered]
        self._seen: dict[str, str] | None = None  # what the present decision started from
        self._known: FoundLimits | None = None  # what was found, as it was on disk while the lease was held
        self._energy: tuple[float, float] | None = None  # s, J
        self._were: set[Path] = set()  # policies that were there
        self.name = f"clock of {', '.join(policy.name for policy in target.policies)}"

    def present(self) -> Mapping[str, float]:
        """See `Actuator`: the largest of the policies that are there."""
        self._seen = self._now()
        return {"frequency_ghz": max(map(int, self._seen.values())) / _KHZ}

    def apply(self, targets: Mapping[str, float]) -> Applied:
        """See `Actuator`. Refused, with nothing set: no lease, no clock that every policy has. Conflict, with nothing
        set: somebody changed one since `present`."""
        if not self._is_held():
            raise ActuatorError("refused", f"whoever sets a clock must hold the lease, nobody here does ({self.name})")
        if set(targets) != {_CONTROL} or not math.isfinite(targets[_CONTROL]):
            raise ActuatorError("refused", f"{_CONTROL} must be a clock in GHz, got {dict(targets)}")
        text, now = str(round(_KHZ * targets[_CONTROL])), self._now()
        for policy in self._policies():
            least, most = (int(_text(policy / name)) for name in ("scaling_min_freq", "cpuinfo_max_freq"))
            if not least <= int(text) <= most:
                raise ActuatorError("refused", f"{_CONTROL} must be {least} to {most} kHz for {policy}, got {text}")
        if self._seen not in (None, now):
            how = "was changed by somebody else" if self._seen.keys() == now.keys() else "lost or got a policy"
            raise ActuatorError("conflict", f"{self.name} {how}: expected {self._seen}, found {now}; decide again")
        if changes := {name: text for name in now if now[name] != text}:
            found = (self._found() or FoundLimits(_text(_BOOT))).before(changes, now)
            try:
                self._write_found(found)
            except OSError as error:
                raise ActuatorError("refused", f"what {self.name} was set to must be on disk before it is changed, "
                                               f"got {error}; nothing was set") from error
        self._seen, notes = None, list[str]()
        try:
            for name in changes:
                _write(Path(name), text)
        except ActuatorError as error:
            after = _readable(now)
            partly = {_CONTROL: max(map(int, after.values())) / _KHZ} if after not in ({}, now) else {}
            raise ActuatorError(error.kind, str(error), partly) from error
        finally:  # also of what was set before one of them failed
            if changes:
                notes = self._remember(found.after(_readable(changes)), found)
        return Applied({_CONTROL: self.present()["frequency_ghz"]}, tuple(notes))

    def acquire(self, holder: str) -> str:
        """See `Actuator`: of each policy. What a killed controller found stays what is given back in the end; so does
        what this one found, where its state folder is removed."""
        with ExitStack() as taken:  # all or none, also where asking for one raises
            other = self._take(self._leases, holder, taken)
            if not other:
                taken.pop_all()
        return other

    def release(self, holder: str) -> None:
        """See `Actuator`."""
        for lease in self._leases:
            lease.release(holder)

    def restore(self, *, lowering: bool = True) -> bool:
        """See `Actuator`."""
        with ExitStack() as taken:  # beside those that are held, which stay so
            if other := self._take([lease for lease in self._leases if not lease.is_held()], "restore", taken):
                raise ActuatorError("conflict", f"{other} has the lease on {self.name}, and gives back what stood")
            return self._give_back(lowering)

    def _take(self, leases: Sequence[FileLease], holder: str, taken: ExitStack) -> str:
        """Who else has one of them; "" where all are the holder's, until `taken` ends."""
        ours = all(lease.is_held() or lease.is_gone() for lease in self._leases)
        for lease in leases:
            if other := lease.acquire(holder):
                return other
            taken.callback(lease.release, holder)
        if not ours:  # another may have acted and given back meanwhile
            self._known = None
        if self._known is None:
            with suppress(ActuatorError):  # which the next change or `restore` raises
                self._known = self._found()
        elif not os.path.lexists(self._path):  # it was removed, alone or with the whole folder
            with suppress(OSError):  # a full disk
                self._write_found(self._known)
        if not self._were and self._known is not None:  # at the start: a killed one may have set some that are off now
            self._were = {Path(name).parent for name in self._known.limits}
        return ""

    def _remember(self, found: FoundLimits, saved: FoundLimits) -> list[str]:
        """Puts on disk what the kernel made of what was set. Returns a note for an operator where it could not."""
        try:
            if found != saved:
                self._write_found(found)
        except OSError as error:
            return [f"what the kernel made of it could not be written ({error}): it is taken for somebody else's and "
                    f"stays ({self.name})"]
        return []

    def _write_found(self, found: FoundLimits) -> None:
        write_found(self._path, found)
        self._known = found

    def _is_held(self) -> bool:
        return all(lease.is_held() for lease in self._leases)

    def _give_back(self, lowering: bool) -> bool:
        """Returns whether anything is known of what was found."""
        self._seen, left, later = None, [], {}
        if (found := self._found()) is None:
            return False
        for name, kept in found.limits.items():
            try:
                if not kept.is_ours(now := _text(Path(name))):
                    left.append(f"{name} was set to {now} by somebody else and stays so; it had been {kept.found}")
                elif not lowering and int(kept.found) < int(now):
                    later[name] = kept
                    left.append(f"{name} stays at {now}, more than the {kept.found} that was found")
                elif kept.found != now:
                    _write(Path(name), kept.found)
            except ActuatorError as error:  # such as of cores that were taken off: the others are given back
                later[name] = kept
                left.append(f"{name} was not given back, {kept.found}: {error}")
        try:
            if later:
                self._write_found(FoundLimits(found.target, later))
            else:
                forget_found(self._path)
                self._known = None
        except OSError as error:  # what it says of clocks that were given back asks for nothing more
            left.append(f"{self._path} must be a file that can be written, got {error}")
        if left:
            raise ActuatorError("refused" if later else "conflict", "; ".join(left))
        return True

    def read(self) -> Readings:
        """See `Reader`. Power is the mean since the reading before, and not known at the first. A status that is old,
        missing or half written is no error: the temperature is read all the same, so that the ceiling of a hot
        processor holds."""
        target, cap, now = self._target, self._target.powercap, time.monotonic()
        values, ages_s = _status(target.status)
        try:
            clocks = [int(_text(policy / "scaling_cur_freq")) for policy in self._policies()]
            celsius = 1e-3 * int(_text(target.temperature))
            room_c = min(max(target.limit_c - celsius, _ROOM.low), _ROOM.high)  # below 0 it would be no observation
            values |= {"delivered_ghz": sum(clocks) / len(clocks) / _KHZ,
                       "room_c": room_c if _COLDEST_C < celsius < _HOTTEST_C else math.nan}
            joules, wraps = (1e-6 * int(_text(cap / name)) for name in ("energy_uj", "max_energy_range_uj"))
            limit_w = target.power_limit_w or 1e-6 * int(_text(cap / "constraint_0_power_limit_uw"))
            if limit_w <= 0:
                raise ValueError(f"a power limit of {limit_w:g} W")
        except (OSError, ValueError, OverflowError, ActuatorError) as error:
            raise SourceError(f"{self.name} must have all of its files, got {error}") from error
        power_w, before, self._energy = math.nan, self._energy, (now, joules)
        if before is not None and now > before[0]:
            power_w = (joules - before[1] + (wraps if joules < before[1] else 0.0)) / (now - before[0])
        return Readings(values | {"power_share": power_w / limit_w}, ages_s, dict.fromkeys(STATUS, target.within_s))

    def _now(self) -> dict[str, str]:
        """What is set, by file."""
        files = [policy / ("scaling_setspeed" if _text(policy / "scaling_governor") == "userspace"
                           else "scaling_max_freq") for policy in self._policies()]
        found = {str(file): _text(file) for file in files}
        if wrong := [name for name, text in found.items() if not text.isdigit()]:
            raise ActuatorError("refused", f"{wrong[0]} must hold a clock in kHz, got {found[wrong[0]]!r}")
        return found

    def _policies(self) -> Sequence[Path]:
        """Without those that were there and whose cores are all off. All where none is there."""
        there = {policy for policy in self._target.policies if not _is_off(policy)}
        off, self._were = self._were - there, self._were | there
        return [policy for policy in self._target.policies if policy not in off] if there else self._target.policies

    def _found(self) -> FoundLimits | None:
        """What an earlier change found, since this host started; where its file was removed, as it is known here."""
        try:
            found = read_found(self._path) or self._known
        except (OSError, ValueError) as error:
            raise ActuatorError("refused", f"{self._path} must be what a controller wrote, got {error}: {self.name} "
                                           "stays as it is") from error
        return found if found is not None and found.target == _text(_BOOT) else None


def _resolved(policies: Sequence[Path]) -> tuple[Path, ...]:
    """Without links and dots, for a lease is of a policy, however it is spelled. Raises InputError."""
    try:
        found = tuple(policy.resolve() for policy in policies)
    except (OSError, ValueError, RuntimeError) as error:  # links in a ring
        raise InputError(f"clock.policies must be names of folders, got {[policy.name for policy in policies]}: "
                         f"{error}") from error
    if len({*found}) < len(found):
        raise InputError(f"clock.policies must name each policy once, got {', '.join(map(str, policies))}")
    return found


def _key(policies: Sequence[str]) -> str:
    return sha256("\0".join(policies).encode()).hexdigest()[:12]


def _status(path: Path) -> tuple[dict[str, float], dict[str, float]]:
    """STATUS and the age of each; NaN, without an age, where nobody can tell."""
    try:
        status = json.loads(read_regular(path, _STATUS_BYTES))  # a pipe in its place keeps nobody waiting
        found = {name: float(status.get(name, math.nan)) for name in STATUS}
        return found, dict.fromkeys(STATUS, time.time() - path.stat().st_mtime)
    except (OSError, ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        return dict.fromkeys(STATUS, math.nan), {}


def _is_off(policy: Path) -> bool:
    """Whether all cores of a policy are off: its files are busy then (cpufreq.c, `show`), or gone."""
    try:
        (policy / "scaling_governor").read_bytes()
    except OSError as error:
        return error.errno in (errno.EBUSY, errno.ENOENT)
    return False


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError as error:
        raise _failed(error, path, "read") from error


def _readable(names: Collection[str]) -> dict[str, str]:
    """What some files hold, without those that hold no clock."""
    found = {}
    for name in names:
        with suppress(ActuatorError):
            if (text := _text(Path(name))).isdigit():
                found[name] = text
    return found


def _write(path: Path, text: str) -> None:
    try:
        with path.open("r+") as opened:  # a file that is missing is not made
            opened.write(text)
            opened.truncate()
    except OSError as error:
        raise _failed(error, path, "set") from error


def _failed(error: OSError, path: Path, what: str) -> ActuatorError:
    return ActuatorError("gone" if isinstance(error, FileNotFoundError) else "forbidden" if isinstance(
        error, PermissionError) else "refused", f"{path} must be a file that can be {what}, got {error.strerror}")


def _read(part: FilePart) -> Target:
    part.only(("cpufreq", "policies", "temperature", "limit_c", "status", "within_s", "powercap", "power_limit_w",
               "state"))
    if not (policies := part.texts("policies")):
        raise InputError("clock.policies must name a policy, such as policy0, got none")
    root = Path(part.text("cpufreq", "/sys/devices/system/cpu/cpufreq"))
    return Target(tuple(root / name for name in policies), Path(part.text("temperature")),
                  part.number("limit_c", math.nan), Path(part.text("status")),
                  part.number("within_s", WITHIN_S), Path(part.text("powercap", "/sys/class/powercap/intel-rapl:0")),
                  part.number("power_limit_w", 0.0, least=0.0), part.folder("state", "/run/assay"))


def _make(target: Target, contract: Contract | None, held: Collection[str]) -> Clock:
    return Clock(target)


ACTUATOR = ActuatorKind("clock", "say which policies it sets, and where temperature and status are read", _read, _make,
                        gives_back=True, measures=True, kept=lambda target: f"the state folder {target.state}")
