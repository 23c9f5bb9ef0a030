"""Serves /metrics of services under load: requests as their clients see them, CPU and memory as the kernel counts them.

    service_requests_total{service}             requests that were due
    service_failures_total{service}             those that timed out or were refused
    service_latency_seconds_bucket{service,le}  from the time at which a request was due
    service_replicas{service}                   instances that were asked for
    service_ready_replicas{service}             instances that serve
    service_cpu_seconds_total{service}          CPU time of all processes of all instances, those that ended included
    service_memory_bytes{service}               working set of an instance, as the kubelet counts it; mean of all
    service_cpu_limit_cores{service}            quota of an instance; mean of all
    service_memory_limit_bytes{service}         memory limit of an instance; mean of all

A program of its own: `python -m recording.live.exporter JOB.json`.
"""

import errno
import json
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from statistics import fmean

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from feature_store.control_group_limits import FILES, amount, from_files
from recording.live.counters import BOUNDS_S, Counts
from recording.loopback import ADDRESS
from recording.reaper import session_members
from recording.scaling.meters import process_cpu_s


@dataclass(frozen=True)
class Instance:
    """A copy of the server that serves.

    Attributes:
        session: of its processes.
        cpu_group, memory_group: folders of its control group that have the CPU quota and the memory limit.
    """

    session: int
    cpu_group: str
    memory_group: str


@dataclass(frozen=True)
class Exported:
    """A service.

    Attributes:
        service: its name, the label.
        counters: file of its load generator (counters.py).
        instances: file that names those that serve now (`write_instances`).
        version: of the control groups, 1 or 2.
    """

    service: str
    counters: str
    instances: str
    version: int


Read = Callable[[Instance, int], float]  # of an instance, given the version of the control groups


def write_instances(path: Path, asked: int, instances: Iterable[Instance]) -> None:
    """Says how many instances were asked for, and which of them serve from now on; replaced whole."""
    new = path.with_name(f"{path.name}.new")
    new.write_text(json.dumps({"asked": asked, "serving": [asdict(one) for one in instances]}))
    new.replace(path)


def _instances(path: Path) -> tuple[int, list[Instance]]:
    written = json.loads(path.read_text())
    return written["asked"], [Instance(**one) for one in written["serving"]]


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
        wanted = GaugeMetricFamily("service_replicas", "instances that were asked for", labels=label)
        ready = GaugeMetricFamily("service_ready_replicas", "instances that serve", labels=label)
        limits = {"cpu": GaugeMetricFamily("service_cpu_limit_cores", "CPU quota", labels=label),
                  "memory": GaugeMetricFamily("service_memory_limit_bytes", "memory limit", labels=label)}
        for one in self._services:
            names, counts = [one.service], Counts.read(Path(one.counters))
            requests.add_metric(names, counts.arrived)
            failures.add_metric(names, counts.failed)
            bounds = [*map(str, BOUNDS_S), "+Inf"]
            latency.add_metric(names, list(zip(bounds, accumulate(counts.buckets), strict=True)), counts.seconds)
            asked, instances = _instances(Path(one.instances))
            wanted.add_metric(names, asked)
            ready.add_metric(names, len(instances))
            members, used = session_members({each.session for each in instances}), self._cpu_s[one.service]
            used |= {pid: max(used.get(pid, 0.0), process_cpu_s(pid)) for pid in members}
            cpu.add_metric(names, sum(used.values()))
            reads: list[tuple[GaugeMetricFamily, Read]] = [
                (memory, _working_set_bytes), *((family, partial(_limit, kind)) for kind, family in limits.items())]
            for family, read in reads:
                if values := list(_read(instances, one.version, read)):
                    family.add_metric(names, fmean(values))
        return requests, failures, latency, cpu, memory, wanted, ready, *limits.values()


def _read(instances: Sequence[Instance], version: int, read: Read) -> Iterable[float]:
    """Of each instance that is still there: one may end while it is looked at."""
    for one in instances:
        try:
            yield read(one, version)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENODEV):  # ENODEV: removed between opening and reading
                raise


def _working_set_bytes(one: Instance, version: int) -> float:
    """Without file pages that were not used lately."""
    folder = Path(one.memory_group)
    used, inactive = (("memory.current", "inactive_file") if version == 2
                      else ("memory.usage_in_bytes", "total_inactive_file"))
    words = (folder / "memory.stat").read_text().split()
    counts = dict(zip(words[::2], words[1::2], strict=True))
    return float(max(int((folder / used).read_text()) - int(counts.get(inactive, 0)), 0))


def _limit(kind: str, one: Instance, version: int) -> float:
    folder = Path(one.cpu_group if kind == "cpu" else one.memory_group)
    texts = {file: (folder / file).read_text() for file in FILES[version][kind]}
    return amount(from_files(version, kind, texts))


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
