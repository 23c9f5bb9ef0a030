import time

import numpy as np
import pandas as pd
import pytest

from feature_store.errors import InputError
from feature_store.joins import as_of_join

MILLION = 1_000_000


def _side(seconds, column, values, workload="redis", unit="us"):
    times = pd.to_datetime(pd.Series(seconds, dtype="int64"), unit="s", utc=True).dt.as_unit(unit)
    return pd.DataFrame({"time": times, "workload": workload, column: values})


def test_a_row_gets_the_last_value_at_or_before_it_and_nothing_from_the_future():
    left, right = _side([9, 10, 11, 25], "x", 0.0), _side([10, 20, 30], "y", [1.0, 2.0, 3.0])
    joined = as_of_join(left, right, "time", ["workload"])
    np.testing.assert_array_equal(joined["y"], [np.nan, 1.0, 1.0, 2.0])
    assert list(joined.columns) == ["time", "workload", "x", "y"]


def test_it_agrees_with_a_search_row_by_row():
    generator = np.random.default_rng(1)
    left = _side(np.sort(generator.integers(0, 500, 80)), "x", 0.0, generator.choice(["a", "b"], 80))
    right = _side(np.sort(generator.integers(0, 500, 60)), "y", generator.random(60), generator.choice(["a", "b"], 60))
    tolerance = pd.Timedelta("30s")
    joined = as_of_join(left, right, "time", ["workload"], tolerance)
    for row in joined.itertuples():
        same = right[right.workload == row.workload]
        known = same[(same.time <= row.time) & (same.time >= row.time - tolerance)]
        assert (np.isnan(row.y) and known.empty) or row.y == known.y.iloc[-1]


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_a_coarser_clock_on_one_side_lets_nothing_in_from_the_same_second(unit):
    """A value of 10.4 s is the future of a row of 10 s, whichever side has whole seconds only."""
    whole = pd.to_datetime(pd.Series([10, 11]), unit="s", utc=True).dt.as_unit("s")
    later = (whole + pd.Timedelta("400ms")).dt.as_unit(unit)
    joined = as_of_join(pd.DataFrame({"time": whole}), pd.DataFrame({"time": later, "y": [1.0, 2.0]}), "time")
    np.testing.assert_array_equal(joined["y"], [np.nan, 1.0])
    joined = as_of_join(pd.DataFrame({"time": later}), pd.DataFrame({"time": whole, "y": [1.0, 2.0]}), "time")
    np.testing.assert_array_equal(joined["y"], [1.0, 2.0])


def test_parquet_files_and_times_of_another_resolution_join_too(tmp_path):
    left, right = _side([10], "x", 0.0, unit="ms"), _side([9], "y", 5.0, unit="ns")
    left.to_parquet(tmp_path / "left.parquet")
    right.to_parquet(tmp_path / "right.parquet")
    joined = as_of_join(tmp_path / "left.parquet", tmp_path / "right.parquet", "time", ["workload"])
    assert joined["y"].tolist() == [5.0]


def test_the_sides_are_left_as_they_were():
    left, right = _side([1, 2], "x", 0.0), _side([1], "y", 1.0, unit="ns")
    copies = left.copy(), right.copy()
    as_of_join(left, right, "time", ["workload"])
    pd.testing.assert_frame_equal(left, copies[0])
    pd.testing.assert_frame_equal(right, copies[1])


GOOD = _side([1, 2, 3], "x", 0.0)


@pytest.mark.parametrize(("bad", "message"), [
    (GOOD.rename(columns={"time": "t"}), "time column must exist on both sides, got none called 'time'"),
    (GOOD.assign(time=GOOD.time.dt.tz_localize(None)), "must hold timestamps with a zone"),
    (GOOD.assign(time=GOOD.time.where(GOOD.index != 1)), "must have no empty value, got 1 .*first at row 1"),
    (GOOD.iloc[[0, 2, 1]], "must be sorted, got an earlier time at row 2"),
    (GOOD.drop(columns="workload"), "key must exist on both sides, got none called 'workload'"),
    (GOOD.assign(workload=[None, "a", "b"]), "key must have no empty value, got 1 .*first at row 0"),
    (GOOD.assign(workload=[1, 2, 3]), "keys must be of the same type on both sides"),
])
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_key_that_cannot_be_joined_is_named(bad, message, side):
    good = _side([1, 2, 3], "y", 1.0)
    pair = (bad, good) if side == "left" else (good, bad)
    with pytest.raises(InputError, match=message):
        as_of_join(*pair, "time", ["workload"])


def test_a_column_on_both_sides_is_refused():
    with pytest.raises(InputError, match=r"must stand on one side, got \['x'\]"):
        as_of_join(GOOD, GOOD, "time", ["workload"])


def test_a_negative_tolerance_is_refused():
    with pytest.raises(InputError, match="tolerance must not be negative"):
        as_of_join(GOOD, _side([1], "y", 1.0), "time", ["workload"], pd.Timedelta("-1s"))


@pytest.mark.slow
def test_a_million_rows_join_in_under_a_second():
    generator = np.random.default_rng(0)
    names = np.array(["nginx", "redis", "mysql", "search", "training"])
    left, right = (_side(np.sort(generator.integers(0, 10**7, MILLION)), column, generator.random(MILLION),
                         names[generator.integers(0, 5, MILLION)]) for column in ("x", "y"))
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        assert len(as_of_join(left, right, "time", ["workload"], pd.Timedelta("1h"))) == MILLION
        seconds.append(time.perf_counter() - start)
    assert sorted(seconds)[1] < 1.0
