"""What simulators need of tensors: equations that they share with an observer, drawn numbers, values of a step."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

TENSORS = SimpleNamespace(exp=torch.exp, log=torch.log, clamp=torch.clamp, where=torch.where)  # `xp` of a contract's


def float32(values: NDArray[Any]) -> Tensor:
    """A tensor of the same numbers."""
    return torch.from_numpy(np.asarray(values, dtype=np.float32))


def at_step(values: Tensor, step: int) -> Any:
    """values[step], the last one beyond their end."""
    return values[min(step, len(values) - 1)]


def log_uniform(share: NDArray[np.float64], low: float, high: float) -> NDArray[np.float64]:
    """From low to high, evenly in the logarithm as a share goes from 0 to 1."""
    return np.asarray(low * (high / low) ** share)
