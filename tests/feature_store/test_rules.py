from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from feature_store.errors import InputError
from feature_store.expectations import DataGate
from feature_store.mapping import UNKNOWN_COMBINATION
from feature_store.rules import check_table, gap_limit_s, rules_for
from feature_store.schema import TelemetrySchema


def _asked(schema, frame):
    return {(rule.kind, rule.column): rule for rule in rules_for(schema, check_table(frame))}


def test_row_count_and_not_null_are_always_asked(schema, telemetry):
    for frame in (telemetry(), telemetry().iloc[:0]):
        asked = _asked(schema, frame)
        assert asked["row_count", ""].minimum == 50
        for name in ("workload", "environment", "combination", "window_start", *schema.numeric):
            assert ("not_null", name) in asked


def test_rows_repeated_under_other_times_are_counted_once(schema, telemetry):
    frame = telemetry(60)
    twice = pd.concat([frame, frame.iloc[:20].assign(window_start=frame.window_start[:20] + pd.Timedelta(days=2))])
    result = DataGate().judge(twice.reset_index(drop=True), schema)
    assert result.passed, result.failures
    (warning,) = result.warnings
    assert (warning.rule, warning.count, warning.first_row) == ("repeated_rows", 20, 60)
    assert warning.message.startswith("rows must differ in more than their times, got 20 that repeat the numbers of an "
                                      "earlier one (workload redis: 20 of 80 rows, first at row 60, window 2024-01-03")


def test_copies_do_not_make_enough_rows(schema, telemetry):
    frame = telemetry(49)
    copies = pd.concat([frame.assign(window_start=frame.window_start + pd.Timedelta(days=day)) for day in range(20)])
    (failure,) = DataGate().judge(copies.reset_index(drop=True), schema).failures
    assert failure.message == ("rows must number at least 50, got 49 and 931 copies of them (workload redis); record "
                               "more")
    counted = DataGate().judge(copies.reset_index(drop=True), replace(schema, repeats_count=True))
    assert counted.passed and not counted.warnings, "runs of one configuration may take equally long"


def test_bounds_come_from_the_schema(schema, telemetry):
    asked = _asked(schema, telemetry())
    assert (asked["range", "psi_io_full"].minimum, asked["range", "psi_io_full"].maximum) == (0.0, 1.0)
    assert (asked["range", "latency_ms"].minimum, asked["range", "latency_ms"].maximum) == (0.001, None)
    assert ("finite", "latency_ms") in asked
    assert ("finite", "psi_io_full") not in asked  # its bounds keep infinity out


def test_a_constant_target_is_fatal_and_a_constant_feature_a_warning(schema, telemetry):
    asked = _asked(schema, telemetry())
    assert asked["variation", "latency_ms"].fatal
    assert not asked["variation", "cpu_time"].fatal


def test_a_missing_or_textual_column_gets_one_rule(schema, telemetry):
    asked = _asked(schema, telemetry().drop(columns=["cpu_time", "window_start"]).assign(psi_io_full="x"))
    for name, kind in (("cpu_time", "column_present"), ("window_start", "column_present"), ("psi_io_full", "numeric")):
        assert [key for key in asked if key[1] == name] == [(kind, name)]


def test_a_synthetic_order_is_not_judged_as_time(schema, telemetry):
    asked = _asked(schema, telemetry().assign(window_s=0.0))
    assert not [key for key in asked if key[0].startswith("time_")]
    assert ("unique_windows", "window_start") in asked


def test_times_without_a_zone_are_a_broken_rule(schema, telemetry):
    frame = telemetry()
    frame["window_start"] = frame["window_start"].dt.tz_localize(None)
    assert ("zoned_time", "window_start") in _asked(schema, frame)
    assert (check_table(frame)["zoned"] == 0.0).all()


def test_a_schema_that_checks_nothing_is_refused(schema, telemetry):
    with pytest.raises(InputError, match="schema must have a target"):
        rules_for(TelemetrySchema("redis", schema.features, {}, ("environment",)), check_table(telemetry()))


def test_a_load_without_anything_beside_it_is_judged(schema, telemetry):
    asked = _asked(TelemetrySchema("redis", {}, schema.target, ()), telemetry())
    assert asked["variation", "latency_ms"].fatal


def test_split_keys_are_asked_for_too(schema, telemetry):
    asked = _asked(TelemetrySchema("redis", schema.features, schema.target, ("model",)), telemetry())
    assert ("column_present", "model") in asked


def test_steps_are_counted_within_an_environment_as_recorded(telemetry):
    frame = pd.concat([telemetry(3), telemetry(3).assign(environment="shifted")])
    np.testing.assert_array_equal(check_table(frame)["step_s"], [np.nan, 60, 60, np.nan, 60, 60])


def test_overlap_is_how_far_a_window_reaches_into_the_next(telemetry):
    np.testing.assert_array_equal(check_table(telemetry(3).assign(window_s=90.0))["overlap_s"], [np.nan, 30, 30])


def test_gaps_are_judged_within_one_known_combination(telemetry):
    frame = telemetry(41)
    frame.loc[10:, "window_start"] += pd.Timedelta("2h")  # inside of c0
    frame.loc[20:, "window_start"] += pd.Timedelta("2h")  # between c0 and c1: a pause
    gaps = check_table(frame)["gap_s"]
    assert gaps[gaps > 60.0].to_dict() == {10: 7260.0}
    assert check_table(frame.assign(combination=UNKNOWN_COMBINATION))["gap_s"].isna().all()


@pytest.mark.parametrize(("step", "limit_s"), [("1s", 3600.0), ("60s", 6000.0), ("1h", 360_000.0)])
def test_the_longest_hole_grows_with_the_window(telemetry, step, limit_s):
    frame = telemetry(30)
    frame["window_start"] = pd.date_range("2024-01-01", periods=30, freq=step, tz="UTC")
    assert gap_limit_s(check_table(frame)) == limit_s
