import gzip
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from feature_store.bad_rows import BadRows
from feature_store.errors import InputError
from feature_store.expectations import DataGate
from feature_store.features import featurize
from feature_store.mapping import ColumnSource, Header, Label, TelemetryMapping, TimeSource, parse_mapping
from feature_store.origin import Unreadable
from feature_store.sources.files import has_synthetic_time, read_telemetry, read_with_origin
from feature_store.strict_yaml import read_yaml
from models.tasks.task import parse_task

ROOT = Path(__file__).parents[3]
IOCOST = Path(os.environ.get("ASSAY_DATA", ROOT.parent / "shared" / "data"),
              "iocost_psi", "prot_memhog_psi_latency.csv.gz")
MAPPING = TelemetryMapping(
    workload=Label(column="app"), environment=Label(constant="lab"), time=TimeSource("ts", "s", window_s=60.0),
    columns={"psi_io_full": ColumnSource("io", 0.01), "latency_ms": ColumnSource("rt", 1000.0)}, keep=("model",),
    where="mapping.yaml")
DROPS = replace(MAPPING, bad_rows=BadRows(("numeric",), 0.5))
RAW = pd.DataFrame({"app": ["a", "b"], "ts": [1.7e9, 1.7e9 + 60], "io": [50, 7], "rt": [0.001, 0.002],
                    "model": ["x", "y"], "unused": [1, 2]})


@pytest.mark.parametrize("name", ["t.parquet", "t.csv", "t.csv.gz"])
def test_a_table_in_the_schema_comes_back_as_it_was_written(tmp_path, telemetry, name):
    frame = telemetry(30)
    path = tmp_path / name
    if name.endswith(".parquet"):
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False)
    read = read_telemetry(path)
    assert read["window_start"].tolist() == frame["window_start"].tolist()
    pd.testing.assert_frame_equal(read.reset_index(drop=True), frame, check_dtype=False)
    assert (read.index.name, read.index[0]) == (("record", 1) if name.endswith(".parquet") else ("row", 2))


@pytest.mark.parametrize("name", ["t.parquet", "t.csv"])
def test_a_mapping_converts_names_units_and_times(tmp_path, name):
    path = tmp_path / name
    if name.endswith(".parquet"):
        RAW.to_parquet(path)
    else:
        RAW.to_csv(path, index=False)
    read = read_telemetry(path, MAPPING)
    assert list(read.columns) == ["workload", "environment", "combination", "window_start", "window_s",
                                  "psi_io_full", "latency_ms", "model"]
    assert read["workload"].tolist() == ["a", "b"]
    assert read["psi_io_full"].tolist() == [0.5, 0.07]
    assert read["latency_ms"].tolist() == [1.0, 2.0]
    assert read["window_start"].tolist() == [pd.Timestamp(1.7e9, unit="s", tz="UTC"),
                                             pd.Timestamp(1.7e9 + 60, unit="s", tz="UTC")]
    assert not has_synthetic_time(read)


def test_without_time_the_order_is_synthetic(tmp_path):
    RAW.to_csv(tmp_path / "t.csv", index=False)
    read = read_telemetry(tmp_path / "t.csv", TelemetryMapping(Label(constant="a"), dict(MAPPING.columns)))
    assert has_synthetic_time(read)
    assert read["window_start"].is_monotonic_increasing
    assert read["window_start"].is_unique


def test_a_missing_column_names_the_nearest_one(tmp_path):
    RAW.rename(columns={"model": "modell"}).to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(InputError, match=r"expected a column 'model', got none .*mapping.yaml"
                                         r".*did you mean 'modell'\?"):
        read_telemetry(tmp_path / "t.csv", MAPPING)


def test_a_users_file_without_a_mapping_is_told_so(tmp_path):
    RAW.to_parquet(tmp_path / "t.parquet")
    with pytest.raises(InputError, match=r"column 'workload', got none .*a file with other columns needs a mapping"):
        read_telemetry(tmp_path / "t.parquet")


def test_a_word_among_numbers_is_named_with_its_row(tmp_path):
    RAW.astype({"io": "str"}).replace("7", "7,5").to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(InputError, match=r"column 'io' must hold numbers, got '7,5' at row 3 .*1 of 2 rows"):
        read_telemetry(tmp_path / "t.csv", MAPPING)


