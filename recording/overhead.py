"""What the recorder itself costs: CPU time of its process, Prometheus and the node exporter."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

import psutil


@dataclass(frozen=True)
class CpuReading:
    """CPU seconds used so far, by process.

    Attributes:
        wall_s: monotonic time of the reading, s.
        cpu_s: user and system time of each process, s.
    """

    wall_s: float
    cpu_s: Mapping[str, float]


def read_cpu(processes: Mapping[str, int]) -> CpuReading:
    """CPU time of each process by its name; `processes` maps names to process ids."""
    spent = {}
    for name, pid in processes.items():
        times = psutil.Process(pid).cpu_times()
        spent[name] = times.user + times.system
    return CpuReading(time.monotonic(), spent)


def core_shares(before: CpuReading, after: CpuReading) -> dict[str, float]:
    """Share of one core that each process used between two readings."""
    elapsed_s = after.wall_s - before.wall_s
    return {name: (after.cpu_s[name] - before.cpu_s[name]) / elapsed_s for name in before.cpu_s}
