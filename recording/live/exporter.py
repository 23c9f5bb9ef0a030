"""Serves /metrics of services under load: requests as their clients see them, CPU and memory as the kernel counts them.

    service_requests_total{service}             requests that were due
    service_failures_total{service}             those that timed out or were refused
    service_latency_seconds_bucket{service,le}  from the time at which a request was due
    service_cpu_seconds_total{service}          CPU time of all its processes
    service_memory_bytes{service}               working set of its control group, as the kubelet counts it
    service_cpu_limit_cores{service}            quota of its control group
    service_memory_limit_bytes{service}         memory limit of its control group

A program of its own: `python -m recording.live.exporter JOB.json`.
"""

import json
import sys
import threading
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from feature_store.control_group_limits import FILES, amount, from_files
from recording.live.counters import BOUNDS_S, Counts
from recording.loopback import ADDRESS
from recording.reaper import session_members
from recording.scaling.meters import process_cpu_s


@dataclass(frozen=True)
class Exported:
    """A service.

    Attributes:
        service: its name, the label.
        counters: file of its load generator (counters.py).
        session: of its processes.
        cpu_group, memory_group: folders of its control group that have the CPU quota and the memory limit.
        version: of the control groups, 1 or 2.
    """

    service: str
    counters: str
    session: int
    cpu_group: str
    memory_group: str
    version: int


class Services(Collector):
    """Reads everything anew at each scrape."""

    def __init__(self, services: Iterable[Exported]) -> None:
        self._services = tuple(services)
        self._cpu_s: dict[str, dict[int, float]] = {one.service: {} for one in self._services}  # also of what ended

    def collect(self) -> Iterable[Metric]:
        """See prometheus_client."""
        label = ["service"]
        requests = CounterMetricFamily("service_requests", "requests that were due", labels=label)
        failures = CounterMetricFamily("service_failures", "requests that timed out or were refused", labels=label)
        latency = HistogramMetricFamily("service_latency_seconds", "latency from when a request was due", labels=label)
        cpu = CounterMetricFamily("service_cpu_seconds", "CPU time", labels=label)
        memory = GaugeMetricFamily("service_memory_bytes", "working set", labels=label)
        limits = {"cpu": GaugeMetricFamily("service_cpu_limit_cores", "CPU quota", labels=label),
                  "memory": GaugeMetricFamily("service_memory_limit_bytes", "memory limit", labels=label)}
        for one in self._services:
            names, counts = [one.service], Counts.read(Path(one.counters))
            requests.add_metric(names, counts.arrived)
            failures.add_metric(names, counts.failed)
            bounds = [*map(str, BOUNDS_S), "+Inf"]
            latency.add_metric(names, list(zip(bounds, accumulate(counts.buckets), strict=True)), counts.seconds)
            members, used = session_members({one.session}), self._cpu_s[one.service]
            used |= {pid: max(used.get(pid, 0.0), process_cpu_s(pid)) for pid in members}
            cpu.add_metric(names, sum(used.values()))
            memory.add_metric(names, _working_set_bytes(one))
            for kind, limit in limits.items():
                limit.add_metric(names, _limit(one, kind))
        return requests, failures, latency, cpu, memory, *limits.values()


def _working_set_bytes(one: Exported) -> float:
    """Without file pages that were not used lately."""
    folder = Path(one.memory_group)
    used, inactive = (("memory.current", "inactive_file") if one.version == 2
                      else ("memory.usage_in_bytes", "total_inactive_file"))
    words = (folder / "memory.stat").read_text().split()
    counts = dict(zip(words[::2], words[1::2], strict=True))
    return float(max(int((folder / used).read_text()) - int(counts.get(inactive, 0)), 0))


def _limit(one: Exported, kind: str) -> float:
    folder = Path(one.cpu_group if kind == "cpu" else one.memory_group)
    texts = {file: (folder / file).read_text() for file in FILES[one.version][kind]}
    return amount(from_files(one.version, kind, texts))


def write_job(path: Path, port: int, services: Iterable[Exported]) -> None:
    """What `main` reads."""
    path.write_text(json.dumps({"port": port, "services": [asdict(one) for one in services]}))


def main(arguments: list[str]) -> int:
    """Serves until it is killed."""
    job: Mapping[str, object] = json.loads(Path(arguments[0]).read_text())
    registry = CollectorRegistry()
    services = job["services"]
    assert isinstance(services, list)
    registry.register(Services(Exported(**one) for one in services))
    start_http_server(int(str(job["port"])), ADDRESS, registry)
    threading.Event().wait()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
