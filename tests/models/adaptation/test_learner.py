"""What every learner keeps to, whatever it does inside (models/adaptation/learner.py). A new one gets a line in
LEARNERS."""

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import cache

import numpy as np
import pytest

from feature_store.errors import InputError
from models.adaptation.closed_form.baselines import BoostedRatios, LowRank, SupportMean, additive
from models.adaptation.closed_form.combination import Mean
from models.adaptation.closed_form.hierarchical import Hierarchical
from models.adaptation.closed_form.neighbours import Neighbours
from models.adaptation.learner import NONE, Fitted, Learner, Pool, Prediction, Support, supports
from tests.models.adaptation.synthetic_pools import NOISE, constant, pool

LEARNERS: Mapping[str, Callable[[], Learner]] = {
    "hierarchical": Hierarchical,
    "hierarchical_without_metrics": lambda: Hierarchical(metrics=False),
    "gaussian_process": lambda: Hierarchical(strength=1e9),
    "nearest": Neighbours,
    "support_mean": SupportMean,
    "low_rank": LowRank,
    "additive": additive,
    "boosted_ratios": lambda: BoostedRatios(iterations=10),
    "mean": lambda: Mean((Hierarchical(), Neighbours())),
}
# Float64 sums of some 20 terms of size 1 to 10, in another order or in matrices of another size.
ROUNDING = 1e-9
# The same after a fit of 25 iterations, or splits of trees at other floats.
FITTED_ROUNDING = 1e-6
# What shrinks towards the pool, or learns from few rows, may be off the measured log by this.
NEAR = 0.1
UNMEASURED = 4


def gappy(metrics: int = 2, workloads: int = 9, seed: int = 3) -> Pool:
    """A fifth of the cells is not there, nobody measured UNMEASURED, and some metrics are missing."""
    made = pool(workloads, 7, seed, missing=0.2, metrics=metrics)
    made.y[:, UNMEASURED] = np.nan
    made.metrics[:, UNMEASURED] = np.nan
    made.metrics[np.random.default_rng(seed).random(made.metrics.shape) < 0.2] = np.nan
    return replace(made, runs=(~np.isnan(made.y)).astype(np.int64))


@cache
def fitted(name: str, metrics: int = 2) -> Fitted:
    return LEARNERS[name]().fit(gappy(metrics), seed=1)


def runs(episodes: int, shots: int, metrics: int = 2, seed: int = 0) -> Support:
    generator = np.random.default_rng(seed)
    at = np.array([generator.permutation(7)[:shots] for _ in range(episodes)], dtype=np.int64).reshape(episodes, shots)
    return Support(at, generator.normal(4, 0.7, at.shape), generator.normal(-0.6, 0.4, (*at.shape, metrics)))


def padded(support: Support, places: list[int], width: int, filler: float) -> Support:
    shape = (len(support.at), width)
    at, y = np.full(shape, NONE), np.full(shape, filler)
    metrics = np.full((*shape, support.metrics.shape[2]), filler)
    at[:, places], y[:, places], metrics[:, places] = support.at, support.y, support.metrics
    return Support(at, y, metrics)


def same(found: Prediction, expected: Prediction, tolerance: float = ROUNDING) -> None:
    np.testing.assert_allclose(found.mean, expected.mean, rtol=0, atol=tolerance)
    np.testing.assert_allclose(found.variance, expected.variance, rtol=tolerance, atol=tolerance)


def sound(prediction: Prediction, episodes: int, configurations: int = 7) -> None:
    assert prediction.mean.shape == prediction.variance.shape == (episodes, configurations)
    assert np.isfinite(prediction.mean).all() and np.isfinite(prediction.variance).all()
    assert (prediction.variance > 0).all()


@pytest.fixture(params=LEARNERS)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.mark.parametrize("metrics", [0, 2])
@pytest.mark.parametrize("shots", [0, 1, 2, 3, 7])
@pytest.mark.parametrize("episodes", [0, 1, 4])
def test_predicts_every_configuration_from_any_number_of_runs(name: str, episodes: int, shots: int,
                                                              metrics: int) -> None:
    sound(fitted(name, metrics).predict(runs(episodes, shots, metrics)), episodes)


@pytest.mark.parametrize("filler", [0.0, 7.0, float("nan"), float("inf")])
@pytest.mark.parametrize("places", [[0, 1, 2], [1, 3, 4], [2, 3, 4], [0, 2, 4]])
def test_padding_changes_nothing_wherever_it_stands_and_whatever_it_holds(name: str, places: list[int],
                                                                          filler: float) -> None:
    support = runs(5, 3)
    same(fitted(name).predict(padded(support, places, 5, filler)), fitted(name).predict(support))


