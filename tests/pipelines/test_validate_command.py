"""`assay validate`: what a user's files mean, said in seconds, with nothing run."""

import json
import os
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from typer.testing import CliRunner, Result

from pipelines.command_line import app
from tests.e2e import tiny
from tests.models.adaptation import simulation

MAPPING = {
    "workload": {"column": "app"}, "environment": {"constant": "lab"},
    "time": {"column": "ts", "window_s": 60},
    "columns": {"psi_cpu_some": {"column": "cpu", "unit": "percent"}, "psi_io_some": {"column": "io"},
                "connections": {"column": "clients"}, "latency_ms": {"column": "took", "unit": "us"}}}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder holds mlflow.yaml, a task, and telemetry of its own columns with a mapping."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASSAY_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("ASSAY_CONFIG", raising=False)
    tiny.write_yaml(tiny.configuration(), tmp_path / "mlflow.yaml")
    tiny.write_yaml(tiny.task(), tmp_path / "task.yaml")
    table = tiny.telemetry(rows=120)
    table.to_parquet(tmp_path / "samples.parquet", index=False)
    own = table.assign(app=table["workload"], ts=table["window_start"], cpu=100 * table["psi_cpu_some"],
                       io=table["psi_io_some"], clients=table["connections"], took=1000 * table["latency_ms"])
    own[["app", "ts", "cpu", "io", "clients", "took"]].to_parquet(tmp_path / "own.parquet", index=False)
    tiny.write_yaml(MAPPING, tmp_path / "mapping.yaml")
    return tmp_path


def validate(*more: str, task: str = "task.yaml", telemetry: str = "samples.parquet") -> Result:
    return CliRunner().invoke(app, ["validate", "--task", task, "--telemetry", telemetry, *more])


def own(*more: str) -> Result:
    return validate("--mapping", "mapping.yaml", *more, telemetry="own.parquet")


def changed(project: Path, file: str, change: dict[str, Any]) -> None:
    data = yaml.safe_load((project / file).read_text())
    tiny.write_yaml({**data, **change}, project / file)


@pytest.mark.usefixtures("project")
def test_columns_units_and_workloads_are_listed() -> None:
    done = own()
    assert done.exit_code == 0, done.output
    lines = [line.split() for line in done.stdout.splitlines()]
    assert done.stdout.startswith("task tiny: kind prediction, 2 workloads, 8 gates\n")
    table = {line[0]: line for line in lines if line}
    assert table["psi_cpu_some"][1:6] == ["share", "input", "cpu", "in", "percent"]
    assert table["latency_ms"][1:6] == ["ms", "target", "took", "in", "us"]
    assert table["nginx"] == ["nginx", "120", "3", "of", "3", "latency_ms,", "ms", "yes"]


def test_nothing_is_left_behind(project: Path) -> None:
    before = sorted(project.rglob("*"))
    assert own().exit_code == 0
    assert sorted(project.rglob("*")) == before


@pytest.mark.usefixtures("project")
def test_json_has_what_the_tables_have_and_more() -> None:
    done = own("--json")
    found = json.loads(done.stdout)
    assert done.exit_code == 0 and found["fits"] and found["task"] == "tiny" and "parity" in found["gates"]
    cpu = next(column for column in found["columns"] if column["name"] == "psi_cpu_some")
    assert cpu["unit"] == "share" and cpu["source"] == "cpu in percent" and 0 <= cpu["minimum"] < cpu["maximum"] <= 1
    assert [one["name"] for one in found["workloads"]] == ["nginx", "redis"]
    assert found["workloads"][0]["inputs"] == ["psi_cpu_some", "psi_io_some", "connections"]


def test_a_missing_input_ends_with_code_1_and_is_named(project: Path) -> None:
    columns = {name: entry for name, entry in MAPPING["columns"].items() if name != "connections"}  # type: ignore[attr-defined]
    changed(project, "mapping.yaml", {"columns": columns})
    done = own("-w", "redis")
    assert done.exit_code == 1
    row = next(line.split() for line in done.stdout.splitlines() if line.startswith("redis"))
    assert row == ["redis", "120", "2", "of", "3", "connections", "latency_ms,", "ms", "no"]
    assert "nginx" not in done.stdout


def test_data_that_break_a_rule_of_the_gate_end_with_code_1_and_the_rule(project: Path) -> None:
    """A wrong unit: percent said to be shares."""
    columns = {**MAPPING["columns"], "psi_cpu_some": {"column": "cpu"}}  # type: ignore[dict-item]
    changed(project, "mapping.yaml", {"columns": columns})
    done = own("--json")
    found = json.loads(done.stdout)
    assert done.exit_code == 1 and not found["fits"]
    assert "psi_cpu_some" in found["workloads"][0]["failures"][0] and "between 0 and 1" in str(found["workloads"])
    said = own().stdout
    assert "nginx: column 'cpu' (psi_cpu_some) must" in said and "more; --verbose" not in said


