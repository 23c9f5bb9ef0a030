"""What a request takes, from what is observed.

Symbols: N applications.
"""

import numpy as np

from systems.autoscaling.rules.part import Numbers, Readings


class CoresPerRequest:
    """What a load test would tell: cores for each request a second, as an exponential mean of what was observed."""

    def __init__(self, applications: int, half_life_s: Numbers) -> None:
        self._half_life = half_life_s
        self._cores = np.zeros(applications)
        self._rate = np.zeros(applications)
        self._seconds: float | None = None

    def __call__(self, readings: Readings, seconds: float) -> Numbers:
        """(N,) core seconds a request, the latest observation included; NaN before any."""
        cores, rate = readings["cpu_used_cores"], readings["rate_rps"]
        fade = np.exp2(-(seconds - self._seconds) / self._half_life) if self._seconds is not None else np.asarray(1.0)
        self._seconds = seconds
        valid = np.isfinite(cores) & np.isfinite(rate)
        self._cores = np.where(valid, self._cores * fade + np.where(valid, cores, 0.0), self._cores)
        self._rate = np.where(valid, self._rate * fade + np.where(valid, rate, 0.0), self._rate)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self._rate > 0, self._cores / self._rate, np.nan)
