import gzip
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import Table
from pyarrow.parquet import write_table

from feature_store.errors import InputError
from feature_store.measurement_mapping import load_measurement_mapping, parse_measurement_mapping
from feature_store.measurements import FAR_LEVEL, load_measurements, measurements_of

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("ASSAY_DATA", ROOT.parent / "shared" / "data"))
CLOUDBANDIT = DATA / "cloudbandit" / "multi-cloud-configuration.csv"
SCOUT = DATA / "scout" / "scout_from_bbo_arena_random_search.csv"


def mapping_of(configuration: Mapping | None = None, **fields):
    return parse_measurement_mapping({
        "workload": {"column": "job"},
        "configuration": {"nodes": {"column": "nodes"}} if configuration is None else configuration,
        "target": {"name": "runtime_s", "column": "took"}, **fields}, "m.yaml")


def runs(**columns):
    """Three runs of two workloads, columns replaced or added."""
    return pd.DataFrame({"job": ["a", "a", "b"], "nodes": [1, 2, 4], "took": [10.0, 20.0, 40.0]} | columns)


def load(configuration=None, raw=None, **fields):
    return measurements_of(runs() if raw is None else raw, mapping_of(configuration, **fields), "runs.csv")


def category(**fields):
    return {"x": {"column": "x", "kind": "category", **fields}}


def number(**fields):
    return {"x": {"column": "x", **fields}}


def test_a_run_is_a_row_with_canonical_columns():
    found = load(raw=runs(price=[1.0, 2.0, 3.0], cpu=[5, 6, 7]), cost={"column": "price", "scale": 2},
                 metrics={"cpu_s": {"column": "cpu"}}, groups={"first": {"column": "job", "pattern": "^(.)"}})
    assert list(found.frame) == ["workload", "nodes", "first", "cpu_s", "runtime_s", "cost"]
    assert found.frame["cost"].tolist() == [2.0, 4.0, 6.0]
    assert found.frame["nodes"].dtype == found.frame["cpu_s"].dtype == np.float64
    assert (found.workloads, found.target) == (("a", "b"), "runtime_s")
    assert (found.failed, found.only_failed, found.flags) == ({}, (), ())


@pytest.mark.parametrize(("name", "row"), [("runs.csv", "row 4"), ("runs.parquet", "record 3")])
def test_a_message_has_the_number_of_the_row_in_the_file(tmp_path, name, row):
    """Also below a failed run, which is left out."""
    raw = runs(took=[10.0, 20.0, -1.0], state=["bad", "ok", "ok"])
    raw.to_csv(tmp_path / name, index=False) if name.endswith(".csv") else raw.to_parquet(tmp_path / name)
    with pytest.raises(InputError, match=rf"{name}, {row}\)"):
        load_measurements(tmp_path / name, mapping_of(failed=[{"column": "state", "is_not": "ok"}]))


# how a column is made

def test_the_first_column_that_holds_a_value_counts_then_the_default():
    raw = runs(x=["p", None, None], z=["q", "r", None])
    assert load(category(column=["x", "z"], default="none"), raw).frame["x"].tolist() == ["p", "r", "none"]
    raw = runs(x=[1.0, np.nan, np.nan], z=[5, 6, np.nan])
    assert load(number(column=["x", "z"], default=9, scale=2), raw).frame["x"].tolist() == [2.0, 12.0, 18.0]


def test_columns_of_different_types_coalesce_to_their_own_labels():
    raw = runs(x=["p", None, None], y=pd.array([None, True, None], dtype="boolean"), z=[7, 8, 9])
    assert load(category(column=["x", "y", "z"]), raw).frame["x"].tolist() == ["p", "True", "9"]


def test_without_a_default_a_value_that_no_column_holds_is_an_error_with_its_row():
    with pytest.raises(InputError, match=r"column 'x or z' must hold a value in every run that did not fail, got none "
                                         r"in 1 of 3 \(runs.csv, row 2 first\)"):
        load(category(column=["x", "z"]), runs(x=["p", None, None], z=["q", "r", None]))


