"""Where a table of telemetry comes from: what messages call its rows and columns, and what is to become of bad rows.

Flow: sources/files.py makes it beside the table; `ingest` keeps both, the table as samples.parquet with its index, this
as origin.json; dropping.py and the data gate read them. A table that comes from no file of a user's has an empty one.

The index of a table that was read from a file is the number by which its user finds a row, and has its name:

    row      of a CSV file, as a spreadsheet shows it: 1 is the first line, so that a header of one row is row 1;
             blank lines are not counted
    record   of a Parquet file, from 1
"""

import json
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from feature_store.bad_rows import BadRows
from feature_store.mapping import ColumnSource

ORIGIN = "origin.json"
ROW, RECORD = "row", "record"
ALL_WORKLOADS = ""
# What pandas raises of a file that it cannot read as a table. Its own and pyarrow's errors are ValueErrors; ImportError
# is of a decompressor that is not installed, RuntimeError of an archive with a password.
UNREADABLE = (OSError, ValueError, EOFError, ImportError, RuntimeError, zlib.error, lzma.LZMAError, zipfile.BadZipFile,
              tarfile.TarError)


@dataclass(frozen=True)
class Unreadable:
    """A cell of the file that no number or time can be read from: its row or record, its column there, its text."""

    row: int
    column: str
    text: str


@dataclass(frozen=True)
class Origin:
    """How a table was read.

    Attributes:
        columns: workload -> column of the table -> column of the file; those of ALL_WORKLOADS are everybody's.
        unreadable: cells that hold no number or time, and are missing in the table; there only where `bad_rows` lets
            such rows be dropped.
        bad_rows: None: a bad row stops its workload.
        files: of a data set, (number of records before it, path below the data set) of each file, in order.
    """

    columns: Mapping[str, Mapping[str, ColumnSource]] = field(default_factory=dict)
    unreadable: tuple[Unreadable, ...] = ()
    bad_rows: BadRows | None = None
    files: tuple[tuple[int, str], ...] = ()

    def source(self, workload: str, column: str) -> ColumnSource:
        """Where a column of the table stands in the file; under its own name where nothing else is known."""
        everybodys = self.columns.get(ALL_WORKLOADS, {}).get(column, ColumnSource(column))
        return self.columns.get(workload, {}).get(column, everybodys)

    def column_text(self, workload: str, column: str) -> str:
        """The column as a message names it: by its name in the file, then by that of the schema if that is another."""
        source = self.source(workload, column).column
        return f"column {source!r}" + (f" ({column})" if source != column else "")

    @cached_property
    def cells(self) -> dict[tuple[int, str], str]:
        """Texts of the unreadable cells by row and column of the file."""
        return {(cell.row, cell.column): cell.text for cell in self.unreadable}

    def joined(self, later: "Origin", before: int, file: str) -> "Origin":
        """Of this table and a later file of the same mapping, whose rows are numbered from `before` on."""
        cells = (replace(cell, row=cell.row + before) for cell in later.unreadable)
        return Origin({**self.columns, **later.columns}, (*self.unreadable, *cells), later.bad_rows,
                      (*self.files, (before, file)))

    def row_text(self, index: pd.Index, position: int) -> str:
        """A row as a message names it; of a data set, where it stands in which file."""
        number = row_number(index, position)
        found = [(before, file) for before, file in self.files if before < number]
        return f"{RECORD} {number - found[-1][0]} of {found[-1][1]}" if found else row_text(index, position)

    def write(self, folder: Path) -> None:
        """Writes origin.json."""
        (folder / ORIGIN).write_text(json.dumps(asdict(self), indent=1))

    @classmethod
    def read(cls, folder: Path) -> "Origin":
        """What `write` left; an empty one where there is none."""
        if not (folder / ORIGIN).is_file():
            return cls()
        content: dict[str, Any] = json.loads((folder / ORIGIN).read_text())
        policy = content["bad_rows"]
        columns = {workload: {name: ColumnSource(**source) for name, source in sources.items()}
                   for workload, sources in content["columns"].items()}
        return cls(columns, tuple(Unreadable(**cell) for cell in content["unreadable"]),
                   policy and BadRows(tuple(policy["rules"]), policy["at_most"]),
                   tuple((before, file) for before, file in content["files"]))


def numbered(frame: pd.DataFrame, first: int, unit: str) -> pd.DataFrame:
    """The table with its rows' numbers in the file as index: from `first`, in `unit` (ROW or RECORD)."""
    return frame.set_axis(pd.RangeIndex(first, first + len(frame), name=unit))


def row_text(index: pd.Index, position: int) -> str:
    """A row as a message names it: `row 17`, or `record 16` of a Parquet file."""
    return f"{RECORD if index.name == RECORD else ROW} {row_number(index, position)}"


def row_number(index: pd.Index, position: int) -> int:
    """The row's number in the source: its index where that holds integers, else its position."""
    return int(index[position]) if pd.api.types.is_integer_dtype(index.dtype) else position
