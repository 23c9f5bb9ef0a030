from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feature_store.errors import InputError
from models.adaptation.closed_form.baselines import SupportMean
from models.adaptation.closed_form.combination import point
from models.adaptation.closed_form.hierarchical import Hierarchical
from models.adaptation.learner import NONE, Pool, Prediction, Support, supports
from models.adaptation.pool.validation import (
    absolute_percentage_errors,
    folds_of,
    mean_over_cells,
    random_supports,
    validate,
)
from tests.models.adaptation.synthetic_pools import pool

# Means of some ten float64 numbers of size 1.
TOLERANCE = 1e-12


@dataclass(frozen=True)
class Spy:
    """Remembers the pools that it is fitted to, and predicts the mean of the support."""

    seen: list[Pool] = field(default_factory=list)
    asked: list[Support] = field(default_factory=list)
    name: str = "spy"

    def fit(self, pool: Pool, seed: int = 0) -> "SpyFitted":
        self.seen.append(pool)
        return SpyFitted(self, pool)


@dataclass(frozen=True)
class SpyFitted:
    spy: Spy
    pool: Pool

    def predict(self, support: Support) -> Prediction:
        self.spy.asked.append(support)
        return SupportMean().fit(self.pool).predict(support)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 8), st.integers(0, 6), st.integers(0, 9), st.integers(0, 10_000), st.floats(0, 1))
def test_random_supports_draw_distinct_measured_configurations_and_leave_one(
        configurations: int, workloads: int, shots: int, seed: int, missing: float) -> None:
    rng = np.random.default_rng(seed)
    made = pool(6, configurations)
    made.y[rng.random(made.y.shape) < missing] = np.nan
    rows = rng.integers(0, 6, workloads)
    at = random_supports(made, rows, shots, rng)
    assert at.shape == (workloads, shots)
    for row, drawn in zip(rows, at, strict=True):
        there, runs = np.flatnonzero(~np.isnan(made.y[row])), drawn[drawn != NONE]
        assert set(runs) <= set(there) and len(set(runs)) == len(runs)
        assert len(runs) == max(min(shots, len(there) - 1), 0)
        assert (drawn[: len(runs)] != NONE).all()  # padding comes last


def test_random_supports_draw_every_measured_configuration_about_equally_often() -> None:
    made = pool(1, 5)
    made.y[0, 2] = np.nan
    at = random_supports(made, np.zeros(4000, dtype=np.int64), 2, np.random.default_rng(0))
    counts = np.bincount(at.ravel(), minlength=5)
    assert counts[2] == 0
    # 2,000 expected, standard deviation 32
    assert (np.abs(counts[[0, 1, 3, 4]] - 2000) < 160).all()


@pytest.mark.parametrize("loss", ["mape", "median"])
def test_errors_are_those_of_a_loop_over_cells(loss: str) -> None:
    made = pool(5, 6, missing=0.3)
    rows = np.array([0, 0, 3, 4])
    at = random_supports(made, rows, 3, np.random.default_rng(1))
    prediction = Hierarchical().fit(made).predict(supports(made, rows, at))
    found = absolute_percentage_errors(made, rows, at, prediction, loss)
    guesses = point(prediction, loss)
    for e, row in enumerate(rows):
        for c in range(6):
            if np.isnan(made.y[row, c]) or c in at[e]:
                assert np.isnan(found[e, c])
            else:
                truth = np.exp(made.y[row, c])
                np.testing.assert_allclose(found[e, c], abs(guesses[e, c] - truth) / truth, rtol=1e-10)


def test_errors_leave_the_pool_as_it_is() -> None:
    made = pool(3, 4)
    before = made.y.copy()
    at = np.array([[0, 1], [2, NONE], [3, 0]])
    absolute_percentage_errors(made, np.arange(3), at, Prediction(np.zeros((3, 4)), np.ones((3, 4))))
    np.testing.assert_array_equal(made.y, before)


def test_padding_in_a_support_does_not_hide_the_last_configuration() -> None:
    made = pool(2, 4)
    at = np.array([[0, NONE], [NONE, 1]])
    found = absolute_percentage_errors(made, np.arange(2), at, Prediction(made.y.copy(), np.zeros((2, 4))))
    np.testing.assert_array_equal(np.isnan(found), [[True, False, False, False], [False, True, False, False]])
    np.testing.assert_allclose(found[~np.isnan(found)], 0, atol=TOLERANCE)


