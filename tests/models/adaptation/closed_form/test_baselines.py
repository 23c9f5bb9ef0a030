import numpy as np
import pytest

from feature_store.errors import InputError
from models.adaptation.closed_form.baselines import (
    SMALLEST_VARIANCE,
    BoostedRatios,
    FittedLowRank,
    LowRank,
    SupportMean,
    _pairs,
    additive,
)
from models.adaptation.learner import NONE, Pool, Support
from tests.models.adaptation.synthetic_pools import pool

# Two ways to one posterior: inverses of up to 8 rows with noise 1e-2 to 1 under variances of up to 4.
TOLERANCE = 1e-8


def of(y: np.ndarray) -> Pool:
    y = np.asarray(y, dtype=float)
    made = pool(2, y.shape[1])
    return Pool(made.x, made.distance, y, (~np.isnan(y)).astype(np.int64), np.empty((*y.shape, 0)), float("nan"))


def measured(*cells: tuple[int, float]) -> Support:
    at, y = np.array([[cell[0] for cell in cells]]), np.array([[cell[1] for cell in cells]])
    return Support(at.astype(np.int64), y, np.empty((*at.shape, 0)))


def test_support_mean_is_the_mean_of_the_runs_everywhere() -> None:
    fitted = SupportMean().fit(of([[1.0, 2.0, 3.0], [5.0, 6.0, 7.0]]))
    found = fitted.predict(measured((0, 2.0), (2, 5.0), (NONE, 99.0)))
    np.testing.assert_allclose(found.mean, 3.5)
    # within the pool's workloads the logs have variance 2 / 3; the mean of two runs adds half of it
    np.testing.assert_allclose(found.variance, 2 / 3 * 1.5 + SMALLEST_VARIANCE)


def test_support_mean_without_any_run_is_the_pools_mean_and_variance() -> None:
    y = np.array([[1.0, 2.0, np.nan], [5.0, np.nan, 7.0]])
    found = SupportMean().fit(of(y)).predict(measured())
    np.testing.assert_allclose(found.mean, np.nanmean(y))
    np.testing.assert_allclose(found.variance, np.nanvar(y) + SMALLEST_VARIANCE)


def dense(fitted: FittedLowRank, support: Support) -> tuple[np.ndarray, np.ndarray]:
    """Conditions the joint normal of all configurations, one workload."""
    prior = np.diag([fitted.level_variance] + [1.0] * (len(fitted.rows) - 1))
    covariance, mean = fitted.rows.T @ prior @ fitted.rows, fitted.level + fitted.effect
    at = support.at[0][support.at[0] != NONE]
    y = support.y[0][support.at[0] != NONE]
    gain = covariance[:, at] @ np.linalg.inv(covariance[np.ix_(at, at)] + fitted.noise * np.eye(len(at)))
    return (mean + gain @ (y - mean[at]),
            np.diag(covariance - gain @ covariance[at]) + fitted.noise)


@pytest.mark.parametrize("rank", [0, 1, 3])
@pytest.mark.parametrize("shots", [0, 1, 4])
def test_low_rank_is_the_joint_normal_conditioned_on_the_runs(rank: int, shots: int) -> None:
    rng = np.random.default_rng(rank)
    rows = np.vstack([np.ones(6), rng.normal(size=(rank, 6))])
    fitted = FittedLowRank(rows, rng.normal(size=6), 4.0, 2.0, 0.05)
    at = np.append(rng.integers(0, 6, shots), NONE)  # a configuration may be measured twice
    support = Support(at[None], rng.normal(4, 1, (1, shots + 1)), np.empty((1, shots + 1, 0)))
    mean, variance = dense(fitted, support)
    found = fitted.predict(support)
    np.testing.assert_allclose(found.mean[0], mean, rtol=TOLERANCE)
    np.testing.assert_allclose(found.variance[0], variance, rtol=TOLERANCE)


def test_low_rank_finds_the_patterns_of_a_pool_that_has_two() -> None:
    rng = np.random.default_rng(0)
    patterns = rng.normal(size=(2, 8))
    y = rng.normal(4, 1, (40, 1)) + rng.normal(size=(40, 2)) @ patterns + 1e-3 * rng.normal(size=(40, 8))
    fitted = LowRank(2).fit(of(y))
    new = 6.0 + np.array([1.3, -0.7]) @ patterns
    found = fitted.predict(measured(*((c, new[c]) for c in (0, 2, 4, 6))))
    np.testing.assert_allclose(found.mean[0], new, atol=0.02)  # 4 runs, 3 coefficients, noise of 1e-3
    assert fitted.noise < 1e-5