@pytest.fixture
def spoilt(project: Path) -> Path:
    """Of nginx's 120 rows one has no latency, five a negative one."""
    table = pd.read_parquet(project / "own.parquet")
    table.loc[7, "took"] = float("nan")
    table.loc[10:14, "took"] = -3.0
    table.to_parquet(project / "own.parquet", index=False)
    return project


def test_rows_that_would_be_dropped_are_counted_and_the_first_shown(spoilt: Path) -> None:
    before = json.loads(own("--json").stdout)
    assert not before["fits"] and before["workloads"][0]["bad_rows"] is None
    changed(spoilt, "mapping.yaml", {"bad_rows": {"drop": True, "at_most": "5 %"}})
    done = own()
    assert done.exit_code == 0, done.output
    assert "nginx: 6 of 120 rows are dropped (1 not_null, 5 range; up to 6 may be)" in done.stdout
    assert "nginx:   record 8, column 'took': none (not_null)" in done.stdout
    assert "nginx:   and 3 more; --verbose shows the first 6" in done.stdout
    assert "nginx:   record 15, column 'took': -3 (range)" in own("--verbose").stdout
    found = json.loads(own("--json").stdout)
    assert found["workloads"][0]["rows"] == 114 and found["workloads"][0]["bad_rows"]["by_rule"]["range"] == 5
    assert found["columns"][-1]["minimum"] > 0, "of the rows that are left"


def test_more_than_the_mapping_allows_end_with_code_1_and_what_to_set(spoilt: Path) -> None:
    changed(spoilt, "mapping.yaml", {"bad_rows": {"at_most": "4 %"}})
    done = own()
    assert done.exit_code == 1 and "rows are dropped" not in done.stdout
    assert "bad rows must be at most 4 of 120 (at_most: 4 %), got 6: 1 not_null, 5 range" in done.stdout
    assert "set bad_rows: {at_most: 5 %} in the mapping" in done.stdout
    changed(spoilt, "mapping.yaml", {"bad_rows": {"at_most": "5 %"}})
    assert own().exit_code == 0


def test_a_workload_without_rows_does_not_fit(project: Path) -> None:
    changed(project, "task.yaml", {"workloads": tiny.task(("nginx", "redis", "memcached"))["workloads"]})
    done = validate()
    assert done.exit_code == 1 and "memcached: " in done.stdout
    assert "nginx: " not in done.stdout


@pytest.mark.usefixtures("project")
def test_warnings_are_counted_and_stop_nothing() -> None:
    """`connections` of one value: nothing can be learned from it."""
    table = tiny.telemetry(rows=120).assign(connections=4.0)
    table.to_parquet("samples.parquet", index=False)
    done = validate()
    assert done.exit_code == 0 and "2 warnings, which would stop nothing; --verbose shows all" in done.stdout
    assert "warning: column 'connections' must take at least two values" in validate("--verbose").stdout


@pytest.mark.parametrize(("target", "warned"), [
    ({"unit": "ms"}, True), ({"unit": "ms", "minimum": 0.001}, False), ({"unit": "ms", "maximum": 999.0}, False),
    ({"unit": ""}, False), ({"unit": "ln(s)"}, False)])
def test_a_target_in_a_unit_without_ends_is_warned_of(project: Path, target: dict[str, Any], warned: bool) -> None:
    changed(project, "task.yaml", {"target": {"name": "latency_ms", **target}})
    done = validate("--verbose")
    assert done.exit_code == 0, done.output
    assert (f"target latency_ms must have a `minimum` or a `maximum`, in {target['unit']}, got neither" in
            " ".join(done.stdout.split())) is warned


@pytest.mark.parametrize(("file", "text", "message"), [
    ("task.yaml", "name: tiny\nname: tinier", "task.yaml, line 2"),
    ("mapping.yaml", "workload: {column: app}\ncolumns:\n  psi_cpu_sone: {column: cpu}",
     "columns.psi_cpu_sone: expected a column of the schema or of the task, got 'psi_cpu_sone'; did you mean "
     "'psi_cpu_some'? (mapping.yaml, line 3)"),
    ("mapping.yaml", "workload: {column: ap}\ncolumns: {latency_ms: {column: took}}", "expected a column 'ap'"),
    ("mlflow.yaml", "experiment: 3", "experiment: expected a text that is not empty, got 3"),
    ("own.parquet", "no table", "must be a whole Parquet table"),
])
def test_what_cannot_be_read_ends_with_code_2_and_the_place(project: Path, file: str, text: str, message: str) -> None:
    (project / file).write_text(text)
    done = own()
    assert done.exit_code == 2 and message in done.stderr, done.output
    assert json.loads(own("--json").stdout)["exit_code"] == 2


def test_a_number_beyond_float64_is_named_with_its_row(project: Path) -> None:
    table = pd.read_parquet(project / "own.parquet").assign(cpu="1")
    table.loc[0, "cpu"] = "9" * 400
    table.to_csv(project / "own.csv", index=False)
    done = validate("--mapping", "mapping.yaml", telemetry="own.csv")
    assert done.exit_code == 1, done.output
    assert "column 'cpu' (psi_cpu_some) must be between 0 and 1 share, got inf (workload nginx: 1 of" in done.stdout
    assert "first at row 2" in done.stdout


