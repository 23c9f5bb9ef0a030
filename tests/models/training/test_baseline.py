"""The gradient-boosting baseline obeys the order it is given."""

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from models.training.baseline import monotone_gradient_boosting
from tests.models.training.synthetic import data

QUERIES = [(0, 1), (2, -1)]


@pytest.fixture(autouse=True)
def one_thread():
    # scikit-learn's threads spin while they wait: beside another process on two cores they take minutes
    with threadpool_limits(1):
        yield


@pytest.mark.parametrize("seed", range(2))
def test_no_sampled_pair_violates_the_order(seed: int) -> None:
    x, y = data(200, 3, seed)
    y = y - 0.4 * x[:, 0] + 0.3 * x[:, 2]  # against both directions, so that the constraint binds
    model = monotone_gradient_boosting(x, y, QUERIES, seed)
    rng = np.random.default_rng(seed)
    points = rng.random((2000, 3)) * 1.4 - 0.2
    for feature, sign in QUERIES:
        moved = points.copy()
        moved[:, feature] += rng.random(2000)
        # trees are compared with themselves: equal or ordered, without rounding
        assert (sign * (model.predict(moved) - model.predict(points)) >= 0).all()


def test_it_learns_what_the_order_allows_and_a_seed_gives_one_model() -> None:
    x, y = data(300, 3)
    y = y + x[:, 0]
    models = [monotone_gradient_boosting(x, y, [(0, 1)], seed=3) for _ in range(2)]
    a, b = (model.predict(x) for model in models)
    assert np.array_equal(a, b)
    assert np.mean((a - y) ** 2) < 0.5 * np.var(y)


def test_features_without_a_direction_are_free() -> None:
    x, _ = data(300, 2)
    model = monotone_gradient_boosting(x, np.cos(6 * x[:, 1]), [(0, 1)], seed=0)
    line = np.stack([np.full(50, 0.5), np.linspace(0, 1, 50)], axis=1)
    steps = np.diff(model.predict(line))
    assert steps.min() < 0 < steps.max()
