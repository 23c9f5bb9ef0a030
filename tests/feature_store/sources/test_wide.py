"""Wide files: a column a workload. What a name means is never guessed."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from feature_store.errors import InputError
from feature_store.expectations import DataGate
from feature_store.mapping import ColumnSource, Label, TelemetryMapping, TimeSource, parse_mapping
from feature_store.schema import METRICS, TARGETS, TelemetrySchema
from feature_store.sources.files import read_telemetry, read_with_origin

MAPPING = TelemetryMapping(
    workload=Label(column_names="{workload}_{column}"), time=TimeSource("ts", "s", window_s=60.0), where="mapping.yaml",
    columns={"cpu_time": ColumnSource("cpu", 0.01), "latency_ms": ColumnSource("latency"),
             "psi_io_full": ColumnSource("io")})
RAW = pd.DataFrame({"ts": [1.7e9, 1.7e9 + 60], "io": [0.5, 0.25], "web_cpu": [10, 20], "web_latency": [1.0, 2.0],
                    "my_db_cpu": [30, 40], "my_db_latency": [3.0, -4.0], "other": [0, 0]})


def read(folder: Path, raw: pd.DataFrame = RAW, mapping: TelemetryMapping = MAPPING) -> pd.DataFrame:
    raw.to_csv(folder / "wide.csv", index=False)
    return read_telemetry(folder / "wide.csv", mapping)


def test_each_workload_has_its_own_columns_and_all_have_the_others(tmp_path: Path) -> None:
    frame = read(tmp_path)
    assert frame["workload"].tolist() == ["my_db", "my_db", "web", "web"]
    assert frame["latency_ms"].tolist() == [3.0, -4.0, 1.0, 2.0]
    assert frame["cpu_time"].tolist() == [0.3, 0.4, 0.1, 0.2]
    assert frame["psi_io_full"].tolist() == [0.5, 0.25] * 2
    assert frame.index.tolist() == [2, 3] * 2
    assert frame["window_start"].tolist() == 2 * frame["window_start"][:2].tolist()


def test_it_is_what_the_long_file_gives(tmp_path: Path) -> None:
    long = pd.concat([pd.DataFrame({"app": name, "ts": RAW["ts"], "io": RAW["io"], "cpu": RAW[f"{name}_cpu"],
                                    "latency": RAW[f"{name}_latency"]}) for name in ("my_db", "web")])
    long.to_csv(tmp_path / "long.csv", index=False)
    of_long = read_telemetry(tmp_path / "long.csv", replace(MAPPING, workload=Label(column="app")))
    pd.testing.assert_frame_equal(read(tmp_path).reset_index(drop=True), of_long.reset_index(drop=True))


@pytest.mark.parametrize(("pattern", "name"), [("{column}.{workload}", "{column}.{workload}"),
                                               ("svc/{workload}:{column} [avg]", "svc/{workload}:{column} [avg]")])
def test_a_pattern_may_have_any_order_and_text(tmp_path: Path, pattern: str, name: str) -> None:
    named = {f"{workload}_{column}": name.format(workload=workload, column=column)
             for workload in ("web", "my_db") for column in ("cpu", "latency")}
    frame = read(tmp_path, RAW.rename(columns=named), replace(MAPPING, workload=Label(column_names=pattern)))
    assert frame["latency_ms"].tolist() == [3.0, -4.0, 1.0, 2.0]


@pytest.mark.parametrize(("raw", "columns", "message"), [
    (RAW.assign(web_db_latency=1.0), {"db": "db_latency"},
     "column 'my_db_latency' must have one meaning, got 'latency' of workload 'my_db' and 'db_latency' of workload "
     r"'my' \(.*wide.csv, asked for by mapping.yaml\); rename it"),
    (RAW.assign(web_total=1.0, web_cpu_total=1.0, my_db_total=1.0, my_db_cpu_total=1.0),
     {"tables": "total", "table_rows": "cpu_total"},
     "column 'web_cpu_total' must have one meaning, got 'total' of workload 'web_cpu' and 'cpu_total' of workload "
     "'web'"),
    (RAW, {"tables": "web_cpu"},
     "column 'web_cpu' must have one meaning, got 'cpu' of workload 'web' and 'web_cpu' of all workloads"),
    (RAW.rename(columns={"ts": "up_latency"}), {}, "column 'up_latency' must have one meaning"),
    (RAW.assign(latency=1.0), {}, "column 'latency' must stand once for all workloads or once for each, got 'latency' "
                                  "and 'web_latency'"),
    (RAW.drop(columns="my_db_cpu"), {}, "expected a column 'my_db_cpu', as 'web' has one, got none"),
    (RAW.drop(columns=["my_db_cpu", "web_cpu"]), {},
     r"expected columns named '\{workload\}_cpu' or one 'cpu', got none"),
    (RAW[["ts", "io"]].assign(cpu=1.0), {}, r"expected columns named '\{workload\}_latency' or one 'latency'"),
])
def test_a_name_with_two_meanings_or_none_is_refused(tmp_path: Path, raw: pd.DataFrame, columns: dict[str, str],
                                                     message: str) -> None:
    more = {name: ColumnSource(column) for name, column in columns.items()}
    time = TimeSource("up_latency", "s") if "up_latency" in raw else MAPPING.time
    with pytest.raises(InputError, match=f"^{message}"):
        read(tmp_path, raw, replace(MAPPING, columns={**MAPPING.columns, **more}, time=time))


@pytest.mark.parametrize("pattern", [
    "{workload}{column}", "{workload}_", "{column}", "{workload}_{workload}", "web_cpu", "{workload}_{column}_{column}",
    "{app}_{column}", "{{workload}}_{column}", ""])
def test_a_pattern_has_both_names_and_a_text_between(tmp_path: Path, pattern: str) -> None:
    with pytest.raises(InputError, match=r"^workload.column_names: expected "):
        parse_mapping({"workload": {"column_names": pattern}, "columns": {"latency_ms": {"column": "rt"}}}, tmp_path)


def test_a_message_names_the_workloads_own_column(tmp_path: Path) -> None:
    RAW.to_parquet(tmp_path / "wide.parquet")
    frame, origin = read_with_origin(tmp_path / "wide.parquet", MAPPING)
    schema = TelemetrySchema("my_db", {"cpu_time": METRICS["cpu_time"]}, TARGETS, ("window_start",), 2)
    (failure,) = DataGate(origin).judge(frame, schema).failures
    assert failure.message.startswith("column 'my_db_latency' (latency_ms) must be at least 0.001 ms, got -4 (workload "
                                      "my_db: 1 of 2 rows, first at record 2, window 2023-11-14 22:14:20+00:00)")
