"""Services without anything random, whose every number is said."""

from dataclasses import fields, replace
from typing import Any

import torch

from systems.cpu_frequency.processors import PROCESSORS
from systems.cpu_frequency.programs import Programs
from systems.cpu_frequency.simulator import CpuFrequency

ENVIRONMENT = CpuFrequency()
NAMES = [signal.name for signal in ENVIRONMENT.signals]


def plain(count: int = 1, steps: int = 60, rate_rps: float = 100.0, processor: int = 0, **known: float) -> Programs:
    """10 million instructions a request, at 2 GHz 4 ms of a core that computes and 2 ms that waits for memory."""
    programs = ENVIRONMENT.draw("train", count, steps, 0, "steady", [0] * count)
    numbers = {"cores": 8.0, "work": 10.0, "cpi": 0.8, "memory_ns": 0.2, "phase_s": 1e6, "phase_factor": 1.0,
               "fixed_s": 0.0, "arrival_cv2": 1.0, "service_cv2": 1.0, "ambient_c": 30.0, "cooling": 1.0,
               "most_latency_ms": 40.0, "first_ghz": PROCESSORS[processor].base_ghz} | known
    assert set(numbers) <= {one.name for one in fields(Programs)}
    tensors: dict[str, Any] = {name: torch.full((count,), value) for name, value in numbers.items()}
    return replace(programs, **tensors, processor=torch.full((count,), processor),
                   rate_rps=torch.full_like(programs.rate_rps, rate_rps), noise=torch.zeros_like(programs.noise))


def targets(clock_ghz: float, count: int = 1) -> torch.Tensor:
    return torch.full((count, 1), clock_ghz)
