import pytest

from feature_store.errors import InputError
from feature_store.mapping import UNKNOWN_COMBINATION, ColumnSource, Label, TimeSource, load_mapping

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


def test_a_mapping_is_read(write):
    mapping = load_mapping(write(GOOD))
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
    mapping = load_mapping(write("workload: {constant: a}\ntask: task.yaml\n"
                                 "columns: {lat_imp: {column: x}, work_io: {column: y, unit: percent}}"))
    assert mapping.task["target"]["name"] == "lat_imp"
    assert mapping.columns["work_io"].factor == pytest.approx(0.01)
    assert mapping.time is None


def test_the_task_may_stand_in_the_mapping_itself(write):
    mapping = load_mapping(write("workload: {constant: a}\ntask: {target: {name: y, unit: ms}}\n"
                                 "columns: {y: {column: x, unit: s}}"))
    assert mapping.columns["y"].factor == 1000.0


@pytest.mark.parametrize(("old", "new", "message"), [
    ("keep:", "kep:", "field must be known, got 'kep' .*; did you mean 'keep'?"),
    ("psi_io_some:", "psi_io_sone:", "column must be in the schema or in the task, .* did you mean 'psi_io_some'?"),
    ("unit: percent", "unit: ms", "unit must convert to 'share', got 'ms'"),
    ("unit: ms", "unit: sec", "unit of time must be one of"),
    ("Europe/Berlin", "Europe/Berlyn", "zone must be in the time zone database, .* Europe/Berlin?"),
    ("window_s: 30", "window_s: 0", "window_s must be positive, got 0"),
    ("scale: 2", "scale: two", "a number must stand here, got 'two'"),
    ("{column: app}", "{column: app, constant: x}", "either `constant` or `column`"),
    ("workload: {column: app}", "", "mapping must have the field 'workload'"),
    ("{column: ts, ", "{", "time must name its `column`"),
    ("{column: io, unit: percent}", "{unit: percent}", "column must name the `column` of the file"),
    ("{column: io, unit: percent}", "io", "a mapping must stand here, got 'io'"),
    ("[model]", "[latency_ms]", "kept column must not bear the name of another column"),
    ("[model]", "model", "keep must be a list of columns"),
    ("keep: [model]", "task: nowhere.yaml", "there is no file .*nowhere.yaml"),
    ("keep: [model]", "task: 3", "task must be a mapping or the path"),
    ("workload: {column: app}", "workload: [", "mapping file must be YAML"),
])
def test_a_bad_mapping_says_where_and_what(write, old, new, message):
    assert old in GOOD
    with pytest.raises(InputError, match=message):
        load_mapping(write(GOOD.replace(old, new, 1)))


def test_a_missing_mapping_is_named(tmp_path):
    with pytest.raises(InputError, match="mapping file must be a readable file"):
        load_mapping(tmp_path / "mapping.yaml")


def test_a_mapping_without_columns_is_refused(write):
    with pytest.raises(InputError, match="columns must be a mapping with at least one entry"):
        load_mapping(write("workload: {constant: a}\ncolumns: {}"))
