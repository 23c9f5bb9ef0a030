"""Controllers side by side on services of their own: the same real server, the same arrivals at the same moments.

Each has its control groups, its load generator and its control loop (serving/control/loop.py); its venue (venues.py)
says what a service is made of. One exporter and one Prometheus serve all. Side by side, so that whatever disturbs the
machine disturbs all of them.

What counts is the generators' own record of each request, not what Prometheus showed the controllers.
"""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.control.contract.acting import load_acting
from models.control.contract.controller import Controller
from recording.control_groups import ControlGroups, find_hierarchy
from recording.live.prometheus import LivePrometheus
from recording.live.queries import newest, signals
from recording.live.service import TIMEOUT_S, LiveService, Load, monitored, prepared
from recording.processes import Guard
from recording.scaling.open_loop import ANSWERED, Result
from serving.actuators.actuator import Actuator
from serving.contract import Contract
from serving.control.checks import Distribution
from serving.control.control_step import ControlStep
from serving.control.controller_file import ControllerFile, read_controller_file
from serving.control.loop import ControlLoop
from serving.control.made import shield_of
from serving.control.parts import Models, Parts, Settings
from serving.control.prometheus_reader import PrometheusReader
from serving.control.run import run
from systems.autoscaling.benchmarks.real_servers.settings import SLO_MS, STEP_S
from systems.autoscaling.benchmarks.real_servers.venues import Venue

SCRAPE_S = 1.0
MEMORY_SIGNALS = ("memory_used_mib", "memory_utilization")
_SAMPLE_S = 0.5


@dataclass(frozen=True)
class Arm:
    """A controller of the comparison.

    Attributes:
        name: as tables name it.
        contract: what the policy takes and gives, its safe ranges.
        models: the policy; one that is refused where the rule alone acts.
        rule: acts where the policy may not.
        checked: whether the policy may decide only on what is like what its training saw.
        slo_ms: objective of the 99th percentile.
        aim: share of violating steps that it was tuned or trained to; 0: to none.
    """

    name: str
    contract: Contract
    models: Models
    rule: Controller
    checked: bool = True
    slo_ms: float = SLO_MS
    aim: float = 0.0


@dataclass(frozen=True)
class Played:
    """What became of one arm; intervals of a step, K of them from the load's start on.

    Attributes:
        steps: the controller's records; the k-th acted at the beginning of interval k + 1.
        rate, p99_ms, failed: (K,) requests a second, percentile, share that timed out or was refused.
        quota, replicas, ready: (K,) means: cores of an instance, instances that were asked for and that served.
        used: (K,) mean of all instances together, cores.
        memory_mib: (K,) mean of an instance.
        lateness_ms: of the load generator, 99th percentile.
    """

    name: str
    steps: tuple[ControlStep, ...]
    rate: NDArray[np.float64]
    p99_ms: NDArray[np.float64]
    failed: NDArray[np.float64]
    quota: NDArray[np.float64]
    replicas: NDArray[np.float64]
    ready: NDArray[np.float64]
    used: NDArray[np.float64]
    memory_mib: NDArray[np.float64]
    lateness_ms: float


