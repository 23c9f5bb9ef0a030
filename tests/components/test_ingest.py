"""ingest: a file, a file of the user's own shape, or a Prometheus server, all to one table."""

import json
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
import yaml

from components.ingest import run_ingest
from components.progress import PROGRESS_VARIABLE, read_events
from feature_store.errors import InputError, SourceError
from feature_store.origin import Origin
from feature_store.samples import Samples
from feature_store.sources import prometheus_api
from tests.e2e import tiny
from tests.feature_store.sources.recorded import metric_map, recorded_server

TASK = yaml.safe_dump(tiny.task())


@pytest.fixture(autouse=True)
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv(PROGRESS_VARIABLE, str(tmp_path / "events.jsonl"))
    monkeypatch.setattr(prometheus_api, "_FIRST_BACKOFF_S", 0.01)
    yield tmp_path / "events.jsonl"


def test_a_prometheus_server_gives_the_canonical_table(tmp_path: Path) -> None:
    with recorded_server() as (url, start_s):
        secret = url.replace("//", "//me:s3cret@")
        source = run_ingest(TASK, secret, yaml.safe_dump(metric_map(start_s)), tmp_path / "out")
    frame = pd.read_parquet(tmp_path / "out" / "rows")
    assert source == json.loads((tmp_path / "out" / "source.json").read_text())
    assert source["workloads"] == frame["workload"].value_counts().to_dict()
    assert (source["rows"], source["telemetry"]) == (len(frame), url)


def test_the_same_answers_are_the_same_data_version(tmp_path: Path) -> None:
    """By which a scheduled run knows that a server had nothing new to say."""
    with recorded_server() as (url, start_s):
        versions = {run_ingest(TASK, url, yaml.safe_dump(metric_map(start_s)), tmp_path / name)["data_version"]
                    for name in ("a", "b")}
    assert len(versions) == 1


def test_a_users_own_file_is_mapped(tmp_path: Path) -> None:
    mapping = {"workload": {"constant": "redis"}, "time": {"column": "ts", "unit": "s", "window_s": 60},
               "columns": {"psi_io_some": {"column": "io", "unit": "percent"},
                           "latency_ms": {"column": "rt", "unit": "us"}}}
    path = tmp_path / "mine.csv"
    pd.DataFrame({"ts": [1767571200, 1767571260], "io": [25.0, 50.0], "rt": [1500, 2500]}).to_csv(path, index=False)
    source = run_ingest(TASK, str(path), yaml.safe_dump(mapping), tmp_path / "out")
    frame = pd.read_parquet(tmp_path / "out" / "rows")
    assert frame["psi_io_some"].tolist() == [0.25, 0.5] and frame["latency_ms"].tolist() == [1.5, 2.5]
    assert source["telemetry"] == "mine.csv" and source["workloads"] == {"redis": 2}