def test_padding_differs_from_row_to_row(name: str) -> None:
    first, second = runs(1, 3, seed=1), padded(runs(1, 1, seed=2), [1], 3, float("nan"))
    both = Support(*(np.concatenate([getattr(first, field.name), getattr(second, field.name)])
                     for field in fields(Support)))
    found = fitted(name).predict(both)
    for row, expected in enumerate((first, runs(1, 1, seed=2))):
        same(Prediction(found.mean[[row]], found.variance[[row]]), fitted(name).predict(expected))


def test_support_of_padding_alone_is_no_run_at_all(name: str) -> None:
    nothing = padded(runs(3, 0), [], 4, float("nan"))
    same(fitted(name).predict(nothing), fitted(name).predict(runs(3, 0)))


def test_without_any_run_all_workloads_are_predicted_alike_and_near_the_pool(name: str) -> None:
    found = fitted(name).predict(runs(3, 0))
    # not to the last bit: a product of matrices may sum each row in its own order
    np.testing.assert_allclose(found.mean, found.mean[[0, 0, 0]], rtol=1e-12)
    assert abs(found.mean[0].mean() - np.nanmean(gappy().y)) < 0.5  # the spread of the pool's levels


def test_without_any_run_is_less_certain_than_with_three(name: str) -> None:
    made = pool(12, 7, metrics=2)
    fit = LEARNERS[name]().fit(made)
    at = np.tile([0, 3, 6], (12, 1))
    three, none = (fit.predict(supports(made, np.arange(12), some)).variance.mean() for some in (at, at[:, :0]))
    assert three < none


def test_order_of_the_runs_does_not_matter(name: str) -> None:
    support, order = runs(6, 4), [2, 0, 3, 1]
    turned = Support(support.at[:, order], support.y[:, order], support.metrics[:, order])
    same(fitted(name).predict(turned), fitted(name).predict(support))


def test_workloads_at_once_are_predicted_as_one_at_a_time(name: str) -> None:
    support = runs(6, 3)
    together = fitted(name).predict(support)
    for e in range(6):
        alone = fitted(name).predict(Support(support.at[[e]], support.y[[e]], support.metrics[[e]]))
        same(alone, Prediction(together.mean[[e]], together.variance[[e]]))


def test_runs_repeated_exactly_pull_no_farther_from_what_they_say(name: str) -> None:
    once = runs(5, 1)
    many = Support(np.repeat(once.at, 4, axis=1), np.repeat(once.y, 4, axis=1), np.repeat(once.metrics, 4, axis=1))
    first, found = fitted(name).predict(once), fitted(name).predict(many)
    sound(found, 5)
    rows = np.arange(5)
    off = np.abs(found.mean[rows, once.at[:, 0]] - once.y[:, 0])
    assert (off <= np.abs(first.mean[rows, once.at[:, 0]] - once.y[:, 0]) + ROUNDING).all()


def test_run_under_a_configuration_that_nobody_measured_is_taken(name: str) -> None:
    at = np.array([[UNMEASURED], [UNMEASURED]])
    found = fitted(name).predict(Support(at, np.array([[3.0], [5.0]]), np.full((2, 1, 2), np.nan)))
    sound(found, 2)
    assert (found.mean[0] < found.mean[1]).all()


@pytest.mark.parametrize("missing", [[0], [0, 1]])
def test_metrics_may_be_missing_in_the_support(name: str, missing: list[int]) -> None:
    support = runs(4, 2)
    support.metrics[:, :, missing] = np.nan
    sound(fitted(name).predict(support), 4)
    support.metrics[1:, 0] = 0.3  # here and there
    sound(fitted(name).predict(support), 4)


def test_metric_that_no_run_of_the_pool_has_is_no_obstacle(name: str) -> None:
    made = gappy()
    made.metrics[..., 0] = np.nan
    sound(LEARNERS[name]().fit(made).predict(runs(4, 2)), 4)


@pytest.mark.parametrize("noise", [float("nan"), 0.0, NOISE])
def test_pool_whose_noise_is_not_known_is_taken(name: str, noise: float) -> None:
    sound(LEARNERS[name]().fit(replace(gappy(), noise=noise)).predict(runs(4, 2)), 4)


@pytest.mark.parametrize("shots", [0, 1, 3])
def test_constant_target_is_predicted(name: str, shots: int) -> None:
    made = constant()
    at = np.tile(np.arange(shots), (2, 1))
    support = Support(at, np.full(at.shape, 3.0), np.empty((*at.shape, 0)))
    found = LEARNERS[name]().fit(made).predict(support)
    sound(found, 2, 5)
    np.testing.assert_allclose(found.mean, 3.0, rtol=0, atol=FITTED_ROUNDING)


