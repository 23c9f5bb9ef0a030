"""Anomalies: drawn from a seed, and injected into one service's control group or in front of it.

Kinds of thesis, Table 3.4, as far as one host can make them, and pauses. Each has an intensity in (0, 1]:

load               more requests to the whole application
cpu                stress-ng's processors' work in the group: it uses up the group's quota
memory_bandwidth   stress-ng's streams through memory in the group
cache              stress-ng's use of the last-level cache in the group
disk               the group may do hardly more reads and writes a second than it needs
network_delay      requests to the service come later
network_bandwidth  its answers get hardly more bytes a second than they need
pauses             the service's processes stand still again and again, as in a garbage collection

A stressor runs, and a service pauses, for a part of each half second that grows with the intensity.
"""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from recording.processes import Running
from systems.microservices.application.graph import ENTRY, SERVICES, needs, waited_for
from systems.microservices.application.running import Application
from systems.microservices.application.settings import ApplicationSettings

LOAD = "load"
# Kinds that leave less of the machine's processors for everyone: one of them at a time.
_STRESSORS = {
    "cpu": ("--cpu", "2", "--cpu-method", "matrixprod"),
    "memory_bandwidth": ("--stream", "2"),
    "cache": ("--cache", "2", "--cache-level", "3"),
}
_DEMANDING = {LOAD, *_STRESSORS}
KINDS = (LOAD, *_STRESSORS, "disk", "network_delay", "network_bandwidth", "pauses")

# Duration of an anomaly and of the pause before it, s.
_SHORTEST_S, _LONGEST_S = 6.0, 9.0
_LEAST_INTENSITY = 0.2
# How many come at once, and how often.
_TOGETHER = {1: 0.6, 2: 0.3, 3: 0.1}
_MOST_LOAD = 1.3  # requests on top of the usual ones at intensity 1, as a share of them
_DELAY_S = (0.01, 0.08)
_USE = (0.35, 1.0)  # of the disk and network that is left, at intensities 0 and 1
_CYCLE_S = 0.5
_STRESSED_S, _PAUSED_S = (0.15, 0.5), (0.05, 0.3)  # of each cycle
_LEAST_ANSWER_KIB = 4


@dataclass(frozen=True)
class Anomaly:
    """One anomaly as it is planned.

    Attributes:
        start_s: its start in the segment, s.
        end_s: its end, s.
        service: where; "" for the whole application.
        kind: one of KINDS.
        intensity: in (0, 1].
        alone: whether no other comes at the same time.
    """

    start_s: float
    end_s: float
    service: str
    kind: str
    intensity: float
    alone: bool


def places(kind: str) -> tuple[str, ...]:
    """Services that a kind can hit: some request waits for them, and of disk and network bandwidth they need some."""
    if kind == LOAD:
        return ("",)
    found = waited_for()
    if kind == "disk":
        return tuple(name for name in found if SERVICES[name].disk_operations)
    if kind == "network_bandwidth":
        found = tuple(name for name in found if any(
            work.answer_kib >= _LEAST_ANSWER_KIB for work in SERVICES[name].operations.values()))
    # What lies between nginx and the entry is in no one's spans: nginx has no SDK.
    return tuple(name for name in found if name != ENTRY) if kind.startswith("network") else found


def plan_segment(settings: ApplicationSettings, segment: int) -> list[Anomaly]:
    """The anomalies of a segment, in order; the same for the same settings."""
    random = np.random.default_rng((settings.seed, segment))
    planned: list[Anomaly] = []
    end_s = 0.0
    while True:
        start_s = end_s + random.uniform(_SHORTEST_S, _LONGEST_S)
        end_s = start_s + random.uniform(_SHORTEST_S, _LONGEST_S)
        if end_s > settings.segment_s - _SHORTEST_S:
            return planned
        together = _draw_together(random)
        planned += [
            Anomaly(start_s, end_s, service, kind, float(random.uniform(_LEAST_INTENSITY, 1.0)), len(together) == 1)
            for kind, service in together]


def _draw_together(random: np.random.Generator) -> list[tuple[str, str]]:
    count = int(random.choice(list(_TOGETHER), p=list(_TOGETHER.values())))
    while True:
        kinds = [str(kind) for kind in random.choice(KINDS, count, replace=False)]
        drawn = [(kind, str(random.choice(places(kind)))) for kind in kinds]
        if len({service for _, service in drawn}) == count and len(_DEMANDING & set(kinds)) <= 1:
            return drawn


def load_factor(anomalies: list[Anomaly], at_s: float) -> float:
    """Rate of requests at a moment, as a multiple of the usual one."""
    return 1.0 + _MOST_LOAD * sum(
        one.intensity for one in anomalies if one.kind == LOAD and one.start_s <= at_s < one.end_s)


def _between(limits: tuple[float, float], intensity: float) -> float:
    return limits[0] + intensity * (limits[1] - limits[0])


Step = tuple[float, Callable[[], object]]


def steps(application: Application, settings: ApplicationSettings, anomaly: Anomaly) -> Iterator[Step]:
    """What to do and when (s after the segment's start) to inject an anomaly and to take it away again."""
    name, intensity = anomaly.service, anomaly.intensity
    answers, operations = needs(settings.requests_per_s).get(name, (0.0, 0.0))
    start, end = anomaly.start_s, anomaly.end_s
    match anomaly.kind:
        case "disk":
            most = operations / _between(_USE, intensity)
            yield start, lambda: application.containers.limit_disk(name, most)
            yield end, lambda: application.containers.limit_disk(name, 0.0)
        case "network_delay":
            delay_s = _between(_DELAY_S, intensity)
            yield start, lambda: application.relay.slow(name, delay_s=delay_s)
            yield end, lambda: application.relay.slow(name)
        case "network_bandwidth":
            most = answers / _between(_USE, intensity)
            yield start, lambda: application.relay.slow(name, bytes_per_s=most)
            yield end, lambda: application.relay.slow(name)
        case "pauses":
            session = application.running[name].session
            yield from _cycles(anomaly, _PAUSED_S, lambda: _signal(session, signal.SIGSTOP),
                               lambda: _signal(session, signal.SIGCONT))
        case kind if kind in _STRESSORS:
            stressor = _Stressor(application, anomaly)
            yield start, stressor.begin
            yield from _cycles(anomaly, _STRESSED_S, stressor.go_on, stressor.rest)
            yield end, stressor.end


def _cycles(anomaly: Anomaly, part_s: tuple[float, float], on: Callable[[], None], off: Callable[[], None]
            ) -> Iterator[Step]:
    for start_s in np.arange(anomaly.start_s, anomaly.end_s - _CYCLE_S, _CYCLE_S):
        yield float(start_s), on
        yield float(start_s) + _between(part_s, anomaly.intensity), off


def _signal(session: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(session, number)


class _Stressor:
    """stress-ng in a service's control group."""

    def __init__(self, application: Application, anomaly: Anomaly) -> None:
        self._application, self._anomaly = application, anomaly
        self._running: Running | None = None

    def begin(self) -> None:
        command = ["stress-ng", "--quiet", *_STRESSORS[self._anomaly.kind]]
        self._running = self._application.start_beside(self._anomaly.service, command)

    def go_on(self) -> None:
        self._send(signal.SIGCONT)

    def rest(self) -> None:
        self._send(signal.SIGSTOP)

    def end(self) -> None:
        if self._running is not None:
            self._application.stop_beside(self._running)

    def _send(self, number: int) -> None:
        if self._running is not None:
            _signal(self._running.session, number)
