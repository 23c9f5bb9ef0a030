"""Telemetry from a file: Parquet or CSV, in the schema already or by a mapping of the user's own columns.

Flow: `ingest` calls read_telemetry; expectations.py judges what it returned. Nothing is repaired here: rows
keep the file's order and their index is the row number in the file (0 = first row after the header), so that
a failure can name the row to look at.

Returned table: IDENTITY columns of the schema (window_start in UTC), numeric columns as float64 in the
schema's units, kept columns as they are. A file without time gets a synthetic order: window_start counts
seconds from SYNTHETIC_EPOCH and window_s is 0, which no measured window has (has_synthetic_time).
"""

import gzip
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from feature_store.errors import InputError, nearest
from feature_store.mapping import Label, TelemetryMapping, TimeSource
from feature_store.schema import CONFIGURATION, IDENTITY, METRICS, TARGETS
from feature_store.timestamps import carries_zone, utc_timestamps

SYNTHETIC_EPOCH = pd.Timestamp(0, tz="UTC")
NUMERIC = {"window_s", *METRICS, *CONFIGURATION, *TARGETS}
PARQUET, CSV = (".parquet", ".pq"), (".csv", ".csv.gz")


def read_telemetry(path: Path, mapping: TelemetryMapping | None = None) -> pd.DataFrame:
    """The telemetry in a file, in the schema's columns and units, rows as recorded.

    Args:
        path: .parquet, .pq, .csv or .csv.gz.
        mapping: how the user's columns become the schema's; None: the file is in the schema already.

    Raises:
        InputError: the file is missing, empty, damaged or no table, a column is missing, or a value is no
            number or no time.
    """
    columns = _header(path)
    if mapping is not None:
        _require(mapping.source_columns(), columns, f"{path}, asked for by {mapping.where}")
        raw = _read(path, list(mapping.source_columns()))
        return _mapped(raw, mapping, str(path))
    _require(IDENTITY, columns, f"{path}; a file with other columns needs a mapping")
    return _canonical(_read(path, None), str(path))


def has_synthetic_time(frame: pd.DataFrame) -> bool:
    """True where window_start is an order that read_telemetry made up, because the file has no time."""
    return "window_s" in frame and len(frame) > 0 and bool((frame["window_s"] == 0.0).all())


def _canonical(raw: pd.DataFrame, where: str) -> pd.DataFrame:
    """A table that is in the schema already: times in UTC, known numeric columns as float64."""
    data: dict[str, Any] = {}
    for name in raw.columns:
        if name == "window_start":
            data[name] = _canonical_times(raw[name], where)
        elif name in IDENTITY and name != "window_s":
            data[name] = raw[name].astype("str")
        else:
            data[name] = _numbers(raw[name], where) if name in NUMERIC else raw[name]
    return pd.DataFrame(data, index=raw.index)


def _mapped(raw: pd.DataFrame, mapping: TelemetryMapping, where: str) -> pd.DataFrame:
    data: dict[str, Any] = {}
    for name in ("workload", "environment", "combination"):
        data[name] = _labels(raw, getattr(mapping, name))
    time = mapping.time
    if time is None:
        data["window_start"] = SYNTHETIC_EPOCH + pd.to_timedelta(np.arange(len(raw)), unit="s")
        data["window_s"] = 0.0
    else:
        data["window_start"] = utc_timestamps(raw[time.column], time, where)
        data["window_s"] = np.nan if time.window_s is None else time.window_s
    for name, source in mapping.columns.items():
        numbers = _numbers(raw[source.column], where)
        data[name] = numbers if source.factor == 1.0 else numbers * source.factor
    for name in mapping.keep:
        data[name] = raw[name]
    return pd.DataFrame(data, index=raw.index)


def _labels(raw: pd.DataFrame, label: Label) -> pd.Series:
    if label.column is not None:
        return raw[label.column].astype("str")
    return pd.Series(label.constant, index=raw.index, dtype="str")


def _canonical_times(values: pd.Series, where: str) -> pd.Series:
    if not carries_zone(values):
        raise InputError(
            f"window_start must carry a time zone, got {values.iloc[0]} ({where}); "
            "write it in UTC, or give a mapping with time: {zone: ...}"
        )
    return utc_timestamps(values, TimeSource("window_start"), where)


def _header(path: Path) -> list[str]:
    """Column names of the file, without reading its rows."""
    if not path.is_file():
        raise InputError(f"telemetry must be an existing file, got {path}")
    if not path.name.lower().endswith(PARQUET + CSV):
        raise InputError(f"telemetry file must end in {', '.join(PARQUET + CSV)}, got {path.name!r} ({path})")
    if path.stat().st_size == 0:
        raise InputError(f"telemetry file must hold a table, got an empty file ({path})")
    if path.name.lower().endswith(CSV):
        return [str(name) for name in _read_csv(path, nrows=0).columns]
    from pyarrow import ArrowException
    from pyarrow.parquet import read_schema

    try:
        return list(read_schema(path).names)
    except (ArrowException, OSError) as error:
        raise _damaged(path, error) from error


def _read(path: Path, columns: list[str] | None) -> pd.DataFrame:
    """Rows of the file, in its order, with a row number as index."""
    if path.name.lower().endswith(CSV):
        frame = _read_csv(path)  # whole: asked for some columns, pandas does not see rows of another length
        frame = frame if columns is None else frame[columns]
    else:
        from pyarrow import ArrowException
        from pyarrow.parquet import read_table

        try:
            frame = read_table(path, columns=columns).to_pandas(ignore_metadata=True)
        except (ArrowException, OSError) as error:
            raise _damaged(path, error) from error
    if frame.empty:
        raise InputError(f"telemetry file must hold rows, got a header alone ({path})")
    return frame


def _read_csv(path: Path, **options: Any) -> pd.DataFrame:
    try:
        frame = pd.read_csv(path, low_memory=False, **options)
    except pd.errors.EmptyDataError as error:
        raise InputError(f"telemetry file must hold a table, got no columns ({path})") from error
    except (pd.errors.ParserError, UnicodeDecodeError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise _damaged(path, error) from error
    if not isinstance(frame.index, pd.RangeIndex):  # pandas makes an index of fields that the header lacks
        raise _damaged(path, ValueError("rows are longer than the header"))
    return frame


def _damaged(path: Path, error: Exception) -> InputError:
    kind = "CSV" if path.name.lower().endswith(CSV) else "Parquet"
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return InputError(
        f"telemetry file must be a whole {kind} table, got {reason!r} ({path}); "
        "it is truncated or of another kind: write it again"
    )


def _require(needed: Sequence[str], present: Sequence[str], where: str) -> None:
    for name in needed:
        if name not in present:
            raise InputError(
                f"expected a column {name!r}, got none ({where}); " + nearest(name, present)
            )


def _numbers(values: pd.Series, where: str) -> pd.Series:
    """The column as float64; an empty cell is NaN.

    Raises:
        InputError: a cell is no number; the message names its row.
    """
    if pd.api.types.is_numeric_dtype(values.dtype):
        return values.astype("float64")
    numbers = pd.to_numeric(values, errors="coerce")
    bad = numbers.isna() & values.notna()
    if bad.any():
        row = int(bad.to_numpy().argmax())
        raise InputError(
            f"column {values.name!r} must hold numbers, got {values.iloc[row]!r} at row {row} "
            f"({where}: {int(bad.sum())} of {len(values)} rows); write them as 0.5"
        )
    return numbers.astype("float64")
