"""The drift test against brute force and SciPy's; what it says of telemetry that stays, jumps or creeps."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.signal import lfilter
from scipy.stats import ks_2samp

from models.monitoring.chances import level_of
from models.monitoring.drift import Reference, drifts, independent_rows, ks_distance, references

NUMBERS = st.lists(st.integers(-5, 5).map(float), min_size=1, max_size=40)


def autoregressive(rows: int, memory: float, seed: int) -> np.ndarray:
    noise = np.random.default_rng(seed).normal(size=rows + 1000) * np.sqrt(1 - memory**2)
    return np.asarray(lfilter([1.0], [1.0, -memory], noise)[1000:])


@settings(max_examples=200, deadline=None)
@given(NUMBERS, NUMBERS)
def test_the_distance_is_the_largest_at_any_value_also_where_values_are_tied(reference: list[float],
                                                                             values: list[float]) -> None:
    expected = max(abs(np.mean(np.array(reference) <= x) - np.mean(np.array(values) <= x)) for x in range(-5, 6))
    assert ks_distance(np.sort(reference), np.array(values)) == pytest.approx(expected)


@pytest.mark.parametrize("shift", [0.0, 0.3, 1.0, 3.0])
@pytest.mark.parametrize("size", [20, 80, 300])
def test_a_chance_is_never_below_scipys_exact_one(shift: float, size: int) -> None:
    rng = np.random.default_rng(size)
    frame = pd.DataFrame({"a": rng.normal(size=400)})
    known = references(frame, ["a"])
    recent = rng.normal(shift, size=size)
    for one in drifts(known, pd.DataFrame({"a": recent})):
        exact = ks_2samp(known["a"].values, recent[-one.rows:], method="exact").pvalue
        assert one.chance >= 0.999 * exact


@pytest.mark.parametrize("memory", [0.0, 0.5, 0.9, 0.97])
@pytest.mark.parametrize("size", [80, 1280])
def test_rows_are_worth_no_more_than_they_are_and_not_much_less(memory: float, size: int) -> None:
    """Of an autoregressive feature, by the variance of its mean; shares below a value resemble each other less."""
    lags = np.arange(1, size)
    exact = size / (1 + 2 * np.sum((1 - lags / size) * memory**lags))
    found = [independent_rows(autoregressive(20_000, memory, seed), size) for seed in range(5)]
    assert max(found) <= 1.5 * exact and np.median(found) >= 0.2 * exact


def test_a_part_of_a_swing_is_worth_one_row_and_many_swings_are_worth_all() -> None:
    """As of a service that restarts again and again: what alternates is even more alike than independent rows."""
    swings = np.tile([0.0, 0.0, 1.0, 1.0], 2000) + np.repeat(autoregressive(20, 0.0, 1), 400)
    assert independent_rows(np.sin(np.arange(8000) * 2 * np.pi / 1000), 40) < 1.5
    assert independent_rows(np.tile([0.0, 0.0, 1.0, 1.0], 2000), 80) == 80
    assert independent_rows(swings, 80) < 3


def test_constants_are_worth_what_they_are_many() -> None:
    assert independent_rows(np.ones(2000), 80) == 80 and Reference.of(np.ones(2000)).worth[2000] == 2000


def test_fifty_autocorrelated_features_raise_no_alarm_in_two_days_and_would_as_independent_rows() -> None:
    names = [f"f{k}" for k in range(50)]
    frame = pd.DataFrame({name: autoregressive(6000, 0.95, k) for k, name in enumerate(names)})
    known, later = references(frame.iloc[:3000], names), frame.iloc[3000:]
    assert sum(bool(one.worth) for one in known.values()) >= 40
    assert not any(drifts(known, later.iloc[:end])[0].chance <= level_of(look, 1, 2)
                   for look, end in enumerate(range(20, 3001, 60), start=1))
    all_apart = {name: Reference(one.values, {size: float(size) for size in one.worth}) for name, one in known.items()}
    assert drifts(all_apart, later.iloc[:1400])[0].chance <= level_of(50, 1, 2)


@pytest.mark.parametrize(("change", "window"), [
    (lambda values: values[-60:] + 3.0, 80), (lambda values: values + 0.7, 1280)], ids=["a jump", "a small step"])
def test_a_change_shows_in_the_window_that_has_most_of_it(change, window: int) -> None:  # type: ignore[no-untyped-def]
    frame = pd.DataFrame({"a": autoregressive(4000, 0.0, 1), "b": autoregressive(4000, 0.0, 2)})
    recent = frame.iloc[2000:].reset_index(drop=True)
    changed = change(recent["a"].to_numpy())
    recent.loc[recent.index[-len(changed):], "a"] = changed
    first, second = drifts(references(frame.iloc[:2000], ["a", "b"]), recent)
    assert (first.feature, first.rows) == ("a", window) and first.chance < level_of(100, 5, 2) < second.chance
    assert first.now > first.before


def test_another_value_of_a_constant_is_a_change_and_the_same_is_none() -> None:
    known = references(pd.DataFrame({"a": np.full(200, 4.0)}), ["a"])
    same, other = (drifts(known, pd.DataFrame({"a": np.full(40, value)}))[0] for value in (4.0, 8.0))
    assert same.chance == 1.0 and other.chance < 1e-12


def test_what_training_is_too_short_to_show_is_not_judged() -> None:
    slow = pd.DataFrame({"a": np.linspace(0.0, 1.0, 500)})
    assert drifts(references(slow, ["a"]), slow + 5.0) == ()
    quick = pd.DataFrame({"a": autoregressive(500, 0.0, 3)})
    assert drifts(references(quick, ["a"]), quick.iloc[:19]) == () == drifts(references(quick[:5], ["a"]), quick)
