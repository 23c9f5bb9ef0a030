"""What the data say about a direction: found on functions whose directions are known."""

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsRegressor

from benchmarks.learning import directions
from benchmarks.learning.directions import measure_directions

ROWS = 300


@pytest.fixture(autouse=True)
def few_folds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Boosting takes a third of a second a fold."""
    monkeypatch.setattr(directions, "FOLDS", 2)


def _measure(y: np.ndarray, x: np.ndarray, sign: int) -> dict:
    found = measure_directions(x, y, np.arange(len(x)), [(0, sign)], ["first", "second"], seed=0)
    return {**found["features"]["first"], "errors": found["errors"]}


@pytest.fixture
def x() -> np.ndarray:
    """The first feature rises with the second."""
    generator = np.random.default_rng(0)
    second = generator.random(ROWS)
    return np.stack([second + 0.3 * generator.random(ROWS), second], axis=1)


@pytest.mark.parametrize(("truth", "specified"), [(1, 1), (-1, 1)])
def test_a_known_direction_is_found_whatever_is_specified(x: np.ndarray, truth: int, specified: int) -> None:
    found = _measure(truth * x[:, 0], x, specified)
    assert truth * found["rank_correlation"] > 0.99
    assert truth * found["others_equal"] > 0.9
    for errors in found["errors"].values():
        better, worse = ("as_specified", "reversed") if truth == specified else ("reversed", "as_specified")
        assert all(one < other for one, other in zip(errors[better], errors[worse], strict=True))


def test_a_direction_that_another_feature_hides_is_found_with_that_one_held(x: np.ndarray) -> None:
    found = _measure(3 * x[:, 1] - x[:, 0], x, 1)
    assert found["rank_correlation"] > 0.9
    assert found["others_equal"] < -0.8


def test_an_outlier_weighs_no_more_than_another_row_among_the_ranks(x: np.ndarray) -> None:
    y = x[:, 0].copy()
    y[np.argsort(x[:, 0])[:5]] = 1e4
    errors = _measure(y, x, 1)["errors"]
    assert np.mean(errors["target"]["as_specified"]) > 0.7
    assert np.mean(errors["ranks"]["as_specified"]) < 0.2


def test_a_constant_feature_says_nothing() -> None:
    generator = np.random.default_rng(0)
    x = np.stack([np.ones(ROWS), generator.random(ROWS)], axis=1)
    found = _measure(x[:, 1], x, 1)
    assert found["rank_correlation"] == 0.0 and found["others_equal"] == 0.0
    assert found["errors"]["target"]["as_specified"] == found["errors"]["target"]["reversed"]


def test_rows_of_one_group_stand_in_one_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    """The nearest row knows a row's target if it is of the same group, and nothing if it is not."""
    monkeypatch.setattr(directions, "monotone_gradient_boosting",
                        lambda x, y, queries, seed: KNeighborsRegressor(1).fit(x, y))
    generator = np.random.default_rng(0)
    x, y = np.repeat(generator.random((40, 2)), 5, axis=0), np.repeat(generator.random(40), 5)
    together, parted = (measure_directions(x, y, group, [(0, 1)], ["a", "b"], seed=0)["errors"]["target"]["free"]
                        for group in (np.repeat(np.arange(40), 5), np.arange(200)))
    assert max(parted) < 0.5 < min(together)