def test_mean_over_cells_takes_what_is_there() -> None:
    found = mean_over_cells(np.array([[1.0, np.nan, 3.0], [np.nan] * 3, [0.0, 0.0, 3.0]]))
    np.testing.assert_array_equal(found, [2.0, np.nan, 1.0])


@pytest.mark.parametrize(("workloads", "folds", "expected"), [(9, 5, 5), (3, 5, 3), (10, 2, 2), (2, 15, 2)])
def test_folds_hold_every_workload_out_once(workloads: int, folds: int, expected: int) -> None:
    found = folds_of(SupportMean(), pool(workloads, 4), folds)
    assert len(found) == expected
    held_out = [fold.held_out for fold in found]
    assert sorted(np.concatenate(held_out)) == list(range(workloads))
    sizes = [len(part) for part in held_out]
    assert max(sizes) - min(sizes) <= 1


def test_held_out_workloads_are_not_in_what_the_learner_is_fitted_to() -> None:
    made, spy = pool(9, 4, metrics=1), Spy()
    for fold, seen in zip(folds_of(spy, made, 4, seed=3), spy.seen, strict=True):
        others = np.setdiff1d(np.arange(9), fold.held_out)
        np.testing.assert_array_equal(seen.y, made.y[others])
        np.testing.assert_array_equal(seen.runs, made.runs[others])
        np.testing.assert_array_equal(seen.metrics, made.metrics[others])


def test_folds_depend_on_the_seed_alone() -> None:
    made = pool(9, 4)
    first, second, other = ([tuple(fold.held_out) for fold in folds_of(SupportMean(), made, 3, seed)]
                            for seed in (0, 0, 1))
    assert first == second != other


@pytest.mark.parametrize("workloads", [0, 1])
def test_folds_of_fewer_than_two_workloads_are_turned_down(workloads: int) -> None:
    with pytest.raises(InputError, match=f"pool: expected at least two workloads to choose on, got {workloads}"):
        folds_of(SupportMean(), pool(2, 4).part(np.arange(workloads)))


def test_validation_is_the_mean_over_draws_of_the_errors_of_held_out_workloads() -> None:
    """The same draws, one workload, one draw, one cell after the other."""
    made = pool(5, 6, missing=0.2)
    found = validate(SupportMean(), made, (1, 3), folds=2, draws=3, seed=4)
    rng, expected = np.random.default_rng(4), np.full((2, 5), np.nan)
    for fold in folds_of(SupportMean(), made, 2, seed=4):
        at = random_supports(made, np.repeat(fold.held_out, 3), 3, rng)
        for s, shots in enumerate((1, 3)):
            for i, row in enumerate(fold.held_out):
                errors = []
                for draw in range(3):
                    some = at[[3 * i + draw], :shots]
                    prediction = fold.fitted.predict(supports(made, np.array([row]), some))
                    cells = [abs(point(prediction)[0, c] / np.exp(made.y[row, c]) - 1) for c in range(6)
                             if c not in some and not np.isnan(made.y[row, c])]
                    errors.append(np.mean(cells))
                expected[s, row] = np.mean(errors)
    np.testing.assert_allclose(found, expected, rtol=TOLERANCE)


def test_validation_never_shows_more_runs_than_asked_for() -> None:
    spy = Spy()
    validate(spy, pool(6, 5), (1, 2), folds=3, draws=2)
    assert {int(support.is_run.sum(axis=1).max()) for support in spy.asked} == {1, 2}


def test_workload_with_one_run_has_no_error_but_with_no_run_of_its_own() -> None:
    made = pool(5, 4)
    made.y[2, 1:] = np.nan
    made.y[3] = np.nan
    found = validate(SupportMean(), made, (1, 2), folds=5)
    assert np.isnan(found[:, 3]).all()
    assert np.isfinite(found[:, [0, 1, 2, 4]]).all()  # of 2, its only run, predicted without any


def test_more_runs_than_configurations_are_no_obstacle() -> None:
    assert np.isfinite(validate(SupportMean(), pool(4, 3), (1, 5), folds=2)).all()


def test_same_seed_gives_the_same_errors() -> None:
    made = pool(6, 5)
    first, second, other = (validate(SupportMean(), made, seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, second)
    assert (first != other).any()