@pytest.mark.parametrize(("times", "unit", "message"), [
    ([True, False], "s", "time must be a number of s since 1970, got True"),
    ([True, False], "iso", "time must be written as ISO 8601, got 'True' at record 1"),
    (pd.Series(["3000-01-01", "2026-01-01"], dtype="datetime64[us]"), "iso",
     "time must lie in the years 1678 to 2261, got 3000-01-01 00:00:00 at record 1")])
def test_what_is_no_time_that_can_be_held_is_named(project: Path, times: Any, unit: str, message: str) -> None:
    pd.read_parquet(project / "own.parquet").iloc[:2].assign(ts=times).to_parquet(project / "own.parquet", index=False)
    changed(project, "mapping.yaml", {"time": {"column": "ts", "unit": unit, "window_s": 60}})
    done = own()
    assert (done.exit_code, message in " ".join(done.output.split())) == (2, True), done.output


def test_a_task_without_gates_is_refused(project: Path) -> None:
    data = tiny.configuration()
    tiny.write_yaml({**data, "gates": {"performance": data["gates"]["performance"]}}, project / "mlflow.yaml")
    done = validate()
    assert done.exit_code == 2 and "must have gates in mlflow.yaml, got 'tiny'" in done.stderr


def test_a_server_is_not_asked_but_its_map_is_read(project: Path) -> None:
    tiny.write_yaml({"last_s": 600, "workloads": {
        "nginx": {"latency_ms": "x", "configuration": {"connections": "sum(c)"}}, "redis": {"latency_ms": "y"}}},
        project / "map.yaml")
    done = validate("--mapping", "map.yaml", telemetry="http://127.0.0.1:1")
    assert done.exit_code == 1, done.output
    rows = {line.split()[0]: line.split() for line in done.stdout.splitlines() if line}
    assert rows["nginx"] == ["nginx", "3", "of", "3", "latency_ms,", "ms", "yes"]
    assert rows["redis"] == ["redis", "2", "of", "3", "connections", "latency_ms,", "ms", "no"]


def test_of_many_workloads_those_that_do_not_fit_are_shown_first(project: Path) -> None:
    names = [f"w{number:02d}" for number in range(22)]
    changed(project, "task.yaml", {"workloads": tiny.task(names)["workloads"]})
    tiny.telemetry(names[:-1], rows=100).to_parquet(project / "samples.parquet", index=False)
    done = validate()
    rows = [line.split()[0] for line in done.stdout.splitlines() if line.startswith("w") and " of 3" in line]
    assert done.exit_code == 1 and rows[:2] == ["w21", "w00"] and len(rows) == 20
    assert "and 2 more workloads, 1 of all do not fit" in done.stdout


def test_a_kind_of_its_own_with_two_targets_is_understood_too(project: Path) -> None:
    from tests.kinds.test_table_controller import TASK, table

    table().to_csv(project / "table.csv", index=False)
    found = json.loads(validate("--json", task=str(TASK), telemetry="table.csv").stdout)
    assert found["fits"] and found["kind"] == "tests.kinds.table_controller"
    assert [column["name"] for column in found["columns"] if column["role"] == "target"] == [
        "new_limit_cores", "replica_change"]
    assert found["workloads"][0]["target"].startswith("new_limit_cores, cores; replica_change")


def test_the_help_has_an_example() -> None:
    done = CliRunner().invoke(app, ["validate", "--help"], env={**os.environ, "COLUMNS": "200"})
    assert "Example: assay validate --telemetry mine.parquet --mapping mapping.yaml" in done.stdout


def test_bad_runs_of_measurements_are_listed_with_their_rows(project: Path) -> None:
    runs = simulation.frame()
    runs.loc[0, "seconds"] = -1.0
    runs.to_csv(project / "runs.csv", index=False)
    mapping = {"workload": {"column": "app"},
               "configuration": {"nodes": {"column": "nodes"}, "type": {"column": "type", "kind": "category"}},
               "target": {"name": "runtime_s", "column": "seconds", "unit": "s"},
               "task": {"demand": {"nodes": "decreasing"}}}
    tiny.write_yaml(mapping, project / "runs.yaml")
    asked = ["validate", "--telemetry", "runs.csv", "--mapping", "runs.yaml", "-w", str(runs.loc[0, "app"]), "--json"]
    refused = CliRunner().invoke(app, asked)
    assert refused.exit_code == 2 and "row 2" in refused.output
    tiny.write_yaml({**mapping, "bad_rows": {"at_most": "20 %"}}, project / "runs.yaml")
    (found,) = json.loads(CliRunner().invoke(app, asked).stdout)["workloads"]
    assert found["bad_rows"]["by_rule"] == {"range": 1}
    assert found["bad_rows"]["first"] == [{"row": 2, "rule": "range", "column": "seconds", "value": "-1.0"}]
