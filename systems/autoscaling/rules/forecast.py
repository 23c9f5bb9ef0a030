"""Holt-Winters' forecast: level, damped trend and season by exponential smoothing, in real time.

Hyndman and Athanasopoulos, Forecasting: Principles and Practice, 3rd ed., sections 8.2 to 8.4 (otexts.com/fpp3), the
additive form of the logarithm, so that a forecast is positive; a smoothing share is per `step_s` seconds, whatever the
time between observations.

    level     l <- (1 - a) (l + phi b) + a (y - s)
    trend     b <- (1 - c) phi b + c (l - l_before)
    season    s <- (1 - g) s + g (y - l)
    forecast  of h steps: l + (phi + ... + phi^h) b + s(then)

Symbols: N applications, S phases of a season.
"""

import numpy as np
from numpy.typing import NDArray

from models.control.contract.setting import Setting, Values
from systems.autoscaling.rules.part import Numbers

FORECAST = (
    Setting("level", 0.5, high=1.0, search=(0.05, 1.0), meaning="smoothing of the level, a step"),
    Setting("trend", 0.1, high=1.0, search=(0.0, 0.5), meaning="smoothing of the trend, a step"),
    Setting("damping", 0.9, high=1.0, search=(0.7, 1.0), meaning="of the trend, a step"),
    Setting("season", 0.1, high=1.0, search=(0.0, 0.7), meaning="smoothing of the season, each time it comes; 0: none"),
    Setting("season_s", 3600.0, "s", 60.0, 7 * 86400.0, (300.0, 3600.0), log=True, meaning="length of the season"),
    Setting("horizon_s", 60.0, "s", 0.0, 3600.0, (0.0, 180.0), meaning="how far ahead"),
)
STEP_S = 15.0
PHASES = 60


class HoltWinters:
    """Forecasts of N series of positive numbers."""

    def __init__(self, values: Values, applications: int) -> None:
        self._values = values
        self._rows = np.arange(applications)
        self._level = np.full(applications, np.nan)
        self._trend = np.zeros(applications)
        self._season = np.zeros((applications, PHASES))
        self._seconds = 0.0

    def __call__(self, observed: Numbers, seconds: float) -> Numbers:
        """Takes observations (N,) > 0, NaN where missing; returns the forecast (N,) at the horizon, NaN before any."""
        values = self._values
        steps = max(seconds - self._seconds, 0.0) / STEP_S
        self._seconds = seconds
        valid = np.isfinite(observed)
        logarithm = np.log(np.where(valid, observed, 1.0))
        self._level = np.where(valid & np.isnan(self._level), logarithm, self._level)
        phase = self._phase(seconds)
        season = self._season[self._rows, phase]
        carried, kept = self._damped(steps) * self._trend, values["damping"] ** steps * self._trend
        share, trend_share = (1.0 - (1.0 - values[name]) ** steps for name in ("level", "trend"))
        before = self._level
        level = (1.0 - share) * (before + carried) + share * (logarithm - season)
        slope = (level - before) / max(steps, 1e-9)
        self._trend = np.where(valid, (1.0 - trend_share) * kept + trend_share * slope, kept)
        self._level = np.where(valid, level, before + carried)
        learned = (1.0 - values["season"]) * season + values["season"] * (logarithm - self._level)
        self._season[self._rows, phase] = np.where(valid & (steps > 0), learned, season)
        ahead = values["horizon_s"] / STEP_S
        then = self._season[self._rows, self._phase(seconds + values["horizon_s"])]
        return np.exp(np.clip(self._level + self._damped(ahead) * self._trend + then, -60.0, 60.0))

    def _damped(self, steps: Numbers | float) -> Numbers:
        """phi + phi^2 + ... + phi^steps."""
        phi = self._values["damping"]
        undamped = phi > 1.0 - 1e-9
        return np.where(undamped, steps, phi * (1.0 - phi ** steps) / np.where(undamped, 1.0, 1.0 - phi))

    def _phase(self, seconds: Numbers | float) -> NDArray[np.int64]:
        length = self._values["season_s"]
        phase = np.floor(np.mod(seconds, length) / length * PHASES).astype(np.int64)
        return np.broadcast_to(np.minimum(phase, PHASES - 1), self._rows.shape)
