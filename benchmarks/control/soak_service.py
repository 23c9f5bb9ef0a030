"""What stands around the controller of a soak: a process in a control group, and its metrics.

The process sleeps, for the soak measures the controller. What its metrics say follows the limits that are set, so that
policy and fallback have something to decide: a load that rises and falls, and a queue's latency.
"""

import math
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from feature_store.control_group_limits import FILES, amount, from_files, to_files
from feature_store.errors import InputError
from recording.control_groups import find_hierarchy
from recording.loopback import ADDRESS
from recording.reaper import remove_group

HOST = Path("/sys/fs/cgroup")
GROUP = "service"
MIB = 2**20
MEAN_RPS, PERIOD_S, SECONDS_A_REQUEST, MEMORY_MIB, IDLE_MS = 300.0, 600.0, 0.002, 96.0, 5.0
_MOST_BUSY = 0.95  # of a queue whose latency is still said
FIXED = {"io_utilization": 0.0, "network_utilization": 0.0, "served_share": 1.0}


@dataclass(frozen=True)
class Group:
    """The control group `parent`/service of this host."""

    parent: str
    version: int
    folders: Mapping[str, Path]

    def limit(self, name: str) -> float:
        """cpu: cores; memory: bytes."""
        texts = {file: (self.folders[name] / file).read_text() for file in FILES[self.version][name]}
        return amount(from_files(self.version, name, texts))

    def set(self, name: str, text: str) -> None:
        """As in version 2."""
        for file, written in to_files(self.version, name, text).items():
            (self.folders[name] / file).write_text(written)


def metrics(seconds: float, cores: float, memory_mib: float) -> dict[str, float]:
    """What the service measures, by input: at a time, under the limits that are set."""
    rate = MEAN_RPS * (1.0 + 0.5 * math.sin(2.0 * math.pi * seconds / PERIOD_S))
    used = min(SECONDS_A_REQUEST * rate, cores)
    return {"rate_rps": rate, "cpu_used_cores": used, "cpu_utilization": used / cores, "memory_used_mib": MEMORY_MIB,
            "memory_utilization": MEMORY_MIB / memory_mib,
            "p99_ms": IDLE_MS / (1.0 - min(used / cores, _MOST_BUSY))}


@contextmanager
def idle_process() -> Iterator[Group]:
    """A sleeping process in a group with 1 core and 256 MiB.

    Raises:
        InputError: control groups are not writable here.
    """
    hierarchy = find_hierarchy(HOST)
    if hierarchy.cpu is None or hierarchy.memory is None:
        raise InputError("control groups with CPU and memory must be writable, got none (run as root)")
    parent = f"assay-soak-{os.getpid()}"
    folders = {"cpu": hierarchy.cpu / parent / GROUP, "memory": hierarchy.memory / parent / GROUP}
    for folder in dict.fromkeys(folders.values()):
        folder.parent.mkdir()
        if hierarchy.version == 2:
            (folder.parent / "cgroup.subtree_control").write_text("+cpu +memory")
        folder.mkdir()
    process = subprocess.Popen(["sleep", "infinity"])
    try:
        for folder in dict.fromkeys(folders.values()):
            (folder / "cgroup.procs").write_text(str(process.pid))
        group = Group(parent, hierarchy.version, folders)
        group.set("cpu", "100000 100000")
        group.set("memory", str(256 * MIB))
        yield group
    finally:
        process.kill()
        process.wait()
        for folder in dict.fromkeys(folders.values()):
            remove_group(folder)
            remove_group(folder.parent)


class _Metrics(Collector):
    def __init__(self, group: Group) -> None:
        self._group, self._began = group, time.monotonic()

    def collect(self) -> Iterator[Metric]:
        """What the service measures now."""
        limits = self._group.limit("cpu"), self._group.limit("memory") / MIB
        for name, value in metrics(time.monotonic() - self._began, *limits).items():
            yield GaugeMetricFamily(name, f"{name} of the service", value)


@contextmanager
def exporter(group: Group) -> Iterator[int]:
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
