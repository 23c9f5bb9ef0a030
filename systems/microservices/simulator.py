"""Applications of services on a node each: services queue for the cores of their limits, requests for services.

A second: limits are set, which takes 2 ms (Table 3.5); each type of request comes by the services of its graph, whose
work memory's contention stretches; what something else in a container uses is missing to it, at most half; latencies
of a path add up (applications.py). A limit is a quota, spent in bursts: who comes after a burst waits for the kernel's
next period of a tenth of a second, and so does everyone where something else in the container uses the quota up
(queueing.py). A service gets all that its callers would send it, also where these are behind.

Symbols: N applications of S services, R types of requests; tensors (N, S) float32 unless stated.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from feature_store.errors import InputError
from models.control.contract.derived_signals import allotment, near_latency, relative_change
from models.control.contract.environment import Outcome
from models.control.contract.signals import Anchor
from models.control.simulation.queueing import latency_within_quota
from models.control.simulation.scaling import Scaling
from models.control.simulation.shared_cores import worked
from models.control.simulation.tensors import TENSORS, at_step
from systems.microservices import interface as law
from systems.microservices.applications import (
    APPLICATIONS,
    SCENARIOS,
    Episodes,
    Load,
    draw_episodes,
    end_to_end,
    known_applications,
)
from systems.microservices.interface import CONTROLS, FEATURES, SIGNALS, STEP_SECONDS

TIMEOUT_S = 2.0  # work that is left over beyond is given up: requests that are dropped
LATENCY_NOISE = 0.05  # assumed: of the logarithm of a percentile
FUTURE = 4  # seconds that the clairvoyant sees
_NAMES = tuple(signal.name for signal in SIGNALS)
_SCALING = Scaling(SIGNALS)


class State(NamedTuple):
    """step: number of the next; backlog: requests left over; missed: (N, 1) whether the objective was; seen: signal ->
    (N, S)."""

    episodes: Episodes
    step: int
    backlog: Tensor
    missed: Tensor
    seen: Mapping[str, Tensor]


class Microservices:
    """Implements `Environment` and `Grouped`: a group is the services of an application."""

    signals, features, controls = SIGNALS, FEATURES, CONTROLS
    hidden = ("memory share", "work of a request")
    anchors: Mapping[str, Anchor] = {}
    # missed, begins: seconds in which an objective end to end is missed, or missed anew; their ratio: how long it stays
    measures: Mapping[str, str] = {"limits": "share", "usage": "share", "dropped": "share", "missed": "share",
                                   "begins": "share", "worst_latency_over_objective": "1"}
    cost_unit, step_seconds, steps = "share of the node", STEP_SECONDS, 60
    scenarios: tuple[str, ...] = SCENARIOS

    def __init__(self, agents: int = 12) -> None:
        self.agents = agents

    @property
    def differentiable(self) -> "Microservices":
        """Itself: nothing is rounded."""
        return self

    def draw(self, split: str, count: int, steps: int, seed: int, scenario: str = "",
             applications: Sequence[int] | None = None) -> Episodes:
        """See `Environment` and applications.py."""
        if split not in APPLICATIONS:
            raise InputError(f"split: expected train or held_out, got {split!r}")
        random = np.random.default_rng([seed, split == "train", self.agents])
        numbers = random.permutation(count) if applications is None else np.asarray(applications)
        length = steps + 1 + FUTURE
        return draw_episodes(known_applications(split, self.agents), numbers % APPLICATIONS[split], length, random,
                             scenario, self._given(split, random, count, length))

    def _given(self, split: str, random: np.random.Generator, count: int, length: int) -> Load | None:
        """Node and load of episodes, where they are known; None: drawn, too."""
        return None

    def reset(self, episodes: Episodes) -> State:
        """After a second with the whole node divided by what services need: as it was deployed."""
        rate = self._rate(episodes, 0)
        demand = rate * episodes.applications.work_s
        shared = episodes.capacity - self.agents * law.LEAST_CORES
        cores = (law.LEAST_CORES + shared * demand / demand.sum(1, keepdim=True)).clamp(max=law.MOST_CORES)
        seen = {"cores": cores, "mean_demand_cores": demand, "rate_rps": rate}
        return self._after(State(episodes, 0, torch.zeros_like(cores), torch.zeros_like(cores[:, :1]), seen), cores)[0]

    def observe(self, state: State) -> Tensor:
        """See `Environment`."""
        seen = torch.stack([state.seen[name] for name in _NAMES], dim=2).reshape(-1, len(_NAMES))
        return _SCALING.clip(seen)

    def step(self, state: State, targets: Tensor) -> tuple[State, Outcome]:
        """See `Environment`. What came of an application is the mean over its services, `violated` their share."""
        (control,), present = self.controls, state.seen["cores"]
        cores = targets.reshape(present.shape).maximum((1 - control.most_down) * present).minimum(
            (1 + control.most_up) * present).clamp(control.low, control.high)
        after, dropped = self._after(state, cores)
        came = law.outcome(after.seen, TENSORS)
        of = {name: value.to(cores.dtype).mean(dim=1) for name, value in came.items()}
        over = after.seen["latency_ms"] / after.seen["most_latency_ms"]
        return after, Outcome(of["reward"], of["cost"], of["violation"], of["violated"], {
            "limits": of["cost"], "usage": after.seen["usage"].mean(dim=1), "dropped": dropped,
            "missed": after.missed[:, 0], "begins": (after.missed * (1.0 - state.missed))[:, 0],
            "worst_latency_over_objective": over[:, 0]}, came["violation"])

    def hidden_parameters(self, state: State) -> Tensor:
        """See `Environment`."""
        known = state.episodes.applications
        return torch.stack([5.0 * (known.memory_share.mean(1) - 0.35), (known.work_s.mean(1) / 4e-3).log()], dim=1)

    def coming_load(self, state: State) -> Tensor:
        """See `Environment`: of all types, in cores."""
        known = state.episodes.applications
        coming = [(self._rate(state.episodes, at) * known.work_s).sum(1) for at in range(state.step,
                                                                                       state.step + FUTURE)]
        return (torch.stack(coming, dim=1) / state.seen["demand_cores"].sum(1, keepdim=True)).log()

    def _rate(self, episodes: Episodes, step: int) -> Tensor:
        """Requests a second that come by each service."""
        rate: Tensor = (at_step(episodes.rate_rps, step)[:, None] @ episodes.applications.visits)[:, 0]
        return rate.clamp(2.0**-6, 2.0**16)

    def _after(self, state: State, cores: Tensor) -> tuple[State, Tensor]:
        """One second at limits that are set, and the share of requests that is dropped, (N,)."""
        episodes, before, at = state.episodes, state.seen, state.step
        known, rate, types = episodes.applications, self._rate(episodes, at), at_step(episodes.rate_rps, at)
        work_s = known.work_s * (1.0 + known.memory_share * (at_step(episodes.stretch, at) - 1.0))
        wished = at_step(episodes.stolen_cores, at)
        stolen = wished.minimum(0.5 * cores)
        has, served, left = worked(rate, state.backlog, work_s, cores - stolen, episodes.capacity, STEP_SECONDS,
                                   TIMEOUT_S)
        median, p99 = latency_within_quota(
            rate, has, cores, wished, work_s, known.arrival_cv2, known.service_cv2,
            torch.maximum(left, state.backlog) * work_s / has, STEP_SECONDS)
        waits = known.waits_s + at_step(episodes.delay_s, at)
        noise = (LATENCY_NOISE * at_step(episodes.noise, at)).exp()
        whole = end_to_end(median + waits, p99 + waits, known.paths)
        latency = 1e3 * whole.p99_s * noise[:, self.agents:]
        worst = (latency / episodes.most_latency_ms).argmax(dim=1, keepdim=True)

        def of_worst(values: Tensor) -> Tensor:
            return values.take_along_dim(worst, dim=1).expand_as(cores)

        latency_ms, most = of_worst(latency).clamp(law.LEAST_MS, law.MOST_MS), of_worst(episodes.most_latency_ms)
        path = whole.path.take_along_dim(worst[..., None], dim=1)[:, 0]
        # Pearson's correlation of T_i with T_CP, a sum of such that do not depend on each other (Algorithm 3.2)
        importance = (path.sqrt() * (p99 - median) / of_worst(whole.spread_s)).clamp(0.0, 1.0)
        own_ms = 1e3 * (p99 + waits) * noise[:, :self.agents]
        used = (served * work_s + wished).minimum(cores)
        demand = rate * used / served
        mean_demand = before["mean_demand_cores"].lerp(demand, law.MEAN_WEIGHT)
        all_cores, near = cores.sum(1, keepdim=True).expand_as(cores), near_latency(latency_ms, most, TENSORS)
        missed = (latency_ms > most)[:, :1].to(cores.dtype)
        seen = {"cores": cores, "usage": used / cores, "demand_cores": demand, "mean_demand_cores": mean_demand,
                "rate_rps": rate, "rate_change": relative_change(rate, before["rate_rps"], TENSORS),
                "latency_ms": latency_ms, "most_latency_ms": most, "near_latency_ms": near,
                "pressing_latency_ms": law.pressing_latency(near, most, importance, own_ms, TENSORS),
                "type_share": of_worst(types / types.sum(1, keepdim=True)), "importance": importance,
                "congestion_intensity": (own_ms / (1e3 * (median + waits))).clamp(min=1.0), "own_latency_ms": own_ms,
                "usual_latency_ms": before.get("usual_latency_ms", own_ms).lerp(own_ms, law.USUAL_WEIGHT),
                "allotment_cores": allotment(cores, all_cores, episodes.capacity, mean_demand / mean_demand.sum(
                    1, keepdim=True), TENSORS),
                "fair_cores": (episodes.capacity / self.agents).expand_as(cores),
                "node_limits": all_cores / episodes.capacity}
        dropped = (((rate - served) * STEP_SECONDS + state.backlog - left) / (rate * STEP_SECONDS)).clamp(0.0, 1.0)
        return State(episodes, at + 1, left, missed, seen), dropped.amax(dim=1)
