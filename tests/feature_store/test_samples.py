"""Samples: a file a workload, whatever their names are; parts are put together in the order of time."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from feature_store.errors import InputError
from feature_store.samples import Samples, write_samples
from tests.e2e import tiny


def test_a_workloads_rows_come_back_with_their_numbers_in_the_source(tmp_path: Path) -> None:
    table = tiny.telemetry(rows=4).sample(frac=1.0, random_state=0).sort_values("workload", kind="stable")
    table.index = pd.Index(range(7, 15), name="record")
    source = write_samples([table], "mine.parquet", tmp_path)
    read = Samples(tmp_path)
    assert dict(read.source) == source and source["rows"] == 8 and list(read) == ["nginx", "redis"]
    for name in read:
        pd.testing.assert_frame_equal(read[name], table[table["workload"] == name])
    with pytest.raises(KeyError):
        read["mysql"]


def test_parts_of_a_workload_are_joined_in_the_order_of_time(tmp_path: Path) -> None:
    table = tiny.telemetry(("redis",), rows=9)
    source = write_samples([table[6:], table[:3], table[3:6]], "folder", tmp_path / "parts", in_time=True)
    whole = write_samples([table], "folder", tmp_path / "whole")
    assert source == whole, "the version of the data is that of one file"
    pd.testing.assert_frame_equal(Samples(tmp_path / "parts")["redis"], table)


def test_a_part_that_is_not_in_the_order_of_time_is_put_in_it_where_that_is_asked_for(tmp_path: Path) -> None:
    table = tiny.telemetry(("redis",), rows=9)
    write_samples([table[::-1]], "folder", tmp_path / "in-time", in_time=True)
    write_samples([table[::-1]], "file", tmp_path / "as-it-is")
    assert Samples(tmp_path / "in-time")["redis"].index.tolist() == list(range(9))
    assert Samples(tmp_path / "as-it-is")["redis"].index.tolist() == list(range(8, -1, -1))


def test_a_column_of_two_types_is_one_clear_line(tmp_path: Path) -> None:
    table = tiny.telemetry(("redis",), rows=4)
    with pytest.raises(InputError, match=r"a column must be of one type in all files, got .*\(rows of redis\)"):
        write_samples([table[:2].assign(pod="a"), table[2:].assign(pod=7)], "folder", tmp_path, in_time=True)


@pytest.mark.parametrize("name", [None, "", " "])
def test_rows_without_a_workload_are_judged_with_each(tmp_path: Path, name: str | None) -> None:
    table = tiny.telemetry(rows=3)
    table.loc[1, "workload"] = name
    write_samples([table], "mine.parquet", tmp_path)
    read = Samples(tmp_path)
    others = {name: [1, *table.index[table["workload"] == name]] for name in read}
    assert {name: sorted(read.to_judge(name).index) for name in read} == {k: sorted(v) for k, v in others.items()}
    assert list(read.to_judge("mysql").index) == [1] and 1 not in read["redis"].index
    assert read.to_judge("mysql")["workload"].isna().all(), "the data gate tells of a missing value"


def test_a_workload_without_rows_has_the_columns_of_the_others(tmp_path: Path) -> None:
    write_samples([tiny.telemetry(rows=3)], "mine.parquet", tmp_path)
    none = Samples(tmp_path).to_judge("mysql")
    assert none.empty and list(none) == list(tiny.telemetry(rows=1))


@pytest.mark.parametrize("name", ["../../up", "/etc/passwd", "a/b", "..", "_unnamed", "x" * 300, "ä ö", "a=b"])
def test_a_name_that_no_task_can_have_stays_inside_the_folder(tmp_path: Path, name: str) -> None:
    table = pd.concat([tiny.telemetry(("redis",), rows=2).assign(workload=name), tiny.telemetry(("redis",), rows=2)])
    write_samples([table], "mine.parquet", tmp_path / "in")
    read = Samples(tmp_path / "in")
    assert read[name]["workload"].tolist() == [name, name] and len(read["redis"]) == 2
    assert {path.name for path in tmp_path.iterdir()} == {"in"}
    assert {path.name for path in (tmp_path / "in").iterdir()} == {"rows", "source.json"}


def test_repeated_it_leaves_what_it_leaves_once(tmp_path: Path) -> None:
    write_samples([tiny.telemetry(rows=3)], "mine.parquet", tmp_path)
    source = write_samples([tiny.telemetry(("redis",), rows=3)], "mine.parquet", tmp_path)
    assert [path.name for path in (tmp_path / "rows").iterdir()] == ["redis.parquet"]
    other = tiny.telemetry(("redis",), rows=3).assign(latency_ms=np.arange(3.0))
    assert write_samples([other], "mine.parquet", tmp_path)["data_version"] != source["data_version"]
