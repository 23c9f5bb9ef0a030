"""One control group's files: the limits that they hold, written one at a time, and what its processes use.

Limits are text as in version 2 (feature_store/control_group_limits.py), by name: cpu, memory and, where the kernel has
it, memory_high. Every failure is an ActuatorError of the kind that its error number means. A path is checked before
each use: below the mounted hierarchy, group by group, nothing may be a symbolic link.
"""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from feature_store.control_group_limits import FILES, amount, from_files, to_files, version_of
from feature_store.errors import InputError
from serving.actuators.actuator import ActuatorError, Kind

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@\\-]*")  # a backslash: systemd's names escape with it
_KINDS: dict[int, Kind] = {
    errno.ENOENT: "gone", errno.ENODEV: "gone", errno.ENOTDIR: "gone",
    errno.EACCES: "forbidden", errno.EPERM: "forbidden", errno.EROFS: "forbidden",
    errno.EAGAIN: "throttled", errno.EIO: "unreachable", errno.ETIMEDOUT: "unreachable",
}  # anything else, such as EBUSY, EINVAL and ENOMEM: refused
_HINTS = {
    errno.EBUSY: "; its processes use more than that",
    errno.EINVAL: "; the groups above and below it, its cpu burst and, in version 1, memory.memsw.limit_in_bytes may "
                  "bound what it takes",
}


def names_of(path: str, what: str) -> tuple[str, ...]:
    """The groups of a path, outermost first. Raises InputError where one could lead elsewhere: "..", "/", ""."""
    names = tuple(path.split("/"))
    if not all(_NAME.fullmatch(name) for name in names):
        raise InputError(f"{what} must be names of control groups joined by /, each of letters, digits and _.:@\\- "
                         f"and beginning with a letter, a digit or _, got {path!r} (cgroup)")
    return names


class ControlGroup:
    """A group that exists, below one that it never leaves.

    Args:
        root: where control groups are mounted.
        parent: the group below which it lies, such as "assay"; "" for the mounted root.
        group: its path from there, such as "nginx".

    Attributes:
        name: its path as the kernel tells it, such as "/assay/nginx".
        version: 1 or 2.
        limits: those that can be set.

    Raises:
        InputError: a path that could lead elsewhere, or to the mounted root itself; a root that can be no path.
    """

    def __init__(self, root: Path, parent: str, group: str) -> None:
        names = (*(names_of(parent, "parent") if parent else ()), *names_of(group, "group"))
        self.name = f"/{'/'.join(names)}"
        try:
            self.version = version_of(root)
            bases = dict.fromkeys(("cpu", "memory"), root) if self.version == 2 else {
                controller: root / controller for controller in ("cpu", "memory")}
            # A distribution may link cpu to cpu,cpuacct; below the mounted root no link is followed.
            self._folders = {controller: base.resolve().joinpath(*names) for controller, base in bases.items()}
        except (OSError, ValueError, RuntimeError) as error:  # a NUL character, links in a ring
            raise InputError(f"root must be the folder where control groups are mounted, got {str(root)!r}: {error} "
                             "(cgroup)") from error
        self.limits = tuple(FILES[self.version])

    @property
    def key(self) -> str:
        """The one text that says which group of this host it is."""
        return " ".join(str(folder) for folder in self._folders.values())

    def identity(self) -> str:
        """Differs between two groups that had the same path one after the other."""
        with self._told("be read"):
            return " ".join(f"{found.st_dev}:{found.st_ino}"
                            for found in (self._folder(controller).stat() for controller in self._folders))

    def read(self) -> dict[str, str]:
        """Limit -> what it is."""
        with self._told("be read"):
            found = {}
            for limit in self.limits:
                texts = {file: self._read(limit, file) for file in FILES[self.version][limit]}
                found[limit] = from_files(self.version, limit, texts)
            return found

    def write(self, limit: str, text: str) -> None:
        """Sets one limit; what already is as it should be is not written."""
        with self._told(f"be set ({limit} to {text})"):
            for file, written in to_files(self.version, limit, text).items():
                if self._read(limit, file).strip() != written:
                    self._write(limit, file, written)

    def used_bytes(self) -> int:
        """Memory that counts against the limit, with what the kernel could drop at once."""
        with self._told("be read"):
            return int(self._read("memory", "memory.current" if self.version == 2 else "memory.usage_in_bytes"))

    def working_set_bytes(self) -> int:
        """Memory without file pages that were not used lately, as the kubelet counts it."""
        with self._told("be read"):
            file = "inactive_file" if self.version == 2 else "total_inactive_file"
            words = self._read("memory", "memory.stat").split()
            counts = dict(zip(words[::2], words[1::2], strict=True))
            return max(self.used_bytes() - int(counts.get(file, 0)), 0)

    def has_processes(self) -> bool:
        """Whether a process lives in it or below it, under the limit of each controller."""
        with self._told("be read"):
            return all(_is_populated(self._folder(controller)) for controller in self._folders)

    def _folder(self, limit: str) -> Path:
        folder = self._folders["memory" if limit.startswith("memory") else "cpu"]
        if folder.resolve() != folder:
            raise ActuatorError("refused", f"a control group must not be a symbolic link, got {folder} ({self})")
        if not folder.is_dir():
            raise ActuatorError("gone", f"the control group must exist, found none at {folder} ({self}); "
                                        "make it and start the service in it")
        return folder

    def _read(self, limit: str, file: str) -> str:
        descriptor = self._open(limit, file, os.O_RDONLY)
        with open(descriptor, encoding="utf-8") as opened:
            return opened.read()

    def _write(self, limit: str, file: str, text: str) -> None:
        # One write, unbuffered: the kernel takes it whole or not at all. A missing file is never made.
        descriptor = self._open(limit, file, os.O_WRONLY | os.O_TRUNC)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)

    def _open(self, limit: str, file: str, flags: int) -> int:
        folder = self._folder(limit)
        try:
            return os.open(folder / file, flags | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            if not folder.is_dir():
                raise
            raise ActuatorError("refused", f"the control group must have the file {file}, got none in {folder}; "
                                           f"enable its controller (cgroup.subtree_control) ({self})") from None

    @contextmanager
    def _told(self, action: str) -> Iterator[None]:
        """Tells what goes wrong in the block as an ActuatorError."""
        try:
            yield
        except OSError as error:
            kind = _KINDS.get(error.errno or 0, "refused")
            raise ActuatorError(kind, f"the limits of {self} cannot {action}: {error.strerror or error}"
                                      f"{_HINTS.get(error.errno or 0, '')}") from error
        except ValueError as error:
            raise ActuatorError("refused", f"the files of {self} hold no limit: {error}") from error

    def __str__(self) -> str:
        return f"cgroup {self.name}"


def _is_populated(folder: Path) -> bool:
    for below, _, _ in os.walk(folder):
        try:
            if (Path(below) / "cgroup.procs").read_text().strip():
                return True
        except OSError:
            if Path(below) == folder:
                raise  # any other may have been removed meanwhile
    return False


def lowers(now: str, then: str) -> bool:
    """Whether changing a limit from `now` to `then` takes something away."""
    return amount(then) < amount(now)
