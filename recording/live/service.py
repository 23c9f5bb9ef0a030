"""A service that lives: a real server in a control group of its own, under open-loop load, counted while it runs."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from feature_store.errors import SourceError
from recording.control_groups import ControlGroups, find_hierarchy
from recording.live.exporter import Exported, Instance, write_instances, write_job
from recording.live.prometheus import LivePrometheus
from recording.live.queries import newest
from recording.loopback import free_port
from recording.preparation import prepare_state
from recording.processes import Guard, Running
from recording.scaling.generator import LEAD_S, python_environment, start_generator
from recording.scaling.generator import write_job as write_load
from recording.scaling.live_deployment import LiveDeployment, Stage
from recording.scaling.open_loop import Job, Result, read_result
from recording.scaling.plan import Deployment
from recording.scaling.servers.catalogue import SERVERS
from recording.scaling.trial_run import await_end

# Until an answer is not waited for any more, s.
TIMEOUT_S = 2.0
_END_S = 30.0


@dataclass(frozen=True)
class Load:
    """rates: requests a second in each segment; seconds: length of each; seed: of arrivals and requests."""

    rates: Sequence[float]
    seconds: Sequence[float]
    seed: int = 0


class LiveService:
    """A context manager: starts the server, then its load; everything ends with it."""

    def __init__(self, guard: Guard, groups: ControlGroups, home: Path, name: str, deployment: Deployment,
                 memory_mib: float) -> None:
        """Args:
        guard: owns every process and folder.
        groups: makes the control groups.
        home: prepared state of the server (`prepared`).
        name: of the service.
        deployment: server, first quota and workers; one instance.
        memory_mib: memory limit, MiB.
        """
        self.name, self.memory_mib, self._guard = name, memory_mib, guard
        self._live = LiveDeployment(Stage(guard, groups, home, (), memory_mib), deployment, name)
        self._proxy_address, self._connections = "", 0  # of what stands in front, and to it
        self.job: Job | None = None
        self._generator: Running | None = None

    def __enter__(self) -> Self:
        self._live.__enter__()
        try:
            (self._live.folder / "load").mkdir()
            self._live.start()
            self._tell(len(self._live.instances), len(self._live.instances))
        except BaseException:
            self._live.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._generator is not None:
            self._guard.stop([self._generator], grace_s=0)
        self._live.__exit__()

    @property
    def group(self) -> str:
        """Name of its control group, below the mounted root."""
        return self._live.instances[0].groups[0].name

    def exported(self) -> Exported:
        """What an exporter serves of it."""
        return Exported(self.name, str(self._live.folder / "load" / "counters.json"), str(self._instances_file),
                        find_hierarchy().version)

    def _tell(self, asked: int, serving: int) -> None:
        """Says to the exporter how many instances were asked for, and how many, from the first on, serve."""
        write_instances(self._instances_file, asked, [
            Instance(one.running.session, str(one.groups[-1]), str(one.groups[0]))
            for one in self._live.instances[:serving]])

    @property
    def _instances_file(self) -> Path:
        return self._live.folder / "load" / "instances.json"

    def start_load(self, load: Load, lead_s: float = LEAD_S) -> float:
        """Begins the load after `lead_s`. Returns its start, s of CLOCK_MONOTONIC."""
        folder = self._live.folder / "load"
        self.job = write_load(self._live, load.rates, load.seconds, load.seed, TIMEOUT_S, folder,
                              counters=str(folder / "counters.json"), lead_s=lead_s, proxy=self._proxy_address,
                              connections=self._connections)
        self._generator = start_generator(self._guard, folder, ())
        return self.job.start_s

    def require_alive(self) -> None:
        """Raises SourceError where server or generator have ended by themselves."""
        self._live.require_alive()
        if self._generator is not None and self._generator.process.poll() not in (None, 0):
            output = (self._live.folder / "load" / "generator.log").read_text(errors="replace")[-300:]
            raise SourceError(f"load generator must keep running, but it ended ({self.name}): {output}")

    def result(self) -> Result:
        """What became of all requests, once the load has ended. Raises SourceError: the generator failed."""
        assert self._generator is not None and self.job is not None
        self._live.require_alive()
        await_end(self._generator, _END_S, self._live.folder / "load")
        self._live.require_alive()
        return read_result(Path(self.job.results))


def monitored(guard: Guard, services: Sequence[LiveService], interval_s: float) -> LivePrometheus:
    """An exporter of all services and a Prometheus that scrapes it; returns once it knows each of them.

    Raises:
        SourceError: Prometheus does not answer, or a service is not there.
    """
    port, job = free_port(), guard.folder / "exporter.json"
    write_job(job, port, [one.exported() for one in services])
    guard.start("exporter", [sys.executable, "-m", "recording.live.exporter", job],
                output=guard.folder / "exporter.log", environment=python_environment())
    prometheus = LivePrometheus(guard, [port], interval_s)
    for one in services:
        prometheus.await_value(newest(one.name))
    return prometheus


def prepared(guard: Guard, server: str) -> Path:
    """State of a server, made once for all services of it."""
    found = SERVERS[server]
    return prepare_state(guard, server, found.prepare, found.is_ready)
