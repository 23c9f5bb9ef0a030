"""Bad rows that a mapping lets be dropped: what goes, what is said of it, and that nothing else moves."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feature_store.bad_rows import ROW_RULES, BadRows
from feature_store.dropping import LISTED, BadRow, breaks_rule, drop_bad_rows
from feature_store.expectations import DataGate
from feature_store.features import featurize
from feature_store.mapping import ColumnSource, Label, TelemetryMapping, TimeSource
from feature_store.origin import Origin, Unreadable
from feature_store.rules import check_table, rules_for
from feature_store.sources.files import read_telemetry, read_with_origin
from feature_store.splits import on_test_side

ALL = Origin(bad_rows=BadRows(ROW_RULES, 0.1))


def drop(frame, schema, origin=ALL):
    return drop_bad_rows(frame, schema, origin)


def changed(frame, row, **values):
    for name, value in values.items():
        frame.loc[row, name] = value
    return frame


MINUTE = pd.Timedelta("60s")
# what is done to a sound table of 120 rows, one a minute -> rows that go, and what is counted
BAD = {
    "nothing": (lambda t: t, [], {}),
    "a missing value": (lambda t: changed(t, 7, latency_ms=np.nan), [7], {"not_null": 1}),
    "a missing label": (lambda t: changed(t, 7, environment=None), [7], {"not_null": 1}),
    "a row of no workload": (lambda t: changed(t, 7, workload=None), [7], {"not_null": 1}),
    "no time": (lambda t: changed(t, 7, window_start=pd.NaT), [7], {"not_null": 1}),
    "a negative latency": (lambda t: changed(t, 7, latency_ms=-1.0), [7], {"range": 1}),
    "an infinite one": (lambda t: changed(t, 7, latency_ms=np.inf), [7], {"finite": 1}),
    "a row bad in two ways counts once": (lambda t: changed(t, 7, latency_ms=np.nan, cpu_time=3.0), [7],
                                          {"not_null": 1}),
    "of a repeated window the first stays": (lambda t: pd.concat([t, t.iloc[[-1]]], ignore_index=True), [120],
                                             {"unique_windows": 1}),
    "of a repeated window the sound one stays": (
        lambda t: pd.concat([changed(t, 119, latency_ms=-1.0), t.iloc[[-1]].assign(latency_ms=2.0)], ignore_index=True),
        [119], {"range": 1}),
    "rows behind an earlier one": (lambda t: t.iloc[[*range(10), 12, 10, 11, *range(13, 120)]], [10, 11],
                                   {"time_order": 2}),
    "a year of another unit": (lambda t: changed(t, 7, window_start=pd.Timestamp(0, tz="UTC")), [7],
                               {"time_plausible": 1}),
    "overlapping windows": (lambda t: changed(t, 7, window_start=t["window_start"][6] + MINUTE / 2), [7],
                            {"time_overlap": 1}),
    "a stray row costs itself alone": (
        lambda t: pd.concat([t.iloc[:8], t.iloc[[7]].assign(window_start=t["window_start"][7] + MINUTE / 2,
                                                            latency_ms=2.0), t.iloc[8:]], ignore_index=True),
        [8], {"time_overlap": 1}),
    "a hole is left open": (lambda t: t.assign(window_start=t["window_start"].where(
        t.index < 30, t["window_start"] + pd.Timedelta("1day"))), [], {"time_gap": 1}),
    "a hole behind bad rows": (lambda t: changed(t.assign(window_start=t["window_start"].where(
        t.index < 30, t["window_start"] + pd.Timedelta("1day"))), 30, latency_ms=-1.0), [30],
        {"range": 1, "time_gap": 1}),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_rows_go_and_are_counted_and_the_gate_passes_what_is_left(schema, telemetry, case):
    change, gone, by_rule = BAD[case]
    frame = change(telemetry())
    kept, found = drop(frame, schema)
    assert sorted(set(frame.index) - set(kept.index)) == gone and len(kept) == len(frame) - len(gone)
    assert (found.rows, found.by_rule, found.dropped) == (len(frame), by_rule, len(gone))
    pd.testing.assert_frame_equal(kept, frame.loc[kept.index])
    result = DataGate(ALL).judge(kept, schema, found)
    assert result.passed, result.failures
    assert result.bad_rows == found.to_dict()
    json.dumps(result.to_dict(), allow_nan=False)


def test_a_workload_with_too_many_keeps_its_rows_and_stops(schema, telemetry):
    frame = telemetry()
    frame.loc[:12, "latency_ms"] = np.nan  # 13 of 120, and 12 are allowed
    kept, found = drop(frame, schema)
    assert len(kept) == 120 and found.too_many and found.dropped == 0
    result = DataGate(ALL).judge(kept, schema, found)
    assert [failure.rule for failure in result.failures] == ["bad_rows", "not_null"]
    assert result.failures[0].message == (
        "bad rows must be at most 12 of 120 (at_most: 10 %), got 13: 13 not_null (workload redis, first at row 0, "
        "column 'latency_ms': none); fix the source")
    few = replace(ALL, bad_rows=BadRows(ROW_RULES, 0.01))
    _, found = drop(changed(telemetry(), [3, 4], latency_ms=-1.0), schema, few)
    assert found.failure("redis").message.endswith("fix the source, or set bad_rows: {at_most: 2 %} in the mapping")
    assert found.count <= BadRows(ROW_RULES, 0.02).allowed(120), "what is advised is enough"
    newest_first = telemetry().iloc[::-1].reset_index(drop=True)
    _, found = drop(newest_first, schema, few)
    assert "time_order" in found.by_rule and "; sort the file by time; " in found.failure("redis").message


@pytest.mark.parametrize("change", [lambda t: t.assign(cpu_time=np.nan), lambda t: t.assign(latency_ms=-1.0),
                                    lambda t: t.iloc[:0], lambda t: t.drop(columns="cpu_time"),
                                    lambda t: t.assign(window_s=90.0)])
def test_a_table_that_is_bad_as_a_whole_fails_as_without_a_policy(schema, telemetry, change):
    frame = change(telemetry())
    kept, found = drop(frame, schema)
    pd.testing.assert_frame_equal(kept, frame)
    with_policy = DataGate().judge(kept, schema, found)
    without = DataGate().judge(frame, schema)
    assert without.failures and with_policy.failures[-len(without.failures):] == without.failures
    assert "at_most: " not in with_policy.failures[0].message.partition("fix the source")[2], "that is not the remedy"


def test_holes_count_against_what_is_allowed(schema, telemetry):
    frame = BAD["a hole is left open"][0](telemetry())
    kept, found = drop(frame, schema, Origin(bad_rows=BadRows(ROW_RULES, 0.001)))
    assert found.too_many and len(kept) == 120
    result = DataGate().judge(kept, schema, found)
    assert [failure.rule for failure in result.failures] == ["bad_rows", "time_gap"]
    assert "column 'window_start': a hole of 86,460 s before it" in result.failures[0].message


def test_only_the_rules_that_are_listed_are_dropped_by(schema, telemetry):
    frame = changed(changed(telemetry(), 7, latency_ms=-1.0), 9, latency_ms=np.nan)
    kept, found = drop(frame, schema, Origin(bad_rows=BadRows(("range",), 0.1)))
    assert found.by_rule == {"range": 1} and 9 in kept.index
    result = DataGate().judge(kept, schema, found)
    assert [failure.rule for failure in result.failures] == ["not_null"]


def test_other_workloads_keep_their_rows(schema, telemetry):
    others = changed(telemetry(workload="mysql"), 7, latency_ms=-1.0)
    frame = pd.concat([others, changed(telemetry(), 9, latency_ms=-1.0)])  # each row number twice, as of a wide file
    kept, found = drop_bad_rows(frame, schema, ALL)
    assert found.dropped == 1
    assert kept["workload"].value_counts().to_dict() == {"mysql": 120, "redis": 119}


def test_without_a_policy_nothing_goes(schema, telemetry):
    frame = changed(telemetry(), 7, latency_ms=-1.0)
    kept, found = drop_bad_rows(frame, schema, Origin())
    assert kept is frame and found is None


def test_the_first_rows_are_listed_as_the_file_has_them(schema, telemetry):
    """In the file's words: its column, its unit, the text that is no number."""
    origin = Origin({"": {"latency_ms": ColumnSource("rt", 0.001)}}, (Unreadable(4, "rt", "n.a."),), ALL.bad_rows)
    frame = telemetry(400)
    frame.loc[:29, "latency_ms"] = -0.002
    frame.loc[4, "latency_ms"] = np.nan
    _, found = drop(frame, schema, origin)
    assert found.count == 30 and len(found.first) == LISTED and found.by_rule == {"numeric": 1, "range": 29}
    assert found.first[3:5] == (BadRow(3, "range", "rt", "-2"), BadRow(4, "numeric", "rt", "'n.a.'"))
    assert found.sentence() == "30 of 400 rows are dropped (1 numeric, 29 range; up to 40 may be)"


