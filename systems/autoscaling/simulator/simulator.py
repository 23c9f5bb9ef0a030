"""The environment of autoscaling: N applications, one tensor operation a piece of physics, no loop over them.

State, action and reward are those of Table 5.1 and section 5.2.2 of the thesis:
r = alpha SP |R| + (1 - alpha) sum of RU over R = {CPU, memory}. What is observed is interface.py; what makes it hard
are switches (`Physics`): replicas serve after their start-up, metrics are late and noisy, neighbours take capacity.

A step of 15 s: targets are clipped; replicas start or stop; requests queue for the servers; what exceeds
capacity waits (backlog) until it times out; memory pressure slows down and, above the limit, kills replicas.

Symbols: N applications; tensors (N,) float32 unless stated.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from feature_store.errors import InputError
from models.control.contract.environment import Outcome
from models.control.contract.signals import Anchor, Control, Feature, Signal, rounded_up
from models.control.simulation.queueing import p99_of, waiting_of
from models.control.simulation.tensors import TENSORS
from systems.autoscaling import equations as law
from systems.autoscaling.interface import (
    ANCHORS,
    CONTROLS,
    FEATURES,
    SIGNALS,
    STEP_SECONDS,
)
from systems.autoscaling.observer import MEANS, PEAK_S, RAISED
from systems.autoscaling.simulator.applications import Applications, generate, numbers_of
from systems.autoscaling.simulator.arrivals import made_traces, split_traces
from systems.autoscaling.simulator.episodes import SCENARIOS, Episodes, draw_episodes

TIMEOUT_S = 10.0
_PRESSURE, _SLOWDOWN = 0.9, 4.0  # share of the limit from which reclaiming slows down; times slower at the limit
_KILL_WIDTH = 0.1  # at 1 + this share of the limit all replicas are killed within a step
_STARTING = 6  # steps: the longest start-up is 90 s
_LONG_AGO_S = 3600.0  # since replicas were raised, where an episode begins
_LEAST_READY = 0.05  # replicas, so that nothing is divided by 0
_FUTURE = 6  # steps that the clairvoyant sees: 90 s
_MEMORY_PEAK = STEP_SECONDS / PEAK_S


@dataclass(frozen=True)
class Physics:
    """What is switched on.

    Attributes:
        start_up: replicas serve only after their start-up.
        late_metrics: metrics are those of the interval before the last one.
        noisy_metrics: and noisy.
        neighbours: take capacity away.
        whole_replicas: replicas are rounded up; without it a step can be differentiated.
        alpha: weight of the objective in the paper's reward, in [0, 1].
    """

    start_up: bool = True
    late_metrics: bool = True
    noisy_metrics: bool = True
    neighbours: bool = True
    whole_replicas: bool = True
    alpha: float = law.ALPHA


class Metrics(NamedTuple):
    """What is measured of an interval, before noise."""

    cpu: Tensor
    memory: Tensor
    io: Tensor
    network: Tensor
    p99_ms: Tensor
    served: Tensor
    rate: Tensor
    cpu_cores: Tensor
    memory_mib: Tensor


class Constants(NamedTuple):
    """What follows from the applications alone, worked out once.

    Attributes:
        variability: mean of the squared coefficients of variation of arrivals and of service.
        p99_factor: `service_p99_factor`.
        delays: (_STARTING, N) which share of new replicas serves after how many steps: the nearest two whole numbers.
        unlimited: cores that a replica makes of as many as it can use, without a limit.
    """

    variability: Tensor
    p99_factor: Tensor
    delays: Tensor
    unlimited: Tensor


class State(NamedTuple):
    """At the beginning of a step.

    Attributes:
        constants: of the applications.
        step: number of the step in the episodes.
        limit: CPU limit of a replica, cores.
        memory: memory limit of a replica, MiB.
        replicas: asked for.
        raised_s: since more of them were asked for, s.
        ready: replicas that serve.
        starting: (_STARTING, N) replicas that will serve after 1, 2, ... steps.
        backlog: requests.
        shown: metrics as they are observed.
        latest: of the last interval.
        means: (3, N) exponential means of the observed rate over 1, 5, 25 minutes, 1/s.
        peak: of the observed rate, 1/s.
    """

    episodes: Episodes
    constants: Constants
    step: int
    limit: Tensor
    memory: Tensor
    replicas: Tensor
    raised_s: Tensor
    ready: Tensor
    starting: Tensor
    backlog: Tensor
    shown: Metrics
    latest: Metrics
    means: Tensor
    peak: Tensor


_MEASURES = {"cores": "cores", "memory_gib": "GiB", "replicas": "count", "p99_over_slo": "1",
             "cpu_utilization": "share", "memory_utilization": "share",
             "violated_requests": "1/s", "requests": "1/s", "load_cores": "cores",
             "starts": "count", "stops": "count", "killed": "count", "log_latency": "1", "p99_ms": "ms",
             "backlog": "count"}


class Autoscaling:
    """Implements `Environment`.

    Args:
        applications: the pool; None: the thousand of applications.py.
        traces: (F, M) shapes of load with mean 1; None: made ones.
        physics: what is switched on.
        steps: T of training, 100 in the thesis.
        held_out: how many of the pool, the last ones, judge.
    """

    signals: tuple[Signal, ...] = SIGNALS
    controls: tuple[Control, ...] = CONTROLS
    features: tuple[Feature, ...] = FEATURES
    anchors: Mapping[str, Anchor] = ANCHORS
    hidden: tuple[str, ...] = ("log CPU time a request", "service variation", "arrival variation", "log fixed latency",
                               "log workers", "contention", "log memory at rest", "log memory a request",
                               "start-up", "log speed", "stolen share", "saved quota")
    measures: Mapping[str, str] = _MEASURES
    cost_unit = "cores a core of mean load"
    step_seconds = STEP_SECONDS
    scenarios = SCENARIOS

    def __init__(self, applications: Applications | None = None, traces: NDArray[np.float64] | None = None,
                 physics: Physics = Physics(), steps: int = 100, held_out: int = 200) -> None:
        self.applications = generate() if applications is None else applications
        self.physics = physics
        self.steps = steps
        self._held_out = held_out
        shapes = made_traces(400, seed=0) if traces is None else traces
        self._traces = {split: torch.tensor(split_traces(shapes, split), dtype=torch.float32)
                        for split in ("train", "held_out")}
        self._noise = torch.tensor([[0.10], [0.03], [0.03]])  # of latency, utilisations, rates
        self._weights = torch.exp(-STEP_SECONDS / torch.tensor([[time] for time in MEANS.values()]))
        self._low = torch.tensor([[signal.low] for signal in SIGNALS])
        self._high = torch.tensor([[signal.high] for signal in SIGNALS])
        self._device = torch.device("cpu")

    def on(self, device: str) -> "Autoscaling":
        """The same stepped on a device. What is random is drawn on the CPU, so that draws are equal on all of them."""
        other = object.__new__(type(self))
        moved = {name: getattr(self, name).to(device) for name in ("_noise", "_weights", "_low", "_high")}
        other.__dict__ = {**self.__dict__, **moved, "_device": torch.device(device)}
        return other

    def with_physics(self, physics: Physics) -> "Autoscaling":
        """The same applications and traces under other physics."""
        other = object.__new__(type(self))
        other.__dict__ = {**self.__dict__, "physics": physics}
        return other

    def with_controls(self, controls: tuple[Control, ...]) -> "Autoscaling":
        """The same under other limits of the controls."""
        other = object.__new__(type(self))
        other.__dict__ = {**self.__dict__, "controls": controls}
        return other

    @property
    def differentiable(self) -> "Autoscaling":
        """With replicas that are no whole numbers."""
        return self.with_physics(replace(self.physics, whole_replicas=False))

    def draw(self, split: str, count: int, steps: int, seed: int, scenario: str = "",
             applications: Sequence[int] | None = None) -> Episodes:
        """See `Environment.draw`."""
        if split not in self._traces:
            raise InputError(f"split: expected train or held_out, got {split!r}")
        numbers = numbers_of(split, len(self.applications), self._held_out)
        with torch.device("cpu"):
            drawn = draw_episodes(self.applications, numbers, self._traces[split], count, steps, seed, scenario,
                                  applications, STEP_SECONDS)
        return drawn.to(self._device)

    def reset(self, episodes: Episodes) -> State:
        """Replicas of one or two cores for the first load, as an operator would ask for; then one interval passes."""
        a = episodes.applications
        needed = episodes.rate[0] * episodes.cpu_s[0] / a.speed * episodes.start
        limit = a.workers.clamp(max=2.0)
        replicas = (needed / limit).clamp(1.0, 64.0).ceil()
        memory = (2.0 * a.memory_mib + 8.0 * a.request_mib).clamp(32.0, 32768.0)
        zero = torch.zeros_like(needed)
        nothing = Metrics(*[zero] * len(Metrics._fields))
        rate = episodes.rate[0]
        state = State(episodes, _constants(a), -1, limit, memory, replicas, torch.full_like(needed, _LONG_AGO_S),
                      replicas, zero.expand(_STARTING, -1).clone(), zero, nothing, nothing, rate.expand(3, -1), rate)
        state, _ = self._pass(state, limit, memory, replicas)
        return state._replace(shown=state.latest, means=state.latest.rate.expand(3, -1).clone(),
                              peak=state.latest.rate.clone())

    def observe(self, state: State) -> Tensor:
        """(N, 19): interface.py."""
        shown, a = state.shown, state.episodes.applications
        # signals one after the other in memory: five times as fast as applications one after the other
        rows = torch.stack([
            state.limit, state.memory, state.replicas, state.raised_s, state.ready, shown.cpu, shown.memory,
            shown.cpu_cores, shown.memory_mib, shown.io, shown.network, shown.p99_ms, a.slo_s * 1e3, shown.served,
            shown.rate, *state.means, state.peak])
        return rows.maximum(self._low).minimum(self._high).T

    def step(self, state: State, targets: Tensor) -> tuple[State, Outcome]:
        """See `Environment.step`."""
        limit, memory, replicas = targets.unbind(dim=1)
        cpu_limit, memory_limit, count = self.controls
        limit = _bounded(limit, state.limit, cpu_limit)
        memory = _bounded(memory, state.memory, memory_limit)
        if self.physics.whole_replicas:
            replicas = rounded_up(replicas, torch.ceil)
        replicas = _bounded(replicas, state.replicas, count, self.physics.whole_replicas)
        return self._pass(state, limit, memory, replicas)

    def hidden_parameters(self, state: State) -> Tensor:
        """(N, 12): `hidden`, about -2 to 2."""
        a = state.episodes.applications
        columns = [(a.cpu_s.log() + 3.5) / 1.5, a.service_cv2 - 0.7, a.arrival_cv2.log(), (a.fixed_s.log() + 4.5) / 1.2,
                   a.workers.log() - 1.2, (a.contention - 0.06) * 20, a.memory_mib.log() - 5.0,
                   a.request_mib.log() - 1.0, a.startup_s / 30.0 - 1.0, a.speed.log() * 4, a.stolen * 8 - 1.0,
                   a.burst_s * 40.0 - 1.5]
        return torch.stack(columns, dim=1).clamp(-4.0, 4.0)

    def coming_load(self, state: State) -> Tensor:
        """(N, 6): log of the true rate of the next six steps over the rate that is shown."""
        rate = state.episodes.rate
        steps = [rate[min(state.step + 1 + ahead, len(rate) - 1)] for ahead in range(_FUTURE)]
        return (torch.stack(steps, dim=1) / state.shown.rate.clamp(min=0.0625)[:, None]).log().clamp(-3.0, 3.0)

    def _pass(self, state: State, limit: Tensor, memory: Tensor, replicas: Tensor) -> tuple[State, Outcome]:
        """One interval passes with these limits and replicas."""
        episodes, at = state.episodes, min(state.step + 1, state.episodes.steps - 1)
        a, rate, cpu_s = episodes.applications, episodes.rate[at], episodes.cpu_s[at]
        ready, starting, starts, stops = self._replicas(state, replicas)
        # what a core gives: its speed, less what neighbours take
        speed = a.speed * (1.0 - episodes.stolen[at]) if self.physics.neighbours else a.speed
        cores = limit.minimum(a.workers)
        whole = cores.clamp(min=1.0)
        cores_of_whole = whole / (1.0 + a.contention * (whole - 1.0))
        share = cores.clamp(max=1.0)  # of a core that one request gets
        serving = ready.clamp(min=_LEAST_READY)
        # memory of what is worked on; above the limit replicas are killed, near it they reclaim and are slow
        busy = (rate * cpu_s / (speed * share * serving)).minimum(a.workers) + (state.backlog / serving).clamp(max=32.0)
        used = (a.memory_mib + a.request_mib * busy) / memory
        slower = 1.0 + (_SLOWDOWN - 1.0) * ((used - _PRESSURE) / (1.0 - _PRESSURE)).clamp(0.0, 1.0)
        service = cpu_s * slower / (speed * share)
        servers = serving * cores_of_whole
        capacity = servers / service
        work = state.backlog + rate * STEP_SECONDS
        left = (work - capacity * STEP_SECONDS).clamp(min=0.0)
        backlog = left.minimum(TIMEOUT_S * capacity)
        longest = (0.99 * state.backlog.maximum(backlog) + 0.01 * state.backlog.minimum(backlog)) / capacity
        lost = (left - backlog) / (rate * STEP_SECONDS).clamp(min=1e-3)
        p99 = a.fixed_s + self._p99(state.constants, a, rate, servers, service, longest, serving,
                                    cpu_s * slower / speed)
        killed = ((used - 1.0) / _KILL_WIDTH).clamp(0.0, 1.0) * ready
        lost = (lost + killed / serving * 0.5).clamp(max=1.0)
        done = (work - left) / STEP_SECONDS
        cpu_used = done * cpu_s / a.speed * slower
        allocated = replicas * limit
        metrics = Metrics(cpu_used / (serving * limit), used.clamp(max=1.2), (done * a.io).clamp(max=1.0),
                          (done * a.network).clamp(max=1.0), p99 * 1e3, 1.0 - lost, rate, cpu_used,
                          used.clamp(max=1.2) * memory)
        outcome = self._outcome(a, metrics, rate, cpu_s, allocated, replicas, memory, p99, lost, starts, stops, killed,
                                backlog, used)
        ready, starting = self._kill(state.constants.delays, ready, starting, killed)
        return self._measured(state, at, metrics)._replace(
            step=state.step + 1, limit=limit, memory=memory, replicas=replicas, ready=ready, starting=starting,
            raised_s=torch.where(replicas > state.replicas * RAISED, STEP_SECONDS, state.raised_s + STEP_SECONDS),
            backlog=backlog), outcome

    @staticmethod
    def _p99(constants: Constants, a: Applications, rate: Tensor, servers: Tensor, service: Tensor, backlog_s: Tensor,
             serving: Tensor, unlimited_service: Tensor) -> Tensor:
        """99th percentile of wait and service, s.

        A limit does not slow a replica down: it runs at full speed until the quota of a period has run out. So a queue
        waits as long as on the slow server, less what saved quota is good for, but never less than without a limit
        (recorded_law.py).
        """
        spread, factor = constants.variability, constants.p99_factor
        slow = p99_of(waiting_of(rate, servers, service, spread, STEP_SECONDS), service, factor, backlog_s)
        fast = p99_of(waiting_of(rate, serving * constants.unlimited, unlimited_service, spread, STEP_SECONDS),
                      unlimited_service, factor, torch.zeros(()))
        return fast.maximum(slow - a.burst_s)

    def _replicas(self, state: State, replicas: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Replicas that serve in this interval, those that start, and how many were started and stopped."""
        waiting = state.starting.sum(dim=0)
        change = replicas - state.ready - waiting
        added, removed = change.clamp(min=0.0), (-change).clamp(min=0.0)
        if not self.physics.start_up:
            return replicas, state.starting, added, removed
        cancelled = removed.minimum(waiting)  # those that do not serve yet are stopped first
        starting = state.starting * (1.0 - cancelled / waiting.clamp(min=1e-6))
        ready = state.ready - (removed - cancelled)
        starting = starting + added * state.constants.delays
        return ready + starting[0], torch.cat([starting[1:], torch.zeros_like(starting[:1])]), added, removed

    def _kill(self, delays: Tensor, ready: Tensor, starting: Tensor, killed: Tensor) -> tuple[Tensor, Tensor]:
        """Killed replicas start again."""
        if not self.physics.start_up:
            return ready, starting
        return ready - killed, starting + killed * delays

    def _measured(self, state: State, at: int, metrics: Metrics) -> State:
        """Metrics as they are shown: an interval late, with noise."""
        noise = state.episodes.noise[at]
        if self.physics.noisy_metrics:
            latency, use, rate = (noise * self._noise).exp()
            memory = use.sqrt()
            metrics = metrics._replace(
                p99_ms=metrics.p99_ms * latency, cpu=metrics.cpu * use, cpu_cores=metrics.cpu_cores * use,
                memory=metrics.memory * memory, memory_mib=metrics.memory_mib * memory, rate=metrics.rate * rate)
        shown = state.latest if self.physics.late_metrics else metrics
        means = torch.lerp(shown.rate.expand(3, -1), state.means, self._weights)
        peak = shown.rate.maximum(state.peak - _MEMORY_PEAK * (state.peak - shown.rate).clamp(min=0.0))
        return state._replace(shown=shown, latest=metrics, means=means, peak=peak)

    def _outcome(self, a: Applications, metrics: Metrics, rate: Tensor, cpu_s: Tensor, allocated: Tensor,
                 replicas: Tensor, memory: Tensor, p99: Tensor, lost: Tensor, starts: Tensor, stops: Tensor,
                 killed: Tensor, backlog: Tensor, used: Tensor) -> Outcome:
        over = p99 / a.slo_s
        came = law.outcome(over, metrics.cpu, metrics.memory, lost, self.physics.alpha, TENSORS)
        violated, gib = came["violated"].float(), replicas * memory / 1024.0
        measures = {"cores": allocated, "memory_gib": gib, "replicas": replicas, "p99_over_slo": over,
                    "cpu_utilization": metrics.cpu, "memory_utilization": metrics.memory,
                    "violated_requests": violated * rate, "requests": rate, "load_cores": rate * cpu_s / a.speed,
                    "starts": starts, "stops": stops, "killed": killed, "log_latency": over.log(),
                    "p99_ms": p99 * 1e3, "backlog": backlog}
        # the share of what is lost has no slope where all replicas are killed: the missing memory has
        violation = came["violation"] + used.log().clamp(min=0.0)
        return Outcome(came["reward"], law.cost(allocated, gib, a.load_cores), violation, violated, measures)


def _constants(a: Applications) -> Constants:
    steps = (a.startup_s / STEP_SECONDS).clamp(0.0, _STARTING - 1.0)
    return Constants(0.5 * (a.arrival_cv2 + a.service_cv2), a.p99_factor,
                     (1.0 - (steps - torch.arange(_STARTING, device=steps.device)[:, None]).abs()).clamp(min=0.0),
                     a.workers / (1.0 + a.contention * (a.workers - 1.0)))


def _bounded(target: Tensor, current: Tensor, control: Control, rounded: bool = False) -> Tensor:
    """A target within its bounds and rates of change; of whole numbers one may always be added or removed."""
    least, most = current * (1.0 - control.most_down), current * (1.0 + control.most_up)
    if control.whole:
        least, most = least.minimum(current - 1.0), most.maximum(current + 1.0)
    if rounded:
        least, most = least.ceil(), most.floor()
    return target.maximum(least).minimum(most).clamp(control.low, control.high)
