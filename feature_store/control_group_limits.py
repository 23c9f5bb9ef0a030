"""Limits of a control group as text: what the files of both versions say, and what is written to them.

Everywhere but in version 1's files a limit is written as in version 2: CPU as "quota period" in us, memory in bytes,
"max" for none (Linux, Documentation/admin-guide/cgroup-v2.rst; for version 1 scheduler/sched-bwc.rst and
admin-guide/cgroup-v1/memory.rst). recording/ sets the limits of servers that it measures, serving/actuators/ those of
a service that a controller runs.
"""

import math
from collections.abc import Mapping
from pathlib import Path

PERIOD_US = 100_000  # the kernel's default
UNLIMITED = "max"

# Version -> limit -> its files, in the order in which they are written.
FILES: Mapping[int, Mapping[str, tuple[str, ...]]] = {
    1: {"cpu": ("cpu.cfs_period_us", "cpu.cfs_quota_us"), "memory": ("memory.limit_in_bytes",)},
    2: {"cpu": ("cpu.max",), "memory": ("memory.max",), "memory_high": ("memory.high",)},
}

# Version 1 says "no limit" as the largest number of whole pages that fits into 63 bits.
_UNLIMITED_BYTES = 2**62


def version_of(root: Path) -> int:
    """Version of the control groups mounted at `root`, such as /sys/fs/cgroup: 1 or 2."""
    return 2 if (root / "cgroup.controllers").exists() else 1


def quota(cores: float, period_us: int = PERIOD_US) -> str:
    """A limit of `cores` CPUs, as text."""
    return f"{round(cores * period_us)} {period_us}"


def amount(limit: str) -> float:
    """Cores or bytes of a limit; infinite where there is none. Raises ValueError: it is no limit."""
    words = limit.split()
    if len(words) not in (1, 2):
        raise ValueError(f"{limit!r} is no limit")
    value = math.inf if words[0] == UNLIMITED else float(int(words[0]))
    period_us = int(words[1]) if len(words) == 2 else 1
    if value < 0 or period_us < 1:
        raise ValueError(f"{limit!r} is no limit")
    return value / period_us


def from_files(version: int, limit: str, texts: Mapping[str, str]) -> str:
    """The limit that files hold.

    Args:
        version: of the control groups.
        limit: cpu, memory or (version 2) memory_high.
        texts: file -> what it holds, for the files of the limit.

    Raises:
        ValueError: that is no limit.
    """
    words = [texts[file].strip() for file in FILES[version][limit]]
    if version == 2:
        found = " ".join(words)
    elif limit == "cpu":
        found = f"{UNLIMITED if int(words[1]) < 0 else words[1]} {int(words[0])}"
    else:
        found = words[0] if 0 <= int(words[0]) < _UNLIMITED_BYTES else UNLIMITED
    amount(found)
    return found


def to_files(version: int, limit: str, text: str) -> dict[str, str]:
    """File -> what to write, in order; the reverse of `from_files`."""
    if version == 2:
        return {FILES[2][limit][0]: text}
    number, *period = text.split()
    written = "-1" if number == UNLIMITED else number
    return dict(zip(FILES[1][limit], [*period, written], strict=True))
