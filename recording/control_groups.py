"""CPU and memory limits through control groups, version 1 or 2, where this host lets us write them.

A host that does not (no root, a read-only mount, no controller) records without limits: the
recorder warns once and the data then names the host's core count as the quota.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from feature_store.control_group_limits import quota, to_files, version_of
from recording.processes import Guard
from recording.reaper import remove_group


@dataclass(frozen=True)
class Hierarchy:
    """Where groups with a CPU quota and a memory limit can be made; None where they cannot.

    Attributes:
        version: 1 or 2 (version 2 has one folder for both controllers).
        cpu: parent folder for groups with a CPU quota.
        memory: parent folder for groups with a memory limit.
    """

    version: int
    cpu: Path | None
    memory: Path | None


def _writable(folder: Path, probe: str) -> bool:
    """Whether a group can be made in `folder` and has the file `probe` to write its limit to."""
    group = folder / f"assay-probe-{os.getpid()}"
    try:
        group.mkdir()
    except OSError:
        return False
    try:
        return os.access(group / probe, os.W_OK)
    finally:
        remove_group(group)


def find_hierarchy(root: Path = Path("/sys/fs/cgroup")) -> Hierarchy:
    """Probes `root` for writable controllers by making and removing an empty group."""
    if version_of(root) == 2:
        enabled = (root / "cgroup.subtree_control").read_text().split()
        usable = {name for name in ("cpu", "memory") if name in enabled}
        probes = {"cpu": "cpu.max", "memory": "memory.max"}
        hierarchies = {name: root if name in usable and _writable(root, probes[name]) else None for name in probes}
        return Hierarchy(2, hierarchies["cpu"], hierarchies["memory"])
    cpu, memory = root / "cpu", root / "memory"
    return Hierarchy(
        1,
        cpu if _writable(cpu, "cpu.cfs_quota_us") else None,
        memory if _writable(memory, "memory.limit_in_bytes") else None,
    )


@dataclass(frozen=True)
class Throttling:
    """How often a quota ran out.

    Attributes:
        periods: periods in which the group had something to run.
        throttled: those of them in which its quota ran out.
    """

    periods: int = 0
    throttled: int = 0


class ControlGroups:
    """Makes named groups with limits, registered with the guard so that none is left behind."""

    def __init__(self, guard: Guard, hierarchy: Hierarchy) -> None:
        self._guard = guard
        self._hierarchy = hierarchy
        self._made: list[Path] = []

    @property
    def has_cpu(self) -> bool:
        """Whether CPU quotas can be set here."""
        return self._hierarchy.cpu is not None

    @property
    def has_memory(self) -> bool:
        """Whether memory limits can be set here."""
        return self._hierarchy.memory is not None

    def make(self, name: str, *, cpu: bool, memory_mb: float | None) -> tuple[Path, ...]:
        """Makes the group `name`, with a memory limit at once and no CPU quota yet.

        The quota comes later (`set_quota`), so that a server starts at full speed and is limited
        only while it is measured.

        Returns:
            The folders that a process has to join.
        """
        folders: list[Path] = []
        if self._hierarchy.memory is not None and memory_mb is not None:
            folder = self._folder(self._hierarchy.memory, name)
            self._write(folder, "memory", str(int(memory_mb * 2**20)))
            folders.append(folder)
        if self._hierarchy.cpu is not None and cpu:
            folder = self._hierarchy.cpu / self._full(name)
            if folder not in folders:
                folders.append(self._folder(self._hierarchy.cpu, name))
        return tuple(folders)

    def set_quota(self, name: str, cores: float) -> bool:
        """Limits the group `name` to `cores` CPUs; False where this host does not allow it."""
        if self._hierarchy.cpu is None:
            return False
        self._write(self._hierarchy.cpu / self._full(name), "cpu", quota(cores))
        return True

    def set_weight(self, name: str, times: int) -> bool:
        """Gives the group `name` that many times the usual share of a contended CPU; False where it may not be."""
        if self._hierarchy.cpu is None:
            return False
        file, usual = ("cpu.weight", 100) if self._hierarchy.version == 2 else ("cpu.shares", 1024)
        (self._hierarchy.cpu / self._full(name) / file).write_text(str(times * usual))
        return True

    def throttling(self, name: str) -> Throttling:
        """What the group `name` counted so far; nothing where this host has no quotas."""
        if self._hierarchy.cpu is None:
            return Throttling()
        lines = (self._hierarchy.cpu / self._full(name) / "cpu.stat").read_text().splitlines()
        counts = {key: int(value) for key, value in (line.split() for line in lines)}
        return Throttling(counts.get("nr_periods", 0), counts.get("nr_throttled", 0))

    def remove(self, folders: Sequence[Path]) -> None:
        """Removes groups that `make` returned; their processes must have ended. What stays is left to the reaper."""
        for folder in folders:
            if remove_group(folder):
                self._guard.release(f"group {folder}")
            self._made.remove(folder)

    def remove_all(self) -> None:
        """Removes every group made so far; their processes must have ended."""
        self.remove(list(self._made))

    def _write(self, folder: Path, limit: str, text: str) -> None:
        for file, written in to_files(self._hierarchy.version, limit, text).items():
            (folder / file).write_text(written)

    def _full(self, name: str) -> str:
        return f"assay-{os.getpid()}-{name}"

    def _folder(self, parent: Path, name: str) -> Path:
        folder = parent / self._full(name)
        self._guard.register(f"group {folder}")
        folder.mkdir(exist_ok=True)
        self._made.append(folder)
        return folder
