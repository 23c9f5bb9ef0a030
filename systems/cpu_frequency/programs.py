"""A thousand services, each a row of a fixed table of random numbers: equal numbers are equal services.

The thesis makes as many with Sizeless's generator, which gives no instruction counts: all ranges here are assumed, and
wide. Symbols: N services, T steps; tensors (N,) float32 unless stated.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from feature_store.errors import InputError
from models.control.simulation.made_load import made_load
from models.control.simulation.queueing import p99_latency
from models.control.simulation.tensors import float32, log_uniform
from systems.cpu_frequency.processors import AIR_C, PROCESSORS

SERVICES = {"train": 800, "held_out": 200}
SCENARIOS = ("", "steady", "bursts")
_FIRST = {"train": 0, "held_out": 800}
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Programs:
    """Services and all that is random of them."""

    processor: Tensor  # number in PROCESSORS (int64)
    cores: Tensor  # that the service has; the others of the package idle
    work: Tensor  # instructions of a request, millions
    cpi: Tensor  # cycles of an instruction without memory
    memory_ns: Tensor  # of an instruction, whatever the clock
    phase_s: Tensor  # every other phase of so many seconds
    phase_factor: Tensor  # has that many times the memory time
    fixed_s: Tensor  # of a request, without a core
    arrival_cv2: Tensor  # squared coefficients of variation of the times between requests
    service_cv2: Tensor  # and of their service
    ambient_c: Tensor  # air at the heat sink
    cooling: Tensor  # thermal resistance over that which just holds the limit at TDP
    most_latency_ms: Tensor  # the objective
    first_ghz: Tensor  # clock at the beginning
    rate_rps: Tensor  # (T, N) load
    noise: Tensor  # (T, 2, N) standard normal, of the latency and of the stalls
    numbers: Tensor  # of the services (int64)

    def take(self, index: Tensor) -> "Programs":
        """Those at some positions."""
        return Programs(**{one.name: getattr(self, one.name)[..., index] for one in fields(self)})

    def service_s(self, clock_ghz: Tensor, memory_ns: Tensor) -> Tensor:
        """Seconds of a request on a core: work (cpi / f + memory), the leading-loads law.

        The time of an instruction is a part that scales with the clock and one that does not (Keramidas, Spiliopoulos
        and Kaxiras, CF 2010; Eyerman and Eeckhout, IEEE TC 59(11), 2010; Rountree et al., IGCC 2011).
        """
        return 1e-3 * self.work * (self.cpi / clock_ghz + memory_ns)


def draw_programs(split: str, count: int, steps: int, seed: int, scenario: str = "",
                  numbers: Sequence[int] | None = None) -> Programs:
    """See `Environment.draw`. scenario: "" ordinary load, steady, or bursts.

    Raises:
        InputError: an unknown split or scenario.
    """
    if split not in SERVICES or scenario not in SCENARIOS:
        raise InputError(f"split and scenario: expected train or held_out and one of {', '.join(SCENARIOS[1:])}, got "
                         f"{split!r} and {scenario!r}")
    random = np.random.default_rng([seed, split == "train"])
    chosen = random.permutation(count) % SERVICES[split] if numbers is None else np.asarray(numbers) % SERVICES[split]
    own = np.random.default_rng(17).random((sum(SERVICES.values()), 14))[_FIRST[split] + chosen].T
    kind = (_FIRST[split] + chosen) % len(PROCESSORS)
    base, most = (np.array([getattr(one, name) for one in PROCESSORS])[kind] for name in ("base_ghz", "cores"))
    cores = np.floor(most * (0.25 + 0.75 * own[0])).clip(2.0)
    work, cpi, stalled = log_uniform(own[1], 1.0, 60.0), log_uniform(own[2], 0.4, 1.5), 0.75 * own[3]
    memory_ns = cpi / base * stalled / (1.0 - stalled)
    service_s = 1e-3 * work * (cpi / base + memory_ns)
    mean_rps, fixed_s = (0.15 + 0.4 * own[4]) * cores / service_s, service_s * own[5]
    arrival_cv2, service_cv2 = float32(1.0 + 2.0 * own[6]), float32(0.2 + 1.3 * own[7])
    quiet_s = float32(fixed_s) + p99_latency(  # at base clock and mean load
        float32(mean_rps), float32(cores), float32(service_s), arrival_cv2, service_cv2, torch.zeros(count), 1.0)
    walk = made_load(random, steps, count, log_uniform(own[8], 40.0, 240.0), 0.1 if scenario == "bursts" else 0.02)
    load = np.exp(0.0 * walk if scenario == "steady" else walk)
    return Programs(
        torch.from_numpy(kind), float32(cores), float32(work), float32(cpi), float32(memory_ns),
        phase_s=float32(log_uniform(own[9], 8.0, 60.0)), phase_factor=float32(log_uniform(own[10], 0.4, 2.0)),
        fixed_s=float32(fixed_s), arrival_cv2=arrival_cv2, service_cv2=service_cv2,
        ambient_c=float32(25.0 + (AIR_C - 25.0) * own[11]), cooling=float32(log_uniform(own[12], 0.8, 2.4)),
        most_latency_ms=(1e3 * quiet_s * float32(log_uniform(own[13], 1.2, 2.5))).clamp(1.0, 4096.0),
        first_ghz=float32(base), rate_rps=float32(mean_rps * load),
        noise=float32(random.standard_normal((steps, 2, count))), numbers=torch.from_numpy(chosen))
