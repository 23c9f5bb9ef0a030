"""Interpolated logarithms and their inverses, of whole batches (signals.py says what they are).

Both are written as sums of ReLUs in one layer, so that the exported file computes the same:

    log(x) = log(k_0) + s_0 (x - k_0) + sum over i >= 1 of (s_i - s_{i-1}) relu(x - k_i),   s_i = ln 2 / (k_{i+1} - k_i)

Symbols: B batch shape, n signals; k_i knots.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from models.environments.signals import Signal


class Scaling:
    """Scales observations: the logarithm of the signals that are seen so, the others as they are."""

    def __init__(self, signals: Sequence[Signal]) -> None:
        self.signals = tuple(signals)
        self._log = torch.tensor([signal.scale == "log" for signal in signals])
        self._low = torch.tensor([signal.low for signal in signals], dtype=torch.float32)
        self._high = torch.tensor([signal.high for signal in signals], dtype=torch.float32)
        self._first = torch.where(self._log, self._low.clamp(min=1e-30), 1.0)
        self._offset = torch.where(self._log, self._first.log(), 0.0)

    def __call__(self, observation: Tensor) -> Tensor:
        """(..., n) raw -> (..., n) scaled; raw values outside of a signal's range count as its ends."""
        clipped = observation.maximum(self._low).minimum(self._high)
        return torch.where(self._log, interpolated_log(clipped / self._first) + self._offset, clipped)

    def column(self, name: str) -> int:
        """Position of a signal. Raises KeyError."""
        for position, signal in enumerate(self.signals):
            if signal.name == name:
                return position
        raise KeyError(name)


_LN2 = 0.6931471805599453


def interpolated_log(ratio: Tensor) -> Tensor:
    """Natural logarithm of numbers >= 1, linear between powers of two: at most 0.0597 below the true one."""
    octave = ratio.detach().clamp(min=1.0).log2().floor()
    base = torch.exp2(octave)
    return _LN2 * (octave + ratio / base - 1.0)


def interpolated_exp(logarithm: Tensor) -> Tensor:
    """The inverse of `interpolated_log` for numbers >= 0."""
    octave = (logarithm.detach() / _LN2).clamp(min=0.0).floor()
    return torch.exp2(octave) * (1.0 + logarithm / _LN2 - octave)
