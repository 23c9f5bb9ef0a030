"""Cleans the raw data of one combination into samples, as vPALs does (section "Data Cleaning").

Only intervals in which every workload of the combination is present are kept, the warm-up is cut off,
and metrics and latencies are averaged per window. A window survives only if every metric and the latency
of every workload are there. Nothing is scaled, split or filled in: scaling and splitting belong to the
pipeline, and a value that is missing drops its window. Pure functions.

    intervals   one frame for each workload: start_s, end_s (Unix s), count (> 0), mean_latency_ms
    metrics     UTC index; the value at t covers the time from t - step_s to t
    window      [start, start + window_s)
"""

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pandas as pd

from feature_store.errors import InputError
from feature_store.schema import METRICS, TARGET

INTERVAL_COLUMNS = ("start_s", "end_s", "count", "mean_latency_ms")

Floats = npt.NDArray[np.float64]


def present_span(intervals: Mapping[str, pd.DataFrame]) -> tuple[float, float] | None:
    """Start and end (Unix s) of the time in which every workload is present; None where there is none."""
    if not intervals or any(frame.empty for frame in intervals.values()):
        return None
    start = max(float(frame["start_s"].min()) for frame in intervals.values())
    end = min(float(frame["end_s"].max()) for frame in intervals.values())
    return (start, end) if start < end else None


def window_starts(start_s: float, end_s: float, *, anchor_s: float, window_s: float) -> Floats:
    """Starts (Unix s) of the windows that lie wholly within start_s..end_s, on the grid through anchor_s."""
    first = math.ceil((start_s - anchor_s) / window_s - 1e-9)
    last = math.floor((end_s - anchor_s) / window_s + 1e-9)
    return np.asarray(anchor_s + window_s * np.arange(first, max(first, last)), dtype=np.float64)


def latency_per_window(intervals: pd.DataFrame, starts: Floats, window_s: float) -> Floats:
    """Mean latency of a workload in each window, ms, NaN where no interval touches the window.

    An interval that spans several windows counts in each by the share of its requests that falls into
    it, supposing that they are spread evenly over the interval.
    """
    begin = intervals["start_s"].to_numpy(dtype=float)[:, None]
    end = intervals["end_s"].to_numpy(dtype=float)[:, None]
    overlap_s = np.minimum(end, starts + window_s) - np.maximum(begin, starts)
    share = np.clip(overlap_s, 0.0, None) / (end - begin)
    requests = share * intervals["count"].to_numpy(dtype=float)[:, None]
    total = requests.sum(axis=0)
    weighted = (requests * intervals["mean_latency_ms"].to_numpy(dtype=float)[:, None]).sum(axis=0)
    latency = np.full(len(starts), np.nan)
    np.divide(weighted, total, out=latency, where=total > 0)
    return latency


def metrics_per_window(
    metrics: pd.DataFrame, starts: Floats, *, step_s: float, window_s: float
) -> pd.DataFrame:
    """Mean of each metric in each window; NaN where any of the window's values is missing."""
    # Half a step before its end, a value lies inside the window that it belongs to.
    middles = pd.DatetimeIndex(metrics.index).as_unit("ns").asi8 / 1e9 - step_s / 2
    window = np.searchsorted(starts, middles, side="right") - 1
    inside = window >= 0
    inside[inside] = middles[inside] < starts[window[inside]] + window_s
    expected = round(window_s / step_s)
    grouped = metrics[inside].groupby(window[inside])
    complete = grouped.count() == expected
    return grouped.mean().where(complete).reindex(range(len(starts)))


def clean_combination(
    metrics: pd.DataFrame,
    intervals: Mapping[str, pd.DataFrame],
    *,
    anchor_s: float,
    step_s: float,
    window_s: float,
    warm_up_s: float,
) -> pd.DataFrame:
    """Samples of one combination.

    Args:
        metrics: machine metrics, one column for each of feature_store.schema.METRICS.
        intervals: latency intervals of each workload, by its name.
        anchor_s: Unix time on the grid of windows, s (a time of a scrape).
        step_s: distance of the metrics' rows, s.
        window_s: length of a window, s, a multiple of `step_s`.
        warm_up_s: time cut off from when the last workload appeared, s.

    Returns:
        One row for each workload and kept window: workload, window_start, window_s, metrics, latency_ms.

    Raises:
        InputError: where a column is missing or the window is no multiple of the step.
    """
    _check(metrics, intervals, step_s, window_s)
    span = present_span(intervals)
    if span is None:
        return _samples({}, np.empty(0), pd.DataFrame(columns=list(METRICS), dtype=float), window_s)
    starts = window_starts(span[0] + warm_up_s, span[1], anchor_s=anchor_s, window_s=window_s)
    values = metrics_per_window(metrics[list(METRICS)], starts, step_s=step_s, window_s=window_s)
    latencies = {name: latency_per_window(frame, starts, window_s) for name, frame in intervals.items()}
    kept = values.notna().all(axis=1).to_numpy(copy=True)
    for latency in latencies.values():
        kept &= np.isfinite(latency)
    kept_latencies = {name: latency[kept] for name, latency in latencies.items()}
    return _samples(kept_latencies, starts[kept], values[kept], window_s)


def _samples(
    latencies: Mapping[str, Floats], starts: Floats, values: pd.DataFrame, window_s: float
) -> pd.DataFrame:
    stamps = pd.DatetimeIndex(np.rint(starts * 1000).astype("int64").astype("datetime64[ms]"), tz="UTC")
    frames = [
        pd.DataFrame(
            {
                "workload": name,
                "window_start": stamps,
                "window_s": float(window_s),
                **{metric: values[metric].to_numpy() for metric in METRICS},
                TARGET: latency,
            }
        )
        for name, latency in latencies.items()
    ]
    if frames:
        return pd.concat(frames, ignore_index=True)
    return pd.DataFrame(columns=["workload", "window_start", "window_s", *METRICS, TARGET])


def _check(
    metrics: pd.DataFrame, intervals: Mapping[str, pd.DataFrame], step_s: float, window_s: float
) -> None:
    for name in METRICS:
        if name not in metrics:
            raise InputError(f"metrics must have the column {name}, got {list(metrics)} (cleaning)")
    for workload, frame in intervals.items():
        for column in INTERVAL_COLUMNS:
            if column not in frame:
                raise InputError(f"intervals must have the column {column}, got {list(frame)} ({workload})")
    steps = window_s / step_s
    if steps < 1 or abs(steps - round(steps)) > 1e-9:
        raise InputError(f"window_s must be a multiple of {step_s:g} s, got {window_s!r} (cleaning)")
