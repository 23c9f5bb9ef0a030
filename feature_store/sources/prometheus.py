"""Reads telemetry from a Prometheus server (or anything that speaks its HTTP API) into frames.

Time is UTC: a timestamp without a zone is refused. Whatever is missing stays missing: gaps are NaN,
a partial answer is an error, nothing is ever filled in.
"""

import math
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from feature_store.errors import InputError, SourceError
from feature_store.sources.metric_map import MetricMap
from feature_store.sources.prometheus_api import PrometheusApi, Series

# Prometheus refuses a range query with more than 11,000 points per series.
POINTS_PER_QUERY = 10_000
_PARALLEL_QUERIES = 4
# Prometheus counts time in milliseconds.
_RESOLUTION_S = 0.001


class NoSeriesError(SourceError):
    """The server has no series of a metric: whatever has it did not run, or the expression is wrong."""


class PrometheusSource:
    """A Prometheus server as a source of telemetry."""

    def __init__(self, url: str, timeout_s: float = 30, retries: int = 3) -> None:
        """Args:
            url: base address, `http(s)://[user:password@]host[:port][/prefix]`.
            timeout_s: time limit of one request as a whole, s.
            retries: how often a request is repeated after a failure that may pass.

        Raises:
            InputError: where one of them is unusable.
        """
        self._api = PrometheusApi(url, timeout_s, retries)

    def query_range(self, expression: str, start: datetime, end: datetime, step_s: float) -> pd.DataFrame:
        """Values of a PromQL expression from `start` to `end`, both included, every `step_s` seconds.

        Returns:
            One row for each series and point that the server has: `timestamp` (UTC), `value`, and one
            categorical column for each label (missing where a series lacks it).

        Raises:
            InputError: where a time has no zone, the range is empty or the step is unusable.
            SourceError: where the server does not answer, refuses, or answers in part.
        """
        return _long_frame(self._range(expression, _grid(start, end, step_s), step_s))

    def instant(self, expression: str, at: datetime | None = None) -> pd.DataFrame:
        """Values of a PromQL expression at one time (the server's now where None), as `query_range`."""
        parameters = {"query": expression}
        if at is not None:
            parameters["time"] = _format_time(_seconds(at, "at"))
        return _long_frame(self._api.series("query", parameters))

    def read_metrics(self, metric_map: MetricMap, start: datetime, end: datetime, step_s: float,
                     workload: str | None = None) -> pd.DataFrame:
        """Every metric of a map at start, start + step_s, ... up to `end`.

        The value at time t covers the window of `step_s` seconds that ends at t.

        Args:
            workload: whose metrics these are, for messages; None: they are nobody's own.

        Returns:
            One row for each time (UTC index `timestamp`), one column for each metric, NaN where the
            server has no value.

        Raises:
            InputError: as `query_range`.
            SourceError: as `query_range`, and where a metric has more than one series.
            NoSeriesError: where it has none.
        """
        grid = _grid(start, end, step_s)
        columns: dict[str, npt.NDArray[np.float64]] = {}
        for name, metric in metric_map.metrics.items():
            expression = metric_map.expression(name, step_s)
            series = self._only(name, self._range(expression, grid, step_s), workload)
            rows = np.rint((series.times_s - grid[0]) / step_s).astype(int)
            if np.any(rows < 0) or np.any(rows >= len(grid)):
                raise SourceError(f"metric {name} must only have values in the range asked for ({self._api.address})")
            columns[name] = np.full(len(grid), np.nan)
            columns[name][rows] = series.values * metric.scale
        return pd.DataFrame(columns, index=_timestamps(grid).rename("timestamp"))

    def read_now(self, metric_map: MetricMap, window_s: float) -> dict[str, float]:
        """Every metric of a map over the last `window_s` seconds.

        Raises:
            InputError: where `window_s` is not positive.
            SourceError: as `read_metrics`, and where a metric has no value now.
        """
        if not window_s > 0:
            raise InputError(f"window_s must be positive, got {window_s!r} (Prometheus query)")
        values = {}
        for name, metric in metric_map.metrics.items():
            parameters = {"query": metric_map.expression(name, window_s)}
            series = self._only(name, self._api.series("query", parameters))
            value = float(series.values[-1] * metric.scale)
            if not math.isfinite(value):
                raise SourceError(f"metric {name} must have a value now, got {value} ({self._api.address})")
            values[name] = value
        return values

    def _only(self, name: str, series: list[Series], workload: str | None = None) -> Series:
        if len(series) == 1:
            return series[0]
        labels = ", ".join(str(one.labels) for one in series[:3]) or "none"
        of = f" of workload {workload}" if workload else ""
        raise (SourceError if series else NoSeriesError)(
            f"metric {name}{of} must have exactly one series, got {len(series)}: {labels} ({self._api.address}); "
            "see its expression and the instance in the metric map"
        )

    def _range(self, expression: str, grid: npt.NDArray[np.float64], step_s: float) -> list[Series]:
        """Queries in chunks, in parallel, and joins the chunks of each series."""

        def fetch(first: int) -> list[Series]:
            times = grid[first : first + POINTS_PER_QUERY]
            parameters = {
                "query": expression,
                "start": _format_time(times[0]),
                "end": _format_time(times[-1]),
                "step": f"{step_s:.3f}",
            }
            return self._api.series("query_range", parameters)

        firsts = range(0, len(grid), POINTS_PER_QUERY)
        if len(firsts) == 1:
            return fetch(0)
        with ThreadPoolExecutor(_PARALLEL_QUERIES) as pool:
            chunks = list(pool.map(fetch, firsts))
        parts: dict[tuple[tuple[str, str], ...], list[Series]] = {}
        for one in (series for chunk in chunks for series in chunk):
            parts.setdefault(tuple(sorted(one.labels.items())), []).append(one)
        return [
            Series(
                same[0].labels,
                np.concatenate([one.times_s for one in same]),
                np.concatenate([one.values for one in same]),
            )
            for same in parts.values()
        ]


