"""What a deployment and everything else on the machine used, read at moments of a trial."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

import psutil

from recording.control_groups import ControlGroups
from recording.reaper import session_members

_COUNTED = 8  # columns of /proc/stat (proc(5)); guest and guest_nice are in user and nice, too


@dataclass(frozen=True)
class Sample:
    """Counters at one moment; all but the memory only ever grow.

    Attributes:
        at_s: CLOCK_MONOTONIC, s.
        server_cpu_s: CPU time of all instances, s.
        generator_cpu_s: CPU time of the load generator, s.
        recorder_cpu_s: CPU time of this process, s.
        machine_cpu_s: time in which the machine's processors were in use, s, summed over them.
        steal_s: time that the hypervisor gave to others, s, summed over the processors.
        periods: quota periods of all instances in which they were runnable.
        throttled: those of them in which the quota ran out.
        memory_mib: memory that belongs to the instances alone, MiB.
    """

    at_s: float
    server_cpu_s: float
    generator_cpu_s: float
    recorder_cpu_s: float
    machine_cpu_s: float
    steal_s: float
    periods: int
    throttled: int
    memory_mib: float


def process_cpu_s(pid: int) -> float:
    """CPU time of all threads of a process, also of those that ended, s; 0 where it is gone.

    The clock of a process is numbered as clock_getcpuclockid(3) does; /proc/PID/stat counts in ticks of 10 ms.
    """
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0


class Meter:
    """Reads the counters of a deployment.

    A process that ends takes its CPU time along; `sample` keeps what was last read, so that the sum never falls.
    """

    def __init__(self, groups: ControlGroups) -> None:
        """Args:
        groups: where the instances' control groups are made.
        """
        self._groups = groups
        self.names, self.sessions = list[str](), list[int]()  # of the groups; session ids of the instances
        self._cpu_s: dict[int, float] = {}

    def sample(self, generator_pid: int) -> Sample:
        """Everything now."""
        members = session_members(set(self.sessions))
        for pid in members:
            self._cpu_s[pid] = max(self._cpu_s.get(pid, 0.0), process_cpu_s(pid))
        used_s, steal_s = machine_cpu_s()
        throttling = [self._groups.throttling(name) for name in self.names]
        return Sample(
            at_s=time.monotonic(),
            server_cpu_s=sum(self._cpu_s.values()),
            generator_cpu_s=process_cpu_s(generator_pid),
            recorder_cpu_s=time.process_time(),
            machine_cpu_s=used_s,
            steal_s=steal_s,
            periods=sum(one.periods for one in throttling),
            throttled=sum(one.throttled for one in throttling),
            memory_mib=sum(_own_memory(pid) for pid in members) / 2**20,
        )


def _own_memory(pid: int) -> float:
    try:
        return float(psutil.Process(pid).memory_full_info().uss)
    except psutil.Error:
        return 0.0


def machine_cpu_s() -> tuple[float, float]:
    """CPU seconds that this machine used, and that its host took from it, since it started."""
    times = psutil.cpu_times()
    return sum(times[:_COUNTED]) - times.idle - times.iowait - times.steal, times.steal


def between(before: Sample, after: Sample) -> Mapping[str, float]:
    """Mean use between two samples: cores, shares and MiB, by column of the data."""
    seconds = after.at_s - before.at_s

    def cores(name: str) -> float:
        return float(getattr(after, name) - getattr(before, name)) / seconds

    ours = cores("server_cpu_s") + cores("generator_cpu_s") + cores("recorder_cpu_s")
    periods = after.periods - before.periods
    return {
        "cpu_cores": cores("server_cpu_s"),
        "generator_cores": cores("generator_cpu_s"),
        # /proc/stat counts in ticks: the difference of a quiet machine may lie a little below zero.
        "disturbance_cores": max(0.0, cores("machine_cpu_s") - ours),
        "steal_cores": cores("steal_s"),
        "throttled_share": (after.throttled - before.throttled) / periods if periods else 0.0,
        "memory_mib": (before.memory_mib + after.memory_mib) / 2,
    }