VALUES = st.sampled_from([np.nan, np.inf, -np.inf, -1.0, 0.0, 0.0005, 0.5, 1.0, 1.5, 7.0])
NAMES = st.sampled_from(["latency_ms", "cpu_time", "psi_io_full"])
ROWS = st.dictionaries(st.integers(0, 59), st.tuples(NAMES, VALUES), max_size=12)


@settings(max_examples=20, deadline=None)
@given(values=ROWS, steps=st.dictionaries(st.integers(0, 59), st.sampled_from([-90, -60, -30, 30, 86_400]), max_size=4))
def test_a_row_is_bad_by_the_same_rules_as_the_gates(schema, telemetry, values, steps):
    """Great Expectations counts what it asks; of rows that clash it counts each, and those behind a bad one: here the
    first is sound.
    """
    frame = telemetry(60)
    for row, (column, value) in values.items():
        frame.loc[row, column] = value
    for row, step_s in steps.items():
        frame.loc[row, "window_start"] += pd.Timedelta(seconds=step_s)
    table = check_table(frame, schema)
    result = DataGate().judge(frame, schema)
    asked = {(failure.column, failure.rule): failure.count for failure in result.failures}
    clashes = ("unique_windows", "time_order", "time_overlap")
    for rule in rules_for(schema, table):
        if rule.kind in ROW_RULES and rule.kind not in clashes:
            assert int(breaks_rule(rule, table).sum()) == asked.get((rule.column, rule.kind), 0), rule
    for rule in (one for one in rules_for(schema, table) if one.kind in clashes):
        assert breaks_rule(rule, table).any() == ((rule.column, rule.kind) in asked), rule