@pytest.mark.parametrize("values", [[2, 3, 3], [2.0, 3.0, 3.0], pd.array([2, 3, 3], dtype="Int64"),
                                    np.array([2, 3, 3], dtype=np.float32), ["2", "3", "3"],
                                    pd.Categorical([2, 3, 3]), pd.Categorical(["2", "3", "3"])])
def test_a_category_has_the_same_labels_whatever_the_type_of_its_column(values):
    assert load(category(), runs(x=values)).frame["x"].tolist() == ["2", "3", "3"]


def test_a_missing_value_of_another_workload_does_not_change_a_category():
    assert load(category(default=4.0), runs(x=[2, None, 3])).frame["x"].tolist() == ["2", "4", "3"]


def test_a_missing_value_in_a_categorical_column_takes_the_default():
    raw = runs(x=pd.Categorical(["p", None, "p"]), y=pd.Categorical(["k", "k", "l"]), job=pd.Categorical(list("aab")))
    columns = {"y": {"column": "y", "kind": "category"}} | category(within="y", default="none")
    assert load(columns, raw).frame["x"].tolist() == ["k/p", "k/none", "l/p"]


def test_a_pattern_takes_its_group_and_a_text_that_does_not_match_is_an_error():
    assert load(category(pattern="-(.+)$"), runs(x=["a-b", "c-d", "e-f"])).frame["x"].tolist() == ["b", "d", "f"]
    with pytest.raises(InputError, match=r"column 'x' must match '-\(\.\+\)\$' in every run .*row 1 first"):
        load(category(pattern="-(.+)$"), runs(x=["a-b", "cd", "e-f"]))


def test_a_default_needs_no_match_but_a_text_that_is_there_does():
    assert load(category(pattern="-(.+)$", default="none"),
                runs(x=["a-b", None, "e-f"])).frame["x"].tolist() == ["b", "none", "f"]
    with pytest.raises(InputError, match=r"column 'x' must match .* got none in 1 of 2 \(runs.csv, row 2 first\)"):
        load(category(pattern="-(.+)$", default="none"), runs(x=["a-b", None, "ef"]))


def test_a_category_within_another_is_a_different_one_in_each():
    columns = {"zone": {"column": "zone", "kind": "category"}} | category(within="zone")
    assert load(columns, runs(zone=[1.0, 2.0, 2.0], x=["p", "p", "q"])).frame["x"].tolist() == ["1/p", "2/p", "2/q"]


def test_values_give_labels_their_numbers_before_the_scale():
    raw = runs(x=["large", "xlarge", "large"])
    assert load(number(values={"large": 2, "xlarge": 4}, scale=3), raw).frame["x"].tolist() == [6.0, 12.0, 6.0]


def test_labels_of_values_match_integers_and_floats():
    assert load(number(values={1: 10, 2: 20}), runs(x=[1.0, 2.0, 2.0])).frame["x"].tolist() == [10.0, 20.0, 20.0]
    assert load(number(values={1: 10}, default=5), runs(x=[1, None, 1])).frame["x"].tolist() == [10.0, 5.0, 10.0]


def test_a_label_without_a_number_is_an_error_with_the_nearest():
    with pytest.raises(InputError, match=r"value of 'x' must be one that the mapping gives a number, got 'xlarg' "
                                         r"\(runs.csv, row 1\); did you mean 'xlarge'\?"):
        load(number(values={"large": 2, "xlarge": 4}), runs(x=["large", "xlarg", "large"]))


def test_a_missing_label_is_missing_not_unknown():
    with pytest.raises(InputError, match="column 'x' must hold a value"):
        load(number(values={"large": 2}), runs(x=["large", None, "large"]))
    found = load(raw=runs(x=["hot", None, "hot"]), metrics={"heat": {"column": "x", "values": {"hot": 3}}})
    np.testing.assert_equal(found.frame["heat"].to_numpy(), [3.0, np.nan, 3.0])


