"""The load of a control task: what is read, what is refused, and what is replayed of a trace with gaps."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from feature_store.errors import InputError
from feature_store.expectations import DataGate
from models.control.contract.systems import environment_of
from models.tasks.control.telemetry import load_schema, longest_stretch, read_features, read_load, write_load
from models.tasks.task import load_task
from tests.environments.traces import trace

TASK = load_task(Path(__file__).parents[3] / "environments" / "backlog.yaml")
COLUMNS = ("rate_rps",)


def failures(table: pd.DataFrame) -> str:
    schema = load_schema(TASK, environment_of(TASK.environment), "shop")
    labelled = table.assign(environment="base", combination="unknown")
    return "; ".join(failure.message for failure in DataGate().judge(labelled, schema).failures)


def write(table: pd.DataFrame, folder: Path) -> None:
    write_load(table, "shop", COLUMNS, 60, (), folder / "shop")


def test_a_file_without_environment_and_combination_is_read(tmp_path: Path) -> None:
    trace(70).to_csv(tmp_path / "load.csv", index=False)
    table, _ = read_load(str(tmp_path / "load.csv"), "", COLUMNS)
    np.testing.assert_allclose(table["rate_rps"], trace(70)["rate_rps"])
    assert set(table["environment"]) == {"base"} and str(table["window_start"].dt.tz) == "UTC"


def test_a_mapping_is_not_taken_and_says_what_the_file_must_have(tmp_path: Path) -> None:
    trace(70).to_csv(tmp_path / "load.csv", index=False)
    with pytest.raises(InputError, match=r"mapping: expected none .* workload, window_start, window_s and rate_rps"):
        read_load(str(tmp_path / "load.csv"), "workload: {column: app}", COLUMNS)


@pytest.mark.parametrize(("table", "message"), [
    (trace(70).drop(columns="rate_rps"), "expected a column 'rate_rps', got none"),
    (trace(70).assign(rate_rps="many"), "column 'rate_rps' must hold numbers, got 'many' at row 2"),
    (trace(70).drop(columns="workload"), "expected a column 'workload', got none"),
])
def test_a_table_that_is_no_load_is_one_line(tmp_path: Path, table: pd.DataFrame, message: str) -> None:
    table.to_csv(tmp_path / "load.csv", index=False)
    with pytest.raises(InputError, match=message) as refused:
        read_load(str(tmp_path / "load.csv"), "", COLUMNS)
    assert "\n" not in str(refused.value)


def test_a_duration_is_no_length_of_a_window(tmp_path: Path) -> None:
    trace(70).assign(window_s=pd.to_timedelta(60, "s")).to_parquet(tmp_path / "load.parquet")
    with pytest.raises(InputError, match="column 'window_s' must hold numbers"):
        read_load(str(tmp_path / "load.parquet"), "", COLUMNS)


def test_a_server_needs_a_load_map() -> None:
    with pytest.raises(InputError, match="mapping: expected a load map"):
        read_load("http://127.0.0.1:9090", "", COLUMNS)


@pytest.mark.parametrize(("change", "message"), [
    (lambda rate: rate.where(rate.index != 5, np.nan), "rate_rps"),
    (lambda rate: rate.where(rate.index != 5, -1.0), "rate_rps"),
    (lambda rate: rate * 0, "rate_rps"),
])
def test_missing_negative_and_constant_rates_stop_the_workload_at_the_data_gate(change, message) -> None:
    table = trace(80)
    assert failures(table) == ""
    assert message in failures(table.assign(rate_rps=change(table["rate_rps"])))


def test_a_single_minute_is_too_short() -> None:
    assert "60" in failures(trace(6))


def test_of_a_trace_with_gaps_the_longest_stretch_is_replayed(tmp_path: Path) -> None:
    table = trace(300).drop(index=[40, *range(200, 230)])  # stretches of 40, 159 and 70 rows
    assert len(longest_stretch(table)) == 159
    write(table, tmp_path)
    kept = read_features(tmp_path, "shop")
    assert len(kept) == 159 and kept["window_start"].diff().dropna().nunique() == 1
    assert '"rows_outside": 110' in (tmp_path / "shop" / "quality.json").read_text()


def test_a_trace_of_gaps_alone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="load: expected 60 windows in a row, got at most 1 of 150 between two gaps"):
        write(trace(300).iloc[::2], tmp_path)


def test_a_stretch_of_zeros_is_refused(tmp_path: Path) -> None:
    table = trace(80)
    with pytest.raises(InputError, match="load: expected a window with any, got only zeros in 80 windows"):
        write(table.assign(rate_rps=0.0), tmp_path)
