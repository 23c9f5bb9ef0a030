"""One arm, live: the recorded application under load and anomalies, its limits set by the agents of a policy or a rule.

Who sets limits sees what follows from the application's own traces and control groups (../statuses.py) by one
coordinator. nginx, which writes no traces, keeps its limit.
"""

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml
from numpy.typing import NDArray

from benchmarks.control.live_agents import CONFIGURATION, decisions
from benchmarks.pipeline.assay_run import COMMAND
from feature_store.control_group_limits import amount
from feature_store.errors import AssayError
from feature_store.whole_files import write_file
from recording.loopback import ADDRESS, free_port
from recording.processes import Guard, Running
from recording.scaling.generator import python_environment
from recording.scaling.meters import process_cpu_s
from recording.scaling.open_loop import Result, read_result
from serving.actuators.control_group.group import ControlGroup
from systems.microservices import coordinator, limits, statuses
from systems.microservices.application.anomalies import Anomaly, plan_segment
from systems.microservices.application.graph import FRONT, SERVICES
from systems.microservices.application.running import Application, prepare_stores
from systems.microservices.application.segment_run import inject, write_load
from systems.microservices.application.settings import ApplicationSettings
from systems.microservices.benchmarks import live_rules

WORKLOAD = "shop"
NAMES = tuple(name for name in SERVICES if name != FRONT)
RATE_RPS = 15.0  # requests a second while nothing is injected
CORES, CORE = 37.5, 0.16  # of the node, that the limits may add up to; cores of this machine that are one of the node's
WARM_UP_S, START_S = 20.0, 120.0
ROOT = Path("/sys/fs/cgroup")
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Arm:
    """Who sets limits: nobody, a rule with settings, or the champion of a state folder."""

    name: str
    rule: Mapping[str, float] | None = None
    home: Path | None = None


class Played(NamedTuple):
    """What came of an arm after its warm-up.

    types, results: of all requests; limits, used: (seconds, services) the node's cores in each second; planned:
    anomalies; beside: cores of this machine that agents, coordinator and statuses used; decided: what the policy's
    agents said (live_agents.decisions).
    """

    types: NDArray[np.str_]
    results: Result
    limits: Numbers
    used: Numbers
    planned: list[Anomaly]
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
    with Guard() as guard:
        homes, port = prepare_stores(guard), free_port()
        with Application(guard, homes, f"http://{ADDRESS}:{port}/v1/traces") as application:
            groups = {name: application.containers.group_of(name) for name in NAMES}
            for name in NAMES:
                application.containers.limit_cpu(name, CORE * begins[name] if name in begins else os.cpu_count() or 1)
            agents = _Agents(arm, guard, groups, port, objectives_ms)
            sampler = _Sampler(application, groups)
            folder = guard.folder / "load"
            folder.mkdir()
            job = write_load(application, settings, planned, f"{number + 1:016x}", np.random.default_rng(number),
                             folder)
            before, since = agents.cpu_s(), time.monotonic()
            inject(application, settings, planned, job.start_s, folder, sampler.sample)
            beside = (agents.cpu_s() - before) / (time.monotonic() - since)
            decided = agents.end(WARM_UP_S)
            types, found = np.load(folder / "names.npy"), read_result(Path(job.results))
    counted = found.due >= WARM_UP_S
    after = Result(*(getattr(found, one.name)[counted] for one in fields(found)))
    set_cores, used = (values[int(WARM_UP_S):] for values in sampler.found())
    return Played(types[counted], after, set_cores, used, planned, beside, decided)


class _Agents:
    """The programs beside an application that see it and set its limits; its guard ends them."""

    def __init__(self, arm: Arm, guard: Guard, groups: Mapping[str, str], port: int,
                 objectives_ms: Mapping[str, float]) -> None:
        self._guard, self._running, self._logs = guard, list[Running](), list[Path]()
        if arm.rule is None and arm.home is None:
            return
        folder = guard.folder
        told, look = folder / "status", folder / "look.json"
        self._start("statuses", ["-m", statuses.__name__, _written(folder / "statuses.yaml", {
            "port": port, "status": str(told), "groups": groups, "objectives_ms": dict(objectives_ms),
            "host_cores": CORE})])
        node = _written(folder / "node.yaml", {"cores": CORES, "host_cores": CORE, "look": str(look),
                                               "status": str(told), "groups": groups})
        self._start("coordinator", ["-m", coordinator.__name__, node])
        if arm.rule is not None:
            rule = folder / "rule.json"
            write_file(rule, json.dumps({"rule": arm.name, "settings": dict(arm.rule), "node": str(node),
                                         "state": str(folder / "found")}))
            self._start("rule", ["-m", live_rules.__name__, rule])
            return
        assert arm.home is not None
        for name, group in groups.items():
            file = _written(folder / f"{name}-agent.yaml", {"service": {
                "name": name, "group": group, "look": str(look), "host_cores": CORE, "state": str(folder / "found")}})
            self._logs.append(self._start(f"agent of {name}", [
                *COMMAND[1:], "control", "--task", "microservices", "--workload", WORKLOAD, "--actuator",
                limits.__name__, "--controller", file, "--folder", folder / "agents" / name, "--json"],
                ASSAY_HOME=str(arm.home), ASSAY_CONFIG=str(arm.home / CONFIGURATION)))
        deadline = time.monotonic() + START_S
        while not all(_steps(log) for log in self._logs):
            self._require_alive()
            if time.monotonic() > deadline:
                raise AssayError(f"agents must decide within {START_S:g} s, and do not: "
                                 f"{self._logs[0].read_text()[-500:]!r}")
            time.sleep(0.5)
        self._first = [_steps(log) for log in self._logs]

    def cpu_s(self) -> float:
        """CPU time that all of them have used, s. Raises AssayError where one has ended."""
        self._require_alive()
        return sum(process_cpu_s(one.session) for one in self._running)

    def end(self, warm_up_s: float) -> dict[str, Any] | None:
        """Ends them. Returns what the policy's agents decided, without their first steps."""
        self._guard.stop(self._running, grace_s=20.0)
        return decisions(self._logs, max(self._first) + int(warm_up_s), sys.maxsize) if self._logs else None

    def _start(self, name: str, arguments: Sequence[str | Path], **environment: str) -> Path:
        log = self._guard.folder / f"{name.replace(' ', '-')}.log"
        self._running.append(self._guard.start(name, [sys.executable, *arguments], output=log,
                                               environment={**python_environment(), **environment}))
        return log

    def _require_alive(self) -> None:
        if gone := [one.name for one in self._running if not one.is_alive()]:
            log = self._guard.folder / f"{gone[0].replace(' ', '-')}.log"
            raise AssayError(f"what sets limits must run to the end, but these ended: {', '.join(gone)}: "
                             f"{log.read_text()[-500:]}")


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
        return np.array(self._limits[1:]) / CORE, np.diff(np.array(self._used), axis=0) / CORE