def test_a_product_multiplies_the_scaled_columns_above():
    columns = {"cores": {"column": "x", "values": {"s": 2, "l": 8}}, "nodes": {"column": "nodes", "scale": 10},
               "total": {"product": ["cores", "nodes", "nodes"], "scale": 0.5}}
    assert load(columns, runs(x=["s", "l", "l"])).frame["total"].tolist() == [100.0, 1600.0, 6400.0]


def test_a_product_or_scale_that_overflows_is_an_error():
    columns = number() | {"total": {"product": ["x", "x"]}}
    with pytest.raises(InputError, match=r"column 'total' must hold finite numbers, got inf \(runs.csv, row 1\)"):
        load(columns, runs(x=[1.0, 1e200, 1.0]))
    with pytest.raises(InputError, match=r"column 'x' must hold finite numbers, got inf"):
        load(number(scale=1e200), runs(x=[1.0, 1e200, 1.0]))


@given(st.lists(st.tuples(st.sampled_from("ab"), st.floats(1e-3, 1e9), st.floats(1e-3, 1e9)), min_size=1, max_size=20))
def test_numbers_come_through_unchanged_and_in_order(rows):
    raw = pd.DataFrame(rows, columns=["job", "nodes", "took"])
    frame = measurements_of(raw, mapping_of(), "runs.csv").frame
    assert frame["workload"].tolist() == raw["job"].tolist()
    np.testing.assert_array_equal(frame[["nodes", "runtime_s"]], raw[["nodes", "took"]])


# failed runs

@pytest.mark.parametrize(("rule", "values", "failed"), [
    ({"is_not": "ok"}, ["ok", "error", "ok"], {"a": 1}),
    ({"is_not": ["ok", "done"]}, ["done", None, "ok"], {"a": 1}),
    ({"is_not": ["ok", "nan", "None"]}, ["ok", None, "ok"], {"a": 1}),
    ({"is_not": 0}, [0, 1, 0], {"a": 1}),
    ({"is_not": 0}, [0.0, np.nan, 0.0], {"a": 1}),
    ({"is_not": 0}, pd.array([0, None, 0], dtype="Int64"), {"a": 1}),
    ({"is_not": 0}, ["0", "137", "0"], {"a": 1}),
    ({"equals": 3600}, [3600, 3599.999, 3600.001], {"a": 1}),
    ({"equals": 3600}, ["3600", "none", None], {"a": 1}),
    ({"equals": 3600}, pd.array([None, 3600, 1], dtype="Int64"), {"a": 1}),
    ({"at_least": 10}, [10, 9, 9], {"a": 1}),
    ({"at_least": 10}, [np.nan, 11, np.inf], {"a": 1, "b": 1}),
    ({"at_least": 10}, pd.array([None, 11, 1], dtype="Float64"), {"a": 1}),
    ({"missing": True}, [1.0, np.nan, 1.0], {"a": 1}),
    ({"missing": True}, ["p", None, None], {"a": 1, "b": 1}),
    ({"missing": True}, ["p", "", "q"], {}),
])
def test_failed_runs_are_counted_by_workload_and_left_out(rule, values, failed):
    found = load(raw=runs(x=values), failed=[{"column": "x", **rule}])
    assert found.failed == failed
    assert len(found.frame) == 3 - sum(failed.values())
    assert found.only_failed == (("b",) if "b" in failed else ())


def test_each_condition_fails_a_run_and_none_twice():
    raw = runs(x=["ok", "no", "ok"], took=[1.0, 50.0, 2.0])
    found = load(raw=raw, failed=[{"column": "x", "is_not": "ok"}, {"column": "took", "at_least": 50},
                                  {"column": "took", "equals": 1}])
    assert (found.failed, found.frame["runtime_s"].tolist()) == ({"a": 2}, [2.0])


