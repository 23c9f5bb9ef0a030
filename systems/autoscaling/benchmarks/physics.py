"""The queueing law of the autoscaling environment against a simulation of single requests, by band of load.

    python -m benchmarks autoscaling-physics [--configurations 60]

Random pools of servers, arrivals and service times (discrete_event.py), each as an application of the environment
that is left alone for one step of 15 s: 99th percentile of latency, mean wait, requests lost. Steady bands: requests
after a warm-up, of 32 replications, and those of a step that begins with an idle queue. The other bands: the requests
of one step, with or without requests that wait already. Resumable: a band that is there for the same code and number is
kept.
"""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.harness.code_digest import code_digest
from benchmarks.harness.entries import Entries
from benchmarks.harness.machine import describe_machine, now_utc
from benchmarks.harness.result_file import RESULTS
from models.control.simulation.queueing import waiting_of
from systems.autoscaling.benchmarks.discrete_event import Array, Queues, simulate
from systems.autoscaling.interface import STEP_SECONDS
from systems.autoscaling.simulator.applications import Applications
from systems.autoscaling.simulator.episodes import Episodes
from systems.autoscaling.simulator.simulator import Autoscaling, Physics

OUTPUT = RESULTS / "autoscaling_physics.json"
FORMAT = "assay-autoscaling-physics/1"
CONFIGURATIONS, REPLICATIONS = 60, 32
TIMEOUT_S = 10.0  # of the environment
SERVERS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
MOST_REQUESTS = 4000  # in a step at full load; more of them only make a step look longer
STEADY_REQUESTS = 6000  # of each replication, after the warm-up
_ALONE = Physics(start_up=False, late_metrics=False, noisy_metrics=False, neighbours=False)


@dataclass(frozen=True)
class Band:
    """Configurations of about the same load.

    Attributes:
        low: smallest utilisation: arrival rate over what the servers can serve.
        high: largest.
        backlog_s: longest backlog at the beginning, in s of all servers' work.
    """

    low: float
    high: float
    backlog_s: float = 0.0

    @property
    def steady(self) -> bool:
        return self.high < 1.0 and not self.backlog_s


BANDS: Mapping[str, Band] = {
    "under 0.3": Band(0.05, 0.3), "0.3 to 0.5": Band(0.3, 0.5), "0.5 to 0.7": Band(0.5, 0.7),
    "0.7 to 0.8": Band(0.7, 0.8), "0.8 to 0.9": Band(0.8, 0.9), "0.9 to 0.95": Band(0.9, 0.95),
    "0.95 to 1.1, queue empty at first": Band(0.95, 1.1),
    "1.1 to 2, queue empty at first": Band(1.1, 2.0), "1.1 to 2, with backlog": Band(1.1, 2.0, 9.0),
    "0.95 to 1.1, with backlog": Band(0.95, 1.1, 9.0), "0.4 to 0.95, backlog drains": Band(0.4, 0.95, 9.0)}


def draw_queues(band: Band, count: int, rng: np.random.Generator) -> Queues:
    """Random configurations; variability as the environment's applications have it."""
    servers = rng.choice(SERVERS, count)
    service_s = np.exp(rng.uniform(np.log(0.005), np.log(0.5), count))
    service_s = np.maximum(service_s, servers * STEP_SECONDS / MOST_REQUESTS * max(1.0, band.high))
    capacity = servers / service_s
    arrival, arrival_cv2 = _distributions(["gamma", "lognormal", "hyperexponential", "batches"], [0.25] * 4,
                                          np.exp(rng.normal(0.3, 0.5, count)), rng)
    service, service_cv2 = _distributions(["lognormal", "gamma", "hyperexponential"], [0.6, 0.25, 0.15],
                                          np.exp(rng.uniform(np.log(0.1), np.log(3.0), count)), rng)
    return Queues(rng.uniform(band.low, band.high, count) * capacity, servers, service_s, arrival, arrival_cv2, service,
                  service_cv2, np.ceil(rng.uniform(0.1, 1.0, count) * band.backlog_s * capacity).astype(np.int64))


def _distributions(names: list[str], shares: list[float], cv2: Array, rng: np.random.Generator) -> tuple[Any, Array]:
    drawn = rng.choice(names, len(cv2), p=shares)
    return drawn, np.where(np.isin(drawn, ["hyperexponential", "batches"]), np.maximum(cv2, 1.02), cv2)


@dataclass(frozen=True)
class Answer:
    """Of the requests that arrive.

    Attributes:
        p99_s: (K,) 99th percentile of latency.
        mean_wait_s: (K,) in the queue; the law's is without backlog.
        lost: (K,) share that timed out.
    """

    p99_s: Array
    mean_wait_s: Array
    lost: Array


