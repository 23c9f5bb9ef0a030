"""A control group for each service: its limits, and what it has used so far.

recording/control_groups.py makes groups with limits on CPU and memory; here they get what a recording of single
services needs besides: version 1's groups of their own for CPU time and for the disk. Everything is read from the
groups' files, each second, without a server in between.
"""

import math
import os
from dataclasses import dataclass
from pathlib import Path

from recording.control_groups import ControlGroups, find_hierarchy
from recording.processes import Guard
from recording.reaper import remove_group
from recording.scaling.live_deployment import GROUP_WEIGHT

_ROOT = Path("/sys/fs/cgroup")
_MEMORY_MB = 1024.0  # more than any service needs: it is the group's counter that is wanted


@dataclass(frozen=True)
class Used:
    """Counters of one group; all but the memory only ever grow. NaN: not counted on this host.

    Attributes:
        cpu_s: processor time, s.
        periods: periods of its quota in which it had something to run.
        throttled: those in which the quota ran out.
        memory_mib: memory charged to it, page cache included, MiB.
        read_mib: read from the disk, MiB.
        written_mib: written to it, MiB.
    """

    cpu_s: float
    periods: int
    throttled: int
    memory_mib: float
    read_mib: float
    written_mib: float


class Containers:
    """The groups of an application."""

    def __init__(self, guard: Guard, disk: Path) -> None:
        """Args:
        disk: any folder on the disk whose use is counted and limited.
        """
        self._guard = guard
        self._groups = ControlGroups(guard, find_hierarchy(_ROOT))
        self._hierarchy = find_hierarchy(_ROOT)
        self._device = _whole_disk(disk)
        self._folders: dict[str, dict[str, Path]] = {}

    def make(self, name: str) -> tuple[Path, ...]:
        """Makes a group without a quota yet, and returns the folders that its processes have to join."""
        made = self._groups.make(name, cpu=True, memory_mb=_MEMORY_MB)
        if self._hierarchy.version == 2:
            folders = dict.fromkeys(("memory", "cpu", "cpuacct", "blkio"), made[0]) if made else {}
        else:
            folders = {folder.parent.name: folder for folder in made}
            for controller in ("cpuacct", "blkio"):
                if os.access(_ROOT / controller, os.W_OK):
                    folders[controller] = folder = _ROOT / controller / f"assay-{os.getpid()}-{name}"
                    self._guard.register(f"group {folder}")
                    folder.mkdir()
        if self._groups.has_cpu:
            self._groups.set_weight(name, GROUP_WEIGHT)
        self._folders[name] = folders
        return tuple(dict.fromkeys(folders.values()))

    def group_of(self, name: str) -> str:
        """The control group of a service, as an actuator is told it."""
        return self._folders[name]["cpu"].name

    @property
    def lacking(self) -> str:
        """What some group has no control group for; "" where nothing is missing."""
        wanted = ("cpu", "memory", "cpuacct", "blkio")
        return ", ".join(one for one in wanted if any(one not in folders for folders in self._folders.values()))

    def limit_cpu(self, name: str, cores: float) -> bool:
        """Sets the quota; False where this host does not allow it."""
        return self._groups.set_quota(name, cores)

    def limit_disk(self, name: str, operations_per_s: float) -> bool:
        """Limits reads and writes of the disk, each to so many a second (0: no limit); False where it cannot be."""
        if (folder := self._folders[name].get("blkio")) is None:
            return False
        count = round(operations_per_s)
        files = {"io.max": f"{self._device} riops={count or 'max'} wiops={count or 'max'}"}
        if self._hierarchy.version == 1:
            files = {f"blkio.throttle.{way}_iops_device": f"{self._device} {count}" for way in ("read", "write")}
        try:
            for file, text in files.items():
                (folder / file).write_text(text)
        except OSError:
            return False
        return True

    def used(self, name: str) -> Used:
        """What the group has used until now."""
        folders = self._folders[name]
        throttling = self._groups.throttling(name)
        read, written = self._disk_bytes(folders.get("blkio"))
        return Used(cpu_seconds(folders.get("cpuacct")), throttling.periods, throttling.throttled,
                    _memory_bytes(folders.get("memory")) / 2**20, read / 2**20, written / 2**20)

    def remove_all(self) -> None:
        """Removes every group; their processes must have ended."""
        for folders in self._folders.values():
            for controller in ("cpuacct", "blkio"):
                if self._hierarchy.version == 1 and controller in folders and remove_group(folders[controller]):
                    self._guard.release(f"group {folders[controller]}")
        self._groups.remove_all()

    def _disk_bytes(self, folder: Path | None) -> tuple[float, float]:
        if folder is None:
            return math.nan, math.nan
        if self._hierarchy.version == 1:
            lines = (folder / "blkio.throttle.io_service_bytes").read_text().splitlines()
            words = [line.split() for line in lines if line.startswith(f"{self._device} ")]
            found = {way: float(count) for _, way, count in words}
            return found.get("Read", 0.0), found.get("Write", 0.0)
        lines = (folder / "io.stat").read_text().splitlines()
        counts = next((line.split()[1:] for line in lines if line.startswith(f"{self._device} ")), [])
        named = dict(count.split("=") for count in counts)
        return float(named.get("rbytes", 0)), float(named.get("wbytes", 0))


def cpu_seconds(folder: Path | None) -> float:
    """That a group has used, s; NaN of None. folder: of version 1's cpuacct, or of version 2."""
    if folder is None:
        return math.nan
    if (file := folder / "cpuacct.usage").exists():
        return int(file.read_text()) / 1e9
    counts = dict(line.split() for line in (folder / "cpu.stat").read_text().splitlines())
    return int(counts["usage_usec"]) / 1e6


def _memory_bytes(folder: Path | None) -> float:
    if folder is None:
        return math.nan
    file = folder / "memory.usage_in_bytes"
    return float((file if file.exists() else folder / "memory.current").read_text())


def _whole_disk(folder: Path) -> str:
    """Number of the disk that the folder lies on, `major:minor`; limits are set on whole disks alone."""
    device = folder.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    entry = Path("/sys/dev/block") / number
    return (entry.resolve().parent / "dev").read_text().strip() if (entry / "partition").exists() else number