def _long_frame(series: list[Series]) -> pd.DataFrame:
    lengths = [len(one.values) for one in series]
    columns: dict[str, Any] = {
        "timestamp": _timestamps(np.concatenate([np.empty(0), *(one.times_s for one in series)])),
        "value": np.concatenate([np.empty(0), *(one.values for one in series)]),
    }
    for label in sorted({label for one in series for label in one.labels}):
        names = sorted({one.labels[label] for one in series if label in one.labels})
        codes = [names.index(one.labels[label]) if label in one.labels else -1 for one in series]
        repeated = np.repeat(np.array(codes, dtype=np.int32), lengths)
        # A label may be called like one of our own columns.
        column = f"label_{label}" if label in columns else label
        columns[column] = pd.Categorical.from_codes(repeated, pd.Index(names))
    return pd.DataFrame(columns)


def _timestamps(times_s: npt.NDArray[np.float64]) -> pd.DatetimeIndex:
    milliseconds = np.rint(times_s / _RESOLUTION_S).astype("int64").astype("datetime64[ms]")
    return pd.DatetimeIndex(milliseconds).tz_localize("UTC")


def _format_time(time_s: float) -> str:
    return f"{time_s:.3f}"


def _seconds(moment: datetime, name: str) -> float:
    if moment.tzinfo is None or moment.utcoffset() is None:
        raise InputError(f"{name} must have a time zone, got {moment!s} (Prometheus query)")
    return round(moment.timestamp(), 3)


def _grid(start: datetime, end: datetime, step_s: float) -> npt.NDArray[np.float64]:
    """The times start, start + step_s, ... up to `end`, Unix s."""
    start_s, end_s = _seconds(start, "start"), _seconds(end, "end")
    steps = step_s / _RESOLUTION_S
    if not steps >= 1 or abs(steps - round(steps)) > 1e-6:
        raise InputError(f"step_s must be one or more whole milliseconds, got {step_s!r} (Prometheus query)")
    if end_s < start_s:
        raise InputError(f"end must not be before start, got {start!s} to {end!s} (Prometheus query)")
    count = math.floor((end_s - start_s) / step_s + 1e-6) + 1
    return np.asarray(start_s + step_s * np.arange(count), dtype=np.float64)
