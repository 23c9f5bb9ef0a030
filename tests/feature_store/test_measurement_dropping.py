import pytest

from feature_store.bad_rows import BadRows
from feature_store.dropping import BadRow
from feature_store.errors import InputError
from feature_store.measurement_mapping import parse_measurement_mapping
from feature_store.measurements import load_measurements

# four bad runs of a, of rows 2 to 21; b of rows 22 to 41 is sound but for a failed run
SPOILT = {3: ("took", "slow"), 5: ("nodes", ""), 7: ("took", "-1"), 9: ("took", "inf")}


@pytest.fixture
def load(tmp_path):
    def make(spoilt=SPOILT, **policy):
        rows = {row: {"job": "a" if row < 22 else "b", "nodes": str(1 + row % 4), "took": str(10.0 + row),
                      "state": "ok"} for row in range(2, 42)}
        rows[30]["state"], rows[30]["took"] = "bad", ""
        for row, (column, value) in spoilt.items():
            rows[row][column] = value
        path = tmp_path / "runs.csv"
        path.write_text("job,nodes,took,state\n" + "".join(",".join(row.values()) + "\n" for row in rows.values()))
        return load_measurements(path, parse_measurement_mapping({
            "workload": {"column": "job"}, "configuration": {"n": {"column": "nodes"}},
            "target": {"name": "runtime_s", "column": "took"}, "failed": [{"column": "state", "is_not": "ok"}],
            **({"bad_rows": policy} if policy else {})}, "m.yaml"))

    return make


def test_a_few_bad_runs_are_dropped_counted_by_rule_and_listed_with_the_row_and_column_of_the_file(load):
    found = load(at_most="20 %")
    bad = found.bad_rows["a"]
    assert bad.by_rule == {"not_null": 1, "numeric": 1, "finite": 1, "range": 1}
    assert bad.first == (BadRow(3, "numeric", "took", "slow"), BadRow(5, "not_null", "nodes", "none"),
                         BadRow(7, "range", "took", "-1"), BadRow(9, "finite", "took", "inf"))
    assert (bad.rows, bad.allowed, bad.dropped, bad.unit) == (20, 4, 4, "row")
    assert (found.bad_rows["b"].rows, found.bad_rows["b"].count, found.failed) == (19, 0, {"b": 1})
    assert found.flags == ("workload a: 4 of 20 rows are dropped (1 not_null, 1 numeric, 1 finite, 1 range; up to 4 "
                           "may be)",)


def test_what_is_left_is_what_a_file_without_the_bad_runs_holds(load):
    kept = load(at_most="20 %").frame
    sound = load({}).frame
    assert kept["runtime_s"].tolist() == [took for took in sound["runtime_s"] if took - 10 not in SPOILT]


def test_a_run_that_spoils_two_columns_counts_once(load):
    found = load({3: ("job", "a,x,slow,ok\na"), 5: ("took", "x")}, at_most=0.15).bad_rows["a"]
    assert (found.rows, found.by_rule, found.first[0]) == (21, {"numeric": 2}, BadRow(3, "numeric", "nodes", "x"))


def test_beyond_the_limit_the_file_is_refused(load):
    with pytest.raises(InputError, match=r"runs.csv: bad rows must be at most 2 of 20 \(at_most: 10 %\), got 4: .* "
                                         r"\(workload a, first at row 3, column 'took': slow\); fix the source$"):
        load(at_most="10 %")


def test_a_rule_that_the_policy_does_not_name_stops_the_load(load):
    with pytest.raises(InputError, match=r"column 'took' must hold numbers above 0 .*, got -1.0 \(.*runs.csv, row 7\)"):
        load({5: ("nodes", ""), 7: ("took", "-1")}, drop=["not_null"], at_most="20 %")


def test_without_a_policy_the_first_bad_run_stops_the_load_as_ever(load):
    with pytest.raises(InputError, match=r"column 'nodes' must hold a value in every run that did not fail, got none "
                                         r"in 1 of 39 \(.*runs.csv, row 5 first\)"):
        load()
    assert load({}).bad_rows == {}


def test_the_rules_are_those_of_a_run():
    def parse(drop):
        return parse_measurement_mapping({"workload": {"column": "j"}, "configuration": {"n": {"column": "n"}},
                                          "target": {"column": "t"}, "bad_rows": {"drop": drop, "at_most": "1 %"}}, "m")

    assert parse(["range", "numeric"]).bad_rows == BadRows(("numeric", "range"), 0.01)
    with pytest.raises(InputError, match=r"bad_rows.drop"):
        parse(["time_gap"])