def play(server: str, venue: Venue, arms: Sequence[Arm], load: Load, tell: Callable[[str], None]) -> list[Played]:
    """Runs all arms at once; in the order in which they are given.

    Raises:
        SourceError: a server, a generator or Prometheus ended by itself.
    """
    seconds = float(sum(load.seconds))
    intervals = int(seconds // STEP_S)
    with Guard() as guard, ExitStack() as stack:
        groups = ControlGroups(guard, find_hierarchy())
        home = prepared(guard, server)
        services = [stack.enter_context(venue.service(guard, groups, home, server, f"{server}-{number}"))
                    for number, _ in enumerate(arms)]
        prometheus = monitored(guard, services, SCRAPE_S)
        files = [_controller_file(guard.folder, one, prometheus.url, venue) for one in services]
        loops = [_loop(arm, venue.actuator(one, guard.folder / "limits"), file, guard.folder / f"{one.name}-controller")
                 for arm, one, file in zip(arms, services, files, strict=True)]
        start = time.monotonic() + 3.0
        for one in services:
            one.start_load(load, lead_s=start - time.monotonic())
        unix = time.time() + start - time.monotonic()
        records: list[list[ControlStep]] = [[] for _ in arms]
        stopped = threading.Event()
        threads = [threading.Thread(target=_steps, args=(loop, start, intervals - 1, stopped, record), daemon=True)
                   for loop, record in zip(loops, records, strict=True)]
        try:
            for thread in threads:
                thread.start()
            while time.monotonic() < start + seconds:
                time.sleep(min(30.0, max(0.0, start + seconds - time.monotonic())))
                for one in services:
                    one.require_alive()
                tell(f"{time.monotonic() - start:.0f} of {seconds:.0f} s")
        finally:
            stopped.set()
        for thread in threads:
            thread.join()
        return [_played(arm.name, one, prometheus, record, unix, intervals)
                for arm, one, record in zip(arms, services, records, strict=True)]


def _controller_file(folder: Path, service: LiveService, url: str, venue: Venue) -> ControllerFile:
    """As an operator writes it."""
    import yaml

    path = folder / f"{service.name}.yaml"
    path.write_text(yaml.safe_dump({
        "prometheus": url, "timeout_s": 3, "newest": newest(service.name), "fresh_s": 5,
        "signals": signals(service.name), "fixed": {"io_utilization": 0, "network_utilization": 0},
        "shield": {"hold": list(venue.held)},
        # a working set grows by page cache and kernel memory, which the environment lacks; memory is not set here
        "out_of_distribution": {"ignore": list(MEMORY_SIGNALS)}}))
    return read_controller_file(path)


def _loop(arm: Arm, actuator: Actuator, written: ControllerFile, folder: Path) -> ControlLoop:
    """Like serving/control/made.py, with a rule that may be another than the contract's."""
    assert arm.contract.driving is not None
    folder.mkdir()
    reader = PrometheusReader(written.prometheus, written.signals, written.fixed, written.timeout_s)
    parts = Parts(reader, arm.models, actuator, shield_of(arm.contract, written), arm.rule,
                  load_acting(arm.contract.driving.acting.module).observer(), lambda: "", f"arm {folder.name}")
    distribution = written.distribution if arm.checked else Distribution(margin=1e9)
    return ControlLoop(arm.contract, parts, Settings(written.deadline_s, written.hand_back_after, reader.fresh_s,
                                                     distribution), folder)


def _steps(loop: ControlLoop, start: float, steps: int, stopped: threading.Event, record: list[ControlStep]) -> None:
    """A step at the end of each interval but the last."""
    if not stopped.wait(max(0.0, start + STEP_S - time.monotonic())):
        run(loop, STEP_S, stopped, record.append, steps)


def _played(name: str, service: LiveService, prometheus: LivePrometheus, record: Sequence[ControlStep], unix: float,
            intervals: int) -> Played:
    result, end = service.result(), unix + intervals * STEP_S
    label = f'{{service="{service.name}"}}'
    quota, replicas, ready, memory = (
        _means(*prometheus.series(f"{metric}{label}", unix, end, _SAMPLE_S), unix, intervals)
        for metric in ("service_cpu_limit_cores", "service_replicas", "service_ready_replicas", "service_memory_bytes"))
    times, counted = prometheus.series(f"service_cpu_seconds_total{label}", unix, end, _SAMPLE_S)
    at_ends = np.interp(unix + STEP_S * np.arange(intervals + 1), times, counted)
    lateness = 1000.0 * (result.noticed - result.due)
    rate, p99, failed = _requests(result, intervals)
    return Played(name, tuple(record), rate, p99, failed, quota, replicas, ready, np.diff(at_ends) / STEP_S,
                  memory / 2**20, float(np.nanpercentile(lateness, 99)))


def _means(times: Sequence[float], values: Sequence[float], unix: float, intervals: int) -> NDArray[np.float64]:
    """(K,)."""
    number = ((np.array(times) - unix) // STEP_S).astype(int).clip(0, intervals - 1)
    return np.bincount(number, values, intervals) / np.maximum(np.bincount(number, minlength=intervals), 1)


def _requests(result: Result, intervals: int) -> NDArray[np.float64]:
    """Rate, 99th percentile and failed share of the requests that were due in each interval, (3, K)."""
    number, latency = (result.due // STEP_S).astype(int), result.latency_ms(TIMEOUT_S)
    failed = (result.status != ANSWERED)
    rows: list[tuple[float, float, float]] = []
    for interval in range(intervals):
        here = number == interval
        count = int(here.sum())
        rows.append((count / STEP_S, float(np.percentile(latency[here], 99)) if count else 0.0,
                     float(failed[here].mean()) if count else 0.0))
    return np.array(rows).T


def to_json(played: Played) -> dict[str, Any]:
    """As a result file keeps it; null: not known, such as a p99 where no request came through."""
    series = {name: [float(f"{value:.5g}") if np.isfinite(value) else None for value in getattr(played, name)]
              for name in ("rate", "p99_ms", "failed", "quota", "replicas", "ready", "used", "memory_mib")}
    return {"arm": played.name, **series, "lateness_ms": round(played.lateness_ms, 3)}


def steps_to_json(played: Played) -> list[dict[str, Any]]:
    """Who acted in each step and what came of it, as a result file keeps it."""
    return [{"actor": one.actor, "reason": one.reason, "failure": one.failure,
             "said": None if one.said is None else float(f"{one.said['target_cpu_limit_cores']:.5g}"),
             "set": None if one.done is None else float(f"{one.done['target_cpu_limit_cores']:.5g}"),
             "shield": [{"control": change.control, "reason": change.reason, "wanted": change.wanted,
                         "allowed": change.allowed} for change in one.changes],
             "outside": list(one.outside), "seconds": round(sum(one.took_s.values()), 4)} for one in played.steps]
