"""A deployment that runs: instances of one server, each in a control group of its own with its quota from the start."""

import math
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from feature_store.errors import SourceError
from recording.control_groups import ControlGroups
from recording.loopback import free_port
from recording.preparation import START_TIMEOUT_S, STOP_GRACE_S
from recording.processes import Guard, Running
from recording.scaling.meters import Meter
from recording.scaling.plan import Deployment
from recording.scaling.protocols import answers
from recording.scaling.raw_trials import Event
from recording.scaling.servers.catalogue import SERVERS
from recording.tools import ENVIRONMENT
from recording.workloads.base import Place

# Share of a contended processor that an instance gets, against 1 of any other process: the machine's other work
# would otherwise be measured along with the server.
GROUP_WEIGHT = 50
_POLL_S = 0.005
_ANSWER_TIMEOUT_S = 2.0
_PROBE_SEED = 1


@dataclass(frozen=True)
class Stage:
    """What the deployments of a campaign share.

    Attributes:
        guard: owns every process and folder.
        groups: makes the control groups.
        home: prepared state of the server.
        processors: processors of this machine that may be used, ascending; none: nothing is bound to any.
        memory_mib: memory limit of each instance, MiB; None: none.
    """

    guard: Guard
    groups: ControlGroups
    home: Path
    processors: tuple[int, ...]
    memory_mib: float | None = None


@dataclass
class Instance:
    """One copy of the server."""

    name: str
    place: Place
    running: Running
    groups: tuple[Path, ...]
    started_s: float


class LiveDeployment:
    """Starts, resizes and stops the instances; a context manager."""

    def __init__(self, stage: Stage, deployment: Deployment, name: str = "") -> None:
        """Args:
        name: of its control groups and folder, other than that of every deployment beside it; "" for the server's.
        """
        self.stage, self.deployment = stage, deployment
        self._name = name or deployment.server
        self.server = SERVERS[deployment.server]
        self.folder = stage.guard.folder / (name or deployment.identifier)
        self.instances: list[Instance] = []
        self.quota_cores = deployment.quota_cores if stage.groups.has_cpu else math.nan
        self._workers = deployment.workers
        (self._probe,) = self.server.requests(np.random.default_rng(_PROBE_SEED), 1)
        self.meter = Meter(stage.groups)

    def __enter__(self) -> Self:
        self.folder.mkdir()
        return self

    def __exit__(self, *_: object) -> None:
        self.stage.guard.stop([one.running for one in self.instances], grace_s=STOP_GRACE_S)
        for instance in self.instances:
            self.stage.groups.remove(instance.groups)
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self) -> tuple[Event, ...]:
        """Starts all instances at once and waits for a useful answer of each."""
        started = [self.start_instance() for _ in range(self.deployment.instances)]
        took = self._await_answers(started)
        return tuple(Event("start", float(number), 0.0, seconds) for number, seconds in enumerate(took))

    def start_instance(self) -> Instance:
        """Starts one more instance, without waiting for it."""
        number = len(self.instances)
        name = f"{self._name}-{number}"
        folder = self.folder / str(number)
        (folder / "run").mkdir(parents=True)
        place = Place(self.server.copy(self.stage.home, folder), folder / "run", free_port())
        groups = self.stage.groups.make(name, cpu=True, memory_mb=self.stage.memory_mib)
        if self.stage.groups.has_cpu:
            self.stage.groups.set_quota(name, self.quota_cores)
            self.stage.groups.set_weight(name, GROUP_WEIGHT)
        command = self.server.command(place, self._workers)
        started_s = time.monotonic()
        running = self.stage.guard.start(
            name, [*self._pinned(), *command], output=folder / "output.log", groups=groups, environment=ENVIRONMENT)
        instance = Instance(name, place, running, groups, started_s)
        self.instances.append(instance)
        self.meter.names.append(name)
        self.meter.sessions.append(running.session)
        return instance

    def await_answer(self, instance: Instance) -> float:
        """Seconds from an instance's start to its first useful answer."""
        return self._await_answers([instance])[0]

    def stop_instance(self) -> None:
        """Stops the newest instance."""
        instance = self.instances.pop()
        self.meter.names.remove(instance.name)
        self.meter.sessions.remove(instance.running.session)
        self.stage.guard.stop([instance.running], grace_s=STOP_GRACE_S)
        self.stage.groups.remove(instance.groups)
        shutil.rmtree(self.folder / instance.name.rpartition("-")[2], ignore_errors=True)

    def set_quota(self, cores: float) -> None:
        """Changes the quota of every instance in place."""
        if self.stage.groups.has_cpu:
            self.quota_cores = cores
            for instance in self.instances:
                self.stage.groups.set_quota(instance.name, cores)

    def set_workers(self, workers: int) -> None:
        """Changes the workers of every instance in place."""
        self._workers = workers
        for instance in self.instances:
            self.server.set_workers(instance.place, workers, instance.running.session)

    def require_alive(self) -> None:
        """Raises SourceError, with the end of its output, where an instance has ended by itself."""
        for instance in self.instances:
            if not instance.running.is_alive():
                output = (instance.place.run.parent / "output.log").read_text(errors="replace")[-300:]
                raise SourceError(
                    f"server must keep running, but it ended with status {instance.running.process.returncode} "
                    f"({self.deployment.identifier}): {output}")

    def _await_answers(self, instances: Sequence[Instance]) -> list[float]:
        took: dict[str, float] = {}
        deadline = time.monotonic() + START_TIMEOUT_S
        while len(took) < len(instances):
            for one in instances:
                address = self.server.address(one.place)
                if one.name not in took and answers(self.server.protocol, address, self._probe, _ANSWER_TIMEOUT_S):
                    took[one.name] = time.monotonic() - one.started_s
            self.require_alive()
            if time.monotonic() > deadline:
                raise SourceError(
                    f"server must answer within {START_TIMEOUT_S:g} s of its start, got no answer "
                    f"({self.deployment.identifier})")
            time.sleep(_POLL_S)
        return [took[one.name] for one in instances]

    def _pinned(self) -> list[str]:
        """One instance that may use a processor at most keeps off the last one, where the load generator runs."""
        allowed = self.stage.processors[:-1]
        if self.deployment.instances > 1 or self.deployment.cores > len(allowed):
            return []
        return ["taskset", "--cpu-list", ",".join(map(str, allowed))]


def own_processors() -> tuple[int, ...]:
    """Processors that this process may use."""
    return tuple(sorted(os.sched_getaffinity(0)))
