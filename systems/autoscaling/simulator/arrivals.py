"""Arrival processes: a day of invocations per minute of real functions, or patterns that are made.

Real ones: the Azure Functions trace (Shahrad et al., ATC 2020; CC-BY-4.0) or any CSV file of the same form: one row
a series, columns that end in `_minute` or are whole numbers. They are split by what they hold, so that no series
serves for training and for judging, under whatever name.

Symbols: F series, M minutes, N episodes, T steps.
"""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from feature_store.errors import InputError

PATTERNS = ("diurnal", "bursts", "steps", "flash_crowd", "drift")
_MINUTES = 1440
_HELD_OUT_EVERY = 5  # every fifth series judges
_LEAST_A_MINUTE = 1.0  # below it a series is mostly single invocations, and scaling it up makes bursts of them


def read_traces(path: Path, least_a_minute: float = _LEAST_A_MINUTE) -> NDArray[np.float64]:
    """(F, M) shapes with mean 1 from invocations per minute.

    Args:
        least_a_minute: series with a smaller mean are left out.

    Raises:
        InputError: as `read_invocations`; no series left.
    """
    # not at the top: the environment also runs in interpreters without pandas
    from feature_store.sources.invocations import read_invocations

    numbers = read_invocations(path)
    means = numbers.mean(axis=1)
    kept = means >= max(least_a_minute, 1e-9)
    if not kept.any():
        raise InputError(f"traces: expected a series of at least {least_a_minute:g} requests a minute, got at most "
                         f"{means.max():g} ({path})")
    return np.asarray(numbers[kept] / means[kept, None])


def made_traces(count: int, seed: int) -> NDArray[np.float64]:
    """(count, 1440) shapes with mean 1: daily waves with bursts, steps, flash crowds and drifts, mixed at random."""
    random = np.random.default_rng([seed, 0xA221])
    minute = np.arange(_MINUTES)
    shapes = np.ones((count, _MINUTES))
    phase, depth = random.uniform(0, 2 * np.pi, (count, 1)), random.uniform(0.0, 0.7, (count, 1))
    shapes += depth * np.sin(2 * np.pi * minute / _MINUTES + phase)
    period = random.choice([5, 10, 15, 30, 60], (count, 1))
    shapes += random.uniform(0, 0.6, (count, 1)) * (((minute + random.integers(0, 60, (count, 1))) % period) < 1)
    for row in shapes:
        for _ in range(random.poisson(6)):  # steps
            row[random.integers(_MINUTES):] *= np.exp(random.normal(0, 0.3))
        for _ in range(random.poisson(12)):  # bursts and flash crowds, decaying over minutes
            start = random.integers(_MINUTES)
            height, decay = random.lognormal(-0.3, 0.8), random.uniform(1, 20)
            row[start:] += height * np.exp(-(minute[start:] - start) / decay)
        wander = np.cumsum(random.normal(0, 0.03, _MINUTES))
        row *= np.exp(wander - wander.mean())
    noise = random.gamma(random.uniform(20, 400, (count, 1)), size=shapes.shape)
    shapes = np.maximum(shapes, 0.02) * noise / noise.mean(axis=1, keepdims=True)
    return np.asarray(shapes / shapes.mean(axis=1, keepdims=True))


def pattern(name: str, minutes: int) -> NDArray[np.float64]:
    """(minutes,) one clean shape with mean about 1, for tests and pictures. Raises InputError for an unknown name."""
    minute = np.arange(minutes)
    if name == "diurnal":
        return np.asarray(1.0 + 0.6 * np.sin(2 * np.pi * minute / max(minutes, 2)))
    if name == "bursts":
        return np.where(minute % 10 == 5, 3.0, 0.78)
    if name == "steps":
        return np.asarray(np.choose((4 * minute // minutes) % 4, [0.6, 1.4, 0.8, 1.2]).astype(np.float64))
    if name == "flash_crowd":
        return np.where(minute < minutes // 2, 0.6, 0.6 + 3.0 * np.exp(-(minute - minutes // 2) / 8.0))
    if name == "drift":
        return np.linspace(0.5, 1.5, minutes)
    raise InputError(f"pattern: expected one of {', '.join(PATTERNS)}, got {name!r}")


def split_traces(traces: NDArray[np.float64], split: str) -> NDArray[np.float64]:
    """The series of `train` or `held_out`: every fifth judges, counted by rising spread, so that both are as bursty.

    Equal series are one: in the Azure trace 37 of 153 repeat another, and a repeated one would stand in both splits.
    With one series both are its halves.
    """
    traces = traces[np.sort(np.unique(traces, axis=0, return_index=True)[1])]
    if len(traces) == 1:
        half = traces.shape[1] // 2
        return traces[:, :half] if split == "train" else traces[:, half:]
    rank = np.argsort(np.argsort(traces.std(axis=1), kind="stable"), kind="stable")
    held_out = rank % _HELD_OUT_EVERY == min(_HELD_OUT_EVERY, len(traces)) // 2
    return traces[held_out if split == "held_out" else ~held_out]


def windows(traces: Tensor, rows: Tensor, starts: Tensor, steps: int, step_s: float) -> Tensor:
    """(N, T) shapes a step, interpolated between the middles of minutes; a day ends in its beginning.

    Args:
        traces: (F, M).
        rows: (N,) which series.
        starts: (N,) where it begins, in minutes, not whole.
    """
    at = starts[:, None] + torch.arange(steps) * (step_s / 60.0)
    before = at.floor()
    share = (at - before).to(torch.float32)
    size = traces.shape[1]
    first, second = before.long() % size, (before.long() + 1) % size
    series = rows[:, None]
    return torch.lerp(traces[series, first], traces[series, second], share)
