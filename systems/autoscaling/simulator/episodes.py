"""Episodes of autoscaling: which applications, their load, payloads, neighbours and the noise of their metrics.

All that is random is drawn here, so that a step is a pure function (simulator.py).

Symbols: N episodes, T steps; series are (T, N) float32.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from feature_store.errors import InputError
from systems.autoscaling.simulator.applications import PAYLOADS, Applications
from systems.autoscaling.simulator.arrivals import windows

# Growth of a payload in the scenarios of section 5.2.3: mean size after over mean size before. The thesis writes 10^8
# to 20^8 operations, which we read as 10^8 to 20 x 10^8; images grow in both directions, matrices in three.
_GROWTH = {"file": 3.0, "table": 10.0, "operations": 20.0, "image": 16.0, "text": 5.7, "model": 27.0}
PAYLOAD_SCENARIOS = tuple(f"payload_{name}" for name in _GROWTH)
LOAD_SCENARIOS = ("load_high_to_low", "load_low_to_high")
SCENARIOS = (*PAYLOAD_SCENARIOS, *LOAD_SCENARIOS)
# The largest growth of CPU time that an episode may bring: beyond it the objective is out of reach for any controller.
_MOST_GROWTH = 2.5


@dataclass(frozen=True)
class Episodes:
    """What is given in N episodes.

    Attributes:
        applications: parameters (N,).
        numbers: (N,) of the applications, as `Environment.draw` counts them.
        rate: (T, N) requests that come, 1/s.
        cpu_s: (T, N) CPU time a request on the reference core, s.
        stolen: (T, N) share of the CPU that neighbours take.
        noise: (T, 3, N) standard normal: of latency, utilisations, rates as they are measured.
        start: (N,) cores of the first allocation over those that the first load takes.
    """

    applications: Applications
    numbers: Tensor
    rate: Tensor
    cpu_s: Tensor
    stolen: Tensor
    noise: Tensor
    start: Tensor

    @property
    def steps(self) -> int:
        """T."""
        return len(self.rate)

    def __len__(self) -> int:
        return self.rate.shape[1]

    def take(self, index: Tensor) -> "Episodes":
        """Those at `index`."""
        taken = {name: series[..., index] for name, series in self._series().items()}
        return Episodes(self.applications.take(index), **taken)

    def to(self, device: torch.device) -> "Episodes":
        """The same on a device."""
        moved = {name: series.to(device) for name, series in self._series().items()}
        return Episodes(self.applications.to(device), **moved)

    def _series(self) -> dict[str, Tensor]:
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "applications"}


def draw_episodes(pool: Applications, numbers: NDArray[np.int64], traces: Tensor, count: int, steps: int, seed: int,
                  scenario: str, chosen: Sequence[int] | None, step_s: float) -> Episodes:
    """Draws N episodes; Raises InputError for an unknown scenario or application.

    Args:
        numbers: of the applications that may be drawn.
        traces: (F, M) shapes of load with mean 1.
        chosen: (N,) applications; None: each of `numbers` about as often.
    """
    if scenario and scenario not in SCENARIOS:
        raise InputError(f"scenario: expected one of {', '.join(SCENARIOS)}, got {scenario!r}")
    generator = torch.Generator().manual_seed(int(np.random.SeedSequence([seed, 0xE915]).generate_state(1)[0]))

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator)

    picked = _picked(numbers, count, generator, chosen)
    applications = pool.take(picked)
    rows = (uniform(count) * len(traces)).long()
    starts = uniform(count) * traces.shape[1]
    if len(traces) == 1:  # in the order of time: neighbours that overlap stand together (models/paired_comparison.py)
        starts = starts.sort().values
    shape = windows(traces, rows, starts, steps, step_s).T.clamp(min=0.02)
    jitter = (0.05 * normal(steps, count)).exp()
    rate = (applications.mean_rate * shape * jitter * _load_change(scenario, steps)).contiguous()
    drift = (0.25 * (uniform(count) - 0.5) * torch.linspace(-1, 1, steps)[:, None]).exp()
    cpu_s = (applications.cpu_s * drift * _payload_change(applications, scenario, steps)).contiguous()
    return Episodes(applications, picked, rate, cpu_s, _neighbours(applications, normal(steps, count)),
                    normal(steps, 3, count), 1.3 + 1.7 * uniform(count))


def _picked(numbers: NDArray[np.int64], count: int, generator: torch.Generator,
            chosen: Sequence[int] | None) -> Tensor:
    if chosen is not None:
        given = torch.as_tensor(np.asarray(chosen, dtype=np.int64))
        if len(given) != count or not np.isin(given.numpy(), numbers).all():
            raise InputError(f"applications: expected {count} numbers within {numbers.min()} to {numbers.max()}, got "
                             f"{len(given)} within {int(given.min())} to {int(given.max())}")
        return given
    rounds = -(-count // len(numbers))
    order = torch.cat([torch.randperm(len(numbers), generator=generator) for _ in range(rounds)])[:count]
    return torch.as_tensor(numbers)[order]


def _half(steps: int) -> Tensor:
    """(T, 1): 0 before the middle of an episode, 1 from it on."""
    return (torch.arange(steps) >= steps // 2).float()[:, None]


def _load_change(scenario: str, steps: int) -> Tensor:
    if scenario not in LOAD_SCENARIOS:
        return torch.ones(1)
    before, after = (1.5, 0.5) if scenario == "load_high_to_low" else (0.5, 1.5)
    return before + (after - before) * _half(steps)


def _payload_change(applications: Applications, scenario: str, steps: int) -> Tensor:
    """(T, N) factor of the CPU time a request."""
    if scenario not in PAYLOAD_SCENARIOS:
        return torch.ones(1)
    name = scenario.removeprefix("payload_")
    at = PAYLOADS.index(name)
    growth = _GROWTH[name] ** applications.payload_elasticity[:, at] - 1.0
    after = (1.0 + applications.payload_share[:, at] * growth).clamp(max=_MOST_GROWTH)
    return 1.0 + (after - 1.0) * _half(steps)


def _neighbours(applications: Applications, noise: Tensor) -> Tensor:
    """(T, N) share of the CPU that neighbours take: a first-order autoregressive walk about the mean, in [0, 0.7]."""
    memory = 0.97  # a step: it lasts some eight minutes
    walk = torch.empty_like(noise)
    at = noise[0]
    for step in range(len(noise)):
        at = memory * at + (1.0 - memory**2) ** 0.5 * noise[step] if step else at
        walk[step] = at
    return (applications.stolen + applications.stolen_spread * walk).clamp(0.0, 0.7)
