"""Functions on a cluster: each queues for the cores of its limit, all share cores and memory bandwidth.

An interval: limits are set; what grew serves after a cold start; requests take work of a core, whose memory part is
stretched where all together move more than the bandwidth (of the interval before), and queue; where more cores would be
busy than there are, each has its part of them. Containers are spread evenly over the nodes,
so that the cluster is one pool of each resource.

Symbols: N clusters of A functions, R = N A rows; tensors (R,) float32 unless stated.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from models.control.contract.derived_signals import allotment, near_latency, relative_change
from models.control.contract.environment import Outcome
from models.control.contract.signals import Anchor
from models.control.simulation.queueing import p99_latency
from models.control.simulation.scaling import Scaling
from models.control.simulation.shared_cores import worked
from models.control.simulation.tensors import TENSORS, at_step
from systems.shared_cluster import interface as law
from systems.shared_cluster.functions import SCENARIOS, Clusters, Functions, draw_clusters
from systems.shared_cluster.interface import CONTROLS, FEATURES, SIGNALS, STEP_SECONDS

COLD_START_S = 2.0  # of a container with its runtime, assumed
TIMEOUT_S = 30.0  # work that is left over beyond is given up
LATENCY_NOISE = 0.03  # assumed: of the logarithm of a percentile
FUTURE = 4  # intervals that the clairvoyant sees
_NAMES = tuple(signal.name for signal in SIGNALS)
_SCALING = Scaling(SIGNALS)


class State(NamedTuple):
    """step: number of the next; stretch: (N,) of memory's part; backlog: requests left over; change: share by which the
    limit changed; seen: signal -> (R,)."""

    clusters: Clusters
    step: int
    stretch: Tensor
    backlog: Tensor
    change: Tensor
    seen: Mapping[str, Tensor]


class SharedCluster:
    """Implements `Environment` and `Grouped`."""

    signals, features, controls = SIGNALS, FEATURES, CONTROLS
    hidden = ("memory share", "cores a function")
    anchors: Mapping[str, Anchor] = {}
    measures: Mapping[str, str] = {"limits": "share", "usage": "share", "preserved": "share",
                                   "worst_latency_over_objective": "1", "undesired": "share"}
    cost_unit, step_seconds, steps = "share of the cluster", STEP_SECONDS, 60
    scenarios: tuple[str, ...] = SCENARIOS

    def __init__(self, agents: int = 12) -> None:
        self.agents = agents

    @property
    def differentiable(self) -> "SharedCluster":
        """Itself: nothing is rounded."""
        return self

    def draw(self, split: str, count: int, steps: int, seed: int, scenario: str = "",
             applications: Sequence[int] | None = None) -> Clusters:
        """See functions.py; an application is a cluster."""
        return draw_clusters(split, count, self.agents, steps + 1 + FUTURE, seed, scenario, applications)

    def reset(self, episodes: Clusters) -> State:
        """After an interval of equal shares."""
        fair = (episodes.capacity / self.agents).repeat_interleave(self.agents)
        zero, rate = torch.zeros_like(fair), episodes.rate_rps[0]
        demand = rate * _functions(episodes, 0).work_s
        seen = {"cores": fair, "mean_demand_cores": demand, "rate_rps": rate}
        return self._after(State(episodes, 0, torch.ones_like(episodes.capacity), zero, zero, seen), fair)[0]

    def observe(self, state: State) -> Tensor:
        """See `Environment`."""
        return _SCALING.clip(torch.stack([state.seen[name] for name in _NAMES], dim=1))

    def step(self, state: State, targets: Tensor) -> tuple[State, Outcome]:
        """See `Environment`. What came of a cluster is the mean over its functions, `violated` their share."""
        (control,), present = self.controls, state.seen["cores"]
        cores = targets[:, 0].maximum((1 - control.most_down) * present).minimum((1 + control.most_up) * present).clamp(
            control.low, control.high)
        after, came = self._after(state, cores)
        of = {name: self._mean(value.to(cores.dtype)) for name, value in came.items()}
        over = after.seen["latency_ms"] / after.seen["most_latency_ms"]
        return after, Outcome(of["reward"], of["cost"], of["violation"], of["violated"], {
            "limits": of["cost"], "usage": of["usage"], "preserved": of["preserved"], "undesired": of["undesired"],
            "worst_latency_over_objective": over.reshape(-1, self.agents).amax(dim=1)},
            came["violation"].reshape(-1, self.agents))

    def hidden_parameters(self, state: State) -> Tensor:
        """See `Environment`."""
        memory = self._mean(_functions(state.clusters, state.step).memory_share)
        return torch.stack([5.0 * (memory - 0.3), (state.clusters.capacity / self.agents / 3.0).log()], dim=1)

    def coming_load(self, state: State) -> Tensor:
        """See `Environment`: of all functions, in cores."""
        clusters = state.clusters
        coming = [self._mean(at_step(clusters.rate_rps, at) * _functions(clusters, at).work_s)
                  for at in range(state.step, state.step + FUTURE)]
        return (torch.stack(coming, dim=1) / self._mean(state.seen["demand_cores"])[:, None]).log()

    def _mean(self, values: Tensor) -> Tensor:
        """(N,) over the functions of each cluster."""
        return values.reshape(-1, self.agents).mean(dim=1)

    def _each(self, values: Tensor) -> Tensor:
        """(R,) of each function its cluster's."""
        return values.repeat_interleave(self.agents)

    def _others(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation over the other functions of the cluster; a function alone is its own other."""
        others = max(self.agents - 1, 1)
        alone = 0.0 if self.agents > 1 else 1.0
        mean = (self._each(self._mean(values)) * self.agents - (1.0 - alone) * values) / others
        square = (self._each(self._mean(values.square())) * self.agents - (1.0 - alone) * values.square()) / others
        return mean, (square - mean.square()).clamp(min=1e-8).sqrt()

    def _after(self, state: State, cores: Tensor) -> tuple[State, dict[str, Tensor]]:
        """One interval at limits that are set, and what came of it for each function."""
        clusters, before, at = state.clusters, state.seen, min(state.step, len(state.clusters.rate_rps) - 1)
        functions, stays = _functions(clusters, at), clusters.function[at] == clusters.function[max(at - 1, 0)]
        capacity, rate = self._each(clusters.capacity), clusters.rate_rps[at]
        backlog = torch.where(stays, state.backlog, 0.0)
        work_s = functions.work_s * (1.0 + functions.memory_share * (self._each(state.stretch) - 1.0))
        warm = cores.minimum(before["cores"]) + (cores - before["cores"]).clamp(min=0.0) * (
            1.0 - COLD_START_S / STEP_SECONDS)
        rates, backlogs, works_s, limits = (of.reshape(-1, self.agents) for of in (rate, backlog, work_s, warm))
        shared = worked(rates, backlogs, works_s, limits, clusters.capacity[:, None], STEP_SECONDS, TIMEOUT_S)
        has, served, left = (values.reshape(-1) for values in shared)
        latency_s = functions.waits_s + p99_latency(
            rate, has.clamp(min=1.0), work_s / has.clamp(max=1.0), functions.arrival_cv2, functions.service_cv2,
            torch.maximum(left, backlog) * work_s / has, STEP_SECONDS)
        # clipped as it is observed, so that what follows from it is the same live
        latency_ms = (1e3 * latency_s * (LATENCY_NOISE * clusters.noise[at]).exp()).clamp(law.LEAST_MS, 2.0**18)
        used, demand = served * work_s, rate * work_s
        moved = self._mean(used * functions.memory_share) * self.agents
        mean_demand = torch.where(stays, torch.lerp(before["mean_demand_cores"], demand, law.MEAN_WEIGHT), demand)
        all_cores = self._each(self._mean(cores)) * self.agents
        need_share = mean_demand / (self._each(self._mean(mean_demand)) * self.agents)
        change = (cores - before["cores"]) / capacity
        most_latency = (functions.quiet_ms * clusters.relaxed).clamp(1.0, 2.0**16)
        fair, near = capacity / self.agents, near_latency(latency_ms, most_latency, TENSORS)
        seen = {"cores": cores, "usage": used / cores, "demand_cores": demand, "mean_demand_cores": mean_demand,
                "rate_rps": rate, "rate_change": relative_change(rate, before["rate_rps"], TENSORS),
                "latency_ms": latency_ms, "most_latency_ms": most_latency, "fair_cores": fair,
                "near_latency_ms": near,
                "pressing_latency_ms": law.pressing_latency(near, most_latency, cores, fair, TENSORS),
                "allotment_cores": allotment(cores, all_cores, capacity, need_share, TENSORS),
                "cluster_limits": all_cores / capacity,
                "cluster_change": self._each(self._mean(change)) * self.agents - change}
        kept = law.preserved(seen, TENSORS)
        for name, values in (("others_preserved", kept), ("others_usage", seen["usage"])):
            seen[name], seen[f"{name}_spread"] = self._others(values)
        turned = (cores - before["cores"]) / before["cores"]
        undesired = law.undesired(turned, state.change, seen["cluster_limits"], TENSORS)
        came = law.outcome(seen, undesired, TENSORS) | {
            "usage": seen["usage"], "preserved": kept, "undesired": undesired}
        stretch = (moved / clusters.bandwidth).clamp(min=1.0)
        return State(clusters, state.step + 1, stretch, left, turned.detach(), seen), came


def _functions(clusters: Clusters, step: int) -> Functions:
    """In each place at a step."""
    return clusters.known.of(at_step(clusters.function, step))
