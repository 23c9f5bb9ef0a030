"""Applications of services that call each other, and the load and anomalies that they meet.

Each is a row of a fixed table of random numbers. Drawn: the graph (graphs.py); core seconds of a request, log-normal
around 2 ms (0.1 to 40 ms), waits as long again at most, for each request's time in a service of the benchmarks of
section 3.3.1 is some milliseconds; three types of requests (the first comes by all services, the others by parts of
them); objectives 1.4 to 2.2 times the 99th percentile of a quiet application. All of it assumed but for the graphs, and
wide; fitting.py makes an application of a recording instead.

Anomalies are those of Table 3.4 by what they do to a service: more load (of the whole application), cores that
something else in its container uses, time that its memory needs (cache, bandwidth), time that it waits (disk, network).
Each lasts some seconds, one or several at once.

Symbols: N applications of S services, R types of requests, K paths of each, T steps, P applications of a split; tensors
float32 unless stated.
"""

from dataclasses import dataclass, fields, replace
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from feature_store.errors import InputError
from models.control.simulation.made_load import made_load
from models.control.simulation.queueing import latency_quantiles
from models.control.simulation.tensors import float32
from systems.microservices.graphs import drawn_graph, part_of, paths_of, visits_of
from systems.microservices.interface import STEP_SECONDS

APPLICATIONS = {"train": 300, "held_out": 100}
TYPES, PATHS = 3, 8
SCENARIOS = ("", "calm", "many")
_BEGINS = {"calm": 0.0, "many": 0.33}  # that another anomaly begins in a second (thesis, section 3.3.1: 0.33); else:
_SELDOM = 0.05
KINDS = ("load", "cpu", "memory", "wait")
_SHORTEST_S, _LONGEST_S = 4, 16
_SMALL, _LARGE = 1.0, 6.0  # nodes, cores a service; assumed


@dataclass(frozen=True)
class Applications:
    """Many applications; shapes of one."""

    work_s: Tensor  # (S,) core seconds of a request at a service
    memory_share: Tensor  # (S,) of them, time that contention for memory stretches
    waits_s: Tensor  # (S,) of a request, without a core
    arrival_cv2: Tensor  # (S,) squared coefficients of variation of the times between requests
    service_cv2: Tensor  # (S,) and of their service
    visits: Tensor  # (R, S) that a request makes of each service
    paths: Tensor  # (R, K, S) that it waits for, see graphs.py
    mix: Tensor  # (R,) shares of the types
    quiet_ms: Tensor  # (R,) end-to-end 99th percentile with cores enough
    own: Tensor  # (3 + R,) uniform: size and load of its node, how fast that changes, how tight each objective is

    def of(self, numbers: Tensor) -> "Applications":
        """Those of some numbers."""
        return Applications(**{one.name: getattr(self, one.name)[numbers] for one in fields(self)})


@dataclass(frozen=True)
class Episodes:
    """Applications and all that is random of them."""

    applications: Applications
    rate_rps: Tensor  # (T, N, R)
    stolen_cores: Tensor  # (T, N, S) that something else uses, in the container of a service
    stretch: Tensor  # (T, N, S) of memory's part, >= 1
    delay_s: Tensor  # (T, N, S) further waits of a request
    most_latency_ms: Tensor  # (N, R)
    noise: Tensor  # (T, N, S + R) standard normal, of latencies
    capacity: Tensor  # (N, 1) cores of the node

    def take(self, index: Tensor) -> "Episodes":
        """Those at some positions."""
        index = torch.as_tensor(index)
        by_step = {name: getattr(self, name)[:, index] for name in ("rate_rps", "stolen_cores", "stretch", "delay_s",
                                                                   "noise")}
        return replace(self, applications=self.applications.of(index), **by_step,
                       most_latency_ms=self.most_latency_ms[index], capacity=self.capacity[index])


@dataclass(frozen=True)
class Load:
    """cores: (N,) of each node; busy: (N,) share of them that the mean load keeps busy; load: (T, N) over its mean, of
    all types together."""

    cores: NDArray[np.float64]
    busy: NDArray[np.float64]
    load: NDArray[np.float64]


@dataclass(frozen=True)
class EndToEnd:
    """p99_s: (N, R); path: (N, R, S) the critical one of each type; spread_s: (N, R) of its latency."""

    p99_s: Tensor
    path: Tensor
    spread_s: Tensor


def end_to_end(median_s: Tensor, p99_s: Tensor, paths: Tensor) -> EndToEnd:
    """Of sojourn times (N, S): medians add up along a path, and the spreads above them, which are seldom large at once,
    as squares; the critical path is the one whose 99th percentile is the largest (Algorithm 3.1)."""
    middle, square = (paths @ part[:, None, :, None] for part in (median_s, (p99_s - median_s).square()))
    spread = (square[..., 0] + 1e-12).sqrt()
    p99, critical = (middle[..., 0] + spread).max(dim=2)
    path = paths.take_along_dim(critical[..., None, None], dim=2)[..., 0, :]
    return EndToEnd(p99, path, spread.take_along_dim(critical[..., None], dim=2)[..., 0])


