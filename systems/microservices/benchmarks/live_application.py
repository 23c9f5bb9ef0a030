"""One arm, live: the recorded application under load and anomalies, its limits set by the agents of a policy or a rule.

Agents see what ../statuses.py derives from the application's own traces and control groups, by one coordinator. It runs
in every arm, also where nobody acts: who exports no traces has less to do. nginx, which writes none, keeps its limit.
"""

import contextlib
import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.control.live_agents import Agents
from feature_store.control_group_limits import amount
from recording.loopback import ADDRESS, accepts_connections, free_port
from recording.processes import Guard
from recording.scaling.open_loop import Result, read_result
from serving.actuators.control_group.group import ControlGroup
from systems.microservices import coordinator, limits, statuses
from systems.microservices.application.anomalies import Anomaly, plan_segment
from systems.microservices.application.calls import TIMEOUT_S
from systems.microservices.application.graph import FRONT, REQUESTS, SERVICES
from systems.microservices.application.receiver import Receiver, TracesFile
from systems.microservices.application.running import Application, prepare_stores
from systems.microservices.application.segment_run import inject, write_load
from systems.microservices.application.settings import EXPORT_EVERY_S, ApplicationSettings

WORKLOAD = "shop"
NAMES = tuple(name for name in SERVICES if name != FRONT)
RATE_RPS = 15.0  # requests a second while nothing is injected
CORES = 6.0  # of the node, that the limits may add up to
WARM_UP_S = 20.0
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
    (live_agents.decisions); start_unix_s: of the first second.
    """

    types: NDArray[np.str_]
    results: Result
    limits: Numbers
    used: Numbers
    anomalies: list[Anomaly]
    beside: float
    decided: dict[str, Any] | None
    start_unix_s: float


def played(arm: Arm, number: int, seconds: float, anomalies: bool, begins: Mapping[str, float],
           objectives_ms: Mapping[str, float], traces: Path | None = None) -> Played:
    """Runs an arm; the same load and anomalies for the same number.

    Args:
        seconds: after the warm-up.
        anomalies: whether there are any.
        begins: limits, cores by service; of who is not named: none.
        objectives_ms: of each type of requests.
        traces: file that they are kept in, in place of statuses; nobody must act then.

    Raises:
        SourceError: the application does not start, or a part of it ends.
        AssayError: agents do not begin to decide, or end.
    """
    settings = ApplicationSettings(1, WARM_UP_S + seconds, RATE_RPS, number)
    planned = [one for one in plan_segment(settings, 0) if anomalies and one.start_s >= WARM_UP_S]
    with contextlib.ExitStack() as resources:
        guard = resources.enter_context(Guard())
        shared = resources.enter_context(TemporaryDirectory(prefix="assay-live-", dir=SHARED))
        homes, port = prepare_stores(guard), free_port()
        with Application(guard, homes, f"http://{ADDRESS}:{port}/v1/traces") as application:
            groups = {name: application.containers.group_of(name) for name in NAMES}
            for name in NAMES:
                application.containers.limit_cpu(name, begins[name] if name in begins else os.cpu_count() or 1)
            agents = Agents(guard, Path(shared))
            if traces is not None:
                resources.enter_context(Receiver(TracesFile(traces).keep, port))
            else:
                _start(agents, arm, port, groups, objectives_ms)
            sampler = _Sampler(application, groups)
            folder = guard.folder / "load"
            folder.mkdir()
            job = write_load(application, settings, planned, f"{number + 1:016x}", np.random.default_rng(number),
                             folder)
            start_unix_s = time.time() + job.start_s - time.monotonic() + WARM_UP_S
            before, since = agents.cpu_s(), time.monotonic()
            first = max(agents.steps(), default=0) + math.ceil(job.start_s - since + WARM_UP_S)
            happened = inject(application, settings, planned, job.start_s, folder, sampler.sample)
            if traces is not None:
                time.sleep(3 * EXPORT_EVERY_S)  # until the last spans are here
            beside = (agents.cpu_s() - before) / (time.monotonic() - since)
            decided = agents.end(first, first + int(seconds))
            types, found = np.load(folder / "names.npy"), read_result(Path(job.results))
    counted = found.due >= WARM_UP_S
    after = Result(*(getattr(found, one.name)[counted] for one in fields(found)))
    set_cores, used = (values[int(WARM_UP_S):] for values in sampler.found())
    came = [replace(one, start_s=times[0], end_s=times[-1]) if times else one
            for one, times in zip(planned, happened, strict=True)]
    return Played(types[counted], after, set_cores, used, came, beside, decided, start_unix_s)


def _start(agents: Agents, arm: Arm, port: int, groups: Mapping[str, str], objectives_ms: Mapping[str, float]) -> None:
    """Statuses in every arm, and who acts."""
    status = agents.shared / "status"
    agents.start("statuses", ["-m", statuses.__name__, agents.written("statuses", {
        "port": port, "status": str(status), "groups": dict(groups),
        "objectives_ms": dict(objectives_ms) or dict.fromkeys(REQUESTS, 1000.0 * TIMEOUT_S)})])
    agents.wait_until(lambda: accepts_connections(port), "receive traces", "statuses")
    if arm.rule is None and arm.home is None:
        return
    node = agents.coordinate(coordinator.__name__, CORES, status, groups)
    if arm.home is not None:
        agents.control("microservices", WORKLOAD, arm.home, limits.__name__, "service", groups)
        agents.wait_until(lambda: all(agents.steps()), "decide", f"agent of {NAMES[0]}")
    else:
        agents.decide_by_rule("microservices", arm.name, arm.rule or {}, node)


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
