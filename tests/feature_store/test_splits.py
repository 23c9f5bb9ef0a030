import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feature_store.errors import InputError
from feature_store.splits import on_test_side, split_by_group


def _windows(keys, workload="redis"):
    return pd.DataFrame({"workload": workload, "environment": "base",
                         "window_start": pd.to_datetime(np.asarray(keys, dtype="int64"), unit="s", utc=True)})


KEYS = ["environment", "window_start"]
# the first 12 keys always have both sides at a share of 0.3, so that the property below is about the split alone
ALWAYS = list(range(12))


@settings(deadline=None)
@given(st.lists(st.integers(0, 10**9), max_size=60), st.randoms(use_true_random=False))
def test_no_window_is_on_both_sides_whatever_the_order(keys, random):
    keys = ALWAYS + keys + keys
    random.shuffle(keys)
    table = _windows(keys)
    test = split_by_group(table, KEYS, 0.3).test
    assert not set(table.window_start[test]) & set(table.window_start[~test])


@settings(deadline=None)
@given(st.lists(st.integers(0, 10**9), max_size=60))
def test_a_window_keeps_its_side_when_others_join(keys):
    alone, with_others = _windows(ALWAYS), _windows(ALWAYS + keys, "mysql")
    here = split_by_group(alone, KEYS, 0.3).test
    there = split_by_group(with_others, KEYS, 0.3).test
    assert (here == there[: len(ALWAYS)]).all()


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_the_side_does_not_depend_on_the_resolution_or_zone_of_the_times(unit):
    table = _windows(range(40))
    other = table.assign(window_start=table.window_start.dt.as_unit(unit).dt.tz_convert("Asia/Tokyo"))
    assert (split_by_group(table, KEYS, 0.2).test == split_by_group(other, KEYS, 0.2).test).all()


def test_the_share_of_groups_is_about_what_was_asked():
    split = split_by_group(_windows(range(4000)), KEYS, 0.2)
    assert split.test_groups + split.train_groups == 4000
    assert split.test_groups / 4000 == pytest.approx(0.2, abs=5 * np.sqrt(0.2 * 0.8 / 4000))
    assert split.test.sum() == split.test_groups


def test_sides_asked_for_again_are_those_of_the_split():
    table = _windows(range(200))
    split = split_by_group(table, KEYS, 0.2)
    assert (on_test_side(table, KEYS, 0.2) == split.test).all()
    alone = np.concatenate([on_test_side(table.iloc[[row]], KEYS, 0.2) for row in range(200)])
    assert (alone == split.test).all(), "a row's side is its own, whatever stands beside it"
    with pytest.raises(InputError, match="expected a column of the rows, got 'windw_start'; did you mean"):
        on_test_side(table, ["windw_start"], 0.2)


def test_the_split_is_this_one_for_ever():
    """A golden split: changing the hash would move rows between sides of recorded experiments."""
    assert np.flatnonzero(split_by_group(_windows(range(30)), KEYS, 0.2).test).tolist() == [
        2, 5, 10, 11, 14, 15, 25, 28]


def test_numbers_and_texts_are_keys_too():
    kinds = [row % 30 for row in range(90)]
    table = pd.DataFrame({"model": [f"ssd{kind}" for kind in kinds], "size": [float(kind) for kind in kinds]})
    test = split_by_group(table, ["model", "size"], 0.3).test
    assert (test[:30] == test[30:60]).all()


@pytest.mark.parametrize(("share", "keys", "message"), [
    (0.0, KEYS, "test_share must be between 0 and 1, got 0.0"),
    (1.0, KEYS, "test_share must be between 0 and 1, got 1.0"),
    (0.2, [], "split_by: expected at least one column"),
    (0.2, ["environment"], "split must leave groups on both sides"),
])
def test_a_split_that_cannot_be_is_refused(share, keys, message):
    with pytest.raises(InputError, match=message):
        split_by_group(_windows(range(10)), keys, share)
