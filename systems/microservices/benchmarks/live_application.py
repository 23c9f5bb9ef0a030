"""One arm, live: the recorded application under load and anomalies, its limits set by the agents of a policy or a rule.

Agents see what ../statuses.py derives from the application's own traces and control groups, by one coordinator. It runs
in every arm, also where nobody acts: who exports no traces has less to do. nginx, which writes none, keeps its limit.
"""

import json
import math
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import yaml
from numpy.typing import NDArray

from benchmarks.control.live_agents import CONFIGURATION, decisions
from benchmarks.pipeline.assay_run import COMMAND
from feature_store.control_group_limits import amount
from feature_store.errors import AssayError
from feature_store.whole_files import write_file
from recording.loopback import ADDRESS, accepts_connections, free_port
from recording.processes import Guard, Running
from recording.scaling.generator import python_environment
from recording.scaling.meters import process_cpu_s
from recording.scaling.open_loop import Result, read_result
from serving.actuators.control_group.group import ControlGroup
from systems.microservices import coordinator, limits, statuses
from systems.microservices.application.anomalies import Anomaly, plan_segment
from systems.microservices.application.calls import TIMEOUT_S
from systems.microservices.application.graph import FRONT, REQUESTS, SERVICES
from systems.microservices.application.running import Application, prepare_stores
from systems.microservices.application.segment_run import inject, write_load
from systems.microservices.application.settings import ApplicationSettings
from systems.microservices.benchmarks import live_rules

WORKLOAD = "shop"
NAMES = tuple(name for name in SERVICES if name != FRONT)
RATE_RPS = 15.0  # requests a second while nothing is injected
CORES = 6.0  # of the node, that the limits may add up to
WARM_UP_S, START_S = 20.0, 120.0
ROOT, SHARED = Path("/sys/fs/cgroup"), Path("/dev/shm")
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Arm:
    """Who sets limits: a rule with settings, the champion of a state folder, or nobody."""

    name: str
    rule: Mapping[str, float] | None = None
    home: Path | None = None


class Played(NamedTuple):
    """What came of an arm after its warm-up.

    types, results: of all requests; limits, used: (seconds, services) cores in each second; anomalies: as they
    came; beside: cores that agents, coordinator and statuses used; decided: what the policy's agents said
    (live_agents.decisions).
    """

    types: NDArray[np.str_]
    results: Result
    limits: Numbers
    used: Numbers
    anomalies: list[Anomaly]
    beside: float
    decided: dict[str, Any] | None


def played(arm: Arm, number: int, seconds: float, anomalies: bool, begins: Mapping[str, float],
           objectives_ms: Mapping[str, float]) -> Played:
    """Runs an arm; the same load and anomalies for the same number.

    Args:
        seconds: after the warm-up.
        anomalies: whether there are any.
        begins: limits, cores by service; of who is not named: none.
        objectives_ms: of each type of requests.

    Raises:
        SourceError: the application does not start, or a part of it ends.
        AssayError: agents do not begin to decide, or end.
    """
    settings = ApplicationSettings(1, WARM_UP_S + seconds, RATE_RPS, number)
    planned = [one for one in plan_segment(settings, 0) if anomalies and one.start_s >= WARM_UP_S]
    with Guard() as guard, TemporaryDirectory(prefix="assay-live-", dir=SHARED) as shared:
        homes, port = prepare_stores(guard), free_port()
        with Application(guard, homes, f"http://{ADDRESS}:{port}/v1/traces") as application:
            groups = {name: application.containers.group_of(name) for name in NAMES}
            for name in NAMES:
                application.containers.limit_cpu(name, begins[name] if name in begins else os.cpu_count() or 1)
            agents = _Agents(arm, guard, Path(shared), groups, port, objectives_ms)
            sampler = _Sampler(application, groups)
            folder = guard.folder / "load"
            folder.mkdir()
            job = write_load(application, settings, planned, f"{number + 1:016x}", np.random.default_rng(number),
                             folder)
            before, since = agents.cpu_s(), time.monotonic()
            first = agents.steps() + math.ceil(job.start_s - since + WARM_UP_S)
            happened = inject(application, settings, planned, job.start_s, folder, sampler.sample)
            beside = (agents.cpu_s() - before) / (time.monotonic() - since)
            decided = agents.end(first, first + int(seconds))
            types, found = np.load(folder / "names.npy"), read_result(Path(job.results))
    counted = found.due >= WARM_UP_S
    after = Result(*(getattr(found, one.name)[counted] for one in fields(found)))
    set_cores, used = (values[int(WARM_UP_S):] for values in sampler.found())
    came = [replace(one, start_s=times[0], end_s=times[-1]) if times else one
            for one, times in zip(planned, happened, strict=True)]
    return Played(types[counted], after, set_cores, used, came, beside, decided)


