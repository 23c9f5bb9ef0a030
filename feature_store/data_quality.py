"""What a table of telemetry looks like in numbers: for the report, quality.json and the data card.

Flow: features.py writes it beside the features, the report shows it. It judges nothing: expectations.py does.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from feature_store.sources.files import has_synthetic_time


@dataclass(frozen=True)
class ColumnQuality:
    """A numeric column in its own unit; None where the column has no finite value."""

    name: str
    minimum: float | None
    median: float | None
    maximum: float | None
    missing: int
    distinct: int


@dataclass(frozen=True)
class DataQuality:
    """A table: its rows, windows (environment and window_start), combinations, time span and columns.

    `first` and `last` are the starts of the first and last window (ISO 8601, UTC); None without measured
    time.
    """

    rows: int
    windows: int
    combinations: int
    environments: tuple[str, ...]
    first: str | None
    last: str | None
    columns: tuple[ColumnQuality, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def summarise(frame: pd.DataFrame, columns: Sequence[str]) -> DataQuality:
    """The numbers of a table in the schema; columns that it lacks count as wholly missing.

    Args:
        frame: rows of one workload or of all.
        columns: the numeric columns to describe, in order.
    """
    times = frame["window_start"].dropna() if "window_start" in frame else pd.Series(dtype="object")
    timed = len(times) > 0 and not has_synthetic_time(frame)
    return DataQuality(
        rows=len(frame),
        windows=_distinct(frame, ["environment", "window_start"]),
        combinations=_distinct(frame, ["environment", "combination"]),
        environments=tuple(sorted(frame["environment"].dropna().unique())) if "environment" in frame else (),
        first=times.min().isoformat() if timed else None,
        last=times.max().isoformat() if timed else None,
        columns=tuple(_column(frame, name) for name in columns),
    )


def _distinct(frame: pd.DataFrame, names: list[str]) -> int:
    return int((~frame.duplicated(names)).sum()) if set(names) <= set(frame.columns) else 0


def _column(frame: pd.DataFrame, name: str) -> ColumnQuality:
    if name not in frame or not pd.api.types.is_numeric_dtype(frame[name].dtype):
        return ColumnQuality(name, None, None, None, missing=len(frame), distinct=0)
    values = frame[name].to_numpy(dtype=np.float64, na_value=np.nan)
    finite = values[np.isfinite(values)]
    distinct = len(np.unique(finite))
    if not distinct:
        return ColumnQuality(name, None, None, None, missing=len(values), distinct=0)
    return ColumnQuality(name, float(finite.min()), float(np.median(finite)), float(finite.max()),
                         missing=len(values) - len(finite), distinct=distinct)