def by_environment(queues: Queues) -> Answer:
    """One step of the environment, in which each server is a replica of one core that works on one request."""
    def column(values: Any) -> Tensor:
        return torch.as_tensor(np.broadcast_to(values, len(queues)).copy(), dtype=torch.float32)

    plain = {"workers": 1.0, "speed": 1.0, "slo_s": 1.0, "load_cores": 1.0, "memory_mib": 1.0}
    values = {name: column(plain.get(name, 0.0)) for name in Applications.__dataclass_fields__}
    values["cpu_s"] = service_s = column(queues.service_s)
    values["service_cv2"], values["arrival_cv2"] = column(queues.service_cv2), column(queues.arrival_cv2)
    applications, rate = Applications(**values), column(queues.rate)
    nothing, two = torch.zeros(len(queues)), (2, -1)
    episodes = Episodes(applications, torch.arange(len(queues)), rate.expand(two), service_s.expand(two),
                        nothing.expand(two), nothing.expand(2, 3, -1), nothing + 1)
    environment = Autoscaling(applications, physics=_ALONE)
    with torch.no_grad():
        servers = column(queues.servers)
        state = environment.reset(episodes)._replace(
            limit=nothing + 1, replicas=servers, ready=servers, backlog=column(queues.backlog))
        after, outcome = environment.step(state, torch.stack([nothing + 1, state.memory, servers], dim=1))
        variability = 0.5 * (applications.arrival_cv2 + applications.service_cv2)
        waiting = waiting_of(rate, servers, service_s, variability, STEP_SECONDS)
        wait = waiting.wait_s * waiting.log_probability.exp()
    return Answer(*(values.numpy().astype(np.float64) for values in (
        outcome.measures["p99_ms"] / 1e3, wait, 1.0 - after.latest.served)))


def by_simulation(queues: Queues, steady: bool, seed: int) -> Answer:
    """Requests of many replications: after a warm-up, or of one step from its beginning."""
    repeated, load = queues.repeated(REPLICATIONS), queues.rate * queues.service_s / queues.servers
    if steady:
        # some 16 times the requests in which a queue forgets, 1 / (1 - rho)^2
        skipped = 500 + int(16 * load.max() / (1.0 - load.max()) ** 2)
        found = simulate(repeated, STEADY_REQUESTS, seed, skipped)
        counted = np.ones_like(found.lost)
    else:
        requests = int(1.4 * (queues.rate * STEP_SECONDS).max()) + 100
        found = simulate(repeated, requests, seed, timeout_s=TIMEOUT_S)
        counted = found.arrival_s < STEP_SECONDS
    latency, wait, lost = (np.where(counted, values, np.nan).reshape(len(queues), -1)
                           for values in (found.latency_s, found.wait_s, found.lost))
    return Answer(np.nanquantile(latency, 0.99, axis=1), np.nanmean(wait, axis=1), np.nanmean(lost, axis=1))


def measure_band(name: str, count: int) -> list[dict[str, Any]]:
    """One row a configuration."""
    band, number = BANDS[name], list(BANDS).index(name)
    queues = draw_queues(band, count, np.random.default_rng([number, count]))
    answers = {"law": by_environment(queues), "simulated": by_simulation(queues, band.steady, seed=number)}
    if band.steady:
        answers["simulated_from_idle"] = by_simulation(queues, False, seed=number)
    return [{**{key: values[row].item() for key, values in vars(queues).items()},
             "utilisation": float(queues.rate[row] * queues.service_s[row] / queues.servers[row]),
             **{key: {part: float(values[row]) for part, values in vars(answer).items()}
                for key, answer in answers.items()}} for row in range(count)]


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py."""
    parser.add_argument("--configurations", type=int, default=CONFIGURATIONS, help="random ones in each band")


def run(options: argparse.Namespace) -> None:
    """Measures every band that is not there yet."""
    code = code_digest("systems.autoscaling.benchmarks.physics", "systems.autoscaling.benchmarks") + code_digest(
        "systems.autoscaling.simulator.simulator", ("systems.autoscaling", "models.control"))
    wanted = {"code": code, "configurations": options.configurations}
    entries = Entries(options.output, FORMAT, lambda entry: list(BANDS).index(entry["band"]),
                      lambda _, entry: wanted.items() <= entry.items() and entry["band"] in BANDS)
    entries.content["machine"] = {**describe_machine(), "date": now_utc()}
    for number, name in enumerate(BANDS):
        if not entries.has(number):
            entries.add({"band": name, **wanted, "rows": measure_band(name, options.configurations)})
            print(f"{name}: done", flush=True)
