from dataclasses import dataclass

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from scipy.stats import norm

from feature_store.errors import InputError
from models.adaptation.closed_form.combination import Mean, point
from models.adaptation.closed_form.hierarchical import Hierarchical
from models.adaptation.closed_form.neighbours import Neighbours
from models.adaptation.learner import Pool, Prediction, Support
from tests.models.adaptation.synthetic_pools import pool, random_support

# The minimum of a convex function is found to the root of its values' error, 1e-10 of quadrature.
MINIMUM = 1e-4
LOSSES = {"mape": lambda guess, log: abs(guess / np.exp(log) - 1),
          "median": lambda guess, log: abs(np.log(guess) - log)}


def expected_loss(guess: float, loss: str, mean: float, deviation: float) -> float:
    """Quadrature in two parts, for the losses have a corner at the guess."""
    def weighted(log: float) -> float:
        return LOSSES[loss](guess, log) * norm.pdf(log, mean, deviation)
    ends = mean - 10 * deviation, float(np.clip(np.log(guess), mean - 9 * deviation, mean + 9 * deviation)), \
        mean + 10 * deviation
    return quad(weighted, *ends[:2], limit=200)[0] + quad(weighted, *ends[1:], limit=200)[0]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("mean", "deviation"), [(0.0, 0.3), (2.0, 0.1), (-1.0, 0.8)])
def test_point_makes_the_expected_loss_least(loss: str, mean: float, deviation: float) -> None:
    found = point(Prediction(np.array([[mean]]), np.array([[deviation**2]])), loss)[0, 0]
    best = minimize_scalar(lambda log: expected_loss(np.exp(log), loss, mean, deviation),
                           bounds=(mean - 2 * deviation, mean + 2 * deviation), method="bounded",
                           options={"xatol": 1e-8})
    np.testing.assert_allclose(np.log(found), best.x, atol=MINIMUM)


def test_point_is_for_the_mean_absolute_percentage_error_unless_told_otherwise() -> None:
    prediction = Prediction(np.array([[1.0, 2.0]]), np.array([[0.5, 0.25]]))
    np.testing.assert_allclose(point(prediction), np.exp([[0.5, 1.75]]))


def test_no_other_shift_of_a_log_normal_sample_has_a_smaller_percentage_error() -> None:
    rng = np.random.default_rng(0)
    sample = np.exp(rng.normal(1.0, 0.5, 200_000))
    found = point(Prediction(np.array([[1.0]]), np.array([[0.25]])))[0, 0]
    errors = {factor: np.abs(found * factor / sample - 1).mean() for factor in (0.9, 1.0, 1.1)}
    assert min(errors, key=errors.__getitem__) == 1.0


def test_point_of_a_loss_that_is_not_known_is_turned_down_with_the_nearest_name() -> None:
    with pytest.raises(InputError, match=r"loss must be one of mape, median, got 'mapes'.*mape"):
        point(Prediction(np.zeros((1, 1)), np.ones((1, 1))), "mapes")


@dataclass(frozen=True)
class Always:
    """Predicts one normal; remembers the seed."""

    mean: float
    variance: float
    name: str = "always"

    def fit(self, pool: Pool, seed: int = 0) -> "Always":
        return Always(self.mean + 100 * seed, self.variance)

    def predict(self, support: Support) -> Prediction:
        shape = (len(support.at), 3)
        return Prediction(np.full(shape, self.mean), np.full(shape, self.variance))


NOTHING = Support(np.empty((2, 0), dtype=np.int64), np.empty((2, 0)), np.empty((2, 0, 0)))


def test_mean_has_the_moments_of_an_even_mixture() -> None:
    parts = [(1.0, 0.5), (2.0, 0.1), (4.0, 1.0)]
    found = Mean(tuple(Always(*part) for part in parts)).fit(pool(2, 3)).predict(NOTHING)
    rng = np.random.default_rng(0)
    sample = np.concatenate([rng.normal(mean, np.sqrt(variance), 400_000) for mean, variance in parts])
    assert found.mean.shape == found.variance.shape == (2, 3)
    np.testing.assert_allclose(found.mean, sample.mean(), atol=0.01)  # some 5 standard errors of the sample
    np.testing.assert_allclose(found.variance, sample.var(), atol=0.02)


def test_mean_hands_the_seed_to_every_learner() -> None:
    found = Mean((Always(1.0, 1.0), Always(3.0, 1.0))).fit(pool(2, 3), seed=7).predict(NOTHING)
    np.testing.assert_allclose(found.mean, 702.0)


def test_mean_of_one_learner_is_that_learner() -> None:
    made = pool(6, 5)
    support = random_support(made, 2)
    found, expected = Mean((Hierarchical(),)).fit(made).predict(support), Hierarchical().fit(made).predict(support)
    np.testing.assert_array_equal(found.mean, expected.mean)
    np.testing.assert_array_equal(found.variance, expected.variance)


def test_learners_that_disagree_make_the_mean_less_certain() -> None:
    made = pool(6, 5)
    support = random_support(made, 2)
    parts = [learner.fit(made).predict(support) for learner in (Hierarchical(), Neighbours())]
    found = Mean((Hierarchical(), Neighbours())).fit(made).predict(support)
    assert (found.variance >= np.mean([part.variance for part in parts], axis=0)).all()


def test_mean_of_no_learner_is_turned_down() -> None:
    with pytest.raises(InputError, match="must have at least one learner"):
        Mean(()).fit(pool(3, 3))
