"""Loads from the Azure Functions trace: three days that train, other functions that are played.

Shahrad et al., "Serverless in the Wild" (USENIX ATC 2020). A load is a sum of four functions weighted at random; no
function is in two loads.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from feature_store.errors import InputError
from feature_store.sources.invocations import read_invocations
from recording.live.service import Load
from systems.autoscaling.benchmarks.real_servers.settings import CHALLENGE, COUNTED_S, WARM_UP_S
from systems.autoscaling.benchmarks.whole_run import FUNCTIONS, HIGHEST_PEAK, LEAST_A_MINUTE

DAYS = 3
MEAN_RPS = 150.0  # some 0.15 cores, so that three services have room on two processors
MINUTE_S = 60.0
LEAST_PEAK, MOST_PEAK = 1.4, 2.1  # of a played stretch, over the day's mean
JUMP_MINUTES = 3
STEEPEST = 2.0  # rate of a minute over that of the minute before, of a challenging stretch before it gets its jump
LEAST = 0.05  # of a minute's rate over the day's mean
_SEED = 5


class Functions:
    """The trace's functions in a fixed random order, handed out once each."""

    def __init__(self, folder: Path) -> None:
        counts = read_invocations(folder / "azure_functions" / "invocations_per_minute_1350.csv.gz")
        means = counts.mean(axis=1)
        self._usual = counts[(means >= LEAST_A_MINUTE) & (counts.max(axis=1) < HIGHEST_PEAK * means)]
        self._random = np.random.default_rng(_SEED)
        self._order = self._random.permutation(len(self._usual)).tolist()

    def day(self) -> NDArray[np.float64]:
        """(1440,) of the next four functions, with mean 1. Raises InputError: none are left."""
        if len(self._order) < FUNCTIONS:
            raise InputError(f"trace must have functions for all loads, got {len(self._usual)}")
        taken, self._order = self._order[:FUNCTIONS], self._order[FUNCTIONS:]
        return self._weighted(taken, self._random)

    def other_day(self, random: np.random.Generator) -> NDArray[np.float64]:
        """(1440,) of four functions, with mean 1, that no `day` so far was made of; another call may take them too."""
        return self._weighted(random.choice(self._order, FUNCTIONS, replace=False).tolist(), random)

    def _weighted(self, taken: list[int], random: np.random.Generator) -> NDArray[np.float64]:
        shapes = self._usual[taken]
        weights = random.lognormal(0.0, 1.0, (FUNCTIONS, 1)) / shapes.mean(axis=1, keepdims=True)
        day = (shapes * weights).sum(axis=0)
        return np.asarray(day / day.mean())


def training_load(functions: Functions, workloads: tuple[str, ...], mean_rps: float = MEAN_RPS) -> pd.DataFrame:
    """Telemetry of three days of each workload, a row a minute."""
    tables = []
    for name in workloads:
        rate = mean_rps * np.concatenate([functions.day() for _ in range(DAYS)])
        tables.append(pd.DataFrame({
            "workload": name, "environment": "azure", "combination": "unknown",
            "window_start": pd.date_range("2026-03-02T00:00:00Z", periods=len(rate), freq="60s"), "window_s": MINUTE_S,
            "rate_rps": rate.clip(min=1.0).round(3)}))
    return pd.concat(tables, ignore_index=True)


def played_load(functions: Functions, seed: int) -> Load:
    """A stretch with a peak, drawn at random among those of the next day that has one; its first 75 s warm up."""
    rates, lengths = _stretch(functions.day, np.random.default_rng(seed), WARM_UP_S + COUNTED_S,
                              (LEAST_PEAK, MOST_PEAK))
    return Load((MEAN_RPS * rates).round(2).tolist(), lengths, seed)


def challenging_load(functions: Functions, seed: int, counted_s: float) -> Load:
    """A stretch with a peak of 3 to 4 times the day's mean, which rises at most twofold from minute to minute; two of
    three loads also jump to that height within a minute, for three minutes: two jumps an hour. Of functions that no
    `day` so far was made of; the same for one seed.
    """
    random, peak = np.random.default_rng(seed), (CHALLENGE.least_peak, CHALLENGE.most_peak)
    rates, lengths = _stretch(lambda: functions.other_day(random), random, WARM_UP_S + counted_s, peak, STEEPEST)
    if seed % 3 != 2 and len(rates) > JUMP_MINUTES + 4:
        calm = np.lib.stride_tricks.sliding_window_view(rates[2:], JUMP_MINUTES).max(axis=1)
        begin = 2 + int(np.argmin(calm))
        rates[begin:begin + JUMP_MINUTES] = float(random.uniform(*peak))
    return Load((CHALLENGE.mean_rps * rates).round(2).tolist(), lengths, seed)


def _stretch(day_of: Callable[[], NDArray[np.float64]], random: np.random.Generator, seconds: float,
             peak: tuple[float, float], steepest: float = np.inf) -> tuple[NDArray[np.float64], list[float]]:
    """Minutes of a day, over its mean, with a peak between two values, and the lengths of the minutes, s.

    steepest: most that a minute's rate may be over the one before.
    """
    minutes, possible = int(np.ceil(seconds / MINUTE_S)), np.empty(0, dtype=np.int64)
    while not len(possible):
        day = day_of().clip(min=LEAST)
        peaks = np.lib.stride_tricks.sliding_window_view(day, minutes).max(axis=1)
        rises = np.lib.stride_tricks.sliding_window_view(day[1:] / day[:-1], minutes - 1).max(axis=1)
        possible = np.flatnonzero((peaks >= peak[0]) & (peaks <= peak[1]) & (rises <= steepest))
    begin = int(random.choice(possible))
    lengths = [MINUTE_S] * (minutes - 1) + [seconds - MINUTE_S * (minutes - 1)]
    return day[begin:begin + minutes].copy(), lengths
