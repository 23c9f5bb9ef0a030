"""Conformal intervals: they hold as often as they say, and never cross."""

import numpy as np
import pytest

from feature_store.errors import InputError
from models.adaptation.conformal import Conformal, calibrate
from models.adaptation.contract import Prediction, supports
from models.adaptation.hierarchical import Hierarchical
from tests.models.adaptation import simulation


def test_new_workloads_lie_inside_as_often_as_asked() -> None:
    pool = simulation.table(400, noise=0.1).pool
    old, new = np.arange(200), np.arange(200, 400)
    fitted = Hierarchical().fit(pool.part(old))
    at = np.tile([[0, 5]], (200, 1))
    for coverage in (0.5, 0.9):
        widths = calibrate(Hierarchical(), pool.part(old), coverage)
        for runs in (1, 2):
            lower, upper = widths.interval(fitted.predict(supports(pool, new, at[:, :runs])), runs)
            measured = np.exp(pool.y[new])[:, [1, 2, 3, 4, 6, 7, 8, 9]]
            inside = (lower[:, [1, 2, 3, 4, 6, 7, 8, 9]] <= measured) & (measured <= upper[:, [1, 2, 3, 4, 6, 7, 8, 9]])
            # 200 workloads of 8 dependent cells: 3 standard deviations of 200 independent ones are 0.11 and 0.06
            assert abs(inside.mean() - coverage) < 3 * (coverage * (1 - coverage) / 200) ** 0.5


def test_a_learner_that_is_too_sure_of_itself_gets_wider_intervals() -> None:
    class Sure:
        name = "sure"

        def fit(self, pool: object, seed: int = 0) -> object:
            fitted = Hierarchical().fit(pool, seed)  # type: ignore[arg-type]

            class Fitted:
                def predict(self, support: object) -> Prediction:
                    found = fitted.predict(support)  # type: ignore[arg-type]
                    return Prediction(found.mean, found.variance / 100)

            return Fitted()

    pool = simulation.table(20).pool
    own, sure = calibrate(Hierarchical(), pool), calibrate(Sure(), pool)  # type: ignore[arg-type]
    for runs in (1, 2, 3):
        assert sure.widths[runs] == pytest.approx(10 * own.widths[runs])


def test_the_ends_never_cross_and_more_runs_than_calibrated_use_the_most_calibrated() -> None:
    conformal = Conformal({1: 2.0, 3: 1.0}, 0.9)
    prediction = Prediction(np.array([[0.0, 5.0]]), np.array([[4.0, 1e-12]]))
    for runs, width in ((0, 2.0), (1, 2.0), (2, 2.0), (3, 1.0), (9, 1.0)):
        lower, upper = conformal.interval(prediction, runs)
        assert (lower <= upper).all()
        assert upper[0, 0] == pytest.approx(np.exp(2.0 * width)) and lower[0, 0] == pytest.approx(np.exp(-2.0 * width))


@pytest.mark.parametrize("coverage", [0.0, 1.0, -1.0, float("nan")])
def test_a_coverage_that_is_no_share_is_an_error(coverage: float) -> None:
    with pytest.raises(InputError, match="coverage must be between 0 and 1"):
        calibrate(Hierarchical(), simulation.table(4).pool, coverage)


def test_a_pool_of_one_workload_cannot_be_calibrated() -> None:
    with pytest.raises(InputError, match="at least two workloads"):
        calibrate(Hierarchical(), simulation.table(1).pool)


def test_a_pool_without_a_second_configuration_cannot_be_calibrated() -> None:
    pool = simulation.table(4).pool
    pool.y[:, 1:] = np.nan
    with pytest.raises(InputError, match="more than 1 measured configurations"):
        calibrate(Hierarchical(), pool)
