"""A load of which a few rows may be bad: of a file and of a server, what is dropped, and what still stops it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from typer.testing import CliRunner

from components.ingest import ingest_samples
from feature_store.dropping import BadRowsFound, drop_bad_rows
from feature_store.errors import InputError
from feature_store.expectations import DataGate
from feature_store.origin import Origin
from feature_store.samples import Samples
from models.control.contract.systems import environment_of
from models.tasks.control.kind import KIND
from models.tasks.control.telemetry import load_schema, read_features, write_load
from models.tasks.task import load_task
from pipelines.command_line import app
from tests.environments.traces import trace
from tests.feature_store.prometheus_server import prometheus_with

TASK_FILE = Path(__file__).parents[3] / "environments" / "backlog.yaml"
TASK = load_task(TASK_FILE)
START_S = 1_772_409_600  # 2026-03-02 00:00 UTC
Found = tuple[pd.DataFrame, BadRowsFound | None, str]


def found(telemetry: str, mapping: Any, folder: Path) -> Found:
    """Rows of the shop that are left by the steps `ingest` and `validate`, what was bad, and why it stops."""
    ingest_samples(TASK, KIND, telemetry, yaml.safe_dump(mapping) if mapping else "", folder / "samples")
    schema = load_schema(TASK, environment_of(TASK.environment), "shop")
    origin = Origin.read(folder / "samples")
    rows, bad = drop_bad_rows(Samples(folder / "samples").to_judge("shop"), schema, origin)
    failures = DataGate(origin).judge(rows, schema, bad).failures
    return rows, bad, failures[0].message if failures else ""


@pytest.fixture
def spoilt(tmp_path: Path) -> str:
    """Of 400 rows three are bad: a word, nothing, a rate below 0."""
    table = trace(400).astype({"rate_rps": object})
    table.loc[100, "rate_rps"], table.loc[101, "rate_rps"], table.loc[150, "rate_rps"] = "timeout", None, -1.0
    table.to_csv(tmp_path / "load.csv", index=False)
    return str(tmp_path / "load.csv")


def test_bad_rows_of_a_file_are_dropped_by_rule_and_leave_gaps_that_are_no_zero_load(spoilt: str,
                                                                                    tmp_path: Path) -> None:
    rows, bad, failures = found(spoilt, {"bad_rows": {"drop": True, "at_most": "1 %"}}, tmp_path)
    assert failures == "" and len(rows) == 397 and rows["rate_rps"].min() > 0
    assert bad is not None and bad.by_rule == {"numeric": 1, "not_null": 1, "range": 1}
    # the header is row 1 of a spreadsheet
    assert [(one.row, one.column, one.value) for one in bad.first] == [
        (102, "rate_rps", "'timeout'"), (103, "rate_rps", "none"), (152, "rate_rps", "-1")]
    write_load(rows, "shop", ("rate_rps",), 60, (), tmp_path / "shop")
    np.testing.assert_allclose(read_features(tmp_path, "shop")["rate_rps"], trace(400)["rate_rps"][151:])


@pytest.mark.parametrize("policy", [None, {"at_most": "1 %", "drop": ["not_null", "range"]}])
def test_a_cell_that_is_no_number_stops_the_load_unless_the_policy_lets_it_go(spoilt: str, tmp_path: Path,
                                                                             policy: Any) -> None:
    with pytest.raises(InputError, match="column 'rate_rps' must hold numbers, got 'timeout' at row 102"):
        found(spoilt, policy and {"bad_rows": policy}, tmp_path)


def test_more_than_the_policy_allows_stop_the_workload_and_nothing_is_dropped(spoilt: str, tmp_path: Path) -> None:
    rows, _, message = found(spoilt, {"bad_rows": {"at_most": "0.5 %"}}, tmp_path)
    assert len(rows) == 400
    assert message == ("bad rows must be at most 2 of 400 (at_most: 0.5 %), got 3: 1 numeric, 1 not_null, 1 range "
                       "(workload shop, first at row 102, column 'rate_rps': 'timeout'); fix the source, or set "
                       "bad_rows: {at_most: 1 %} in the mapping")


@pytest.mark.parametrize(("policy", "holes"), [(None, None), ({"at_most": "1 %"}, {"time_gap": 1}),
                                               ({"drop": ["range"], "at_most": "1 %"}, {})])
def test_a_long_hole_in_a_load_counts_as_one_bad_row_where_the_policy_names_it(tmp_path: Path, policy: Any,
                                                                              holes: Any) -> None:
    trace(900).drop(index=range(200, 600)).to_csv(tmp_path / "load.csv", index=False)
    rows, bad, failures = found(str(tmp_path / "load.csv"), policy and {"bad_rows": policy}, tmp_path)
    assert len(rows) == 500 and failures == "" and (bad and bad.by_rule) == holes


def test_the_command_lists_what_would_be_dropped(spoilt: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(TASK_FILE.parents[2])
    (tmp_path / "mapping.yaml").write_text("bad_rows: {at_most: 1 %}")
    done = CliRunner().invoke(app, ["validate", "--task", str(TASK_FILE), "--telemetry", spoilt, "--mapping",
                                    str(tmp_path / "mapping.yaml")])
    assert "shop: 3 of 400 rows are dropped (1 numeric, 1 not_null, 1 range; up to 4 may be)" in done.stdout
    assert "shop:   row 103, column 'rate_rps': none (not_null)" in done.stdout and done.exit_code == 0


def test_windows_without_a_value_of_a_server_are_counted_where_the_map_says_so(tmp_path: Path) -> None:
    """A counter that rises by 5 a second; nothing was scraped before minute 20 or in minutes 100 to 104."""
    scrapes = [at for at in range(1200, 7200, 10) if not 6000 <= at < 6300]
    samples = [('requests_total{app="shop"}', float(START_S + at), 5.0 * at * (1 + at / 7200)) for at in scrapes]
    asked = {"window_s": 60, "start": "2026-03-02T00:00:00Z", "end": "2026-03-02T02:00:00Z",
             "workloads": {"shop": {"rate_rps": 'sum(rate(requests_total{app="shop"}[{window}]))'}}}
    with prometheus_with(samples, tmp_path) as url:
        plain, none, failures = found(url, asked, tmp_path / "plain")
        assert none is None and failures == "" and not plain["rate_rps"].isna().any()
        rows, bad, failures = found(url, {**asked, "bad_rows": {"at_most": "6 %"}}, tmp_path / "few")
        pd.testing.assert_frame_equal(rows.drop(columns="combination").reset_index(drop=True),
                                      plain.drop(columns="combination").reset_index(drop=True))
        assert failures == "" and bad is not None
        assert bad.rows == len(plain) + bad.count and bad.by_rule == {"not_null": 5}
        assert bad.first[0].value == "none at 2026-03-02 01:40:00+00:00" and bad.unit == "window"
        message = found(url, {**asked, "bad_rows": {"at_most": "1 %"}}, tmp_path / "many")[2]
    assert message.startswith("bad rows must be at most 1 of 100 (at_most: 1 %), got 5: 5 not_null (workload shop, "
                              "first at window 81, column 'rate_rps': none at 2026-03-02 01:40:00+00:00); fix")
    assert json.loads((tmp_path / "many" / "samples" / "source.json").read_text())["rows"] == 100