def test_a_whole_number_beyond_float64_is_infinite_as_one_with_a_point_is(tmp_path):
    for digits in ("9" * 400, "9" * 400 + ".0"):
        RAW.astype({"io": "str"}).assign(io=[f"-{digits}", "7"]).to_csv(tmp_path / "t.csv", index=False)
        for mapping in (MAPPING, DROPS):
            assert read_telemetry(tmp_path / "t.csv", mapping)["psi_io_full"].tolist() == [-np.inf, 0.07]


def test_bytes_that_are_no_text_are_named_with_their_column(tmp_path):
    RAW.assign(app=[b"a", b"b"]).to_parquet(tmp_path / "t.parquet")
    assert read_telemetry(tmp_path / "t.parquet", MAPPING)["workload"].tolist() == ["a", "b"]
    RAW.assign(app=[b"a", b"\xff"]).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(InputError, match=r"column 'app' must hold numbers, times or UTF-8 text, got other bytes"):
        read_telemetry(tmp_path / "t.parquet", MAPPING)


@pytest.mark.parametrize("values", [pd.to_timedelta([5, None], unit="ms"), pd.to_datetime([5, None], unit="ms"),
                                    pd.to_datetime([5, None], unit="ms", utc=True)])
def test_dates_and_durations_are_no_numbers(tmp_path, values):
    path = tmp_path / "t.parquet"
    RAW.assign(rt=values).to_parquet(path)
    with pytest.raises(InputError, match=r"column 'rt' must hold numbers, got Time.* at record 1 .*1 of 2 rows"):
        read_telemetry(path, MAPPING)
    frame, origin = read_with_origin(path, DROPS)
    assert frame["latency_ms"].isna().all() and [one.row for one in origin.unreadable] == [1]
    RAW.assign(rt=values[[1, 1]]).to_parquet(path)
    assert read_telemetry(path, MAPPING)["latency_ms"].isna().all()


@pytest.mark.parametrize("write", [pd.DataFrame.to_csv, pd.DataFrame.to_parquet])
def test_a_blank_cell_renames_no_label(tmp_path, telemetry, write):
    path = tmp_path / ("t.csv" if write == pd.DataFrame.to_csv else "t.parquet")
    write(RAW.assign(app=[1, None], place=[2, None]), path, index=False)
    read = read_telemetry(path, replace(MAPPING, environment=Label(column="place")))
    assert (read["workload"].iloc[0], read["environment"].iloc[0]) == ("1", "2") and read["workload"].isna().iloc[1]
    write(telemetry(2).assign(environment=[3, None]), path, index=False)
    assert read_telemetry(path)["environment"].iloc[0] == "3"


def test_labels_of_a_csv_file_that_are_equal_as_numbers_stay_apart(tmp_path, telemetry):
    path, mapping = tmp_path / "t.csv", replace(MAPPING, environment=Label(column="place"))
    RAW.assign(app=["007", "7"], place=["1.10", "1.1"]).to_csv(path, index=False)
    read = read_telemetry(path, mapping)
    assert read["workload"].tolist() == ["007", "7"] and read["environment"].tolist() == ["1.10", "1.1"]
    telemetry(2).assign(workload=["007", "7"], combination=["9" * 400, "1e3"]).to_csv(path, index=False)
    read = read_telemetry(path)
    assert read["workload"].tolist() == ["007", "7"] and read["combination"].tolist() == ["9" * 400, "1e3"]


@pytest.mark.parametrize(("written", "label"), [(["1.0", "2.5"], "1"), (["true", "FALSE"], "True"), ([" 1", "2"], "1"),
                                                (["1.0", "1.0-rc"], "1.0"), (["true", "b"], "true")])
def test_a_label_of_a_csv_file_is_what_it_is_in_a_parquet_file(tmp_path, written, label):
    RAW.assign(app=written).to_csv(tmp_path / "t.csv", index=False)
    assert read_telemetry(tmp_path / "t.csv", MAPPING)["workload"].iloc[0] == label