def test_two_conditions_of_one_rule_fail_separately():
    found = load(raw=runs(took=[np.nan, 3600.0, 2.0]), failed=[{"column": "took", "missing": True, "equals": 3600}])
    assert found.failed == {"a": 2}


def test_workloads_with_failed_runs_only_are_listed_and_not_among_the_workloads():
    found = load(raw=runs(x=["ok", "ok", "no"]), failed=[{"column": "x", "is_not": "ok"}])
    assert (found.workloads, found.only_failed, found.failed) == (("a",), ("b",), {"b": 1})
    assert found.frame.index.tolist() == [0, 1]


def test_values_of_failed_runs_are_not_looked_at():
    raw = runs(took=[1.0, np.nan, -5.0], nodes=[1, np.inf, np.nan], x=["ok", "no", "no"], cpu=[1.0, np.inf, 2.0])
    found = load(raw=raw, failed=[{"column": "x", "is_not": "ok"}], metrics={"cpu_s": {"column": "cpu"}})
    assert found.frame["runtime_s"].tolist() == [1.0]


def test_a_failed_run_of_no_workload_is_an_error_for_it_could_not_be_counted():
    with pytest.raises(InputError, match="column 'job' must hold a value in every run, got none in 1 of 3"):
        load(raw=runs(job=["a", None, "b"], took=[1.0, np.nan, 1.0]), failed=[{"column": "took", "missing": True}])


def test_a_file_of_failed_runs_alone_is_an_error():
    with pytest.raises(InputError, match=r"file must have runs that did not fail, got none of 3 \(runs.csv\)"):
        load(failed=[{"column": "took", "at_least": 0}])


# bad data

def test_a_missing_column_is_named_with_the_nearest():
    with pytest.raises(InputError, match=r"expected a column 'node', got none \(runs.csv\); .*'nodes'\?"):
        load({"nodes": {"column": "node"}})
    with pytest.raises(InputError, match="expected a column 'state'"):
        load(failed=[{"column": "state", "is_not": "ok"}])


def test_a_table_without_rows_is_an_error():
    with pytest.raises(InputError, match=r"file must have rows, got none \(runs.csv\)"):
        load(raw=runs().iloc[:0])


def test_a_text_among_numbers_is_an_error_with_its_row():
    with pytest.raises(InputError, match=r"column 'nodes' must hold numbers, got 'two' \(runs.csv, row 1\)"):
        load(raw=runs(nodes=["1", "two", "3"]))


@pytest.mark.parametrize("moment", [pd.to_timedelta([1, 2, 3], unit="s"), pd.to_datetime(["2024-01-01"] * 3)])
def test_a_date_or_duration_is_no_number_for_its_unit_would_be_a_guess(moment):
    with pytest.raises(InputError, match="column 'took' must hold numbers, got '"):
        load(raw=runs(took=moment))


@pytest.mark.parametrize("column", ["nodes", "took", "cpu"])
@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_infinity_is_an_error_with_its_row(column, value):
    raw = runs(cpu=[1.0, 2.0, 3.0]).astype({column: float})
    raw.loc[2, column] = value
    with pytest.raises(InputError, match=rf"column '{column}' must hold finite numbers, got {value} .*row 2"):
        load(raw=raw, metrics={"cpu_s": {"column": "cpu"}})


@pytest.mark.parametrize("missing", [np.nan, None])
@pytest.mark.parametrize("column", ["nodes", "took", "job"])
def test_a_missing_value_is_an_error_with_its_row(column, missing):
    raw = runs().astype({column: object})
    raw.loc[1, column] = missing
    with pytest.raises(InputError, match=rf"column '{column}' must hold a value .* got none in 1 of 3 .*row 1 first"):
        load(raw=raw)