def test_low_rank_keeps_the_spread_of_a_full_pool() -> None:
    """Level, effects and loadings are those of the mean and the singular values: prior variance is the pool's."""
    y = pool(12, 6).y
    fitted = LowRank(5).fit(of(y))
    rest = y - y.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(fitted.level, y.mean(), rtol=TOLERANCE)
    np.testing.assert_allclose(fitted.effect, rest.mean(axis=0), atol=TOLERANCE)
    np.testing.assert_allclose((fitted.rows[1:] ** 2).sum(axis=0), rest.var(axis=0), rtol=TOLERANCE)


@pytest.mark.parametrize("workloads", [1, 2, 3])
def test_low_rank_takes_no_more_patterns_than_the_pool_has(workloads: int) -> None:
    assert len(LowRank(4).fit(of(pool(workloads, 6).y)).rows) <= workloads


def test_additive_is_a_level_and_effects() -> None:
    effect = np.array([0.0, 1.0, -1.0, 2.0])
    y = np.random.default_rng(0).normal(4, 1, (10, 1)) + effect
    found = additive().fit(of(y)).predict(measured((1, 9.0)))
    np.testing.assert_allclose(found.mean[0], 8.0 + effect, atol=1e-4)  # noise is never below 1e-6


def test_boosted_ratios_average_what_the_bases_predict() -> None:
    made = pool(10, 5, metrics=1)
    fitted = BoostedRatios(iterations=5).fit(made)
    cells = [(0, 4.0), (3, 5.0)]
    each = [Support(np.array([[at]]), np.array([[y]]), np.full((1, 1, 1), 0.3)) for at, y in cells]
    both = Support(np.array([[0, 3]]), np.array([[4.0, 5.0]]), np.full((1, 2, 1), 0.3))
    expected = np.mean([fitted.predict(one).mean for one in each], axis=0)
    np.testing.assert_allclose(fitted.predict(both).mean, expected, rtol=TOLERANCE)


def test_boosted_ratios_learn_a_ratio_that_all_workloads_share() -> None:
    y = np.random.default_rng(0).normal(4, 1, (60, 1)) + np.array([0.0, 1.0, -0.5, 2.0])
    found = BoostedRatios().fit(of(y)).predict(measured((1, 5.0)))
    np.testing.assert_allclose(found.mean[0, [0, 2, 3]], [4.0, 3.5, 6.0], atol=0.1)


@pytest.mark.parametrize("missing", [0.0, 0.5, 0.9])
def test_pairs_are_all_ordered_ones_of_one_workload(missing: float) -> None:
    there = np.random.default_rng(0).random((8, 6)) >= missing
    expected = [(w, a, b) for w in range(8) for a in range(6) for b in range(6)
                if a != b and there[w, a] and there[w, b]]
    assert list(zip(*_pairs(there, 1000, 0), strict=True)) == expected
    some = list(zip(*_pairs(there, 20, 0), strict=True))
    assert len(set(some)) == len(some) == min(20, len(expected)) and set(some) <= set(expected)


def test_pairs_of_a_large_pool_fit_into_memory() -> None:
    """(W, C, C) would have 2e9 elements."""
    row, base, target = _pairs(np.ones((500, 2000), dtype=bool), 1000, 0)
    assert len(row) == 1000 and row.max() < 500 and (base != target).all() and max(base.max(), target.max()) < 2000


def test_boosted_ratios_draw_no_more_pairs_than_told() -> None:
    made = pool(10, 5)
    first, second, every = (BoostedRatios(iterations=5, pairs=pairs).fit(made, seed).predict(measured((0, 4.0)))
                            for pairs, seed in ((60, 0), (60, 1), (10_000, 0)))
    assert not np.allclose(first.mean, second.mean) and not np.allclose(first.mean, every.mean)


def test_boosted_ratios_without_any_run_are_as_uncertain_as_the_pool() -> None:
    made = pool(10, 5)
    found = BoostedRatios(iterations=5).fit(made).predict(measured())
    np.testing.assert_allclose(found.mean, made.y.mean())
    np.testing.assert_allclose(found.variance, made.y.var(), rtol=1e-3)


def test_boosted_ratios_need_a_workload_with_two_runs() -> None:
    with pytest.raises(InputError, match="pool must have a workload that was measured under two configurations"):
        BoostedRatios().fit(of([[1.0, np.nan, np.nan], [np.nan, 2.0, np.nan]]))
