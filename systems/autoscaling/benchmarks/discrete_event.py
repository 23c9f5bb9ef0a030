"""A queue simulated request by request: the oracle for the closed forms of the autoscaling environment.

First come, first served, by the servers of one pool: each request goes to the server that is free first (the
recursion of Kiefer and Wolfowitz, "On the theory of queues with many servers", 1955). Times between arrivals and
service times are independent and of any of the distributions below; requests that would wait longer than the time-out
leave unserved.

The loop is over requests; all configurations and replications are one array. Symbols: B rows (configurations times
replications), S servers of the widest row, n requests; times in s.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
_CHUNK = 256  # requests whose times are drawn at once


@dataclass(frozen=True)
class Queues:
    """Configurations, (B,) each.

    Attributes:
        rate: mean arrival rate, 1/s.
        servers: whole numbers.
        service_s: mean service time.
        arrival: names of the distribution of times between arrivals, of DISTRIBUTIONS.
        arrival_cv2: their squared coefficient of variation.
        service: names of the distribution of service times.
        service_cv2: likewise.
        backlog: requests that wait at the beginning, whole numbers.
    """

    rate: Array
    servers: NDArray[np.int64]
    service_s: Array
    arrival: NDArray[np.str_]
    arrival_cv2: Array
    service: NDArray[np.str_]
    service_cv2: Array
    backlog: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rate)

    def repeated(self, times: int) -> "Queues":
        """Each configuration so many times, one after the other."""
        return Queues(**{name: np.repeat(values, times) for name, values in vars(self).items()})


@dataclass(frozen=True)
class Requests:
    """What came of the requests that arrived after the backlog, (B, n); NaN where not simulated.

    Attributes:
        arrival_s: since the beginning.
        wait_s: until service began; of those who left, the time-out.
        latency_s: wait and service; of those who left, the time-out.
        lost: whether it left.
    """

    arrival_s: Array
    wait_s: Array
    latency_s: Array
    lost: NDArray[np.bool_]


def _gamma(cv2: Array, shape: tuple[int, int], rng: np.random.Generator) -> Array:
    return rng.gamma(1.0 / cv2, cv2, shape)


def _lognormal(cv2: Array, shape: tuple[int, int], rng: np.random.Generator) -> Array:
    variance = np.log1p(cv2)
    return np.exp(rng.standard_normal(shape) * np.sqrt(variance) - variance / 2)


def _hyperexponential(cv2: Array, shape: tuple[int, int], rng: np.random.Generator) -> Array:
    """Two exponentials with balanced means (Tijms, "A First Course in Stochastic Models", 2003); cv2 >= 1."""
    first = 0.5 * (1.0 + np.sqrt((cv2 - 1.0) / (cv2 + 1.0)))
    return rng.standard_exponential(shape) / (2.0 * np.where(rng.random(shape) < first, first, 1.0 - first))


def _batches(cv2: Array, shape: tuple[int, int], rng: np.random.Generator) -> Array:
    """Batches of geometric size m come at random: gaps are 0 or exponential; cv2 = 2 m - 1 >= 1."""
    size = 0.5 * (cv2 + 1.0)
    return np.where(rng.random(shape) < 1.0 / size, rng.standard_exponential(shape) * size, 0.0)


# Samples of shape (n, B) with mean 1 and squared coefficients of variation (B,).
DISTRIBUTIONS: Mapping[str, Callable[[Array, tuple[int, int], np.random.Generator], Array]] = {
    "gamma": _gamma, "lognormal": _lognormal, "hyperexponential": _hyperexponential, "batches": _batches}


def simulate(queues: Queues, requests: int, seed: int, skipped: int = 0, timeout_s: float = np.inf) -> Requests:
    """Lets requests arrive, the backlog first.

    Args:
        requests: n that are reported of each row.
        seed: of all that is random.
        skipped: requests before them that warm the queue up.
        timeout_s: longest wait; the backlog has none.
    """
    rng = np.random.default_rng(seed)
    rows, longest = np.arange(len(queues)), int(queues.backlog.max())
    free = np.where(np.arange(queues.servers.max()) < queues.servers[:, None], 0.0, np.inf)
    found = {name: np.empty((requests, len(queues))) for name in ("arrival_s", "wait_s", "latency_s")}
    clock = np.zeros(len(queues))
    total = longest + skipped + requests
    for begin in range(0, total, _CHUNK):
        count = min(_CHUNK, total - begin)
        gaps = _draw(queues.arrival, queues.arrival_cv2, count, rng) / queues.rate
        services = _draw(queues.service, queues.service_cv2, count, rng) * queues.service_s
        for position in range(count):
            # The row's own number of the request; below 0 there is none yet, below `backlog` it waits already.
            number = begin + position - longest + queues.backlog
            arrived = number >= queues.backlog
            clock += np.where(arrived, gaps[position], 0.0)
            server = free.argmin(axis=1)
            soonest = free[rows, server]
            start = np.maximum(clock, soonest)
            wait = start - clock
            stays = (wait <= timeout_s) | ~arrived
            free[rows, server] = np.where(stays & (number >= 0), start + services[position], soonest)
            reported = begin + position - longest - skipped
            if reported >= 0:
                found["arrival_s"][reported] = clock
                found["wait_s"][reported] = np.where(stays, wait, timeout_s)
                found["latency_s"][reported] = np.where(stays, wait + services[position], np.inf)
    latency = found.pop("latency_s").T
    lost = np.isinf(latency)
    return Requests(latency_s=np.where(lost, timeout_s, latency), lost=lost,
                    **{name: values.T for name, values in found.items()})


def _draw(names: NDArray[np.str_], cv2: Array, count: int, rng: np.random.Generator) -> Array:
    """(count, B) with mean 1."""
    drawn = np.empty((count, len(names)))
    for name, sample in DISTRIBUTIONS.items():
        chosen = names == name
        if chosen.any():
            drawn[:, chosen] = sample(cv2[chosen], (count, int(chosen.sum())), rng)
    return drawn