MAPPING = TelemetryMapping(
    workload=Label(constant="redis"), time=TimeSource("ts", "s", window_s=60.0), bad_rows=BadRows(ROW_RULES, 0.3),
    columns={"psi_io_full": ColumnSource("io"), "cpu_time": ColumnSource("cpu"),
             "cpu_quota_cores": ColumnSource("quota"), "latency_ms": ColumnSource("rt", 0.001)})
CELLS = st.sampled_from([("rt", ""), ("rt", "-5"), ("rt", "n.a."), ("io", "2"), ("cpu", "inf"), ("ts", ""),
                         ("ts", "soon"), ("ts", "17")])


@settings(max_examples=25, deadline=None)
@given(cells=st.dictionaries(st.integers(0, 119), CELLS, max_size=20),
       repeated=st.sets(st.integers(0, 119), max_size=10))
def test_dropping_is_running_on_a_file_without_these_rows(schema, telemetry, tmp_path_factory, cells, repeated):
    """The same features, version and sides of the split, and the rows that stay are those of the whole file."""
    folder = tmp_path_factory.mktemp("files")
    sound = telemetry()
    table = pd.DataFrame({"ts": 1.7e9 + 60.0 * sound.index, "io": sound["psi_io_full"], "cpu": sound["cpu_time"],
                          "quota": sound["cpu_quota_cores"], "rt": 1000.0 * sound["latency_ms"]})
    table = table.map(repr).astype(object).assign(good=True)
    for row, (column, text) in cells.items():
        table.loc[row, [column, "good"]] = [text, False]
    copies = table.loc[sorted(set(repeated) - set(cells))].assign(rt="1234.5", good=False)
    table = pd.concat([table, copies]).sort_index(kind="stable")
    made = {}
    for name, rows in (("all", table), ("good", table[table["good"].astype(bool)])):
        rows.drop(columns="good").to_csv(folder / f"{name}.csv", index=False)
        frame, origin = read_with_origin(folder / f"{name}.csv", MAPPING)
        kept, found = drop_bad_rows(frame, schema, origin)
        summary = featurize(kept, schema, 0.2, folder / name)
        made[name] = (summary.data_version, {side: (folder / name / f"{side}.parquet").read_bytes()
                                             for side in ("train", "test")})
        assert found.dropped == len(rows) - int(rows["good"].sum())
        sides = dict(zip(frame["window_start"], on_test_side(frame, schema.split_by, 0.2), strict=True))
        assert [sides[start] for start in kept["window_start"]] == list(on_test_side(kept, schema.split_by, 0.2))
    assert made["all"] == made["good"]


def test_in_a_synthetic_order_the_rows_that_stay_keep_their_places(tmp_path: Path, schema, telemetry):
    """A file without time: a row's time is its place in the file, which no policy may change."""
    sound = changed(telemetry(), [3, 50], latency_ms=-1.0)
    columns = dict.fromkeys(("psi_io_full", "cpu_time", "cpu_quota_cores", "latency_ms"))
    mapping = TelemetryMapping(Label(constant="redis"), {name: ColumnSource(name) for name in columns},
                               bad_rows=ALL.bad_rows)
    sound[list(columns)].to_csv(tmp_path / "t.csv", index=False)
    whole = read_telemetry(tmp_path / "t.csv", replace(mapping, bad_rows=None))
    frame, origin = read_with_origin(tmp_path / "t.csv", mapping)
    kept, _ = drop(frame, schema, origin)
    assert len(kept) == 118
    pd.testing.assert_frame_equal(kept, whole.loc[kept.index])


def test_a_clock_that_was_set_back_is_found_in_one_pass(schema, telemetry, monkeypatch):
    """Not in one for each of the rows that lie behind."""
    frame = telemetry(2_000)
    frame.loc[1_000:, "window_start"] -= pd.Timedelta("30min")
    passes = []
    monkeypatch.setattr("feature_store.dropping.check_table",
                        lambda rows, of: passes.append(1) or check_table(rows, of))
    kept, found = drop(frame, schema)
    assert found.by_rule == {"unique_windows": 30} and len(kept) == 1_970
    frame.loc[1_000:, "window_start"] -= pd.Timedelta("30s")
    kept, found = drop(frame, schema)
    assert found.by_rule == {"time_order": 30, "time_overlap": 1} and len(kept) == 1_969
    assert len(passes) < 20
