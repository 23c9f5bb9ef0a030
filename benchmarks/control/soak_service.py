"""What stands around the controller of a soak: a process in a control group, and its metrics.

The process sleeps, for the soak measures the controller. What its metrics say follows the limits that are set, so that
policy and fallback have something to decide: a load that rises and falls, and a queue's latency.
"""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from feature_store.control_group_limits import amount
from feature_store.errors import InputError
from recording.control_groups import ControlGroups, find_hierarchy
from recording.loopback import ADDRESS
from recording.processes import Guard
from serving.actuators.control_group.group import ControlGroup

HOST = Path("/sys/fs/cgroup")
MIB = 2**20
MEAN_RPS, PERIOD_S, SECONDS_A_REQUEST, MEMORY_MIB, IDLE_MS = 300.0, 600.0, 0.002, 96.0, 5.0
_MOST_BUSY = 0.95  # of a queue whose latency is still said
FIXED = {"io_utilization": 0.0, "network_utilization": 0.0, "served_share": 1.0}


def metrics(seconds: float, cores: float, memory_mib: float) -> dict[str, float]:
    """What the service measures, by input: at a time, under the limits that are set."""
    rate = MEAN_RPS * (1.0 + 0.5 * math.sin(2.0 * math.pi * seconds / PERIOD_S))
    used = min(SECONDS_A_REQUEST * rate, cores)
    return {"rate_rps": rate, "cpu_used_cores": used, "cpu_utilization": used / cores, "memory_used_mib": MEMORY_MIB,
            "memory_utilization": MEMORY_MIB / memory_mib,
            "p99_ms": IDLE_MS / (1.0 - min(used / cores, _MOST_BUSY))}


def idle_process(guard: Guard) -> ControlGroup:
    """The group of a sleeping process, with 1 core and 256 MiB.

    Raises:
        InputError: control groups are not writable here.
    """
    hierarchy = find_hierarchy(HOST)
    if hierarchy.cpu is None or hierarchy.memory is None:
        raise InputError("control groups with CPU and memory must be writable, got none (run as root)")
    groups = ControlGroups(guard, hierarchy)
    folders = groups.make("soak", cpu=True, memory_mb=256.0)
    groups.set_quota("soak", 1.0)
    guard.start("sleep", ["sleep", "infinity"], output=guard.folder / "sleep.log", groups=folders)
    return ControlGroup(HOST, "", folders[-1].name)


class _Metrics(Collector):
    def __init__(self, group: ControlGroup) -> None:
        self._group, self._began = group, time.monotonic()

    def collect(self) -> Iterator[Metric]:
        """What the service measures now."""
        limits = self._group.read()
        for name, value in metrics(time.monotonic() - self._began, amount(limits["cpu"]),
                                   amount(limits["memory"]) / MIB).items():
            yield GaugeMetricFamily(name, f"{name} of the service", value)


@contextmanager
def exporter(group: ControlGroup) -> Iterator[int]:
    """The port at which the service's metrics are served."""
    registry = CollectorRegistry()
    registry.register(_Metrics(group))
    server, thread = start_http_server(0, ADDRESS, registry)
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
