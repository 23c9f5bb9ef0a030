"""Loads that are made up: a tide, a walk that is drawn to its mean, and bursts.

Symbols: N applications, T steps.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def made_load(random: np.random.Generator, steps: int, count: int, period: NDArray[Any], bursts: float,
              burst_steps: float = 5.0) -> NDArray[np.float64]:
    """(T, N) logarithm of the load over its mean.

    Args:
        period: (N,) of the tide, steps.
        bursts: probability that one begins in a step.
        burst_steps: how long it lasts.
    """
    tide = 0.35 * np.sin(2.0 * np.pi * (np.arange(steps)[:, None] / period + random.random(count)))
    place, places, left = np.zeros(count), [], np.zeros(count)
    for shock, begins in zip(random.standard_normal((steps, count)), random.random((steps, count)), strict=True):
        place = 0.95 * place + 0.05 * shock
        left = np.where(begins < bursts, burst_steps, np.maximum(left - 1.0, 0.0))
        places.append(place + 0.4 * (left > 0))
    found: NDArray[np.float64] = tide + np.stack(places)
    return found
