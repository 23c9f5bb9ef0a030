"""Extremes and sums over the last seconds, each application with its own length of window.

Symbols: N applications; a loop runs over the moments in the longest window, never over applications.
"""

from collections import deque

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


class History:
    """What was noted in the last `longest` seconds. NaN is no note."""

    def __init__(self, longest: float) -> None:
        self._longest = longest
        self._notes: deque[tuple[float, Numbers]] = deque()

    def add(self, seconds: float, values: Numbers) -> None:
        """Notes values (N,) at a time that is not before the last one."""
        if self._longest > 0:
            self._notes.append((seconds, values))

    def maximum(self, seconds: float, window: Numbers) -> Numbers:
        """(N,) largest note younger than `window` seconds, () or (N,); NaN where there is none."""
        return self._folded(np.fmax, seconds, window)

    def minimum(self, seconds: float, window: Numbers) -> Numbers:
        """(N,) smallest note younger than `window` seconds; NaN where there is none."""
        return self._folded(np.fmin, seconds, window)

    def sums(self, seconds: float, window: Numbers) -> tuple[Numbers, Numbers]:
        """(N,) sum of what is positive and, as a positive number, of what is negative in the window."""
        self._forget(seconds)
        up: Numbers = np.zeros(())
        down: Numbers = np.zeros(())
        for time, values in self._notes:
            inside = np.where(time > seconds - window, np.nan_to_num(values), 0.0)
            up, down = up + inside.clip(min=0.0), down - inside.clip(max=0.0)
        return up, down

    def _folded(self, better: np.ufunc, seconds: float, window: Numbers) -> Numbers:
        self._forget(seconds)
        result: Numbers = np.full((), np.nan)
        shortest = float(np.min(window))
        for time, values in self._notes:
            inside = values if time > seconds - shortest else np.where(time > seconds - window, values, np.nan)
            result = better(result, inside)
        return result

    def _forget(self, seconds: float) -> None:
        while self._notes and self._notes[0][0] <= seconds - self._longest:
            self._notes.popleft()


class SlidingMaximum:
    """Maximum over long windows in SLOTS pieces each: a note is forgotten up to window / SLOTS too early."""

    SLOTS = 32

    def __init__(self, applications: int) -> None:
        self._rows = np.arange(applications)
        self._largest = np.full((applications, self.SLOTS), -np.inf)
        self._numbers = np.full((applications, self.SLOTS), -(10 ** 9), dtype=np.int64)

    def add(self, seconds: float, values: Numbers, window: Numbers) -> Numbers:
        """Notes values (N,), NaN is none; returns (N,) the largest of the last `window` > 0 seconds, NaN if none."""
        number = np.broadcast_to(np.floor(seconds / window * self.SLOTS), self._rows.shape).astype(np.int64)
        slot = number % self.SLOTS
        fresh = self._numbers[self._rows, slot] != number
        kept = np.where(fresh, -np.inf, self._largest[self._rows, slot])
        self._largest[self._rows, slot] = np.fmax(kept, values)
        self._numbers[self._rows, slot] = number
        inside = self._numbers > (number - self.SLOTS)[:, None]
        largest = np.where(inside, self._largest, -np.inf).max(axis=1)
        return np.where(np.isfinite(largest), largest, np.nan)
