"""ingest and featurize of control tasks: the load of each workload, as the environment replays it.

A file has the columns `workload`, `window_start` (with a zone), `window_s` and those of the environment; `environment`
and `combination` may be left out. A gap is never filled in: the longest stretch without one is what is replayed. The
few bad rows that `bad_rows` lets be dropped (load_map.py) are gaps too; how many is judged before (dropping.py).

    features/<workload>/load.parquet    window_start, window_s and the environment's columns, no gap
    features/<workload>/quality.json    data_version, rows, rows outside of the stretch, results of the data gate
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from feature_store.errors import InputError
from feature_store.features import combined_digest, write_whole
from feature_store.mapping import ColumnSource, Label, TelemetryMapping, TimeSource
from feature_store.origin import Origin, row_text
from feature_store.schema import IDENTITY, TelemetrySchema
from feature_store.sources.files import numbers_or_nan, read_with_origin
from feature_store.sources.production import is_prometheus
from feature_store.strict_yaml import parse_yaml
from feature_store.written.model import parse_written
from models.control.contract.environment import ControlledSystem
from models.tasks.control.load_map import LoadFile, LoadMap, combination_of, read_server
from models.tasks.control.task import ControlTask

FILE_COLUMNS = ("workload", "window_start", "window_s")
TIME = ("window_start", "window_s")
LOAD = "load.parquet"
SAME_STEP = 0.01  # share by which the distance of two windows may differ from their length


def is_load_file(mapping: Any) -> bool:
    """Whether a mapping, as parsed YAML, is that of a file of load."""
    return isinstance(mapping, dict) and set(mapping) == set(LoadFile.model_fields)


def read_load(telemetry: str, mapping_yaml: str, columns: Sequence[str]) -> tuple[pd.DataFrame, Origin]:
    """The table of all workloads, and its origin. Arguments as of `Kind.ingest`; columns: of the environment.

    Raises:
        InputError: the file cannot be read or lacks a column, with the nearest one.
    """
    if is_prometheus(telemetry):
        if not mapping_yaml:
            raise InputError("mapping: expected a load map (--mapping), which says what to ask of the server, got none")
        written = parse_written(LoadMap, mapping_yaml, "load map", "--mapping")
        policy = None if written.bad_rows is None else written.bad_rows.policy()
        return read_server(telemetry, written, tuple(columns)), Origin(bad_rows=policy)
    if mapping_yaml and not is_load_file(parse_yaml(mapping_yaml, "mapping", "--mapping")):
        raise InputError(f"mapping: expected none or `bad_rows` alone for a file of load, which has the columns "
                         f"{', '.join(FILE_COLUMNS)} and {', '.join(columns)}, got another; rename the file's columns "
                         f"({telemetry})")
    policy = parse_written(LoadFile, mapping_yaml, "mapping", "--mapping").bad_rows.policy() if mapping_yaml else None
    plain = TelemetryMapping(workload=Label(column="workload"), columns={name: ColumnSource(name) for name in columns},
                             combination=Label(constant=combination_of(policy)), time=TimeSource("window_start"),
                             keep=("window_s",), bad_rows=policy, where="a control task")
    table, origin = read_with_origin(Path(telemetry), plain)
    return _numbers(table, columns, telemetry), origin


def _numbers(table: pd.DataFrame, columns: Sequence[str], where: str) -> pd.DataFrame:
    for name in ("window_s", *columns):
        if name not in table:
            raise InputError(f"telemetry: expected a column {name!r}, got {', '.join(map(str, table))} ({where})")
        numbers = numbers_or_nan(table[name])
        bad = numbers.isna() & table[name].notna()
        if bad.any():
            row = int(bad.to_numpy().argmax())
            raise InputError(f"column {name!r} must hold numbers, got {table[name].iloc[row]!r} at "
                             f"{row_text(table.index, row)} ({where})")
        table[name] = numbers
    return table[[*IDENTITY, *columns]]


def load_schema(task: ControlTask, environment: ControlledSystem, workload: str) -> TelemetrySchema:
    """What the data gate demands of a workload's rows."""
    return TelemetrySchema(workload, {}, dict(environment.columns), (), task.minimum_rows, repeats_count=True)


def write_load(samples: pd.DataFrame, workload: str, columns: Sequence[str], least: int,
               checks: Sequence[Mapping[str, Any]], folder: Path,
               log: Mapping[str, str] = MappingProxyType({})) -> None:
    """Writes features/<workload>/.

    Args:
        log: parts of a controller's log by name, which belong to the version of the data.

    Raises:
        InputError: the stretch is shorter than `least` rows, or there is no load in it.
    """
    rows = samples.loc[samples["workload"] == workload, [*TIME, *columns]].sort_values("window_start", kind="stable")
    stretch = longest_stretch(rows)
    if len(stretch) < least:
        raise InputError(f"load: expected {least} windows in a row, got at most {len(stretch)} of {len(rows)} between "
                         f"two gaps (workload {workload}); record it again, or lower `minimum_rows`")
    if not (stretch[list(columns)] > 0).any().all():
        raise InputError(f"load: expected a window with any, got only zeros in {len(stretch)} windows in a row "
                         f"(workload {workload})")
    table = stretch.reset_index(drop=True)
    version = combined_digest({"load": table})
    if log:
        version = hashlib.sha256("\0".join([version, *log.values()]).encode()).hexdigest()
    quality = {"data_version": version, "rows": len(table),
               "rows_outside": len(rows) - len(table), "start": str(table["window_start"].iloc[0]),
               "window_s": float(table["window_s"].iloc[0]), "checks": [dict(check) for check in checks]}
    write_whole(folder, {"load": table}, {"quality.json": json.dumps(quality, indent=1), **log})


def longest_stretch(rows: pd.DataFrame) -> pd.DataFrame:
    """The longest run of rows of which each begins where the one before it ends; of equally long ones the last."""
    start, length = rows["window_start"], rows["window_s"].to_numpy(dtype=np.float64)
    step = start.diff().dt.total_seconds().to_numpy(dtype=np.float64)
    begins = np.ones(len(rows), dtype=bool)
    begins[1:] = (np.abs(step[1:] - length[:-1]) > SAME_STEP * length[:-1]) | (length[1:] != length[:-1])
    number = np.cumsum(begins)
    counts = np.bincount(number)
    best = len(counts) - 1 - int(np.argmax(counts[::-1]))
    return rows[number == best]


def read_features(features: Path, workload: str) -> pd.DataFrame:
    """What `write_load` wrote."""
    return pd.read_parquet(features / workload / LOAD)
