from pathlib import Path

import pytest

from feature_store.bad_rows import BadRows
from feature_store.errors import InputError
from feature_store.mapping import (
    UNKNOWN_COMBINATION,
    ColumnSource,
    Header,
    Label,
    TelemetryMapping,
    TimeSource,
    parse_mapping,
)
from feature_store.strict_yaml import read_located_yaml

GOOD = """
workload: {column: app}
environment: {constant: lab}
time: {column: ts, unit: ms, zone: Europe/Berlin, window_s: 30}
columns:
  psi_io_some: {column: io, unit: percent}
  latency_ms: {column: rt, unit: us, scale: 2}
keep: [model]
"""


@pytest.fixture
def write(tmp_path):
    def make(text, name="mapping.yaml"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return make


def load(path: Path) -> TelemetryMapping:
    content, lines = read_located_yaml(path, "mapping file")
    return parse_mapping(content, path, lines)


def test_a_mapping_is_read(write):
    mapping = load(write(GOOD))
    assert mapping.workload == Label(column="app")
    assert mapping.environment == Label(constant="lab")
    assert mapping.combination == Label(constant=UNKNOWN_COMBINATION)
    assert mapping.time == TimeSource("ts", "ms", "Europe/Berlin", 30.0)
    assert mapping.columns["psi_io_some"] == ColumnSource("io", 0.01)
    assert mapping.columns["latency_ms"].factor == pytest.approx(0.002)
    assert mapping.keep == ("model",)
    assert mapping.source_columns() == ("app", "ts", "io", "rt", "model")


def test_the_task_comes_from_the_file_beside_it_and_lends_its_columns(write):
    write("target: {name: lat_imp, unit: ratio}\ninputs: [{name: work_io, unit: share}]\n", "task.yaml")
    mapping = load(write("workload: {constant: a}\ntask: task.yaml\n"
                                 "columns: {lat_imp: {column: x}, work_io: {column: y, unit: percent}}"))
    assert mapping.task["target"]["name"] == "lat_imp"
    assert mapping.columns["work_io"].factor == pytest.approx(0.01)
    assert mapping.time is None


def test_the_task_may_stand_in_the_mapping_itself(write):
    mapping = load(write("workload: {constant: a}\ntask: {target: {name: y, unit: ms}}\n"
                                 "columns: {y: {column: x, unit: s}}"))
    assert mapping.columns["y"].factor == 1000.0


def test_header_bad_rows_and_names_of_columns_are_read(write):
    mapping = load(write("workload: {column_names: '{workload}_{column}'}\nheader: {rows: 3, names: 2}\n"
                                 "bad_rows: {drop: [range], at_most: 2 %}\ncolumns: {latency_ms: {column: rt}}\n"))
    assert mapping.workload == Label(column_names="{workload}_{column}")
    assert (mapping.header, mapping.bad_rows) == (Header(3, 2), BadRows(("range",), 0.02))


@pytest.mark.parametrize(("old", "new", "message"), [
    ("keep:", "header: {names: 2}\nkeep:", r"header.names: expected one of the header's 1 rows, got 2 \(.*line 8\)"),
    ("keep:", "header: {rows: 0}\nkeep:", "header.rows: expected a whole number above 0, got 0"),
    ("keep:", "bad_rows: {at_most: 1}\nkeep:", "bad_rows.at_most: expected a share above 0 and below 1, such as 1 % or "
                                               r"0.01, got 1 \(.*yaml, line 8\)"),
    ("{constant: lab}", "{column_names: '{workload}_{column}'}", "environment.column_names: unknown field"),
    ("keep:", "kep:", r"kep: unknown field; did you mean 'keep'\? \(.*mapping.yaml, line 8\)"),
    ("psi_io_some:", "psi_io_sone:", "columns.psi_io_sone: expected a column of the schema or of the task, got "
                                     r"'psi_io_sone'; did you mean 'psi_io_some'\? \(.*mapping.yaml, line 6\)"),
    ("unit: percent", "unit: ms", "columns.psi_io_some.unit: expected a unit that converts to 'share', got 'ms'; .*"
                                  r" \(.*mapping.yaml, line 6\)"),
    ("unit: ms", "unit: sec", r"time.unit: expected iso, s, ms, us or ns, got 'sec'; .* line 4\)"),
    ("Europe/Berlin", "Europe/Berlyn", "time.zone: expected a zone of the time zone database, got 'Europe/Berlyn'; did "
                                       r"you mean 'Europe/Berlin'\?"),
    ("window_s: 30", "window_s: 0", "time.window_s: expected a number above 0, got 0"),
    ("window_s: 30", "window_s:", "time.window_s: expected a number above 0, got nothing; leave the field out"),
    ("scale: 2", "scale: 0", r"columns.latency_ms.scale: expected a number above 0, got 0 \(.*mapping.yaml, line 7\)"),
    ("scale: 2", "scale: -1", r"columns.latency_ms.scale: expected a number above 0, got -1 \(.*, line 7\)"),
    ("scale: 2", "scale: two", "columns.latency_ms.scale: expected a number above 0, got 'two'"),
    ("scale: 2", "scale: '2'", "columns.latency_ms.scale: expected a number above 0, got '2'; write it without quotes"),
    ("scale: 2", "scale: 2e-3", "columns.latency_ms.scale: .* YAML reads 2e-3 as text, write 2.0e-3"),
    ("column: io", "column: 3", "columns.psi_io_some.column: expected a text .*, got 3; write it in quotes"),
    ("{column: app}", "{column: app, constant: x}", "workload: expected one of `constant`, `column`, "
                                                   "`column_names`, got `constant` and `column`"),
    ("{column: app}", "{}", "workload: expected one of `constant`, `column`, `column_names`, got none"),
    ("{column: app}", "{constant: ../x}", "workload.constant: expected letters, digits, _ and -, .*, got '../x'"),
    ("workload: {column: app}", "", "mapping: the field 'workload' is missing"),
    ("{column: ts, ", "{", r"time: the field 'column' is missing \(.*mapping.yaml, line 4\)"),
    ("{column: io, unit: percent}", "{unit: percent}", r"columns.psi_io_some: the field 'column' is missing .* line 6"),
    ("{column: io, unit: percent}", "io", "columns.psi_io_some: expected a mapping, got 'io'"),
    ("[model]", "[latency_ms]", r"keep\[0\]: expected a name that no column has which the mapping makes"),
    ("[model]", "[window_start]", r"keep\[0\]: expected a name that no column has which the mapping makes"),
    ("[model]", "model", "keep: expected a list, got 'model'"),
    ("keep: [model]", "task: nowhere.yaml", r"task: expected .* there is no file .*nowhere.yaml \(.*yaml, line 8\)"),
    ("keep: [model]", "task: 3", "task: expected a text or a mapping, got 3"),
    ("workload: {column: app}", "workload: [", "mapping file must be YAML"),
])
def test_a_bad_mapping_says_where_and_what(write, old, new, message):
    assert old in GOOD
    with pytest.raises(InputError, match=f"^{message}"):
        load(write(GOOD.replace(old, new, 1)))


def test_a_task_beside_the_mapping_must_be_one(write):
    write("- 3", "task.yaml")
    with pytest.raises(InputError, match=r"^task: expected a mapping, got \[3\] \(.*task.yaml, line 1\)"):
        load(write(GOOD + "task: task.yaml"))


def test_a_mapping_without_columns_is_refused(write):
    with pytest.raises(InputError, match=r"columns: expected a mapping that is not empty, got \{\}"):
        load(write("workload: {constant: a}\ncolumns: {}"))