def stacked(work_s: NDArray[np.float64], memory: NDArray[np.float64], waits_s: NDArray[np.float64],
            arrival_cv2: NDArray[np.float64], service_cv2: NDArray[np.float64], visits: NDArray[np.float64],
            paths: NDArray[np.float64], mix: NDArray[np.float64], *, first: int = 0) -> Applications:
    """(P, ...) each, as of `Applications`; what is quiet follows: a tenth of a request at a time, cores enough.

    first: number of the first of them among all applications, by which its `own` are drawn.
    """
    work, waits, arrival, service, each = map(float32, (work_s, waits_s, arrival_cv2, service_cv2, paths))
    median, p99 = latency_quantiles(0.1 / work, torch.full_like(work, 64.0), work, arrival, service, 0.0 * work,
                                    STEP_SECONDS)
    quiet = 1e3 * end_to_end(median + waits, p99 + waits, each).p99_s
    own = np.random.default_rng(43).random((first + len(mix), 3 + mix.shape[1]))[first:]
    return Applications(work, float32(memory), waits, arrival, service, float32(visits), each, float32(mix), quiet,
                        torch.from_numpy(own))


@cache
def known_applications(split: str, services: int) -> Applications:
    """Of a split."""
    first, count = (0, APPLICATIONS["train"]) if split == "train" else (APPLICATIONS["train"], APPLICATIONS[split])
    drawn = [_drawn(np.random.default_rng([41, first + number, services]), services) for number in range(count)]
    return stacked(*(np.stack(parts) for parts in zip(*drawn, strict=True)), first=first)


def _drawn(random: np.random.Generator, services: int) -> tuple[NDArray[np.float64], ...]:
    work = 2e-3 * np.exp(1.2 * random.standard_normal(services)).clip(0.05, 20.0)
    waits, memory = work * random.random(services) ** 2, 0.7 * random.random(services)
    graph = drawn_graph(random, services)
    graphs = [graph, *(part_of(graph, random, 0.7) for _ in range(TYPES - 1))]
    mix = 0.15 + random.random(TYPES)
    return (work, memory, waits, 1.0 + random.random(services), 0.1 + 0.9 * random.random(services),
            np.stack([visits_of(one, services) for one in graphs]),
            np.stack([paths_of(one, services, work + waits, PATHS) for one in graphs]), mix / mix.sum())


def draw_episodes(known: Applications, chosen: NDArray[np.int64], steps: int, random: np.random.Generator,
                  scenario: str, given: Load | None = None) -> Episodes:
    """Episodes of some applications.

    Args:
        known: applications, (P, ...).
        chosen: (N,) numbers of them.
        scenario: "" ordinary load and some anomalies; calm: none of these; many: as often as in section 3.3.1.
        given: load and node; None: drawn.

    Raises:
        InputError: an unknown scenario.
    """
    if scenario not in SCENARIOS:
        raise InputError(f"scenario: expected one of {', '.join(SCENARIOS[1:])}, got {scenario!r}")
    applications, count = known.of(torch.from_numpy(chosen)), len(chosen)
    services, types = applications.work_s.shape[1], applications.mix.shape[1]
    own = applications.own.numpy()
    if given is None:
        tide = made_load(random, steps, count, 60.0 * 6.0 ** own[:, 2], 0.01, 8.0)
        given = Load(services * _SMALL * (_LARGE / _SMALL) ** own[:, 0], 0.1 + 0.2 * own[:, 1], np.exp(0.7 * tide))
    core_s = (applications.visits @ applications.work_s[:, :, None])[..., 0]  # of a request of each type
    mean_rps = float32(given.busy * given.cores)[:, None] * applications.mix / (core_s * applications.mix).sum(
        1, keepdim=True)
    each = made_load(random, steps, count * types, np.repeat(60.0 * 6.0 ** own[:, 2], types), 0.01, 8.0)
    load = float32(given.load)[:, :, None] * float32(np.exp(0.4 * each.reshape(steps, count, types)))
    mean_cores = (mean_rps[:, None] @ applications.visits)[:, 0] * applications.work_s
    most = float32(1.4 * (2.2 / 1.4) ** own[:, 3:]) * applications.quiet_ms
    effects = _anomalies(random, steps, count, services, _BEGINS.get(scenario, _SELDOM))
    return Episodes(
        applications, mean_rps * load * (1.0 + effects[0].sum(dim=2, keepdim=True)), 1.5 * effects[1] * mean_cores,
        1.0 + 3.0 * effects[2], 2e-4 * effects[3] * most.amin(1, keepdim=True), most,
        float32(random.standard_normal((steps, count, services + types))), float32(given.cores)[:, None])


def _anomalies(random: np.random.Generator, steps: int, count: int, services: int, begins: float) -> list[Tensor]:
    """By kind, (T, N, S) intensities of what is there, 0 to 1: of several of a kind at a service the largest."""
    found = np.zeros((len(KINDS), steps, count, services), dtype=np.float32)
    step, row = np.nonzero(random.random((steps, count)) < begins)
    lasts = random.integers(_SHORTEST_S, _LONGEST_S + 1, len(row))
    kind, place = random.integers(len(KINDS), size=len(row)), random.integers(services, size=len(row))
    intensity = random.random(len(row)).astype(np.float32)
    for after in range(_LONGEST_S):
        there = (after < lasts) & (step + after < steps)
        np.maximum.at(found, (kind[there], step[there] + after, row[there], place[there]), intensity[there])
    return list(torch.from_numpy(found))