@pytest.mark.parametrize("value", [0.0, -1.0])
@pytest.mark.parametrize("column", ["took", "price"])
def test_targets_and_costs_must_be_above_zero(column, value):
    raw = runs(price=[1.0, 2.0, 3.0])
    raw.loc[1, column] = value
    with pytest.raises(InputError, match=rf"column '{column}' must hold numbers above 0 .*, got {value} "
                                         r"\(runs.csv, row 1\); name failed runs in the mapping"):
        load(raw=raw, cost={"column": "price"})


def test_rows_are_counted_in_the_file_also_after_failed_ones_and_whatever_the_index():
    raw = runs(took=[5.0, 7.0, -1.0], x=["no", "ok", "ok"]).set_index(pd.Index(["p", "q", "r"]))
    with pytest.raises(InputError, match=r"row 2\)"):
        load(raw=raw, failed=[{"column": "x", "is_not": "ok"}])


def test_two_columns_of_one_name_are_an_error():
    raw = runs()
    with pytest.raises(InputError, match="columns must have distinct names, got 'nodes' twice"):
        load(raw=pd.concat([raw, raw[["nodes"]]], axis=1))


def test_columns_that_the_mapping_does_not_name_may_hold_anything():
    raw = runs(x=[object(), None, np.inf])
    assert len(load(raw=raw).frame) == 3


def test_the_table_that_was_given_is_not_changed():
    raw = runs(x=pd.Categorical(["p", None, "q"]))
    before = raw.copy()
    load(category(default="none"), raw)
    pd.testing.assert_frame_equal(raw, before)


def test_a_metric_may_be_missing_in_some_runs_and_in_all_runs_of_a_workload():
    found = load(raw=runs(cpu=[1.0, 2.0, None], io=[None, None, None]),
                 metrics={"cpu_s": {"column": "cpu"}, "io": {"column": "io"}})
    np.testing.assert_equal(found.frame["cpu_s"].to_numpy(), [1.0, 2.0, np.nan])
    assert found.frame["io"].isna().all()
    assert found.flags == ()


def test_a_metric_may_be_zero_and_is_flagged_below():
    assert load(raw=runs(cpu=[0, 1, 2]), metrics={"cpu_s": {"column": "cpu"}}).flags == ()
    flags = load(raw=runs(cpu=[0, -1, 2]), metrics={"cpu_s": {"column": "cpu"}}).flags
    assert flags == ("metric cpu_s is below 0 in 1 of 3 runs, which count as 0",)


# levels

def levels(values, **columns):
    """Two runs of each workload around its level."""
    names = [f"w{i}" for i in range(len(values)) for _ in range(2)]
    return pd.DataFrame({"job": names, "nodes": [1, 2] * len(values), "took": np.repeat(values, 2) * 1.0} | columns)


def test_a_workload_in_units_a_thousand_times_smaller_is_flagged():
    (flag,) = load(raw=levels([10.0, 20.0, 15_000.0, 12.0, 15.0])).flags
    assert flag == "workload w2: the median runtime_s is 1e+03 times that of the median workload; " \
                   "look whether its units are the others'"
    (flag,) = load(raw=levels([10.0, 20.0, 0.015, 12.0, 15.0])).flags
    assert flag.startswith("workload w2: the median runtime_s is 0.00125 times")


def test_a_metric_in_other_units_is_flagged():
    raw = levels([10.0, 20.0, 15.0], cpu=np.repeat([5.0, 4.0, 5000.0], 2))
    assert [flag[:31] for flag in load(raw=raw, metrics={"cpu_s": {"column": "cpu"}}).flags] == [
        "workload w2: the median cpu_s i"]


def test_workloads_that_differ_less_are_not_flagged():
    assert load(raw=levels([1.0, 30.0, 0.9 * FAR_LEVEL * 30])).flags == ()
    assert load(raw=levels([1.0, 30.0, 1.1 * FAR_LEVEL * 30])).flags


def test_two_workloads_are_too_few_to_say_which_has_other_units():
    assert load(raw=levels([1.0, 1e6])).flags == ()


# files

