"""Folders of Parquet files as telemetry: what is read of them, in which order, and by which name their data go."""

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from feature_store.errors import InputError
from feature_store.mapping import ColumnSource, Label, TelemetryMapping
from feature_store.sources.data_set import (
    files_of,
    is_data_set,
    partitions_of,
    parts_of,
    version_of,
    workloads_apart,
)
from feature_store.sources.files import read_telemetry
from tests.e2e import tiny


def folder_of(root: Path) -> Path:
    """One file a workload, whose name stands in the path alone."""
    table = tiny.telemetry(rows=20)
    for name, rows in table.groupby("workload"):
        place = root / f"workload={name}" / "date=2026-01-05"
        place.mkdir(parents=True)
        rows.drop(columns="workload").to_parquet(place / "part-0.parquet", index=False)
    return root


def test_a_folder_is_a_data_set_and_an_object_is_none(tmp_path: Path) -> None:
    assert is_data_set(str(tmp_path)) and is_data_set("s3://bucket/folder/")
    assert not is_data_set(str(tmp_path / "no.parquet")) and not is_data_set("s3://bucket/a.parquet")
    assert not is_data_set("http://localhost:9090/")


def test_files_are_read_in_the_order_of_their_paths_without_what_is_hidden(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    (folder / "_temporary").mkdir()
    for name in ("_temporary/part-1.parquet", ".part-0.parquet", "_SUCCESS", "README.md"):
        (folder / name).write_text("not telemetry")
    assert [Path(file).relative_to(folder).parts[0] for file in files_of(str(folder))] == \
        ["workload=nginx", "workload=redis"]


def test_parts_of_a_path_are_columns_and_a_file_must_not_say_otherwise(tmp_path: Path) -> None:
    redis = folder_of(tmp_path) / "workload=redis" / "date=2026-01-05" / "part-0.parquet"
    table = read_telemetry(redis)
    assert set(table["workload"]) == {"redis"} and set(table["date"]) == {"2026-01-05"}
    assert partitions_of(Path("/run=7/telemetry/zone=eu%20west/x=1=2/y=/part.parquet")) == {
        "zone": "eu west", "x": "1=2", "y": ""}, "not of folders above the data set"
    assert partitions_of(Path("zone=__HIVE_DEFAULT_PARTITION__/part.parquet")) == {"zone": None}


@pytest.mark.parametrize(("folder", "column", "fits"), [
    ("redis", ["redis"] * 3, True), ("redis", pd.Categorical(["redis"] * 3), True), ("7", [7, 7, 7], True),
    ("redis", ["redis", "mysql", "redis"], False), ("redis", pd.Categorical(["mysql"] * 3), False),
    ("redis", ["redis", None, "redis"], False), ("redis", [7, 7, 7], False), ("07", [7, 7, 7], False),
    ("7", [7.0] * 3, True), ("7", [7.5] * 3, False), ("9007199254740993", [9007199254740992] * 3, False)])
@pytest.mark.parametrize("mapped", [False, True])
def test_a_file_names_its_workload_as_its_path_does_or_is_refused(tmp_path: Path, folder: str, column: Any, fits: bool,
                                                                   mapped: bool) -> None:
    """A row's name is the text of its column, whatever it is stored as."""
    name = "app" if mapped else "workload"
    path = tmp_path / f"{name}={folder}" / "own.parquet"
    path.parent.mkdir()
    table = tiny.telemetry(("redis",), rows=3).drop(columns="workload").assign(**{name: column})
    table.to_parquet(path, index=False)
    mapping = TelemetryMapping(Label(column="app"), {"latency_ms": ColumnSource("latency_ms")}) if mapped else None
    if fits:
        assert set(read_telemetry(path, mapping)["workload"]) == {folder}
        return
    with pytest.raises(InputError, match=rf"'{name}' must hold what the folder {name}={folder} says, got .*own\.parq"):
        read_telemetry(path, mapping)


def test_other_columns_stand_as_the_file_has_them(tmp_path: Path) -> None:
    """Dates, times and numbers are written in many ways."""
    path = tmp_path / "date=20260105" / "run=0.1" / "own.parquet"
    path.parent.mkdir(parents=True)
    table = tiny.telemetry(("redis",), rows=3)
    table.assign(date=datetime.date(2026, 1, 5), run=np.float32(0.1)).to_parquet(path, index=False)
    assert len(read_telemetry(path)) == 3


def test_only_a_data_set_whose_every_path_names_the_workload_is_cut_by_it(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    assert workloads_apart(str(folder), "workload") == {"nginx", "redis"}
    assert not workloads_apart(str(folder), "app") and not workloads_apart(str(folder), None)
    for place in (folder, folder / "workload="):
        place.mkdir(exist_ok=True)
        tiny.telemetry(("redis",), rows=5).drop(columns="workload").to_parquet(place / "more.parquet", index=False)
        assert not workloads_apart(str(folder), "workload"), place
        (place / "more.parquet").unlink()


def test_records_are_counted_through_files_of_other_workloads_too(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    parts = parts_of(str(folder), "workload")
    counts = [len(pd.read_parquet(part.address, partitioning=None)) for part in parts]
    assert [part.before for part in parts] == [sum(counts[:number]) for number in range(len(parts))]
    assert [part.workload for part in parts] == [partitions_of(Path(part.address))["workload"] for part in parts]


def test_the_version_follows_paths_and_contents_and_not_the_place(tmp_path: Path) -> None:
    one, other = folder_of(tmp_path / "a"), folder_of(tmp_path / "b")
    assert version_of(str(one)) == version_of(str(other)) == version_of(f"{one}/")
    part = other / "workload=redis" / "date=2026-01-05" / "part-0.parquet"
    part.rename(part.with_name("part-1.parquet"))
    renamed = version_of(str(other))
    part.with_name("part-1.parquet").write_bytes(b"other")
    assert len({version_of(str(one)), renamed, version_of(str(other))}) == 3


def test_a_folder_without_parquet_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.csv").write_text("a,b")
    with pytest.raises(InputError, match=r"expected a folder with files in \.parquet or \.pq, got none"):
        files_of(str(tmp_path))


@pytest.mark.parametrize(("target", "said"), [("elsewhere", "a folder"), ("gone", "nothing")])
def test_a_link_behind_which_telemetry_would_be_missed_is_refused(tmp_path: Path, target: str, said: str) -> None:
    folder = folder_of(tmp_path / "telemetry")
    (tmp_path / "elsewhere").mkdir()
    (folder / "linked").symlink_to(tmp_path / target)
    with pytest.raises(InputError, match=f"got a link to {said} "):
        files_of(str(folder))
