"""Times of a user's file as UTC timestamps: numbers since the epoch, ISO 8601 text or Parquet timestamps.

Flow: sources/files.py calls utc_timestamps for the column that a mapping names. A time that could mean two
instants (no zone, a repeated hour at the end of summer time) is refused or read in the stated zone, never
guessed.
"""

import re
from typing import Literal

import numpy as np
import pandas as pd

from feature_store.errors import InputError
from feature_store.mapping import TimeSource
from feature_store.origin import row_text

_UNITS: dict[str, Literal["s", "ms", "us", "ns"]] = {"s": "s", "ms": "ms", "us": "us", "ns": "ns"}
YEARS = (1678, 2261)  # that 64 bits of nanoseconds since 1970 hold whole: equal times are compared in them
# only behind a time, as 2024-01-31 ends in no offset; hours alone are how PostgreSQL writes it
_OFFSET = re.compile(r"(?:Z|[T ][\d:.]+ *[+-]\d\d(?::?\d\d)?)$", re.IGNORECASE)


def utc_timestamps(values: pd.Series, source: TimeSource, where: str) -> pd.Series:
    """The column as UTC timestamps; an empty cell is NaT, which the expectations refuse.

    Args:
        values: numbers (unit s, ms, us or ns), or text or timestamps (unit iso).
        source: its unit, and the zone of times that carry none.
        where: goes into error messages.

    Raises:
        InputError: a value is no time in that unit or lies beyond YEARS, times with and without a zone are mixed, or a
            local time does not exist or exists twice.
    """
    place = f"{where}, column {source.column!r}"
    numeric = _is_numeric(values)
    if source.unit == "iso" and numeric:
        raise InputError(f"time must be written as ISO 8601, got {values.iloc[0]} ({place}); "
                         "numbers need a mapping with time: {unit: s, ms, us or ns}")
    if source.unit != "iso" and not numeric:
        raise InputError(f"time must be a number of {source.unit} since 1970, got {values.iloc[0]} "
                         f"({place}); for text and timestamps set time: {{unit: iso}} in the mapping")
    if numeric:
        values = _converted(values, source, place)
    elif not pd.api.types.is_datetime64_any_dtype(values.dtype):
        values = _parsed(values, place)
    beyond = ((values.dt.year < YEARS[0]) | (values.dt.year > YEARS[1])).to_numpy()
    if beyond.any():
        first = int(beyond.argmax())
        raise InputError(f"time must lie in the years {YEARS[0]} to {YEARS[1]}, got {values.iloc[first]} at "
                         f"{row_text(values.index, first)} ({place}: {int(beyond.sum())} of {len(values)} rows); is "
                         "its unit another?")
    if isinstance(values.dtype, pd.DatetimeTZDtype):
        return values.dt.tz_convert("UTC")
    try:
        return values.dt.tz_localize(source.zone).dt.tz_convert("UTC")
    except ValueError as error:
        said = str(error).split(", try using")[0].rstrip(".")
        raise InputError(f"local times must be unambiguous in zone {source.zone}, got {said} ({place}); "
                         "write the times in UTC or with their offset") from error


def carries_zone(values: pd.Series) -> bool:
    """True for timestamps with a zone, for text whose first value ends in one, and for an empty column."""
    if isinstance(values.dtype, pd.DatetimeTZDtype):
        return True
    texts = values.dropna()
    return texts.empty or bool(_OFFSET.search(str(texts.iloc[0]).strip()))


def is_time(values: pd.Series) -> pd.Series:
    """[rows]: where a text is a time, with or without a zone; a value of any other type is taken for one."""
    if _is_numeric(values) or pd.api.types.is_datetime64_any_dtype(values.dtype):
        return pd.Series(True, index=values.index)
    texts = values.astype("str").str.strip()
    return pd.to_datetime(_written(texts), format="ISO8601", utc=True, errors="coerce").notna()


def _is_numeric(values: pd.Series) -> bool:
    """True for a column of numbers; truth values, which pandas counts among them, are none."""
    return pd.api.types.is_numeric_dtype(values.dtype) and not pd.api.types.is_bool_dtype(values.dtype)


def _written(texts: pd.Series) -> pd.Series:
    """Without what is no written time, though pandas takes it for one: `now` and `today` are those of the reader."""
    return texts.where(texts.str[:1].isin(list("0123456789+-")), "")


def _converted(values: pd.Series, source: TimeSource, place: str) -> pd.Series:
    try:
        return pd.to_datetime(values, unit=_UNITS[source.unit], utc=True)
    except (ValueError, OverflowError) as error:
        extreme = int(np.nanargmax(values.abs().to_numpy(dtype=np.float64, na_value=np.nan)))
        raise InputError(f"time must be a number of {source.unit} since 1970, got {values.iloc[extreme]:g} at "
                         f"{row_text(values.index, extreme)} ({place}); set time: {{unit: ...}} in the "
                         "mapping") from error


def _parsed(values: pd.Series, place: str) -> pd.Series:
    texts = values.dropna().astype("str").str.strip()
    zoned = texts.str.contains(_OFFSET).to_numpy()
    if zoned.any() and not zoned.all():
        without, beside = int(zoned.argmin()), int(zoned.argmax())
        raise InputError(f"times must all carry a zone or none, got {texts.iloc[without]!r} at "
                         f"{row_text(texts.index, without)} beside {texts.iloc[beside]!r} ({place})")
    try:
        times = pd.to_datetime(_written(texts), format="ISO8601", utc=bool(zoned.any()), errors="coerce")
    except ValueError as error:  # of different zones, with offsets that _OFFSET does not know, such as +1
        raise InputError(f"time must be written as ISO 8601, got {texts.iloc[0]!r} and times of other zones "
                         f"({place}); write 2024-01-31T12:00:00+01:00") from error
    bad = times.isna().to_numpy()
    if bad.any():
        first = int(bad.argmax())
        raise InputError(f"time must be written as ISO 8601, got {texts.iloc[first]!r} at "
                         f"{row_text(texts.index, first)} ({place}: {int(bad.sum())} of {len(values)} rows); write "
                         "2024-01-31T12:00:00Z")
    return times.reindex(values.index)