class _Agents:
    """The programs beside an application that see it and set its limits; its guard ends them."""

    def __init__(self, arm: Arm, guard: Guard, shared: Path, groups: Mapping[str, str], port: int,
                 objectives_ms: Mapping[str, float]) -> None:
        """Args:
        shared: folder in memory, as /run is: nothing of it reaches the disk that services use.
        """
        self._guard, self._running, self._logs = guard, list[Running](), list[Path]()
        folder, told, look, found = guard.folder, shared / "status", shared / "look.json", shared / "found"
        self._start("statuses", ["-m", statuses.__name__, _written(folder / "statuses.yaml", {
            "port": port, "status": str(told), "groups": groups,
            "objectives_ms": dict(objectives_ms) or dict.fromkeys(REQUESTS, 1000.0 * TIMEOUT_S)})])
        deadline = time.monotonic() + START_S
        while not accepts_connections(port):
            self._wait_until(deadline, "receive traces", "statuses")
        if arm.rule is None and arm.home is None:
            return
        node = _written(folder / "node.yaml", {"cores": CORES, "look": str(look), "status": str(told),
                                               "groups": groups})
        self._start("coordinator", ["-m", coordinator.__name__, node])
        if arm.rule is not None:
            rule = folder / "rule.json"
            write_file(rule, json.dumps({"rule": arm.name, "settings": dict(arm.rule), "node": str(node),
                                         "state": str(found)}))
            self._start("rule", ["-m", live_rules.__name__, rule])
            return
        assert arm.home is not None
        for name, group in groups.items():
            file = _written(folder / f"{name}-agent.yaml", {"service": {
                "name": name, "group": group, "look": str(look), "state": str(found)}})
            self._logs.append(self._start(f"agent of {name}", [
                *COMMAND[1:], "control", "--task", "microservices", "--workload", WORKLOAD, "--actuator",
                limits.__name__, "--controller", file, "--folder", folder / "agents" / name, "--json"],
                ASSAY_HOME=str(arm.home), ASSAY_CONFIG=str(arm.home / CONFIGURATION)))
        while not all(_steps(log) for log in self._logs):
            self._wait_until(deadline, "decide", f"agent of {NAMES[0]}")

    def steps(self) -> int:
        """Of the policy's agent that has done most; 0 where there is none."""
        return max((_steps(log) for log in self._logs), default=0)

    def cpu_s(self) -> float:
        """CPU time that all of them have used, s. Raises AssayError where one has ended."""
        self._require_alive()
        return sum(process_cpu_s(one.session) for one in self._running)

    def end(self, first: int, end: int) -> dict[str, Any] | None:
        """Ends them. Returns what the policy's agents decided from one step to before another."""
        self._guard.stop(self._running, grace_s=20.0)
        return decisions(self._logs, first, end) if self._logs else None

    def _start(self, name: str, arguments: Sequence[str | Path], **environment: str) -> Path:
        log = self._log(name)
        self._running.append(self._guard.start(name, [sys.executable, *arguments], output=log,
                                               environment={**python_environment(), **environment}))
        return log

    def _wait_until(self, deadline: float, what: str, name: str) -> None:
        self._require_alive()
        if time.monotonic() > deadline:
            raise AssayError(f"{name} must {what} within {START_S:g} s, and does not: "
                             f"{self._log(name).read_text()[-500:]}")
        time.sleep(0.2)

    def _log(self, name: str) -> Path:
        return self._guard.folder / f"{name.replace(' ', '-')}.log"

    def _require_alive(self) -> None:
        if gone := [one.name for one in self._running if not one.is_alive()]:
            raise AssayError(f"what sets limits must run to the end, but these ended: {', '.join(gone)}: "
                             f"{self._log(gone[0]).read_text()[-500:]}")


def _written(path: Path, content: Mapping[str, Any]) -> Path:
    write_file(path, yaml.safe_dump(dict(content)))
    return path


def _steps(log: Path) -> int:
    return log.read_text().count('{"number"')


class _Sampler:
    """Limits and use of every service, second by second."""

    def __init__(self, application: Application, groups: Mapping[str, str]) -> None:
        self._application = application
        self._groups = {name: ControlGroup(ROOT, "", group) for name, group in groups.items()}
        self._limits: list[list[float]] = []
        self._used: list[list[float]] = []

    def sample(self) -> None:
        """Looks once. Raises SourceError where a service has ended."""
        self._application.require_alive()
        self._limits.append([amount(group.read()["cpu"]) for group in self._groups.values()])
        self._used.append([self._application.containers.used(name).cpu_s for name in self._groups])

    def found(self) -> tuple[Numbers, Numbers]:
        """(seconds, services) limits at the end of each second, and cores used in it."""
        return np.array(self._limits[1:]), np.diff(np.array(self._used), axis=0)
