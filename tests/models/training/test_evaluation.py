"""Scores and curves against scikit-learn and closed forms."""

import numpy as np
import pytest
from sklearn import metrics

from feature_store.scaling import FeatureScaling, MinMaxScaling
from models.training.evaluation import accuracy, mean_squared_error, partial_dependence, predictions, scores
from models.verification.language.specification import FloatArray

SCALING = FeatureScaling(MinMaxScaling(("a", "b"), (10.0, -1.0), (20.0, 3.0)), MinMaxScaling(("y",), (5.0,), (9.0,)))


def rising(x: FloatArray) -> FloatArray:
    return x[:, 0] * 0.5 + x[:, 1] ** 2


@pytest.mark.parametrize("seed", range(3))
def test_mean_squared_error_is_scikit_learns(seed: int) -> None:
    rng = np.random.default_rng(seed)
    predicted, y = rng.normal(size=(2, 200))
    assert mean_squared_error(predicted, y) == pytest.approx(metrics.mean_squared_error(y, predicted), rel=1e-12)


@pytest.mark.parametrize("tolerance", [0.01, 0.05, 0.5])
def test_accuracy_is_scikit_learns_on_being_near_enough(tolerance: float) -> None:
    rng = np.random.default_rng(0)
    predicted, y = rng.random((2, 500))
    near = np.abs(predicted - y) < tolerance
    assert accuracy(predicted, y, tolerance) == metrics.accuracy_score(np.ones(500, dtype=bool), near)


def test_an_error_as_large_as_the_tolerance_does_not_count() -> None:
    assert accuracy(np.array([0.0, 0.25, 0.5]), np.array([0.25, 0.25, 0.25]), 0.25) == pytest.approx(1 / 3)


def test_scores_carry_their_prefix() -> None:
    x = np.random.default_rng(0).random((50, 2))
    found = scores("twin_test", rising, x, rising(x) + 0.1, 0.05)
    assert found == {"twin_test_mse": pytest.approx(0.01), "twin_test_mae": pytest.approx(0.1),
                     "twin_test_accuracy": 0.0}


def test_partial_dependence_is_the_mean_over_the_rows_in_raw_units() -> None:
    x = np.random.default_rng(0).random((30, 2))
    curves = partial_dependence({"f": rising, "g": lambda x: -x[:, 0]}, x, SCALING, [(0, 1), (1, -1)], grid=5, rows=100)
    assert list(curves) == ["a", "b"]
    assert curves["a"]["x"] == pytest.approx([10.0, 12.5, 15.0, 17.5, 20.0])
    assert (curves["a"]["direction"], curves["b"]["direction"]) == ("increasing", "decreasing")
    expected = 0.5 * np.linspace(0, 1, 5) + (x[:, 1] ** 2).mean()
    assert curves["a"]["f"] == pytest.approx((5 + 4 * expected).tolist())
    assert curves["b"]["g"] == pytest.approx([5 - 4 * x[:, 0].mean()] * 5)


def test_curves_and_predictions_take_rows_spread_through_the_data() -> None:
    x = np.stack([np.arange(1000) / 999, np.zeros(1000)], axis=1)
    seen: list[FloatArray] = []

    def spy(rows: FloatArray) -> FloatArray:
        seen.append(rows)
        return rows[:, 0]

    found = predictions({"f": spy}, x, x[:, 0], SCALING, rows=10)
    assert len(found["measured"]) == len(found["f"]) == 10
    assert found["measured"][0] == 5.0 and found["measured"][-1] == 9.0
    assert found["f"] == found["measured"]
    partial_dependence({"f": spy}, x, SCALING, [(1, 1)], grid=3, rows=10)
    assert seen[-1].shape == (30, 2) and seen[-1][:, 0].max() == 1.0 and seen[-1][:, 0].min() == 0.0


def test_few_rows_are_taken_once_each() -> None:
    x = np.random.default_rng(0).random((3, 2))
    assert len(predictions({"f": rising}, x, rising(x), SCALING)["f"]) == 3
