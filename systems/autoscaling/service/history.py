"""What is recorded of a service: one row a window, from a Prometheus server or a file.

Columns: `window_start` (UTC) and those of COLUMNS that are known, each with its unit in its name; NaN where a window
has none. All rows have the same length, `window_s` in `frame.attrs`.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd

from feature_store.errors import InputError, SourceError
from feature_store.origin import UNREADABLE
from feature_store.sources.files import numbers_or_nan
from feature_store.sources.metric_map import MappedMetric, MetricMap
from feature_store.sources.prometheus import PrometheusSource
from systems.autoscaling.service.queries import Query

LOAD = "rate_rps"
# Of one replica: limits and memory. Of all of them: rate, CPU used.
COLUMNS = (LOAD, "p99_ms", "mean_latency_ms", "served_share", "cpu_used_cores", "memory_used_mib", "cpu_limit_cores",
           "memory_limit_mib", "replicas", "ready_replicas")
TIMES = ("window_start", "time", "timestamp")  # what a file may call its column of time
MOST = 1e15  # of any column: no service has more
_SAME = 0.01  # share by which the distance of two rows may differ from the usual one


def read_history(url: str, queries: Mapping[str, Query], start: datetime, end: datetime, window_s: float,
                 scrape_s: float) -> pd.DataFrame:
    """Windows from `start` to `end` of what the queries ask for, of the names in COLUMNS.

    Raises:
        SourceError: the server does not answer, or has no window with load in this time.
    """
    metrics = {name: MappedMetric(expression=query.promql, scale=query.scale) for name, query in queries.items()
               if name in COLUMNS}
    window = timedelta(seconds=window_s)
    values = PrometheusSource(url).read_metrics(MetricMap(metrics=metrics, scrape_interval_s=scrape_s), start + window,
                                                end, window_s)
    values = values.where((values >= 0) & (values <= MOST))  # what no service has is not known
    # Prometheus names a window by its end
    values.insert(0, "window_start", pd.DatetimeIndex(values.index) - window)
    found = values.dropna(subset=[LOAD]).reset_index(drop=True)
    if found.empty:
        raise SourceError(f"server must have a window of load, got none from {start:%F %T} to {end:%F %T}; give a "
                          "longer time (--last) or wait until requests come")
    found.attrs["window_s"] = window_s
    return found


def read_file(path: Path) -> pd.DataFrame:
    """A CSV or Parquet file with a column of time (one of TIMES) and columns of COLUMNS, at least rate_rps.

    Raises:
        InputError: it cannot be read, lacks time or rate, or its rows are not at equal distances.
    """
    try:
        table = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)
    except FileNotFoundError:
        raise InputError(f"file must be there, got none ({path})") from None
    except UNREADABLE as error:
        raise InputError(f"file must be CSV (UTF-8, commas) or Parquet, got {' '.join(str(error).split())} ({path})"
                         ) from error
    time = next((name for name in TIMES if name in table), None)
    if time is None or LOAD not in table:
        lacks = LOAD if time else " or ".join(TIMES)
        raise InputError(f"file must have a column {lacks}, and may have {', '.join(COLUMNS[1:])}, got "
                         f"{', '.join(map(str, table))}; rename the one that is meant ({path})")
    found = pd.DataFrame({"window_start": _times(table[time], path)})
    for name in COLUMNS:
        if name in table:
            numbers = numbers_or_nan(table[name])
            wrong = (numbers.isna() & table[name].notna()) | (numbers < 0) | (numbers > MOST)
            if wrong.any():
                at = int(wrong.to_numpy().argmax())
                raise InputError(f"column {name!r} must hold numbers from 0 to {MOST:g}, got {table[name].iloc[at]} in "
                                 f"row {at + 2} ({path})")
            found[name] = numbers
    found = found.dropna(subset=["window_start", LOAD]).sort_values("window_start").reset_index(drop=True)
    if (again := found["window_start"].duplicated()).any():
        twice = found.loc[again, "window_start"].iloc[0]
        first, second, *_ = np.flatnonzero(_times(table[time], path) == twice) + 2
        raise InputError(f"times must be unique, got {twice} in rows {first} and {second} ({path}); give a row of one "
                         "service for each window, with a zone in its time")
    steps = found["window_start"].diff().dt.total_seconds().to_numpy()[1:]
    usual = float(np.median(steps)) if len(steps) else 0.0
    if not usual > 0:
        raise InputError(f"file must have rows at different times, got {len(found)} with a rate ({path})")
    if (off := np.abs(steps - usual) > _SAME * usual).mean() > 0.2:
        raise InputError(f"rows must be at equal distances of time, got {int(off.sum())} of {len(steps)} that are not "
                         f"{usual:g} s after the one before ({path})")
    found.attrs["window_s"] = usual
    return found


def _times(column: pd.Series, path: Path) -> pd.Series:
    """As UTC: ISO times, or Unix times in s or ms. Nothing else, for 05/03 is two days."""
    if pd.api.types.is_numeric_dtype(column):
        unit = next((unit for unit, second in (("s", 1.0), ("ms", 1e3))
                     if column.between(1e9 * second, 1e10 * second).all()), "")
        wrong = pd.Series(not unit, column.index)
        found = pd.to_datetime(column, unit=unit or "s", utc=True, errors="coerce")  # type: ignore[call-overload]
    else:
        found = pd.to_datetime(column, format="ISO8601", utc=True, errors="coerce")
        wrong = found.isna() & column.notna()
    if wrong.any():
        at = int(wrong.to_numpy().argmax())
        raise InputError(f"column {column.name!r} must hold ISO times such as 2026-03-05T22:00:00Z, or Unix times in s "
                         f"or ms, got {column.iloc[at]} in row {at + 2} ({path})")
    return pd.Series(found)


def start_ups(url: str, asked: Query, ready: Query, start: datetime, end: datetime, step_s: float) -> list[float]:
    """Seconds from each rise of the replicas that are asked for until as many serve, to half a `step_s`.

    A rise that was followed by another change before it was served counts for nothing.
    """
    metrics = {"asked": MappedMetric(expression=asked.promql), "ready": MappedMetric(expression=ready.promql)}
    table = PrometheusSource(url).read_metrics(MetricMap(metrics=metrics, scrape_interval_s=step_s), start, end, step_s)
    return rises(table["asked"].to_numpy(), table["ready"].to_numpy(), step_s)


def rises(asked: np.ndarray, ready: np.ndarray, step_s: float) -> list[float]:
    """See `start_ups`. asked, ready: (T,) at equal distances of `step_s`; NaN: not known."""
    found = []
    for at in np.flatnonzero(asked[1:] > asked[:-1]) + 1:
        for later in range(at, len(asked)):
            if asked[later] != asked[at]:  # NaN too
                break
            if ready[later] >= asked[at]:
                found.append(max((later - at) * step_s, 0.5 * step_s))
                break
    return found


def now() -> datetime:
    """The present, in whole seconds."""
    return datetime.now(UTC).replace(microsecond=0)