@pytest.mark.parametrize("name", ["runs.csv", "runs.csv.gz", "runs.parquet"])
def test_csv_compressed_csv_and_parquet_hold_the_same(tmp_path, name):
    raw = runs(x=["p", None, "2"])
    path = tmp_path / name
    raw.to_parquet(path) if name.endswith("parquet") else raw.to_csv(path, index=False)
    columns = {"k": {"column": "x", "kind": "category", "default": "none"}}
    found = load_measurements(path, mapping_of(columns))
    assert found.frame["k"].tolist() == ["p", "none", "2"]
    pd.testing.assert_series_equal(found.frame["runtime_s"], raw["took"], check_names=False)


def test_labels_of_a_csv_file_that_are_equal_as_numbers_stay_apart(tmp_path):
    (tmp_path / "runs.csv").write_text("job,nodes,took,x,state\n007,1,2,1.10,0\n7,3,4,1.1,0\n7,5,6,1.1,00\n")
    columns = {"k": {"column": "x", "kind": "category"}, "n": {"column": "x", "values": {"1.10": 10, "1.1": 1}}}
    found = load_measurements(tmp_path / "runs.csv", mapping_of(columns, failed=[{"column": "state", "is_not": "0"}]))
    assert found.workloads == ("007", "7") and found.failed == {"7": 1}
    assert found.frame["k"].tolist() == ["1.10", "1.1"] and found.frame["n"].tolist() == [10.0, 1.0]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_long_whole_numbers_stay_apart_as_labels_where_one_is_missing(tmp_path, suffix):
    raw, path = runs(x=pd.array([2**53, 2**53 + 1, None], dtype="Int64")), tmp_path / f"runs.{suffix}"
    if suffix == "csv":
        raw.to_csv(path, index=False)
    else:  # as a program other than pandas writes it
        write_table(Table.from_pandas(raw).replace_schema_metadata(None), path)
    found = load_measurements(path, mapping_of(category(default="none")))
    assert found.frame["x"].tolist() == ["9007199254740992", "9007199254740993", "none"]


@pytest.mark.parametrize("columns", [{"took": ["9" * 400, 2, 3]}, {"nodes": [1, 2, "9" * 400]}])
def test_a_whole_number_beyond_float64_is_not_finite(tmp_path, columns):
    runs(**columns).to_csv(tmp_path / "runs.csv", index=False)
    with pytest.raises(InputError, match=r"must hold finite numbers, got inf \(.*runs.csv, row [24]\)"):
        load_measurements(tmp_path / "runs.csv", mapping_of())
    found = load_measurements(tmp_path / "runs.csv", mapping_of(failed=[{"column": "took", "at_least": 1e9},
                                                                        {"column": "nodes", "at_least": 1e9}]))
    assert sum(found.failed.values()) == 1


def test_parquet_may_have_an_index_and_nullable_types(tmp_path):
    raw = runs(x=pd.array([None, 3600, 1], dtype="Int64")).set_index(pd.Index(["p", "q", "r"]))
    raw.to_parquet(tmp_path / "runs.parquet")
    found = load_measurements(tmp_path / "runs.parquet", mapping_of(failed=[{"column": "x", "equals": 3600}]))
    assert (found.failed, found.frame["runtime_s"].tolist()) == ({"a": 1}, [10.0, 40.0])


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError, match=r"file of measurements: expected one that exists, got .*none.csv"):
        load_measurements(tmp_path / "none.csv", mapping_of())