@pytest.mark.parametrize(
    ("telemetry", "mapping", "kind", "message"),
    [
        ("no.parquet", "", InputError, "telemetry must be an existing file"),
        ("empty.parquet", "", InputError, "got an empty file"),
        ("half.parquet", "", InputError, "must be a whole Parquet table"),
        ("http://127.0.0.1:1", "workloads: {redis: {latency_ms: x}}\nlast_s: 600", SourceError,
         "server must answer, got ConnectionError after 4 tries"),
        ("http://127.0.0.1:1", "", InputError, "metric map: the field 'workloads' is missing"),
        ("http://127.0.0.1:1", "[redis]", InputError, r"metric map: expected a mapping, got \['redis'\]"),
    ],
)
def test_what_cannot_be_read_leaves_nothing(
    tmp_path: Path, events: Path, telemetry: str, mapping: str, kind: type[Exception], message: str
) -> None:
    whole = tmp_path / "whole.parquet"
    tiny.telemetry(rows=50).to_parquet(whole)
    (tmp_path / "empty.parquet").touch()
    (tmp_path / "half.parquet").write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    source = telemetry if telemetry.startswith("http") else str(tmp_path / telemetry)
    with pytest.raises(kind, match=message):
        run_ingest(TASK, source, mapping, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    failed = read_events(events)[0][-1]
    assert (failed["event"], failed["step"], failed["exit_code"]) == ("failed", "ingest", 2)


def test_a_data_set_gives_what_one_file_of_all_its_rows_gives(tmp_path: Path) -> None:
    """Files of two workloads, of which the later one comes first by its path."""
    table = tiny.telemetry(rows=40)
    table.to_parquet(tmp_path / "whole.parquet", index=False)
    folder = tmp_path / "parts"
    early = table["window_start"] < table["window_start"].iloc[25]
    for name, rows in (("zone=a", table[~early]), ("zone=b", table[early])):
        (folder / name).mkdir(parents=True)
        rows.to_parquet(folder / name / "part-0.parquet", index=False)
    whole = run_ingest(TASK, str(tmp_path / "whole.parquet"), yaml.safe_dump(DATA_SET), tmp_path / "one")
    source = run_ingest(TASK, str(folder), yaml.safe_dump(DATA_SET), tmp_path / "many")
    assert {**source, "telemetry": ""} == {**whole, "telemetry": ""} and source["telemetry"] == "parts"
    rows = Samples(tmp_path / "many")["redis"]
    assert rows.index.tolist() == [*range(56, 81), *range(16, 31)], "records counted through all files"


DATA_SET = {"workload": {"column": "workload"}, "time": {"column": "window_start", "window_s": 60},
            "columns": {"psi_io_some": {"column": "psi_io_some"}, "latency_ms": {"column": "latency_ms"}}}


def test_a_bad_cell_of_a_later_file_of_a_data_set_is_found_where_it_stands(tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    table = tiny.telemetry(("redis",), rows=20).astype({"latency_ms": object})
    table.loc[13, "latency_ms"] = "timeout"
    table[:10].astype({"latency_ms": "float64"}).to_parquet(folder / "0.parquet", index=False)
    table[10:].astype({"latency_ms": "str"}).to_parquet(folder / "1.parquet", index=False)
    mapping = DATA_SET | {"bad_rows": {"drop": True, "at_most": "10 %"}}
    run_ingest(TASK, str(folder), yaml.safe_dump(mapping), tmp_path / "out")
    origin = Origin.read(tmp_path / "out")
    assert origin.cells == {(14, "latency_ms"): "timeout"} and origin.bad_rows is not None
    assert Samples(tmp_path / "out")["redis"]["latency_ms"].isna().to_numpy().nonzero()[0].tolist() == [13]


def test_a_data_set_without_time_keeps_the_order_of_its_files(tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    for number, value in enumerate((1.0, 2.0)):
        pd.DataFrame({"io": [value] * 3, "rt": [value] * 3}).to_parquet(folder / f"{number}.parquet", index=False)
    mapping = {"workload": {"constant": "redis"}, "columns": {"psi_io_some": {"column": "io"},
                                                              "latency_ms": {"column": "rt"}}}
    run_ingest(TASK, str(folder), yaml.safe_dump(mapping), tmp_path / "out")
    rows = Samples(tmp_path / "out")["redis"]
    assert rows["latency_ms"].tolist() == [1.0] * 3 + [2.0] * 3 and rows["window_start"].is_unique


def test_a_file_of_a_data_set_that_is_damaged_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    tiny.telemetry(rows=5).to_parquet(folder / "0.parquet", index=False)
    (folder / "1.parquet").write_bytes((folder / "0.parquet").read_bytes()[:-20])
    with pytest.raises(InputError, match=r"whole Parquet table, got .*1\.parquet"):
        run_ingest(TASK, str(folder), "", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_files_without_rows_are_passed_over_and_nothing_but_them_is_an_error(tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    table = tiny.telemetry(rows=5)
    table[:0].to_parquet(folder / "0.parquet", index=False)
    with pytest.raises(InputError, match=r"telemetry must hold rows, got 1 files without any"):
        run_ingest(TASK, str(folder), "", tmp_path / "out")
    table.to_parquet(folder / "1.parquet", index=False)
    assert run_ingest(TASK, str(folder), "", tmp_path / "out")["rows"] == 10


@pytest.mark.parametrize("parts", [1, 2, 6])
def test_how_a_data_set_is_cut_changes_nothing_about_its_bad_rows(tmp_path: Path, parts: int) -> None:
    """4 bad cells of 300 rows, all in the last part: too many for that part alone, few enough for the workload."""
    folder = tmp_path / "parts"
    folder.mkdir()
    table = tiny.telemetry(("redis",), rows=300).astype({"latency_ms": str})
    table.loc[[280, 285, 290, 295], "latency_ms"] = "timeout"
    for number in range(parts):
        table[number * 300 // parts:(number + 1) * 300 // parts].to_parquet(folder / f"{number}.parquet", index=False)
    mapping = DATA_SET | {"bad_rows": {"drop": True, "at_most": 0.02}}
    run_ingest(TASK, str(folder), yaml.safe_dump(mapping), tmp_path / "out")
    assert sorted(row for row, _ in Origin.read(tmp_path / "out").cells) == [281, 286, 291, 296]


def test_a_mapping_may_name_what_stands_in_the_path(tmp_path: Path) -> None:
    table, folder = tiny.telemetry(rows=20), tmp_path / "parts"
    for name, rows in table.groupby("workload"):
        place = folder / f"app={name}" / "day=1"
        place.mkdir(parents=True)
        rows.drop(columns="workload").to_parquet(place / "part.parquet", index=False)
    mapping = DATA_SET | {"workload": {"column": "app"}, "environment": {"column": "day"}}
    source = run_ingest(TASK, str(folder), yaml.safe_dump(mapping), tmp_path / "out")
    assert source["workloads"] == {"nginx": 20, "redis": 20}
    assert set(Samples(tmp_path / "out")["redis"]["environment"]) == {"1"}
