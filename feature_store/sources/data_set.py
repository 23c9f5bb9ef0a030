"""Telemetry as a data set: a folder of Parquet files, read file by file, so that it may be larger than memory.

    telemetry/workload=redis/date=2026-01-05/part-0.parquet       or s3://bucket/telemetry/

Folders directly above a file that say `name=value` (Hive's way) are columns that it lacks; the workload it may name,
too, if it is the same. The order of files and rows means nothing: a workload's rows are put in the order of time.
Records are counted through all files in the order of their paths. Files and folders whose names begin with `.` or `_`
are passed over, as Spark and Arrow do, and so are files without rows. A data set of which every file stands in a folder
of its workload is cut by workload: then each shard reads its own part alone (pipelines/train.py).
"""

import hashlib
import json
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

from feature_store.digests import content_digest
from feature_store.errors import InputError, SourceError
from feature_store.sources.object_store import is_object

PARQUET = (".parquet", ".pq")
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


def is_data_set(telemetry: str) -> bool:
    """Whether a telemetry address is a folder's: a local one, or one of an object store, which ends in a slash."""
    return telemetry.endswith("/") if is_object(telemetry) else Path(telemetry).is_dir()


def files_of(telemetry: str) -> list[str]:
    """Addresses of the files of a data set, in the order of their paths.

    Raises:
        InputError: there is none.
        SourceError: the object store does not answer.
    """
    return [address for address, _ in _files_and_states(telemetry)]


def version_of(telemetry: str) -> str:
    """SHA-256 (hex) of paths and contents; of a store's objects, which are not read for it, paths, sizes and times."""
    found = [(address.removeprefix(telemetry).lstrip("/"), state)
             for address, state in _files_and_states(telemetry, digests=True)]
    return hashlib.sha256(json.dumps([found, partitions_of(Path(telemetry) / "file")]).encode()).hexdigest()


def partitions_of(path: Path) -> dict[str, str | None]:
    """Column -> value, of each `name=value` of the folders directly above a file; None is Hive's for no value."""
    own = takewhile(lambda part: "=" in part[1:], reversed(path.parts[:-1]))
    found = dict(part.split("=", 1) for part in reversed(list(own)))
    return {name: None if value == NO_VALUE else unquote(value) for name, value in found.items()}


@dataclass(frozen=True)
class Part:
    """A file of a data set: its address, the end of it below the data set, the records in the files before it, and the
    workload that its path names."""

    address: str
    name: str
    before: int
    workload: str | None


def parts_of(telemetry: str, column: str | None) -> list[Part]:
    """The files that have rows, in the order of their paths; of the others and of their number only footers are read.

    Args:
        column: that names a row's workload; None: none does.

    Raises:
        InputError: there is none.
    """
    parts, before = [], 0
    files = files_of(telemetry)
    for address in files:
        rows = _rows(address)
        if rows != 0:
            name = address.removeprefix(telemetry).lstrip("/")
            parts.append(Part(address, name, before, _workload(address, column)))
            before += rows or 0
    if not parts:
        raise InputError(f"telemetry must hold rows, got {len(files):,} files without any ({telemetry})")
    return parts


def workloads_apart(telemetry: str, column: str | None) -> set[str]:
    """Workloads of a data set that is cut by workload: the path of every file names one by `column`. Else none."""
    found = {_workload(address, column) for address in files_of(telemetry)}
    return set() if None in found else {name for name in found if name}


def _workload(address: str, column: str | None) -> str | None:
    return None if column is None else partitions_of(Path(address)).get(column) or None


def _rows(address: str) -> int | None:
    """Rows of a Parquet file, by its footer; None: it has none that can be read, which whoever reads it says."""
    from pyarrow import ArrowException
    from pyarrow.fs import FileSystem
    from pyarrow.parquet import read_metadata

    try:
        if not is_object(address):
            return int(read_metadata(address).num_rows)
        system, key = FileSystem.from_uri(address)
        with system.open_input_file(key) as file:
            return int(read_metadata(file).num_rows)
    except (ArrowException, OSError):
        return None


def _files_and_states(telemetry: str, digests: bool = False) -> list[tuple[str, str]]:
    found = _objects(telemetry) if is_object(telemetry) else _local(Path(telemetry), digests)
    if not found:
        raise InputError(f"telemetry: expected a folder with files in {' or '.join(PARQUET)}, got none ({telemetry})")
    return found


def _local(folder: Path, digests: bool) -> list[tuple[str, str]]:
    for path in folder.rglob("*"):
        if path.is_symlink() and not path.is_file():
            raise InputError(f"telemetry: expected files, folders and links to files, got a link to "
                             f"{'a folder' if path.is_dir() else 'nothing'} ({path}); take it out, or name its target")
    files = sorted(path for path in folder.rglob("*") if path.is_file() and _is_read(path.relative_to(folder)))
    return [(str(path), content_digest(path) if digests else "") for path in files]


def _objects(address: str) -> list[tuple[str, str]]:
    from pyarrow import ArrowException
    from pyarrow.fs import FileSelector, FileSystem, FileType

    try:
        system, folder = FileSystem.from_uri(address)
        found = system.get_file_info(FileSelector(folder, recursive=True))
    except (ArrowException, OSError) as error:
        raise SourceError(f"telemetry must be a folder of an object store that can be read, got {error} ({address}); "
                          "are $AWS_ENDPOINT_URL and the keys those of its store?") from error
    return sorted((f"s3://{one.path}", f"{one.size} {one.mtime_ns}") for one in found
                  if one.type == FileType.File and _is_read(PurePosixPath(one.path).relative_to(folder)))


def _is_read(path: PurePosixPath | Path) -> bool:
    return path.suffix.lower() in PARQUET and not any(part.startswith((".", "_")) for part in path.parts)
