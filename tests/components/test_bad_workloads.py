"""Workloads with bad data or a bad specification: each is stopped with its reason, the good one is registered."""

import copy
import html
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from feature_store.errors import InputError, RefusedError
from models.configuration import Configuration
from pipelines.run_summary import run_exit_code, summary_notes
from serving.ledger import Ledger
from tests.components.steps import IGNORED_WARNING, Steps, prepare, project
from tests.e2e import tiny

pytestmark = pytest.mark.filterwarnings(IGNORED_WARNING)


def percent(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(psi_cpu_some=rows["psi_cpu_some"] * 100)


def empty_column(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(psi_io_some=np.nan)


def one_hole(rows: pd.DataFrame) -> pd.DataFrame:
    latency_ms = rows["latency_ms"].copy()
    latency_ms.iloc[[17, 40]] = np.nan
    return rows.assign(latency_ms=latency_ms)


def too_few(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.head(40)


def duplicated(rows: pd.DataFrame) -> pd.DataFrame:
    return pd.concat([rows.iloc[:100], rows.iloc[95:]])


def unordered(rows: pd.DataFrame) -> pd.DataFrame:
    return pd.concat([rows.iloc[:50], rows.iloc[150:], rows.iloc[50:150]])


def clock_forward(rows: pd.DataFrame) -> pd.DataFrame:
    """The clock jumps by a day in the middle of a combination's run."""
    jump = pd.to_timedelta(np.where(np.arange(len(rows)) >= 45, 24 * 60, 0), unit="min")
    return rows.assign(window_start=rows["window_start"] + jump)


def clock_back(rows: pd.DataFrame) -> pd.DataFrame:
    jump = pd.to_timedelta(np.where(np.arange(len(rows)) >= 45, 30, 0), unit="min")
    return rows.assign(window_start=rows["window_start"] - jump)


def unchanged(rows: pd.DataFrame) -> pd.DataFrame:
    return rows


def infinite(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(connections=np.where(np.arange(len(rows)) == 3, np.inf, rows["connections"]))


CHANGES: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "good": unchanged, "percent": percent, "empty_column": empty_column, "one_hole": one_hole, "too_few": too_few,
    "duplicated": duplicated, "unordered": unordered, "clock_forward": clock_forward, "clock_back": clock_back,
    "infinite": infinite, "unknown_feature": unchanged, "crossed_box": unchanged, "box_beyond": unchanged}


def telemetry() -> pd.DataFrame:
    """Every workload of CHANGES with its fault, one after the other; the index is the row number in the file."""
    rows = tiny.telemetry(tuple(CHANGES))
    parts = [change(rows[rows["workload"] == name]) for name, change in CHANGES.items()]
    return pd.concat(parts, ignore_index=True)


def task() -> dict[str, Any]:
    data = tiny.task(tuple(CHANGES))
    specifications = {name: copy.deepcopy(entry["specification"]) for name, entry in data["workloads"].items()}
    specifications["unknown_feature"]["properties"][0]["monotone"]["features"] = ["psi_cpu_sum"]
    specifications["crossed_box"]["box"] = {"psi_cpu_some": [0.9, 0.1]}
    specifications["box_beyond"]["box"] = {"connections": ["few", "many"]}
    for name, specification in specifications.items():
        data["workloads"][name]["specification"] = specification
    return data


@dataclass(frozen=True)
class Mixed:
    """One run over all of them."""

    steps: Steps
    configuration: Configuration
    frame: pd.DataFrame
    summary: dict[str, Any]

    def message(self, workload: str) -> str:
        (entry,) = (entry for entry in self.summary["entries"] if entry["workload"] == workload)
        assert entry["status"] == "failed" and entry["version"] is None
        return str(entry["message"])

    def first_row(self, workload: str, position: int) -> int:
        """Number of the record in the file, from 1, of the workload's row at `position`."""
        return int(self.frame.index[self.frame["workload"] == workload][position]) + 1


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mixed]:
    folder = tmp_path_factory.mktemp("mixed")
    with project(folder) as configuration:
        frame = telemetry()
        steps = prepare(folder, frame, task())
        steps.train()
        assert steps.gate() is False
        steps.register()
        yield Mixed(steps, configuration, frame, steps.report())


def test_the_good_one_is_registered_and_the_job_says_no(mixed: Mixed) -> None:
    assert run_exit_code(mixed.summary) == 1
    registered = [entry["workload"] for entry in mixed.summary["entries"] if entry["status"] == "registered"]
    assert registered == ["good"]


def test_nothing_of_the_others_is_in_the_ledger(mixed: Mixed) -> None:
    entries = Ledger(mixed.configuration.ledger_path, mixed.configuration.public_key_path).verify()
    assert {entry.move.workload for entry in entries} == {"good"}


def test_the_command_line_and_the_report_name_each_reason(mixed: Mixed) -> None:
    lines = summary_notes(mixed.summary)
    page = Path(mixed.summary["report"]).read_text()
    for name in set(CHANGES) - {"good"}:
        assert f"{name}: {mixed.message(name)}" in lines
        assert name in page


def test_percent_is_told_from_a_share(mixed: Mixed) -> None:
    values = mixed.frame.loc[mixed.frame["workload"] == "percent", "psi_cpu_some"]
    bad = values[values > 1.0]
    message = mixed.message("percent")
    assert f"column 'psi_cpu_some' must be between 0 and 1 share, got {bad.iloc[0]:g}" in message
    assert f"{len(bad)} of 300 rows, first at record {bad.index[0] + 1}" in message
    assert "it looks like percent: divide by 100" in message


def test_a_column_without_any_value(mixed: Mixed) -> None:
    message = mixed.message("empty_column")
    assert "column 'psi_io_some' must have a value in every row, got none" in message
    assert f"300 of 300 rows, first at record {mixed.first_row('empty_column', 0)}" in message
    assert "the whole column is empty: check the metric's name or the mapping" in message


def test_a_hole_in_a_column(mixed: Mixed) -> None:
    message = mixed.message("one_hole")
    assert "column 'latency_ms' must have a value in every row" in message
    assert f"2 of 300 rows, first at record {mixed.first_row('one_hole', 17)}" in message


def test_too_few_rows(mixed: Mixed) -> None:
    assert "rows must number at least 100, got 40 (workload too_few); record more" in mixed.message("too_few")


def test_repeated_windows(mixed: Mixed) -> None:
    message = mixed.message("duplicated")
    assert "column 'window_start' must be unique for each workload and environment" in message
    assert f"10 of 305 rows, first at record {mixed.first_row('duplicated', 95)}" in message


def test_rows_that_go_back_in_time(mixed: Mixed) -> None:
    message = mixed.message("unordered")
    assert "column 'window_start' must not go back from row to row, got a step of -14940 s" in message
    assert f"1 of 300 rows, first at record {mixed.first_row('unordered', 200)}" in message


def test_a_clock_that_was_set_forward(mixed: Mixed) -> None:
    message = mixed.message("clock_forward")
    assert "column 'window_start' must have no hole over" in message and "got 86460 s" in message
    assert f"1 of 300 rows, first at record {mixed.first_row('clock_forward', 45)}" in message


def test_a_clock_that_was_set_back(mixed: Mixed) -> None:
    message = mixed.message("clock_back")
    assert "column 'window_start' must not go back from row to row, got a step of -1740 s" in message
    assert f"1 of 300 rows, first at record {mixed.first_row('clock_back', 45)}" in message


def test_an_infinite_value(mixed: Mixed) -> None:
    message = mixed.message("infinite")
    assert "column 'connections' must be finite, got inf" in message
    assert f"1 of 300 rows, first at record {mixed.first_row('infinite', 3)}" in message


def test_a_specification_with_an_unknown_feature(mixed: Mixed) -> None:
    message = mixed.message("unknown_feature")
    assert "properties[0].monotone.features[0]: expected an input of the model, got 'psi_cpu_sum'" in message
    assert "did you mean 'psi_cpu_some'?" in message


def test_a_box_with_lower_above_upper(mixed: Mixed) -> None:
    message = mixed.message("crossed_box")
    assert "box.psi_cpu_some: expected lower <= upper, got [0.9, 0.1]" in message


def test_a_box_that_holds_no_numbers(mixed: Mixed) -> None:
    assert "'few'" in mixed.message("box_beyond")


def read(steps: Steps) -> None:
    """Up to the first step that sees all workloads."""
    steps.validate()
    steps.featurize()
    steps.audit()


def test_a_column_that_no_row_has_names_the_nearest(tmp_path: Path) -> None:
    with project(tmp_path):
        frame = tiny.telemetry(("redis",)).rename(columns={"psi_io_some": "psi_io_sum"})
        steps = prepare(tmp_path, frame, tiny.task(("redis",)))
        steps.ingest()
        with pytest.raises(RefusedError, match="column 'psi_io_some' must be present, got none") as caught:
            read(steps)
    assert "(workload redis); did you mean" in str(caught.value)
    assert "psi_io_" in str(caught.value).split("did you mean")[1]


def test_an_identity_column_that_is_missing_stops_ingestion(tmp_path: Path) -> None:
    with project(tmp_path):
        steps = prepare(tmp_path, tiny.telemetry().rename(columns={"window_start": "window_begin"}), tiny.task())
        with pytest.raises(InputError, match=r"expected a column 'window_start'.*did you mean 'window_"):
            steps.ingest()
        assert steps.events()[-1]["event"] == "failed"


def test_a_workload_that_the_telemetry_lacks(tmp_path: Path) -> None:
    with project(tmp_path):
        steps = prepare(tmp_path, tiny.telemetry(("redis",)), tiny.task(("redis", "nginx")))
        steps.ingest()
        failures = steps.validate()["nginx"]["failures"]
    assert "got 0 (workload nginx)" in failures[0]["message"] and "the table holds redis" in failures[0]["message"]


def test_a_run_whose_workloads_all_fail_the_data_gate_stops_there(tmp_path: Path) -> None:
    with project(tmp_path):
        names = tuple(f"w{number}" for number in range(5))
        steps = prepare(tmp_path, tiny.telemetry(names, rows=120).assign(latency_ms=np.nan), tiny.task(names))
        steps.ingest()
        with pytest.raises(RefusedError, match="one workload at least, got none of 5: column 'latency_ms'") as caught:
            read(steps)
        assert caught.value.exit_code == 1 and "and of 2 more workloads" in str(caught.value)
        assert Path(str(caught.value).rsplit("every rule: ")[1]).is_file()
        assert steps.events()[-1]["event"] == "failed"


def test_telemetry_without_a_row_of_the_workloads_names_the_nearest(tmp_path: Path) -> None:
    with project(tmp_path):
        steps = prepare(tmp_path, tiny.telemetry(("redis", "nginx")), tiny.task(("rediss",)))
        steps.ingest()
        with pytest.raises(InputError, match=r"workload must be in the telemetry, got 'rediss'.*mean 'redis'"):
            read(steps)


def test_without_any_usable_workload_the_run_still_ends_with_its_reasons(tmp_path: Path) -> None:
    """A specification that fits none: no backbone, no bundle, a report that says why, and an untouched registry."""
    with project(tmp_path) as configuration:
        data = tiny.task()
        for entry in data["workloads"].values():
            entry["specification"]["box"] = {"psi_cpu_some": [0.9, 0.1]}
        steps = prepare(tmp_path, tiny.telemetry(), data)
        steps.train()
        assert steps.folder.joinpath("pretrained").read_bytes() == b""
        assert steps.gate() is False
        entries = steps.register()
        summary = steps.report()
        assert {entry["status"] for entry in entries.values()} == {"failed"}
        assert run_exit_code(summary) == 1
        assert "box.psi_cpu_some: expected lower <= upper" in html.unescape(Path(summary["report"]).read_text())
        assert not configuration.ledger_path.exists() or not configuration.ledger_path.read_text()
        assert json.loads((steps.folder / "gated" / "champions.json").read_text()) == {}