def test_long_whole_numbers_stay_apart_as_labels_of_a_parquet_file_where_one_is_missing(tmp_path):
    raw = pd.concat([RAW, RAW]).assign(app=pd.array([2**53, 2**53 + 1, None, 7], dtype="Int64"))
    raw.to_parquet(tmp_path / "t.parquet", index=False)
    read = read_telemetry(tmp_path / "t.parquet", MAPPING)["workload"]
    assert read.dropna().tolist() == ["9007199254740992", "9007199254740993", "7"] and read.isna().iloc[2]


def test_a_name_that_a_header_has_twice_is_refused_where_it_is_asked_for(tmp_path, telemetry):
    text = RAW.to_csv(index=False)
    (tmp_path / "t.csv").write_text(text.replace("unused", "rt"))
    with pytest.raises(InputError, match=r"columns must have distinct names, got 'rt' twice .*rename one"):
        read_telemetry(tmp_path / "t.csv", MAPPING)
    (tmp_path / "t.csv").write_text(text.replace("unused\n", "other,other,,\n").replace("1\n", "1,1,1,1\n").replace(
        "2\n", "2,2,2,2\n"))
    assert read_telemetry(tmp_path / "t.csv", MAPPING)["latency_ms"].tolist() == [1.0, 2.0]
    (tmp_path / "t.csv").write_text(telemetry(5).to_csv(index=False).replace("cpu_time,", "psi_io_full,"))
    with pytest.raises(InputError, match="columns must have distinct names, got 'psi_io_full' twice"):
        read_telemetry(tmp_path / "t.csv")


@pytest.mark.parametrize(("above", "header", "first"), [
    ("{names}\npercent\n", Header(2, 1), 3), ("exported today\n{names}\n", Header(2, 2), 3),
    ("a,b,c\n\"x\",,\n{names}\n,,,,,\n", Header(4, 3), 5), ("{names}\n", Header(), 2)])
def test_a_header_may_have_several_rows_and_rows_keep_the_numbers_of_a_spreadsheet(tmp_path, above, header, first):
    names, rows = RAW.to_csv(index=False).split("\n", 1)
    (tmp_path / "t.csv").write_text(above.format(names=names) + rows)
    read = read_telemetry(tmp_path / "t.csv", replace(MAPPING, header=header))
    assert read["psi_io_full"].tolist() == [0.5, 0.07]
    assert (read.index.name, read.index.tolist()) == ("row", [first, first + 1])


def test_a_parquet_file_has_no_header_of_rows(tmp_path):
    RAW.to_parquet(tmp_path / "t.parquet")
    with pytest.raises(InputError, match="header: expected none of a Parquet file"):
        read_telemetry(tmp_path / "t.parquet", replace(MAPPING, header=Header(2)))


@pytest.mark.parametrize(("column", "text", "canonical"), [
    ("io", "n.a.", "psi_io_full"), ("ts", "soon", "window_start"), ("rt", "7,5", "latency_ms")])
def test_a_cell_without_a_number_is_missing_and_told_where_it_may_be_dropped(tmp_path, column, text, canonical):
    RAW.assign(**{column: [RAW[column][0], text]}).to_csv(tmp_path / "t.csv", index=False)
    frame, origin = read_with_origin(tmp_path / "t.csv", DROPS)
    assert frame[canonical].isna().tolist() == [False, True]
    assert origin.unreadable == (Unreadable(3, column, text),) and origin.bad_rows == DROPS.bad_rows
    for rule in (("not_null",), ()):
        with pytest.raises(InputError, match=r"must (hold numbers|be a number)"):
            read_telemetry(tmp_path / "t.csv", replace(MAPPING, bad_rows=BadRows(rule, 0.5)))


def test_of_times_in_text_those_that_are_none_are_kept_as_text(tmp_path):
    times = ["2024-01-01T00:00:00Z", "yesterday"]
    RAW.assign(ts=times).to_csv(tmp_path / "t.csv", index=False)
    mapping = replace(DROPS, time=TimeSource("ts", "iso"))
    frame, origin = read_with_origin(tmp_path / "t.csv", mapping)
    assert frame["window_start"].isna().tolist() == [False, True] and origin.unreadable[0].text == "yesterday"


