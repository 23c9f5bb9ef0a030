"""Conformal intervals: they hold as often as they say, and never cross."""

import numpy as np
import pytest

from feature_store.errors import InputError
from models.adaptation.closed_form.hierarchical import Hierarchical
from models.adaptation.learner import Pool, Prediction, Support, supports
from models.adaptation.pool.conformal import Conformal, calibrate, widths_of
from models.adaptation.pool.validation import Held
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


def held_with_scores(scores: list[list[float]]) -> tuple[Pool, Held]:
    """A pool and held-out predictions whose cells lie the given deviations off, above and below by turns; the first
    configuration is each workload's support."""
    workloads, cells = len(scores), max(map(len, scores))
    y, deviation = np.full((workloads, 1 + cells), np.nan), 2.0
    mean = np.full(y.shape, 5.0)
    y[:, 0] = 5.0
    for row, own in enumerate(scores):
        y[row, 1 : 1 + len(own)] = mean[row, 0] + deviation * np.array(own) * (-1) ** row
    x = np.arange(1.0 + cells)[:, None]
    pool = Pool(x, np.abs(x - x.T)[None], y, np.where(np.isnan(y), 0, 1), np.empty((*y.shape, 0)), float("nan"))
    support = Support(np.zeros((workloads, 1), int), y[:, :1], np.empty((workloads, 1, 0)))
    return pool, Held(np.arange(workloads), support, Prediction(mean, np.full(y.shape, deviation**2)))


# the width is the least score that this share of the ten does not exceed
@pytest.mark.parametrize(("coverage", "width"), [
    (0.05, 1), (0.1, 1), (0.11, 2), (0.5, 5), (0.51, 6), (0.7, 7), (0.85, 9), (0.9, 9), (0.91, 10), (0.99, 10)])
def test_the_width_is_the_quantile_of_the_scores(coverage: float, width: int) -> None:
    pool, held = held_with_scores([[float(score)] for score in (3, 10, 1, 7, 2, 9, 4, 8, 6, 5)])
    assert widths_of(pool, held, coverage).widths == {1: pytest.approx(width)}


def test_every_workload_counts_alike_whatever_it_measured() -> None:
    """One workload of nine near cells, one of a single far cell: half of the weight each."""
    pool, held = held_with_scores([[0.1 * k for k in range(1, 10)], [5.0]])
    assert widths_of(pool, held, 0.4).widths[1] == pytest.approx(0.8)  # 8 of 9 cells: 0.44 of the weight
    assert widths_of(pool, held, 0.6).widths[1] == pytest.approx(5.0)


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
