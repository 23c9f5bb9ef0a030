"""Telemetry from a file: Parquet or CSV, in the schema already or by a mapping of the user's own columns.

Flow: `ingest` calls read_with_origin; dropping.py and expectations.py judge what it returned. Nothing is repaired here:
rows keep the file's order and their index is the row's number in the file (origin.py), so that a failure can name the
row to look at. Of a wide file (wide.py) a row is there once for each workload, the workloads one after the other.

Returned table: IDENTITY columns of the schema (window_start in UTC, labels as texts), numeric columns as float64 in
the schema's units, kept columns as they are. A file without time gets a synthetic order: window_start counts
seconds from SYNTHETIC_EPOCH and window_s is 0, which no measured window has (has_synthetic_time).
"""

import gzip
import warnings
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from feature_store.bad_rows import DROP_THEM
from feature_store.errors import InputError, nearest
from feature_store.mapping import Header, Label, TelemetryMapping, TimeSource
from feature_store.measurement_mapping_file import label
from feature_store.origin import ALL_WORKLOADS, RECORD, ROW, Origin, Unreadable, numbered, row_text
from feature_store.schema import CONFIGURATION, IDENTITY, METRICS, TARGETS
from feature_store.sources.data_set import partitions_of
from feature_store.sources.wide import plain_mappings
from feature_store.timestamps import carries_zone, is_time, utc_timestamps

if TYPE_CHECKING:
    from pyarrow import Table

SYNTHETIC_EPOCH = pd.Timestamp(0, tz="UTC")
LABELS = ("workload", "environment", "combination")
NUMERIC = {"window_s", *METRICS, *CONFIGURATION, *TARGETS}
PARQUET, CSV = (".parquet", ".pq"), (".csv", ".csv.gz")
_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_WHOLE_FLOAT = r"^(-?(?:0|[1-9]\d*))\.0$"
MOST_UNREADABLE = 0.5  # cells a row of a file
FIRST_ROW: Mapping[str, Any] = {"header": None, "nrows": 1, "dtype": str, "keep_default_na": False}  # pandas' options


def read_telemetry(path: Path, mapping: TelemetryMapping | None = None) -> pd.DataFrame:
    """The table of `read_with_origin` alone."""
    return read_with_origin(path, mapping)[0]


def read_with_origin(path: Path, mapping: TelemetryMapping | None = None) -> tuple[pd.DataFrame, Origin]:
    """The telemetry in a file, in the schema's columns and units, rows as recorded; and where each column stood.

    Args:
        path: .parquet, .pq, .csv or .csv.gz.
        mapping: how the user's columns become the schema's; None: the file is in the schema already.

    Raises:
        InputError: the file is missing, empty, damaged or no table, a column is missing or there twice, or a value is
            no number or no time (but for a few, where the mapping lets bad rows be dropped).
    """
    header = Header() if mapping is None else mapping.header
    columns = _header(path, header)
    if mapping is None:
        _require([*IDENTITY, *columns], columns, f"{path}; a file with other columns needs a mapping")
        frame = _canonical(_read(path, None, header, LABELS), str(path))
        _require_the_workload_of_the_path(frame, "workload", path)
        return frame, Origin()
    mappings = plain_mappings(mapping, columns, str(path))
    needed = list(dict.fromkeys(name for one in mappings for name in one.source_columns()))
    _require(needed, columns, f"{path}, asked for by {mapping.where}")
    labels = [name for name in (getattr(mapping, label).column for label in LABELS) if name is not None]
    raw, unreadable = _read(path, needed, header, labels), list[Unreadable]()
    if mapping.bad_rows is not None and "numeric" in mapping.bad_rows.rules:
        raw, unreadable = _without_unreadable(raw, mappings)
    frame = pd.concat([_mapped(raw, one, str(path)) for one in mappings])
    _require_the_workload_of_the_path(frame, mapping.workload.column, path)
    sources = {one.workload.constant or ALL_WORKLOADS: one.sources() for one in mappings}
    return frame, Origin(sources, tuple(unreadable), mapping.bad_rows)


def _require_the_workload_of_the_path(frame: pd.DataFrame, column: str | None, path: Path) -> None:
    """Rows under another name than their folder's: whichever were right, somebody would be misled.

    Args:
        column: of the file, that names the workload; None: none does.
    """
    named = partitions_of(path).get(column) if column is not None else None
    other = frame["workload"] != named  # as texts, which is how a task names them; a missing one differs, too
    if named is not None and other.any():
        got = frame["workload"][other].iloc[0]
        raise InputError(f"column {column!r} must hold what the folder {column}={named} says, got "
                         f"{'nothing' if pd.isna(got) else repr(got)} ({path}); move the file, or leave the column out "
                         "of it")


