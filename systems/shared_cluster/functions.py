"""A thousand functions and the clusters that they meet on, each a row of a fixed table of random numbers.

Of the three kinds of Table 4.3 (thesis, section 4.7.2): computing, moving memory, waiting. Execution times of a request
are log-normal over functions with median 0.68 s and sigma 2.36 (Shahrad et al., Serverless in the Wild, USENIX ATC
2020, section 3.5, the fit of figure 7), cut at 10 ms and 5 s; all else is assumed, and wide.

Symbols: N clusters of A functions, R = N A rows, T steps, P functions; tensors float32 unless stated.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from feature_store.errors import InputError
from models.control.simulation.made_load import made_load
from models.control.simulation.queueing import p99_latency
from models.control.simulation.tensors import float32
from systems.shared_cluster.interface import STEP_SECONDS

FUNCTIONS = {"train": 800, "held_out": 200}
CLUSTERS = {"train": 800, "held_out": 200}
SCENARIOS = ("", "steady", "churn", "scarce")
SHORTEST_S, LONGEST_S = 0.01, 5.0
_CHURN = {"churn": 0.02, "steady": 0.0}  # probability that another function takes a place in a step; else:
_SOME_CHURN = 0.002
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Functions:
    """All functions of a split, (P,) each."""

    work_s: Tensor  # core seconds of a request
    memory_share: Tensor  # of them, time that the cluster's memory bandwidth stretches
    waits_s: Tensor  # of a request, without a core
    arrival_cv2: Tensor  # squared coefficients of variation of the times between requests
    service_cv2: Tensor  # and of their service
    quiet_ms: Tensor  # 99th percentile with cores enough and nobody else

    def of(self, numbers: Tensor) -> "Functions":
        """Those of some numbers, in their shape."""
        return Functions(**{one.name: getattr(self, one.name)[numbers] for one in fields(self)})


@dataclass(frozen=True)
class Clusters:
    """Clusters and all that is random of them; the functions of a cluster stand next to each other."""

    known: Functions
    agents: int  # A
    function: Tensor  # (T, R) number of the function in a place (int64)
    rate_rps: Tensor  # (T, R)
    relaxed: Tensor  # (R,) objective over the quiet 99th percentile
    noise: Tensor  # (T, R) standard normal, of the latency
    capacity: Tensor  # (N,) cores
    bandwidth: Tensor  # (N,) cores that may move memory at once without being stretched

    def take(self, index: Tensor) -> "Clusters":
        """Those at some positions."""
        index = torch.as_tensor(index)
        rows = (index[:, None] * self.agents + torch.arange(self.agents)).flatten()
        of_rows = {name: getattr(self, name)[..., rows] for name in ("function", "rate_rps", "relaxed", "noise")}
        return replace(self, **of_rows, capacity=self.capacity[index], bandwidth=self.bandwidth[index])


def known_functions(split: str) -> Functions:
    """Of a split."""
    random, trains = np.random.default_rng(19), FUNCTIONS["train"]
    own = random.random((5, sum(FUNCTIONS.values())))
    normal = random.standard_normal(sum(FUNCTIONS.values()))
    own, normal = (own[:, :trains], normal[:trains]) if split == "train" else (own[:, trains:], normal[trains:])
    whole_s = np.exp(np.log(0.68) + 2.36 * normal).clip(SHORTEST_S, LONGEST_S)
    kind = (3 * own[0]).astype(int)  # computing, moving memory, waiting
    waits = np.choose(kind, [0.2 * own[1], 0.2 * own[1], 0.4 + 0.5 * own[1]]) * whole_s
    memory = np.choose(kind, [0.15 * own[2], 0.4 + 0.5 * own[2], 0.3 * own[2]])
    arrival, service = float32(1.0 + 1.5 * own[3]), float32(0.1 + 0.9 * own[4])
    work, many = float32(whole_s - waits), torch.full((len(normal),), 64.0)
    alone = p99_latency(0.1 / work, many, work, arrival, service, 0.0 * work, STEP_SECONDS)
    return Functions(work, float32(memory), float32(waits), arrival, service, 1e3 * (alone + float32(waits)))


def draw_clusters(split: str, count: int, agents: int, steps: int, seed: int, scenario: str = "",
                  numbers: Sequence[int] | None = None) -> Clusters:
    """See `Environment.draw`.

    scenario: "" ordinary load and some churn; steady: neither; churn: other functions come every few minutes; scarce:
    the cluster is asked for more than it has.

    Raises:
        InputError: an unknown split or scenario.
    """
    if split not in CLUSTERS or scenario not in SCENARIOS:
        raise InputError(f"split and scenario: expected train or held_out and one of {', '.join(SCENARIOS[1:])}, got "
                         f"{split!r} and {scenario!r}")
    random = np.random.default_rng([seed, split == "train", agents])
    chosen = random.permutation(count) % CLUSTERS[split] if numbers is None else np.asarray(numbers) % CLUSTERS[split]
    first = 0 if split == "train" else CLUSTERS["train"]
    own = np.random.default_rng(29).random((sum(CLUSTERS.values()), 4))[first + chosen].T
    rows, known = count * agents, known_functions(split)
    members = np.stack([np.random.default_rng([31, first + one]).permutation(FUNCTIONS[split])[
        np.arange(agents) % FUNCTIONS[split]] for one in chosen]).reshape(rows)
    weight = np.exp(0.7 * np.stack([np.random.default_rng([37, first + one]).standard_normal(agents)
                                    for one in chosen]))
    per_function, busy = 2.0 * 3.0 ** own[0], 0.15 + 0.3 * own[1]
    busy = np.where(scenario == "scarce", 0.95, busy)
    capacity = per_function * agents
    mean_cores = (busy * capacity)[:, None] * weight / weight.sum(axis=1, keepdims=True)
    function = _places(random, members, steps, FUNCTIONS[split], _CHURN.get(scenario, _SOME_CHURN))
    load = made_load(random, steps, rows, np.repeat(30.0 * 8.0 ** own[2], agents), 0.02)
    load = np.exp(0.0 * load if scenario == "steady" else load)
    work = known.work_s.numpy()[function]
    cores = np.minimum(mean_cores.reshape(rows), 24.0) * load
    return Clusters(
        known, agents, torch.from_numpy(function), float32(np.clip(cores / work, 2.0**-6, 2.0**16)),
        float32(1.15 * 1.75 ** np.repeat(own[3], agents)), float32(random.standard_normal((steps, rows))),
        float32(capacity), float32(0.25 * capacity))


def _places(random: np.random.Generator, members: NDArray[Any], steps: int, known: int, churn: float) -> NDArray[Any]:
    """(T, R) number of the function in each place: each stays until another comes."""
    found = np.empty((steps, len(members)), dtype=np.int64)
    for step in range(steps):
        comes = (random.random(len(members)) < churn) & (step > 0)
        members = np.where(comes, random.integers(known, size=len(members)), members)
        found[step] = members
    return found
