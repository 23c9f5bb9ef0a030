"""A thousand applications: what differs between them, most of it hidden from a controller.

An application chains 1 to 5 of 16 segments, drawn with replacement (thesis, section 5.5.1), or varies a recorded server
(recorded_applications.py). The segments are those of section 5.2.3; the thesis does not print their parameters, so the
orders of magnitude here are ours: CPU milliseconds, kilobytes and megabytes that such functions are known to take.

Symbols: A applications; every parameter is a tensor (A,).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.control.simulation.queueing import QUOTA_PERIOD_S, service_p99_factor

TOTAL, HELD_OUT = 1000, 200
_BURST_PERIODS = (0.1, 0.7)  # of a segment: what was fitted to recorded servers


@dataclass(frozen=True)
class Segment:
    """One kind of work.

    Attributes:
        name: as in section 5.2.3.
        payload: which payload changes it, one of the scenarios' keys.
        cpu_ms: CPU time a request on the reference core.
        cv2: squared coefficient of variation of the time a request takes.
        fixed_ms: latency that more CPU does not shorten.
        memory_mib: at rest.
        request_mib: of each request that is being worked on.
        io: share of a node's disk time that 1,000 requests a second take.
        network: share of a node's network that 1,000 requests a second take.
        elasticity: by which power of the payload's size the CPU time grows.
    """

    name: str
    payload: str
    cpu_ms: float
    cv2: float
    fixed_ms: float
    memory_mib: float
    request_mib: float
    io: float
    network: float
    elasticity: float


SEGMENTS = (
    Segment("floating point", "operations", 25.0, 0.1, 0.5, 40, 0.5, 0.00, 0.01, 1.0),
    Segment("matrix product", "operations", 40.0, 0.1, 0.5, 80, 8.0, 0.00, 0.01, 1.0),
    Segment("image resize", "image", 30.0, 0.8, 2.0, 90, 12.0, 0.05, 0.20, 0.7),
    Segment("image filter", "image", 60.0, 0.6, 2.0, 90, 16.0, 0.05, 0.20, 0.7),
    Segment("JSON parsing", "text", 3.0, 1.2, 0.5, 50, 0.3, 0.00, 0.05, 0.8),
    Segment("template rendering", "text", 6.0, 0.9, 0.5, 60, 0.5, 0.00, 0.10, 0.8),
    Segment("compression", "file", 20.0, 0.7, 4.0, 60, 4.0, 0.30, 0.10, 0.8),
    Segment("decompression", "file", 8.0, 0.7, 4.0, 60, 4.0, 0.30, 0.10, 0.8),
    Segment("static web serving", "file", 0.4, 1.5, 0.3, 20, 0.1, 0.02, 0.15, 0.5),
    Segment("dynamic web serving", "text", 8.0, 1.5, 6.0, 120, 1.0, 0.02, 0.10, 0.6),
    Segment("ML inference, small", "model", 12.0, 0.2, 1.0, 300, 2.0, 0.00, 0.02, 0.6),
    Segment("ML inference, large", "model", 80.0, 0.2, 1.0, 900, 8.0, 0.00, 0.02, 0.6),
    Segment("file read", "file", 1.0, 2.0, 8.0, 30, 1.0, 0.60, 0.20, 0.6),
    Segment("file write", "file", 1.5, 3.0, 12.0, 30, 1.0, 0.80, 0.20, 0.6),
    Segment("stream", "file", 2.5, 1.0, 5.0, 40, 2.0, 0.20, 0.60, 0.8),
    Segment("database scan", "table", 5.0, 2.5, 6.0, 150, 2.0, 0.40, 0.05, 0.5),
)
PAYLOADS = ("operations", "image", "text", "file", "model", "table")


@dataclass(frozen=True)
class Applications:
    """Parameters, (A,) each; `payload_share` (A, 6) in the order of PAYLOADS.

    Attributes:
        cpu_s: CPU time a request on the reference core, s.
        service_cv2: squared coefficient of variation of service.
        arrival_cv2: squared coefficient of variation of the times between arrivals.
        fixed_s: latency that more CPU does not shorten, s.
        workers: requests that a replica works on at once, at most: it cannot use more cores.
        contention: loss of speed for each further core of a replica: c cores give c / (1 + contention (c - 1)).
        burst_s: time for which a queue runs at full speed on saved quota before a limit slows it down, s.
        memory_mib: of a replica at rest.
        request_mib: of each request in it.
        io: share of a node's disk time a request a second.
        network: share of a node's network a request a second.
        startup_s: from the decision until a new replica serves.
        speed: of the CPU, over the reference core.
        stolen: mean share of the CPU that neighbours take.
        stolen_spread: its standard deviation over time.
        slo_s: objective of the 99th percentile, s.
        load_cores: mean load, in cores of this CPU.
        payload_share: share of the CPU time that each payload makes.
        payload_elasticity: by which power it grows with the payload's size.
    """

    cpu_s: Tensor
    service_cv2: Tensor
    arrival_cv2: Tensor
    fixed_s: Tensor
    workers: Tensor
    contention: Tensor
    burst_s: Tensor
    memory_mib: Tensor
    request_mib: Tensor
    io: Tensor
    network: Tensor
    startup_s: Tensor
    speed: Tensor
    stolen: Tensor
    stolen_spread: Tensor
    slo_s: Tensor
    load_cores: Tensor
    payload_share: Tensor
    payload_elasticity: Tensor

    def __len__(self) -> int:
        return len(self.cpu_s)

    def take(self, index: Tensor) -> "Applications":
        """Those at `index` (N,), again N of them."""
        return Applications(**{field.name: getattr(self, field.name)[index] for field in fields(self)})

    def to(self, device: torch.device) -> "Applications":
        """The same on a device."""
        return Applications(**{field.name: getattr(self, field.name).to(device) for field in fields(self)})

    @property
    def mean_rate(self) -> Tensor:
        """(A,) mean arrival rate, 1/s."""
        return self.load_cores * self.speed / self.cpu_s

    @property
    def p99_factor(self) -> Tensor:
        """(A,) see queueing.py."""
        return service_p99_factor(self.service_cv2)


def generate(total: int = TOTAL, seed: int = 0, recorded: Sequence[Mapping[str, float]] = ()) -> Applications:
    """The pool of applications.

    Args:
        recorded: parameters of recorded servers, by the names of `Segment`; half of the pool varies them, where given.
    """
    random = np.random.default_rng([seed, 0xA99])
    columns: dict[str, NDArray[np.float64]] = {field.name: np.zeros(total) for field in fields(Applications)}
    shares = np.zeros((total, len(PAYLOADS)))
    elasticity = np.ones((total, len(PAYLOADS)))
    for number in range(total):
        if recorded and number % 2:
            parts = [recorded[int(random.integers(len(recorded)))]]
        else:
            parts = [vars(SEGMENTS[index]) for index in random.integers(0, len(SEGMENTS), random.integers(1, 6))]
        _compose(columns, shares, elasticity, number, parts, random)
    columns["payload_share"] = shares / shares.sum(axis=1, keepdims=True)
    columns["payload_elasticity"] = elasticity
    drawn = Applications(**{name: torch.tensor(values, dtype=torch.float32) for name, values in columns.items()})
    return _with_objective(drawn, random)


def _compose(columns: dict[str, NDArray[np.float64]], shares: NDArray[np.float64], elasticity: NDArray[np.float64],
             number: int, parts: Sequence[Mapping[str, object]], random: np.random.Generator) -> None:
    """One application of its segments; what segments do not say is drawn."""
    def number_of(part: Mapping[str, object], name: str) -> float:
        return float(part[name])  # type: ignore[arg-type]

    sizes = random.lognormal(0.0, 0.35, len(parts))  # of payloads
    periods = number_of(parts[0], "burst_periods") if "burst_periods" in parts[0] else random.uniform(*_BURST_PERIODS)
    burst = min(periods * random.lognormal(0.0, 0.2), 1.0)
    cpu = np.array([number_of(part, "cpu_ms") for part in parts]) * sizes
    spread = np.array([number_of(part, "cv2") for part in parts])
    values = {
        "cpu_s": cpu.sum() / 1e3,
        "service_cv2": (spread * cpu**2).sum() / cpu.sum() ** 2 + 0.05,
        "arrival_cv2": random.lognormal(0.3, 0.5),
        "fixed_s": sum(number_of(part, "fixed_ms") for part in parts) * random.lognormal(0, 0.3) / 1e3,
        "workers": random.choice([1, 2, 4, 8, 16], p=[0.1, 0.2, 0.3, 0.25, 0.15]),
        "contention": random.uniform(0.0, 0.12),
        "burst_s": QUOTA_PERIOD_S * burst,
        "memory_mib": max(number_of(part, "memory_mib") for part in parts) * random.lognormal(0.2, 0.3),
        "request_mib": max(number_of(part, "request_mib") for part in parts) * random.lognormal(0, 0.4),
        "io": sum(number_of(part, "io") for part in parts) / 1e3,
        "network": sum(number_of(part, "network") for part in parts) / 1e3,
        "startup_s": np.clip(random.lognormal(3.3, 0.5), 5.0, 89.0),
        "speed": random.choice([0.7, 0.85, 1.0, 1.15, 1.4]),
        "stolen": random.beta(1.5, 8.0),
        "stolen_spread": random.uniform(0.02, 0.12),
        "load_cores": np.exp(random.uniform(np.log(0.4), np.log(10.0))),
    }
    for name, value in values.items():
        columns[name][number] = value
    for part, share in zip(parts, cpu, strict=True):
        at = PAYLOADS.index(str(part["payload"]))
        shares[number, at] += share
        elasticity[number, at] = number_of(part, "elasticity")


def _with_objective(drawn: Applications, random: np.random.Generator) -> Applications:
    """Objectives of 1.8 to 6 times the 99th percentile on an idle, whole core beside its neighbours; at least 5 ms."""
    idle = drawn.fixed_s + drawn.cpu_s / (drawn.speed * (1.0 - drawn.stolen)) * drawn.p99_factor
    factor = torch.tensor(np.exp(random.uniform(np.log(1.8), np.log(6.0), len(drawn))), dtype=torch.float32)
    return replace(drawn, slo_s=(idle * factor).clamp(0.005, 16.0))


def numbers_of(split: str, total: int = TOTAL, held_out: int = HELD_OUT) -> NDArray[np.int64]:
    """Numbers of the applications of `train` (the first 800) or `held_out` (the last 200)."""
    return np.arange(total - held_out) if split == "train" else np.arange(total - held_out, total)