def _without_unreadable(raw: pd.DataFrame,
                        mappings: Sequence[TelemetryMapping]) -> tuple[pd.DataFrame, list[Unreadable]]:
    """The rows with nothing in those cells of which no number or time can be read: whether they are too many is known
    when a workload is whole (dropping.py). All stay where the column is no column of numbers.
    """
    unreadable: list[Unreadable] = []
    time = mappings[0].time
    numbers = {source.column for one in mappings for source in one.columns.values()}
    numbers |= {time.column} if time is not None and time.unit != "iso" else set()
    times = {time.column} if time is not None and time.unit == "iso" else set()
    read = raw
    for name in sorted(numbers | times):
        bad = _no_number(raw[name]) if name in numbers else ~is_time(raw[name]) & raw[name].notna()
        if bad.any():
            unreadable += [Unreadable(int(row), name, str(text)) for row, text in raw.loc[bad, name].items()]
            left = raw[name].where(~bad)
            read = read.assign(**{name: numbers_or_nan(left) if name in numbers else left})
    return (raw, []) if len(unreadable) > MOST_UNREADABLE * len(raw) else (read, unreadable)


def has_synthetic_time(frame: pd.DataFrame) -> bool:
    """True where window_start is an order that read_telemetry made up, because the file has no time."""
    return "window_s" in frame and len(frame) > 0 and bool((frame["window_s"] == 0.0).all())


def _canonical(raw: pd.DataFrame, where: str) -> pd.DataFrame:
    """A table that is in the schema already: times in UTC, known numeric columns as float64."""
    data: dict[str, Any] = {}
    for name in raw.columns:
        if name == "window_start":
            data[name] = _canonical_times(raw[name], where)
        elif name in LABELS:
            data[name] = _texts(raw[name])
        else:
            data[name] = _numbers(raw[name], where) if name in NUMERIC else raw[name]
    return pd.DataFrame(data, index=raw.index)


def _mapped(raw: pd.DataFrame, mapping: TelemetryMapping, where: str) -> pd.DataFrame:
    data: dict[str, Any] = {}
    for name in LABELS:
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


def _labels(raw: pd.DataFrame, source: Label) -> pd.Series:
    if source.column is not None:
        return _texts(raw[source.column])
    return pd.Series(source.constant, index=raw.index, dtype="str")


def _texts(values: pd.Series) -> pd.Series:
    """A column of names; whole numbers are 1, not 1.0, also where a blank cell made floats of them."""
    floats = pd.api.types.is_float_dtype(values.dtype)
    return (values.map(label, na_action="ignore") if floats else values).astype("str")


def _canonical_times(values: pd.Series, where: str) -> pd.Series:
    if not carries_zone(values):
        raise InputError(
            f"window_start must carry a time zone, got {values.iloc[0]} ({where}); "
            "write it in UTC, or give a mapping with time: {zone: ...}"
        )
    return utc_timestamps(values, TimeSource("window_start"), where)


def _header(path: Path, header: Header) -> list[str]:
    """Column names of the file, without reading its rows."""
    if not path.is_file():
        raise InputError(f"telemetry must be an existing file, got {path}")
    if not path.name.lower().endswith(PARQUET + CSV):
        raise InputError(f"telemetry file must end in {', '.join(PARQUET + CSV)}, got {path.name!r} ({path})")
    if path.stat().st_size == 0:
        raise InputError(f"telemetry file must hold a table, got an empty file ({path})")
    if path.name.lower().endswith(CSV):
        return header_names(_read_csv(path, header, **FIRST_ROW))
    if header != Header():
        raise InputError(f"header: expected none of a Parquet file, which keeps names apart from rows, got "
                         f"{header.rows} rows ({path})")
    from pyarrow import ArrowException
    from pyarrow.parquet import read_schema

    try:
        names = list(read_schema(path).names)
    except (ArrowException, OSError) as error:
        raise _damaged(path, error) from error
    return [*names, *(name for name in partitions_of(path) if name not in names)]


def _read(path: Path, columns: list[str] | None, header: Header, labels: Sequence[str]) -> pd.DataFrame:
    """Rows of the file, in its order, with their numbers as index (origin.py).

    Args:
        columns: the ones to read; None: all.
        labels: those of them that are texts, whatever they look like.
    """
    csv = path.name.lower().endswith(CSV)
    if csv:
        # whole: asked for some columns, pandas does not see rows of another length
        frame = with_label_texts(_read_csv(path, header, dtype=dict.fromkeys(labels, str)), labels)
        frame = frame if columns is None else frame[columns]
    else:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile

        try:
            file = ParquetFile(path)
            own = [name for name in file.schema_arrow.names if columns is None or name in columns]
            frame = _with_texts(file.read(own), labels, path).to_pandas(ignore_metadata=True)
        except (ArrowException, OSError) as error:
            raise _damaged(path, error) from error
        named = {name: value for name, value in partitions_of(path).items() if columns is None or name in columns}
        frame = frame.assign(**{name: value for name, value in named.items() if name not in own})
        frame = frame if columns is None else frame[columns]
    if frame.empty:
        raise InputError(f"telemetry file must hold rows, got a header alone ({path})")
    return numbered(frame, header.rows + 1, ROW) if csv else numbered(frame, 1, RECORD)