@pytest.mark.parametrize(("name", "content"), [
    ("empty.csv", b""),
    ("ragged.csv", b"job,nodes,took\na,1,2\nb,2,3,4\n"),
    ("shifted.csv", b"job,nodes,took\nx,a,1,2\nx,b,2,3\n"),
    ("latin.csv", b"job,nodes,took\n\xff,1,2\n"),
    ("text.csv.gz", b"job,nodes,took\na,1,2\n"),
    ("short.csv.gz", gzip.compress(b"job,nodes,took\n" + b"a,1,2\n" * 1000, mtime=0)[:40]),
    ("broken.csv.gz", b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff" + b"\xff" * 40),
    ("text.csv.zip", b"job,nodes,took\na,1,2\n"),
    ("text.csv.xz", b"job,nodes,took\na,1,2\n"),
    ("text.parquet", b"job,nodes,took\na,1,2\n"),
    ("empty.parquet", b""),
])
def test_a_file_that_cannot_be_read_is_an_error_of_ours(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=f"file of measurements must be CSV or Parquet, got (.|\n)*{name}"):
        load_measurements(tmp_path / name, mapping_of())


def test_a_header_alone_is_an_error(tmp_path):
    (tmp_path / "header.csv").write_text("job,nodes,took\n")
    with pytest.raises(InputError, match="file must have rows, got none"):
        load_measurements(tmp_path / "header.csv", mapping_of())


def test_a_name_that_a_header_has_twice_is_refused_where_it_is_asked_for(tmp_path):
    (tmp_path / "runs.csv").write_text("job,nodes,took,other,other,\na,1,2,,,\nb,3,4,,,\n")
    assert len(load_measurements(tmp_path / "runs.csv", mapping_of()).frame) == 2
    (tmp_path / "runs.csv").write_text("job,nodes,took,took\na,1,2,3\n")
    with pytest.raises(InputError, match="columns must have distinct names, got 'took' twice"):
        load_measurements(tmp_path / "runs.csv", mapping_of())


def test_a_comma_at_the_end_of_each_row_does_not_shift_the_columns(tmp_path):
    (tmp_path / "runs.csv").write_text("job,nodes,took\na,1,2,\nb,3,4,\n")
    frame = load_measurements(tmp_path / "runs.csv", mapping_of()).frame
    assert frame.to_numpy().tolist() == [["a", 1.0, 2.0], ["b", 3.0, 4.0]]


def test_a_column_of_texts_after_many_numbers_is_read_whole(tmp_path):
    (tmp_path / "runs.csv").write_text("job,nodes,took\n" + "7,1,2\n" * 150_000 + "x,1,2\n")
    assert load_measurements(tmp_path / "runs.csv", mapping_of()).workloads == ("7", "x")


def example(name, path):
    if not path.is_file():
        pytest.skip(f"the public measurements are not at {path} (set ASSAY_DATA)")
    return load_measurements(path, load_measurement_mapping(ROOT / "examples" / "sizing" / f"{name}.yaml"))


def test_cloudbandit_loses_the_runs_that_its_file_says_have_failed():
    found = example("cloudbandit", CLOUDBANDIT)
    raw = pd.read_csv(CLOUDBANDIT)
    assert sum(found.failed.values()) == (raw["status"] != "ok").sum() == 305
    assert len(found.frame) == len(raw) - 305
    assert found.only_failed == ("buzz-spectral_clustering", "santander-spectral_clustering")
    assert len(found.workloads) == 28
    # a family is a provider's: their number is that of all providers together
    families = sum(raw[f"{p}_family"].nunique() for p in "ABC")
    assert found.frame["family"].nunique() == families
    assert set(found.frame.loc[~found.frame["family"].str.startswith("C"), "type"]) == {"none"}
    assert not any(text.endswith(".0") for text in found.frame["family"])
    assert found.frame["algorithm"].nunique() < 28
    assert found.flags == ()


def test_scout_loses_its_time_outs():
    found = example("scout", SCOUT)
    raw = pd.read_csv(SCOUT)
    assert sum(found.failed.values()) == (raw["runtime_s"] == 3600).sum() == 84
    assert len(found.frame) == len(raw) - 84
    assert found.only_failed == ()
    np.testing.assert_array_equal(found.frame["total_cores"], found.frame["cores"] * found.frame["nodes"])
    assert (found.frame["runtime_s"] != 3600).all()
