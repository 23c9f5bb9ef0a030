"""When requests arrive: Poisson arrivals of a rate that changes in steps, and the shape of a day of invocations."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from feature_store.errors import InputError
from feature_store.sources.invocations import read_invocations

# A function that is called less than this often has no shape to play back, calls a minute.
_LEAST_PER_MINUTE = 10.0
# A function as even as this is no more than one step, coefficient of variation.
_LEAST_VARIATION = 0.2


def poisson_arrivals(random: np.random.Generator, rates: Sequence[float], seconds: Sequence[float]) -> np.ndarray:
    """Arrival times of a Poisson process whose rate is constant in each segment.

    Args:
        random: source of randomness.
        rates: requests per second [segments].
        seconds: length of each segment, s [segments].

    Returns:
        Ascending times from 0 on, s [arrivals].
    """
    starts = np.concatenate([[0.0], np.cumsum(seconds)])
    pieces = [
        start + np.sort(random.random(random.poisson(rate * length))) * length
        for start, rate, length in zip(starts, rates, seconds, strict=False)
    ]
    return np.concatenate(pieces) if pieces else np.empty(0)


def read_shapes(path: Path) -> np.ndarray:
    """Invocations per minute, [functions, minutes], of the functions that have a shape.

    Raises:
        InputError: as `read_invocations`, or no such function.
    """
    counts = read_invocations(path)
    means = counts.mean(axis=1)
    shaped = (means >= _LEAST_PER_MINUTE) & (counts.std(axis=1) >= _LEAST_VARIATION * means)
    if not shaped.any():
        raise InputError(
            f"trace must have a function called {_LEAST_PER_MINUTE:g} times a minute or more, and unevenly, "
            f"got none in {len(counts)} ({path})")
    return counts[shaped]


def synthetic_invocations(random: np.random.Generator, functions: int, minutes: int = 1440) -> np.ndarray:
    """A stand-in for a trace: a day's wave, noise, and bursts of a few minutes; [functions, minutes]."""
    phase = 2 * np.pi * (np.arange(minutes) / 1440 + random.random((functions, 1)))
    noise = random.gamma(16.0, 1 / 16.0, (functions, minutes))
    begins = random.random((functions, minutes)) < 1 / 20
    bursts = begins * random.exponential(1.5, (functions, minutes))
    decay = 0.6 ** np.arange(6)
    echoes = np.stack([np.convolve(row, decay)[:minutes] for row in bursts])
    return np.asarray(100.0 * (1 + 0.4 * np.sin(phase)) * noise * (1 + echoes))


def draw_shape(random: np.random.Generator, invocations: np.ndarray, minutes: int) -> np.ndarray:
    """The liveliest stretch of one function drawn at random, its highest minute as 1; [minutes]."""
    row = invocations[random.integers(len(invocations))]
    stretch = min(minutes, len(row))
    windows = np.lib.stride_tricks.sliding_window_view(row, stretch)
    shape = windows[np.argmax(windows.std(axis=1))]
    return np.asarray(shape / shape.max())
