"""Telemetry in which nothing changes, and how often each way of looking says that something has (monitor.py)."""

from typing import Any

import numpy as np
import pandas as pd

from models.monitoring.chances import FALSE_ALARM, WINDOWS, level_of
from models.monitoring.drift import drifts, ks_distance, references

FEATURES, DAY, LOOK_ROWS = 50, 1440, WINDOWS[0]
CORRELATIONS = (0.0, 0.5, 0.9, 0.97, 0.99)  # of neighbours
KINDS = {"autoregressive": 3, "daily": 7}  # days of training
WAYS = {"monitor": "the monitor", "each look": "1 % for each look", "each feature": "a test a feature at 5 %"}
Json = dict[str, Any]


def unchanged(kind: str, rows: int, seed: int) -> pd.DataFrame:
    """Rows of one minute."""
    from scipy.signal import lfilter

    rng, columns = np.random.default_rng([seed, rows]), {}
    for place in range(FEATURES):
        memory = CORRELATIONS[place % len(CORRELATIONS)]
        noise = rng.normal(size=rows + DAY) * np.sqrt(1 - memory**2)
        values = lfilter([1.0], [1.0, -memory], noise)[DAY:]
        if kind == "daily":
            values = values + 2.0 * np.sin(2 * np.pi * np.arange(rows) / DAY + place)
        shape = place // len(CORRELATIONS) % 3
        columns[f"f{place:02d}"] = values if shape == 0 else np.exp(values) if shape == 1 else np.round(values)
    return pd.DataFrame(columns)


def false_alarms(kind: str, weeks: int, seed: int) -> Json:
    """Looks in which at least one feature is said to have changed, by each way of looking."""
    training_rows = KINDS[kind] * DAY
    frame = unchanged(kind, training_rows + 7 * DAY * weeks, seed)
    training, later = frame.iloc[:training_rows], frame.iloc[training_rows:]
    known = references(training, tuple(frame))
    whole = {name: np.sort(training[name].to_numpy()) for name in frame}
    found: Json = {"looks": 0, "judged": 0, **dict.fromkeys(WAYS, 0)}
    for look, end in enumerate(range(LOOK_ROWS, len(later) + 1, LOOK_ROWS), start=1):
        recent = later.iloc[max(0, end - WINDOWS[-1]):end]
        tested = drifts(known, recent)
        newest = recent.iloc[-320:]
        found["looks"] += 1
        found["judged"] = max(found["judged"], len(tested))
        found["monitor"] += bool(tested) and tested[0].chance <= level_of(look, 1, 2)
        found["each look"] += bool(tested) and tested[0].chance <= FALSE_ALARM
        found["each feature"] += any(_plain(values, newest[name].to_numpy()) <= 0.05 for name, values in whole.items())
    return {key: int(value) for key, value in found.items()}


def _plain(reference: np.ndarray, values: np.ndarray) -> float:
    """Chance of the distance by the same inequality as the monitor's, of all rows as if they were independent."""
    size = len(reference) * len(values) / (len(reference) + len(values))
    return float(2 * np.exp(-2 * size * ks_distance(reference, values) ** 2))