def _with_texts(table: "Table", labels: Sequence[str], path: Path) -> "Table":
    """The table with texts for bytes, and for labels that are whole numbers: where one is missing, pandas makes floats
    of them, and of two that are long the same one.

    Raises:
        InputError: bytes are no text.
    """
    from pyarrow import ArrowInvalid, string
    from pyarrow.types import is_binary, is_integer, is_large_binary

    for at, field in enumerate(table.schema):
        if is_binary(field.type) or is_large_binary(field.type) or (field.name in labels and is_integer(field.type)):
            try:
                table = table.set_column(at, field.name, table.column(at).cast(string()))
            except ArrowInvalid as error:
                raise InputError(f"column {field.name!r} must hold numbers, times or UTF-8 text, got other bytes "
                                 f"({path})") from error
    return table


def _read_csv(path: Path, header: Header, /, **options: Any) -> pd.DataFrame:
    others = [row for row in range(header.rows) if row != header.names - 1]
    try:
        with warnings.catch_warnings():
            # rows longer than the header would push their columns aside, or end at its length
            warnings.simplefilter("error", pd.errors.ParserWarning)
            frame = pd.read_csv(path, low_memory=False, skiprows=others, index_col=False, **options)
    except pd.errors.ParserWarning as error:
        raise _damaged(path, ValueError("rows are longer than the header")) from error
    except pd.errors.EmptyDataError as error:
        raise InputError(f"telemetry file must hold a table, got no columns ({path})") from error
    except (pd.errors.ParserError, UnicodeDecodeError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise _damaged(path, error) from error
    return frame


def header_names(row: pd.DataFrame) -> list[str]:
    """Names of columns out of a CSV file's first row (FIRST_ROW): as a header, pandas calls the second `a` a.1."""
    return [name or f"Unnamed: {number}" for number, name in enumerate(row.iloc[0])]


def with_label_texts(frame: pd.DataFrame, labels: Sequence[str]) -> pd.DataFrame:
    """Sets the labels of a CSV file's table, which were read as texts, as they stand there: 007 is not 7, nor 1.10 1.1.

    But for what programs make of labels in a column that holds nothing else: 2.0 of 2 where a cell is blank, and true
    or TRUE of a truth value. They are 2 and True, as in a Parquet file.
    """
    for name in labels:
        if name in frame:
            frame[name] = _label_texts(frame[name])
    return frame


def _label_texts(texts: pd.Series) -> pd.Series:
    texts = texts.astype("str")
    stripped = texts.str.strip()
    known = stripped.dropna()
    if known.str.fullmatch(_NUMBER).all():
        return stripped.str.replace(_WHOLE_FLOAT, r"\1", regex=True)
    return stripped.str.capitalize() if known.str.lower().isin(["true", "false"]).all() else texts


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
        if present.count(name) > 1:
            raise InputError(f"columns must have distinct names, got {name!r} twice ({where}); rename one of them")


def _numbers(values: pd.Series, where: str) -> pd.Series:
    """The column as float64; an empty cell is NaN.

    Raises:
        InputError: a cell is no number; the message names its row.
    """
    bad = _no_number(values)
    if bad.any():
        first = int(bad.to_numpy().argmax())
        raise InputError(
            f"column {values.name!r} must hold numbers, got {values.iloc[first]!r} at {row_text(values.index, first)} "
            f"({where}: {int(bad.sum())} of {len(values)} rows); write them as 0.5, or {DROP_THEM}"
        )
    return numbers_or_nan(values)


def numbers_or_nan(values: pd.Series) -> pd.Series:
    """As float64; NaN where a cell holds no number: text, a date, a duration (which pandas counts in its own unit).

    A number beyond float64 is infinite, also a whole one, which Python reads with all its digits.
    """
    if values.dtype.kind in "mM":
        return pd.Series(np.nan, values.index, name=values.name)
    try:
        numbers = pd.to_numeric(values, errors="coerce")
    except OverflowError:
        numbers = pd.to_numeric(values.astype("str"), errors="coerce")
    return pd.Series(numbers.to_numpy(dtype=np.float64, na_value=np.nan), values.index, name=values.name)


def _no_number(values: pd.Series) -> pd.Series:
    """[rows]: where a cell holds something else."""
    return numbers_or_nan(values).isna() & values.notna()