def test_more_words_than_may_be_dropped_are_an_error_as_ever(tmp_path):
    RAW.assign(io=["x", "y"]).to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(InputError, match=r"column 'io' must hold numbers, got 'x' at row 2 .*2 of 2 rows"):
        read_telemetry(tmp_path / "t.csv", DROPS)


def test_an_empty_cell_becomes_nan(tmp_path):
    RAW.assign(io=[np.nan, 7.0]).to_csv(tmp_path / "t.csv", index=False)
    assert read_telemetry(tmp_path / "t.csv", MAPPING)["psi_io_full"].isna().tolist() == [True, False]


def test_times_without_a_zone_are_refused_in_a_table_of_the_schema(tmp_path, telemetry):
    frame = telemetry(5)
    frame["window_start"] = frame["window_start"].dt.tz_localize(None)
    frame.to_parquet(tmp_path / "t.parquet")
    with pytest.raises(InputError, match="window_start must carry a time zone"):
        read_telemetry(tmp_path / "t.parquet")


def _parquet_bytes(tmp_path):
    RAW.to_parquet(tmp_path / "whole.parquet")
    return (tmp_path / "whole.parquet").read_bytes()


@pytest.mark.parametrize(("name", "content", "message"), [
    ("t.csv", b"", "must hold a table, got an empty file"),
    ("t.parquet", b"", "must hold a table, got an empty file"),
    ("t.csv", b"\n\n", "must hold a table, got no columns"),
    ("t.csv", b"app,ts,io,rt,model\n", "must hold rows, got a header alone"),
    ("t.csv", b"\x89PNG\r\n\x1a\n\x00\x00\xff\xfe", "must be a whole CSV table"),
    ("t.csv", b"app,ts,io,rt,model\na,1,2,3,x\nb,1,2,3,y,6\n", "must be a whole CSV table"),
    ("t.csv", b"app,ts,io,rt,model\na,1,2,3,x,6\nb,1,2,3,y,6\n", "must be a whole CSV table"),
    ("t.csv.gz", b"app,ts,io,rt,model\n", "must be a whole CSV table"),
    ("t.csv.gz", gzip.compress(b"app,ts,io,rt,model\na,1,2,3,x\n" * 99, mtime=0)[:-20], "must be a whole CSV table"),
    ("t.parquet", b"this is no Parquet file at all", "must be a whole Parquet table"),
    ("t.parquet", "truncated", "must be a whole Parquet table"),
    ("t.xlsx", b"x", "must end in .parquet, .pq, .csv, .csv.gz"),
])
def test_a_file_that_is_no_whole_table_is_refused(tmp_path, name, content, message):
    if content == "truncated":
        content = _parquet_bytes(tmp_path)[:-30]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_telemetry(tmp_path / name, MAPPING)


def test_a_parquet_file_with_damaged_pages_is_refused(tmp_path):
    content = bytearray(_parquet_bytes(tmp_path))
    content[4:40] = bytes(36)
    (tmp_path / "t.parquet").write_bytes(content)
    with pytest.raises(InputError, match="must be a whole Parquet table"):
        read_telemetry(tmp_path / "t.parquet", MAPPING)


def test_a_file_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(InputError, match=r"telemetry must be an existing file, got .*t.csv"):
        read_telemetry(tmp_path / "t.csv")


@pytest.mark.skipif(not IOCOST.is_file(), reason=f"the public iocost table is not at {IOCOST} (set ASSAY_DATA)")
def test_the_iocost_example_reads_passes_the_gate_and_splits_by_ssd(tmp_path):
    path = ROOT / "examples" / "iocost" / "mapping.yaml"
    mapping = parse_mapping(read_yaml(path, "mapping"), path)
    task = parse_task(mapping.task, mapping.where)
    schema = task.telemetry_schema("iocost")
    frame = read_telemetry(IOCOST, mapping)
    assert len(frame) == 1311
    result = DataGate().judge(frame, schema)
    assert result.passed, result.failures
    assert result.statistics["time"].startswith("synthetic")
    summary = featurize(frame, schema, task.test_share, folder=tmp_path / "iocost")
    assert summary.train_groups + summary.test_groups == 36
    sides = [pd.read_parquet(summary.folder / f"{side}.parquet") for side in ("train", "test")]
    assert not set(sides[0]["model"]) & set(sides[1]["model"])
