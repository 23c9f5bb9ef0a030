"""Real functions in control groups of their own, each under open-loop load, and what its front tells a coordinator.

A scale model: a core of the cluster is a small part of one of this machine's, and all numbers are in the cluster's.
"""

import json
import math
import sys
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from feature_store.control_group_limits import UNLIMITED
from feature_store.errors import SourceError
from feature_store.whole_files import write_file
from recording.control_groups import ControlGroups, find_hierarchy
from recording.live.counters import BOUNDS_S, Counts
from recording.loopback import ADDRESS, accepts_connections, free_port
from recording.processes import Guard, Running
from recording.scaling.arrivals import poisson_arrivals
from recording.scaling.generator import python_environment, start_generator, write_requests
from recording.scaling.meters import process_cpu_s
from recording.scaling.open_loop import Result, Target, read_result
from recording.scaling.protocols import http_get
from recording.scaling.trial_run import await_end
from serving.actuators.cgroup import Cgroup
from serving.actuators.control_group.group import ControlGroup
from systems.shared_cluster.benchmarks import live_function
from systems.shared_cluster.interface import STEP_SECONDS

FUNCTIONS = [(kind, units) for units in (8, 12, 18, 27) for kind in live_function.KINDS]
NAMES = [f"{kind}-{units}" for kind, units in FUNCTIONS]
TIMEOUT_S, CONNECTIONS, MEMORY_MB = 30.0, 64, 512.0
PERIOD_US = 500_000  # of quotas: the kernel allows none below 1 ms
ROOT = Path("/sys/fs/cgroup")
_LEAD_S, _END_S = 3.0, 60.0
Numbers = NDArray[np.float64]


class Played(NamedTuple):
    """What became of the requests of each function; its limit and the cores that it used in each second.

    limits, used: (seconds, F), cores of the cluster.
    """

    results: list[Result]
    limits: Numbers
    used: Numbers


class Cluster:
    """The functions, each in a control group of its own; its guard ends them."""

    def __init__(self, guard: Guard, core: float) -> None:
        """Args:
        core: cores of this machine that are one of the cluster's.
        """
        self.guard, self.core = guard, core
        groups = ControlGroups(guard, find_hierarchy())
        self.ports = [free_port() for _ in NAMES]
        self.groups: list[str] = []
        self._functions: list[Running] = []
        self._seen: list[deque[tuple[float, Counts, float]]] = [deque() for _ in NAMES]
        self.status = guard.folder / "status"
        self.status.mkdir()
        for name, (kind, units), port in zip(NAMES, FUNCTIONS, self.ports, strict=True):
            folders = groups.make(name, cpu=True, memory_mb=MEMORY_MB)
            command = [sys.executable, "-m", live_function.__name__, kind, str(units), str(core), str(port)]
            self.groups.append(folders[-1].name)
            self._functions.append(guard.start(name, command, groups=folders, output=guard.folder / f"{name}.log",
                                               environment=python_environment()))
        self._limited = [Cgroup(group, guard.folder) for group in self.groups]
        deadline = time.monotonic() + _END_S
        while not all(accepts_connections(port) for port in self.ports):
            if time.monotonic() > deadline:
                raise SourceError(f"all functions must answer within {_END_S:g} s, and do not")
            time.sleep(0.1)

    def limit(self, cores: float, names: Sequence[str] = NAMES) -> None:
        """Of each of them; infinite: none."""
        for name in names:
            quota = round(cores * self.core * PERIOD_US) if math.isfinite(cores) else UNLIMITED
            ControlGroup(ROOT, "", self.groups[NAMES.index(name)]).write("cpu", f"{quota} {PERIOD_US}")

    def limits(self) -> list[float]:
        """Of each, cores."""
        return [group.present()["cpu_limit_cores"] / self.core for group in self._limited]

    def play(self, rates: Numbers, seed: int, objective_ms: Sequence[float] | None = None) -> Played:
        """Sends requests, and writes what each function's front says of it, every second.

        Args:
            rates: (T, F) requests a second in each interval.

        Raises:
            SourceError: a function ended, or a load generator failed.
        """
        start, limits, used_s = time.monotonic() + _LEAD_S, [], [self._used_s()]
        generators = [self._send(place, rates[:, place], seed, start) for place in range(len(NAMES))]
        for second in range(int(STEP_SECONDS * len(rates))):
            time.sleep(max(0.0, start + second + 1.0 - time.monotonic()))
            self._require_running(generators)
            used_s.append(self._used_s())
            limits.append(self.limits())
            if objective_ms is not None:
                self._tell(used_s[-1], objective_ms)
        for name, one in zip(NAMES, generators, strict=True):
            await_end(one, _END_S, self.guard.folder / name)
        return Played([read_result(self.guard.folder / name / "results.npz") for name in NAMES], np.array(limits),
                      np.diff(used_s, axis=0))

    def _send(self, place: int, rates: Numbers, seed: int, start: float) -> Running:
        folder = self.guard.folder / NAMES[place]
        folder.mkdir(exist_ok=True)
        arrivals = poisson_arrivals(np.random.default_rng([seed, place]), rates, [STEP_SECONDS] * len(rates))
        write_requests(folder, [http_get("/")], arrivals, np.zeros(len(arrivals), dtype=np.int64), protocol="http",
                       targets=[Target(f"{ADDRESS}:{self.ports[place]}")], connections=CONNECTIONS,
                       timeout_s=TIMEOUT_S, start_s=start, counters=str(folder / "counters.json"))
        return start_generator(self.guard, folder, ())

    def _require_running(self, generators: Sequence[Running]) -> None:
        for name, function, generator in zip(NAMES, self._functions, generators, strict=True):
            if not function.is_alive():
                output = (self.guard.folder / f"{name}.log").read_text(errors="replace")[-300:]
                raise SourceError(f"function {name} must run to the end, got status {function.process.returncode}: "
                                  f"{output.strip()}")
            if generator.process.poll():
                await_end(generator, 0.0, self.guard.folder / name)

    def _used_s(self) -> list[float]:
        return [process_cpu_s(function.session) / self.core for function in self._functions]

    def _tell(self, used_s: Sequence[float], objective_ms: Sequence[float]) -> None:
        """What a front knows of the last interval."""
        for name, seen, used, most in zip(NAMES, self._seen, used_s, objective_ms, strict=True):
            seen.append((time.monotonic(), Counts.read(self.guard.folder / name / "counters.json"), used))
            while seen[-1][0] - seen[0][0] > STEP_SECONDS + 0.5:
                seen.popleft()
            write_file(self.status / f"{name}.json", json.dumps(told(seen[0], seen[-1]) | {"most_latency_ms": most}))


def told(first: tuple[float, Counts, float], last: tuple[float, Counts, float]) -> dict[str, float]:
    """Of the time between two moments of a front, each with its counters and the CPU seconds of its function: what a
    coordinator reads (STATUS), but for the objective. No latency where no request is over."""
    seconds, before, after = last[0] - first[0], first[1], last[1]
    if seconds <= 0:
        return {}
    buckets = np.subtract(after.buckets, before.buckets)
    over, failed = int(buckets.sum()), after.failed - before.failed
    found = {"rate_rps": (after.arrived - before.arrived) / seconds, "served_rps": (over - failed) / seconds,
             "used_cores": (last[2] - first[2]) / seconds}
    if over:
        place = int(np.searchsorted(np.cumsum(buckets), 0.99 * over))
        found["latency_ms"] = 1e3 * min(BOUNDS_S[min(place, len(BOUNDS_S) - 1)], TIMEOUT_S)
    return found
