"""Features: a workload's rows, split without a leak and scaled by the training side, as a folder of files.

Flow: `featurize` calls featurize() for each workload after the data gate; training and export read the
folder:

    train.parquet, test.parquet   features in order, target, split keys; raw units, float64
    scaling.json                  MinMax ranges of the training rows (scaling.py)
    quality.json                  rows, split and column statistics, dropped rows by reason, checks

A row whose numbers are all those of another one is there once, the first in order of its split keys, whatever times
the others bear: so no copy of a training row is a test row.

Source: vPALs, section "Data processing pipeline" (train 80 %, test 20 %, MinMax); splits.py says which rows.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from feature_store.data_quality import summarise
from feature_store.digests import content_digest
from feature_store.errors import InputError, nearest
from feature_store.origin import row_text
from feature_store.scaling import FeatureScaling, MinMaxScaling
from feature_store.schema import TelemetrySchema
from feature_store.splits import split_by_group
from feature_store.whole_files import whole_folder


@dataclass(frozen=True)
class FeatureSummary:
    """What featurize wrote: `rows` without repeated ones; `data_version`: content digest of train and test together."""

    workload: str
    folder: Path
    rows: int
    train_rows: int
    test_rows: int
    train_groups: int
    test_groups: int
    data_version: str


def featurize(frame: pd.DataFrame, schema: TelemetrySchema, test_share: float, folder: Path, *,
              dropped: Mapping[str, int] | None = None,
              checks: Sequence[Mapping[str, Any]] = ()) -> FeatureSummary:
    """Splits, scales and writes one workload's features; `folder` is replaced whole or not at all.

    Args:
        frame: telemetry that passed the data gate; rows of other workloads are left out.
        schema: the workload's columns.
        test_share: share of the groups on the test side, in (0, 1).
        folder: where the files go.
        dropped: rows that cleaning dropped, by reason: recorded in quality.json.
        checks: results of the data gate: recorded in quality.json.

    Raises:
        InputError: a column is missing, a value is not finite, or a side of the split would be empty.
    """
    measured = feature_table(frame, schema)
    table = distinct_rows(measured, schema)
    split = split_by_group(table, schema.split_by, test_share)
    sides = {"train": table[~split.test].reset_index(drop=True),
             "test": table[split.test].reset_index(drop=True)}
    scaling = FeatureScaling(MinMaxScaling.from_frame(sides["train"], tuple(schema.features)),
                             MinMaxScaling.from_frame(sides["train"], tuple(schema.target)))
    summary = FeatureSummary(
        workload=schema.workload, folder=folder, rows=len(table), train_rows=len(sides["train"]),
        test_rows=len(sides["test"]), train_groups=split.train_groups, test_groups=split.test_groups,
        data_version=combined_digest(sides))
    repeated = len(measured) - len(table)
    quality = {
        **{key: value for key, value in asdict(summary).items() if key != "folder"},
        "split_by": list(schema.split_by), "test_share": test_share,
        "dropped": {**dict(dropped or {}), **({"repeated rows": repeated} if repeated else {})},
        "checks": [dict(check) for check in checks],
        "data": summarise(_rows_of(frame, schema.workload), tuple(schema.numeric)).to_dict(),
    }
    write_whole(folder, sides, {"scaling.json": scaling.to_json(),
                                 "quality.json": json.dumps(quality, indent=2)})
    return summary


def feature_table(frame: pd.DataFrame, schema: TelemetrySchema) -> pd.DataFrame:
    """Features in order, target and split keys of the schema's workload; numbers as float64, rows renumbered.

    Raises:
        InputError: no rows, a column is missing, a value is not finite or a split key is empty.
    """
    keys = [name for name in schema.split_by if name not in schema.numeric]
    for name in (*schema.numeric, *schema.split_by):
        if name not in frame:
            raise InputError(f"telemetry: expected a column {name!r}, got none "
                             f"(workload {schema.workload}); " + nearest(name, map(str, frame.columns)))
    rows = _rows_of(frame, schema.workload)
    if rows.empty:
        raise InputError(f"workload must have rows, got none of {len(frame)} ({schema.workload})")
    for name in (*schema.numeric, *keys):
        _require_values(rows[name], numeric=name in schema.numeric, workload=schema.workload)
    table = rows.loc[:, [*schema.numeric, *keys]].reset_index(drop=True)
    return table.astype(dict.fromkeys(schema.numeric, "float64"))


def distinct_rows(table: pd.DataFrame, schema: TelemetrySchema) -> pd.DataFrame:
    """The rows without those whose numbers are all an earlier one's, in the order of the split keys; renumbered.

    Not in the order of the table: the same rows must stay whatever order they come in.
    """
    repeated = table.sort_values(list(schema.split_by), kind="stable").duplicated(list(schema.numeric))
    return table[~repeated.reindex(table.index)].reset_index(drop=True)


def _require_values(values: pd.Series, numeric: bool, workload: str) -> None:
    if numeric and not pd.api.types.is_numeric_dtype(values.dtype):
        raise InputError(f"column {values.name!r} must hold numbers, got {values.dtype} "
                         f"(workload {workload})")
    bad = values.isna().to_numpy()
    if numeric:
        bad = ~np.isfinite(values.to_numpy(dtype=np.float64, na_value=np.nan))
    if bad.any():
        first = int(bad.argmax())
        raise InputError(f"column {values.name!r} must hold a value in every row, got {values.iloc[first]} "
                         f"at {row_text(values.index, first)} (workload {workload}: {int(bad.sum())} of "
                         f"{len(values)} rows); the data gate names every such column")


def _rows_of(frame: pd.DataFrame, workload: str) -> pd.DataFrame:
    return frame[frame["workload"] == workload] if "workload" in frame else frame


def combined_digest(sides: Mapping[str, pd.DataFrame]) -> str:
    """Hex SHA-256 over the names and contents of tables."""
    digests = [[name, content_digest(side)] for name, side in sides.items()]
    return hashlib.sha256(json.dumps(digests).encode()).hexdigest()


def write_whole(folder: Path, tables: Mapping[str, pd.DataFrame], texts: Mapping[str, str]) -> None:
    """Writes the files to a folder that appears whole, in place of an older one."""
    with whole_folder(folder) as new:
        for name, table in tables.items():
            table.to_parquet(new / f"{name}.parquet", index=False)
        for name, text in texts.items():
            (new / name).write_text(text + "\n", encoding="utf-8")
