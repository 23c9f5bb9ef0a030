"""Rows that a model was trained on are known again by their numbers and by their group, and by nothing else."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from feature_store.errors import InputError
from feature_store.splits import on_test_side
from feature_store.trained_rows import TrainedRows

BY = ("environment", "window_start")


def rows(count=60, seed=0):
    rng = np.random.default_rng(seed)
    start = pd.date_range("2024-01-01", periods=count, freq="60s", tz="UTC")
    return pd.DataFrame({"x": rng.random(count), "y": rng.random(count), "environment": "base", "window_start": start})


def read_again(seen):
    return TrainedRows.from_json(json.loads(json.dumps(seen.to_json())))


def test_a_row_is_known_by_its_numbers_whatever_its_time_and_order():
    frame = rows()
    seen = read_again(TrainedRows.of(frame.iloc[::2], ("x", "y")))
    again = frame.assign(window_start=frame.window_start + pd.Timedelta(days=3)).sample(frac=1, random_state=1)
    assert seen.among(again).tolist() == [row % 2 == 0 for row in again.index]
    nearly = frame.assign(y=np.nextafter(frame.y, 2.0))
    assert not seen.among(nearly).any()


def test_a_row_is_known_by_its_group_though_its_numbers_are_others():
    frame, other = rows(), rows(seed=1)
    seen = read_again(TrainedRows.of(frame[~on_test_side(frame, BY, 0.3)], ("x", "y"), BY, 0.3))
    expected = ~on_test_side(frame, BY, 0.3)
    assert 0 < expected.sum() < len(frame)
    assert (seen.among(frame) == expected).all() and (seen.among(other) == expected).all()


def test_a_larger_test_share_than_the_champion_s_leaves_its_training_groups_out():
    frame = rows(400)
    seen = TrainedRows.of(frame[~on_test_side(frame, BY, 0.1)], ("x", "y"), BY, 0.1)
    test = frame[on_test_side(frame, BY, 0.4)]
    left = test[~seen.among(test)]
    assert 0 < len(left) < len(test) and on_test_side(left, BY, 0.1).all()


def test_zeros_of_both_signs_are_one_number():
    seen = TrainedRows.of(pd.DataFrame({"x": [0.0]}), ("x",))
    assert seen.among(pd.DataFrame({"x": [-0.0, 1.0]})).tolist() == [True, False]


@pytest.mark.parametrize("missing", [["x"], ["environment"]])
def test_rows_that_lack_what_tells_are_refused(missing):
    seen = TrainedRows.of(rows(), ("x", "y"), BY, 0.2)
    with pytest.raises(InputError, match=missing[0]):
        seen.among(rows().drop(columns=missing))


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(max_size=4),
                    lambda inner: st.lists(inner, max_size=3), max_leaves=4),
       st.sampled_from(["columns", "digests", "split_by", "test_share", ""]))
def test_what_is_no_record_is_refused_in_one_line(value, key):
    good = TrainedRows.of(rows(), ("x",), BY, 0.2).to_json()
    try:
        read = TrainedRows.from_json({**good, key: value} if key else value)
    except InputError as error:
        assert "seen" in str(error) and "\n" not in str(error)
    else:
        assert set(read.to_json()) == set(good)
