"""Interpolated logarithms and their inverses, of whole batches (signals.py says what they are).

Both are written as sums of ReLUs in one layer, so that the exported file computes the same:

    log(x) = log(k_0) + s_0 (x - k_0) + sum over i >= 1 of (s_i - s_{i-1}) relu(x - k_i),   s_i = ln 2 / (k_{i+1} - k_i)

Symbols: B batch shape, n signals; k_i knots.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from models.control.contract.signals import Signal


class Scaling:
    """Scales observations: the logarithm of the signals that are seen so, the others as they are."""

    def __init__(self, signals: Sequence[Signal]) -> None:
        self.signals = tuple(signals)
        log = torch.tensor([signal.scale == "log" for signal in signals])
        low, high = (torch.tensor([getattr(signal, side) for signal in signals], dtype=torch.float64)
                     for side in ("low", "high"))
        first = torch.where(log, low.clamp(min=1e-30), 1.0)
        offset = torch.where(log, first.log(), 0.0)
        # (log, low, high, first, offset), (n,) each, in the types that are asked for
        self._constants = {dtype: (log, *(part.to(dtype) for part in (low, high, first, offset)))
                           for dtype in (torch.float32, torch.float64)}

    def __call__(self, observation: Tensor) -> Tensor:
        """(..., n) raw -> (..., n) scaled; raw values outside of a signal's range count as its ends."""
        log, low, high, first, offset = self._constants[observation.dtype]
        clipped = observation.maximum(low).minimum(high)
        return torch.where(log, interpolated_log(clipped / first) + offset, clipped)

    def clip(self, observation: Tensor) -> Tensor:
        """(..., n) raw -> (..., n) raw, within the signals' ranges."""
        _, low, high, _, _ = self._constants[observation.dtype]
        return observation.maximum(low).minimum(high)

    def offset(self, column: int) -> float:
        """Logarithm of a signal's lowest value; 0 where it is seen as it is."""
        return float(self._constants[torch.float64][-1][column])

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