def test_pool_of_one_workload_works(name: str) -> None:
    made = pool(1, 7, metrics=2)
    found = LEARNERS[name]().fit(made).predict(supports(made, np.array([0]), np.array([[0, 3, 6]])))
    sound(found, 1)


def test_workload_of_the_pool_without_any_run_is_no_obstacle(name: str) -> None:
    made = gappy()
    made.y[2], made.runs[2], made.metrics[2] = np.nan, 0, np.nan
    sound(LEARNERS[name]().fit(made).predict(runs(4, 2)), 4)


@pytest.mark.parametrize("workloads", [0, 4])
def test_pool_without_any_run_is_turned_down(name: str, workloads: int) -> None:
    made = gappy().part(np.arange(workloads))
    empty = replace(made, y=np.full_like(made.y, np.nan), runs=np.zeros_like(made.runs),
                    metrics=np.full_like(made.metrics, np.nan))
    with pytest.raises(InputError, match="pool must"):
        LEARNERS[name]().fit(empty)


def test_same_seed_gives_the_same_prediction(name: str) -> None:
    support = runs(4, 2)
    first, second = (LEARNERS[name]().fit(gappy(), seed=5).predict(support) for _ in range(2))
    assert (first.mean == second.mean).all() and (first.variance == second.variance).all()


def test_predicting_changes_nothing_in_the_fitted_learner(name: str) -> None:
    support, other = runs(4, 2), runs(4, 3, seed=9)
    first = fitted(name).predict(support)
    fitted(name).predict(other)
    same(fitted(name).predict(support), first, 0)


def test_arrays_that_come_in_are_not_changed(name: str) -> None:
    made, support = gappy(), padded(runs(4, 2), [0, 2], 3, float("nan"))
    before = [np.copy(getattr(one, field.name)) for one in (made, support) for field in fields(one)]
    LEARNERS[name]().fit(made).predict(support)
    after = [getattr(one, field.name) for one in (made, support) for field in fields(one)]
    for one, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(one, other)


def test_arrays_that_come_out_can_be_written(name: str) -> None:
    found = fitted(name).predict(runs(2, 0))
    assert found.mean.flags.writeable and found.variance.flags.writeable


@pytest.mark.parametrize("shift", [-8.0, 4.0])
@pytest.mark.parametrize("shots", [0, 1, 3])
def test_other_unit_of_the_target_shifts_what_is_predicted_by_its_logarithm(name: str, shots: int,
                                                                            shift: float) -> None:
    support, made = runs(4, shots), gappy()
    moved = LEARNERS[name]().fit(replace(made, y=made.y + shift), seed=1).predict(replace(support, y=support.y + shift))
    expected = fitted(name).predict(support)
    same(moved, Prediction(expected.mean + shift, expected.variance), FITTED_ROUNDING)


def test_workloads_order_in_the_pool_does_not_matter(name: str) -> None:
    if name == "boosted_ratios":
        pytest.skip("sums of gradients in another order may turn a split, which moves whole leaves")
    made, support = gappy(), runs(4, 2)
    turned = LEARNERS[name]().fit(made.part(np.arange(made.workloads)[::-1]), seed=1).predict(support)
    same(turned, fitted(name).predict(support), FITTED_ROUNDING)


@pytest.mark.parametrize("y", [-740.0, 709.0])
def test_float64_targets_at_the_ends_of_their_range_overflow_nowhere(name: str, y: float) -> None:
    support = runs(3, 2)
    sound(fitted(name).predict(replace(support, y=np.full_like(support.y, y))), 3)
    support.metrics[:] = 709.0
    sound(fitted(name).predict(support), 3)
    made = gappy()
    made.y[0] += y - 4
    sound(LEARNERS[name]().fit(made).predict(runs(3, 2)), 3)


@pytest.mark.parametrize("shots", [1, 3])
def test_measured_workload_is_predicted_better_than_the_pools_expectation(name: str, shots: int) -> None:
    made = pool(16, 7, seed=1)
    new = pool(17, 7, seed=1).y[16:] + 2.0  # a workload that takes much longer than the pool's
    at = np.array([[0, 3, 6][:shots]])
    fit = LEARNERS[name]().fit(made)
    told = fit.predict(Support(at, new[[0], at], np.empty((1, shots, 0)))).mean
    without = fit.predict(Support(at[:, :0], np.empty((1, 0)), np.empty((1, 0, 0)))).mean
    assert np.abs(told - new).mean() < np.abs(without - new).mean()
