"""The rows of all workloads as steps hand them on: a Parquet file a workload, so that no step holds more than one's.

    rows/<workload>.parquet    a workload's rows; the index is the row's number in the source (origin.py)
    rows/_unnamed.parquet      rows without a workload: they may be any one's, and are judged with each
    source.json                where they come from, how many there are of each workload, digests of the files, and the
                               version of the data, which they make

Flow: `ingest` writes what it reads, part by part where the source is a data set of several files; `validate` writes
what is left; `featurize` reads. The steps' memory follows the largest workload, whatever there is beside it.
"""

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd

from feature_store.bad_rows import BadRows
from feature_store.digests import content_digest
from feature_store.errors import InputError
from feature_store.names import is_workload_name

SOURCE = "source.json"
ROWS = "rows"
UNNAMED = "_unnamed"


class Samples(Mapping[str, pd.DataFrame]):
    """Workload -> its rows, read when they are asked for. `source` is the content of source.json."""

    def __init__(self, folder: Path) -> None:
        self.source: dict[str, Any] = json.loads((folder / SOURCE).read_text())
        self._rows = folder / ROWS

    def __getitem__(self, workload: str) -> pd.DataFrame:
        """The workload's rows; KeyError: it has none."""
        if workload not in self.source["workloads"]:
            raise KeyError(workload)
        return pd.read_parquet(self._rows / _file_of(workload))

    def __iter__(self) -> Iterator[str]:
        return iter(self.source["workloads"])

    def __len__(self) -> int:
        return len(self.source["workloads"])

    def of(self, workloads: Collection[str]) -> "Samples":
        """These workloads' alone."""
        some = copy(self)
        there = {name: rows for name, rows in self.source["workloads"].items() if name in workloads}
        some.source = {**self.source, "workloads": there}
        return some

    def to_judge(self, workload: str) -> pd.DataFrame:
        """The workload's rows, none where it has none, with those that no workload is named for; as they were read."""
        tables = [self[workload]] if workload in self else []
        unnamed = self._rows / _file_of(None)
        tables += [pd.read_parquet(unnamed)] if unnamed.is_file() else []
        if not tables:
            return pd.read_parquet(next(self._rows.iterdir())).iloc[:0]  # for its columns
        rows = pd.concat(tables) if len(tables) > 1 else tables[0]
        return rows.sort_index(kind="stable") if unnamed.is_file() and tables[0].index.is_monotonic_increasing else rows


def write_samples(parts: Iterable[pd.DataFrame], telemetry: str, folder: Path,
                  bad_rows: BadRows | None = None, in_time: bool = False, others: Iterable[str] = ()) -> dict[str, Any]:
    """Writes the rows to `folder`, and source.json, which it returns.

    Args:
        parts: tables with a row an observation, each of any workloads.
        telemetry: name of the file or data set, or address of the server.
        bad_rows: by what policy rows were dropped.
        in_time: a workload's rows are put in the order of time; else they stay as they come.
        others: workloads of which the telemetry holds rows that are not among these.

    Raises:
        InputError: a column is of different types in different parts.
    """
    workloads: Counter[str] = Counter()
    digests: dict[str, str] = {}
    shutil.rmtree(folder / ROWS, ignore_errors=True)  # of a step that is repeated
    (folder / ROWS).mkdir(parents=True)
    with TemporaryDirectory(prefix="parts-", dir=folder) as made:
        names: dict[str, str | None] = {}
        part = None
        for number, part in enumerate(parts):
            for key, rows in _named(part).groupby("workload", sort=False, dropna=False):
                workload = None if pd.isna(key) else str(key)
                names[_file_of(workload)] = workload
                place = Path(made) / _file_of(workload)
                place.mkdir(exist_ok=True)
                rows.to_parquet(place / f"{number:08}.parquet", compression="zstd", index=True)
        for file, name in sorted(names.items()):
            rows = _joined(sorted((Path(made) / file).iterdir()), folder / ROWS / file, in_time)
            digests[file] = content_digest(rows)
            workloads[name or ""] += len(rows)
        if part is not None and not names:  # its columns, for messages about workloads without rows
            part.to_parquet(folder / ROWS / _file_of(None), index=True)
    source = {"telemetry": telemetry, "data_version": _version(digests), "rows": workloads.total(),
              "workloads": {name: count for name, count in sorted(workloads.items()) if name},
              "others": sorted(set(others) - set(workloads)), "digests": dict(sorted(digests.items())),
              **({"bad_rows": asdict(bad_rows)} if bad_rows else {})}
    (folder / SOURCE).write_text(json.dumps(source, indent=1))
    return source


def _named(part: pd.DataFrame) -> pd.DataFrame:
    """The same, in which a workload's name that is blank counts as none, so that the data gate tells of its rows."""
    blank = [name for name in part["workload"].unique() if isinstance(name, str) and not name.strip()]
    return part.assign(workload=part["workload"].mask(part["workload"].isin(blank))) if blank else part


def joined_source(sources: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Content of source.json of all workloads, out of those of which each has some of them: as if read in one."""
    workloads = {name: count for source in sources for name, count in source["workloads"].items()}
    digests = {file: digest for source in sources for file, digest in source["digests"].items()}
    unnamed = sources[0]["rows"] - sum(sources[0]["workloads"].values())  # those each has
    others = {name for source in sources for name in source["others"]}
    return {**sources[0], "data_version": _version(digests), "rows": sum(workloads.values()) + unnamed,
            "workloads": dict(sorted(workloads.items())), "others": sorted(others - set(workloads)),
            "digests": dict(sorted(digests.items()))}


def _version(digests: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(sorted(digests.items())).encode()).hexdigest()


def _joined(parts: list[Path], path: Path, in_time: bool) -> pd.DataFrame:
    """A workload's rows out of their parts, which become the file `path`."""
    from pyarrow import ArrowException

    rows = pd.concat([pd.read_parquet(part) for part in parts]) if len(parts) > 1 else pd.read_parquet(parts[0])
    if in_time and not rows["window_start"].is_monotonic_increasing:
        rows = rows.sort_values("window_start", kind="stable")
    elif len(parts) == 1:
        parts[0].rename(path)
        return rows
    try:
        rows.to_parquet(path, compression="zstd", index=True)
    except ArrowException as error:
        raise InputError(f"a column must be of one type in all files, got {str(error).splitlines()[0]} (rows of "
                         f"{path.stem}); write them alike, or name the columns that are needed in a mapping") from error
    return rows


def _file_of(workload: str | None) -> str:
    """Name of its file. What no task can name, and no folder may be called, goes by its digest."""
    if workload is None:
        return f"{UNNAMED}.parquet"
    own = workload if is_workload_name(workload) else f"_{hashlib.sha256(workload.encode()).hexdigest()[:32]}"
    return f"{own}.parquet"
