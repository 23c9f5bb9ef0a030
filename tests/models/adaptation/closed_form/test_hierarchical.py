import tracemalloc
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feature_store.errors import InputError
from models.adaptation.closed_form import hierarchical
from models.adaptation.closed_form.hierarchical import (
    VARIANCE_KEPT,
    FittedHierarchical,
    Hierarchical,
    kernel,
    kernel_features,
)
from models.adaptation.learner import NONE, Pool, Support, supports

# Two ways to one posterior: sums and solves of some 20 float64 values of size 1, conditions below 1e6.
TOLERANCE = 1e-8
NORMAL_90 = 1.6448536269514722


def distances(x):
    squared = (x.T[:, :, None] - x.T[:, None]) ** 2
    return squared / squared.mean(axis=(1, 2), keepdims=True)


def pool_of(y, x, metrics=None, noise=float("nan")):
    y = np.asarray(y, dtype=float)
    metrics = np.empty((*y.shape, 0)) if metrics is None else metrics
    return Pool(x, distances(x), y, (~np.isnan(y)).astype(np.int64), metrics, noise)


def made_pool(workloads=12, configurations=9, p=2, seed=0, missing=0.3):
    """A level, two linear effects and metrics that tell about them; every workload keeps its first run."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(configurations, 2))
    effects = rng.normal(scale=0.5, size=(workloads, 2))
    y = rng.normal(3, 1, size=(workloads, 1)) + effects @ x.T + rng.normal(scale=0.1, size=(workloads, configurations))
    signal = effects[:, :1, None] + 0.1 * rng.normal(size=(workloads, configurations, p))
    gone = rng.random(y.shape) < missing
    gone[:, 0] = False
    return pool_of(np.where(gone, np.nan, y), x, np.where(gone[..., None], np.nan, signal))


def some_support(pool, seed=1, episodes=5, k=3):
    """Runs of the pool's workloads, some not there and some metrics missing."""
    rng = np.random.default_rng(seed)
    support = supports(pool, rng.integers(0, pool.workloads, episodes),
                       rng.integers(-1, pool.y.shape[1], (episodes, k)))
    return replace(support, metrics=np.where(rng.random(support.metrics.shape) < 0.3, np.nan, support.metrics))


@cache
def fitted():
    """The model of the default pool, fitted once for all of Hypothesis' examples."""
    return Hierarchical().fit(made_pool())


def conditional(model, support, episode):
    """Mean and covariance of the coefficients given the episode's observations: the conditional of the joint normal."""
    rows, values, noise = [], [], []
    for at, y, metrics in zip(support.at[episode], support.y[episode], support.metrics[episode], strict=True):
        if at == NONE:
            continue
        observed = [(model.target[at], y)] + [(model.metrics[j, at], metrics[j]) for j in range(len(model.metrics))]
        for block, (row, value) in enumerate(observed):
            if not np.isnan(value):
                rows.append(row)
                values.append(value)
                noise.append(model.noise[block])
    if not rows:
        return model.mean, model.covariance
    a = np.array(rows)
    joint = np.linalg.inv(a @ model.covariance @ a.T + np.diag(noise))
    gain = model.covariance @ a.T @ joint
    return model.mean + gain @ (np.array(values) - a @ model.mean), model.covariance - gain @ a @ model.covariance


@pytest.mark.parametrize("metrics", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_the_posterior_is_the_conditional_of_the_joint_normal(seed, metrics):
    pool = made_pool(seed=seed)
    model = Hierarchical(metrics=metrics).fit(pool)
    support = some_support(pool, seed)
    mean, covariance = model.coefficients(support)
    prediction = model.predict(support)
    for episode in range(len(support.at)):
        expected, spread = conditional(model, support, episode)
        np.testing.assert_allclose(mean[episode], expected, atol=TOLERANCE)
        np.testing.assert_allclose(covariance[episode], spread, atol=TOLERANCE)
        np.testing.assert_allclose(prediction.mean[episode], model.target @ expected, atol=TOLERANCE)
        np.testing.assert_allclose(prediction.variance[episode],
                                   np.diag(model.target @ spread @ model.target.T) + model.noise[0], atol=TOLERANCE)


def test_the_posterior_of_the_fit_is_that_of_the_prediction():
    """The expectation step inverts precisions, the prediction covariances: the same posterior."""
    pool = made_pool()
    model = Hierarchical().fit(pool)
    blocks = [(model.target, pool.y)] + [(rows, pool.metrics[..., j]) for j, rows in enumerate(model.metrics)]
    means, total, residual, counts = hierarchical._expect(blocks, model.mean, model.covariance, model.noise)
    everything = np.broadcast_to(np.arange(pool.y.shape[1]), pool.y.shape)
    mean, covariance = model.coefficients(supports(pool, np.arange(pool.workloads), everything))
    np.testing.assert_allclose(means, mean, atol=TOLERANCE)
    np.testing.assert_allclose(total, covariance.sum(axis=0), atol=TOLERANCE)
    for b, (rows, values) in enumerate(blocks):
        there = ~np.isnan(values)
        doubt = np.einsum("cr,wrs,cs->wc", rows, covariance, rows)
        assert counts[b] == there.sum()
        assert residual[b] == pytest.approx((((values - mean @ rows.T) ** 2 + doubt)[there]).sum(), rel=TOLERANCE)


def test_chunks_of_the_expectation_step_do_not_matter(monkeypatch):
    pool = made_pool()
    whole = Hierarchical().fit(pool)
    monkeypatch.setattr(hierarchical, "CHUNK_ELEMENTS", 5 * len(whole.mean) ** 2)
    np.testing.assert_allclose(Hierarchical().fit(pool).covariance, whole.covariance, atol=TOLERANCE)


@pytest.mark.parametrize("garbage", [0.0, 1e300, -np.inf, np.nan])
def test_values_in_the_padding_of_a_support_do_not_matter(garbage):
    pool = made_pool()
    model = Hierarchical().fit(pool)
    support = some_support(pool)
    assert not support.is_run.all()
    spoilt = Support(support.at, np.where(support.is_run, support.y, garbage),
                     np.where(support.is_run[..., None], support.metrics, garbage))
    np.testing.assert_array_equal(model.predict(spoilt).mean, model.predict(support).mean)
    np.testing.assert_array_equal(model.predict(spoilt).variance, model.predict(support).variance)


def test_more_padding_changes_nothing_but_rounding():
    pool = made_pool()
    model = Hierarchical().fit(pool)
    support = some_support(pool)
    longer = Support(*(np.concatenate([part, np.full((len(part), 4, *part.shape[2:]), fill, dtype=part.dtype)], axis=1)
                       for part, fill in ((support.at, NONE), (support.y, 7.0), (support.metrics, 7.0))))
    np.testing.assert_allclose(model.predict(longer).mean, model.predict(support).mean, rtol=0, atol=1e-12)
    np.testing.assert_allclose(model.predict(longer).variance, model.predict(support).variance, rtol=0, atol=1e-12)


@settings(max_examples=20, deadline=None)
@given(st.permutations(range(4)), st.integers(0, 100))
def test_the_order_of_a_support_does_not_matter(order, seed):
    pool = made_pool()
    model = fitted()
    support = some_support(pool, seed, k=4)
    turned = Support(support.at[:, order], support.y[:, order], support.metrics[:, order])
    np.testing.assert_allclose(model.predict(turned).mean, model.predict(support).mean, atol=TOLERANCE)
    np.testing.assert_allclose(model.predict(turned).variance, model.predict(support).variance, atol=TOLERANCE)


@pytest.mark.parametrize("k", [0, 1, 3])
def test_without_any_run_the_prediction_is_the_pools(k):
    model = fitted()
    nothing = Support(np.full((2, k), NONE), np.zeros((2, k)), np.zeros((2, k, 2)))
    prediction = model.predict(nothing)
    expected = np.diag(model.target @ model.covariance @ model.target.T) + model.noise[0]
    for episode in range(2):
        np.testing.assert_allclose(prediction.mean[episode], model.target @ model.mean, atol=1e-12)
        np.testing.assert_allclose(prediction.variance[episode], expected, atol=1e-12)


def test_each_run_makes_the_prediction_surer_and_never_surer_than_the_noise():
    pool, model = made_pool(missing=0.0), fitted()
    at = np.array([[0, 3, 5, 7, 1, 3]])
    last = np.full((1, 9), np.inf)
    for k in range(7):
        variance = model.predict(supports(pool, np.array([2]), at[:, :k])).variance
        assert (variance <= last + 1e-12).all()
        assert (variance >= model.noise[0]).all()
        last = variance


def test_many_runs_of_a_configuration_give_their_mean():
    model = fitted()
    support = Support(np.full((1, 400), 4), np.full((1, 400), 9.0), np.full((1, 400, 2), np.nan))
    prediction = model.predict(support)
    assert prediction.mean[0, 4] == pytest.approx(9.0, abs=0.02)
    assert prediction.variance[0, 4] == pytest.approx(model.noise[0], rel=0.02)


def test_embeddings_have_the_shapes_of_the_contract():
    model = fitted()
    mean, covariance = model.coefficients(some_support(made_pool()))
    assert mean.shape == (5, len(model.mean))
    assert covariance.shape == (5, len(model.mean), len(model.mean))
    assert np.linalg.eigvalsh(covariance).min() > -TOLERANCE


# the kernel

@pytest.mark.parametrize("additive", [0.0, 0.5, 1.0])
def test_features_give_the_kernel_back(additive):
    pool = made_pool(configurations=30)
    exact = kernel(pool.distance, 1.0, additive)
    features = kernel_features(pool, 1.0, additive)
    assert (features[:, 0] == 1).all()
    # all of a symmetric matrix's error is in the eigenvalues that were left out
    assert np.abs(features[:, 1:] @ features[:, 1:].T - exact).max() <= (1 - VARIANCE_KEPT) * np.trace(exact)
    np.testing.assert_allclose(np.diag(exact), 1.0)


def test_features_of_one_configuration_and_of_equal_ones_are_finite():
    for configurations in (1, 4):
        x = np.zeros((configurations, 2))
        pool = Pool(x, np.zeros((2, configurations, configurations)), np.ones((3, configurations)),
                    np.ones((3, configurations), dtype=np.int64), np.empty((3, configurations, 0)), float("nan"))
        assert kernel_features(pool, 1.0, 0.5).shape == (configurations, 2)
        assert np.isfinite(Hierarchical().fit(pool).predict(some_support(pool)).variance).all()


# the fit

def penalised(model, pool, start, strength):
    """Log marginal likelihood of the pool and log priors of mean and covariance, but for constants."""
    blocks = [(model.target, pool.y)] + [(rows, pool.metrics[..., j]) for j, rows in enumerate(model.metrics)]
    total = 0.0
    for w in range(pool.workloads):
        there = [~np.isnan(values[w]) for _, values in blocks]
        rows = np.concatenate([rows[seen] for (rows, _), seen in zip(blocks, there, strict=True)])
        noise = np.concatenate([np.full(seen.sum(), s) for seen, s in zip(there, model.noise, strict=True)])
        rest = np.concatenate([values[w][seen] for (_, values), seen in zip(blocks, there, strict=True)])
        rest = rest - rows @ model.mean
        spread = rows @ model.covariance @ rows.T + np.diag(noise)
        total -= 0.5 * (np.linalg.slogdet(spread)[1] + rest @ np.linalg.solve(spread, rest))
    precision, shift = np.linalg.inv(model.covariance), model.mean - start.mean
    total -= 0.5 * strength * (np.linalg.slogdet(model.covariance)[1] + np.trace(precision @ start.covariance))
    return total - 0.5 * shift @ precision @ shift


@pytest.mark.parametrize(("p", "strength"), [(0, 10.0), (2, 10.0), (2, 1.0)])
def test_the_penalised_likelihood_does_not_fall_over_the_iterations(monkeypatch, p, strength):
    """With the priors, for that is what the steps maximise.

    The step of the covariance leaves the prior of the mean out, so the sum may fall by what the mean's prior changes;
    that is tiny here: a fall of a thousandth of a unit of log likelihood is allowed.
    """
    pool, values = made_pool(p=p, workloads=15), []
    monkeypatch.setattr(hierarchical, "ITERATIONS", 0)
    start = Hierarchical(strength=strength).fit(pool)
    for iterations in range(26):
        monkeypatch.setattr(hierarchical, "ITERATIONS", iterations)
        values.append(penalised(Hierarchical(strength=strength).fit(pool), pool, start, strength))
    steps = np.diff(values)
    assert (steps > -1e-3).all()
    assert steps[0] > 1.0
    assert steps[-1] < 0.1 * steps[0]


def truth(configurations=15, seed=3):
    """A model to draw workloads from: smooth effects that differ among workloads, noise of a tenth."""
    x = np.random.default_rng(seed).normal(size=(configurations, 2))
    empty = pool_of(np.zeros((1, configurations)), x)
    phi = kernel_features(empty, 1.0, 0.5)
    size = phi.shape[1]
    mean = np.zeros(size)
    mean[:3] = (4.0, 0.5, -0.5)
    covariance = np.diag([1.0, *[0.25] * (size - 1)])
    return x, FittedHierarchical(phi, np.empty((0, *phi.shape)), mean, covariance, np.array([0.01]))


def draw(model, workloads, rng):
    """One run of each configuration."""
    beta = rng.multivariate_normal(model.mean, model.covariance, size=workloads)
    clean = beta @ model.target.T
    return clean + np.sqrt(model.noise[0]) * rng.normal(size=clean.shape)


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("estimated", [False, True])
def test_intervals_of_90_percent_hold_90_percent_of_further_runs(k, estimated):
    """Of 300 workloads drawn from the model, k runs given, the others hidden.

    Coverage within a workload is correlated: its standard deviation over workloads is below 0.2, so that of the mean
    is below 0.2 / sqrt(300) = 0.012; four of them are allowed. Where the model was estimated from a pool of 80
    workloads, twice as much: its variances are known to sqrt(2 / 80) = 16 %, which moves a coverage of 0.9 by 0.03.
    """
    x, model = truth()
    rng = np.random.default_rng(7)
    known = Hierarchical().fit(pool_of(draw(model, 80, rng), x)) if estimated else model
    new = pool_of(draw(model, 300, rng), x)
    at = np.argsort(rng.random(new.y.shape), axis=1)[:, :k]
    prediction = known.predict(supports(new, np.arange(300), at))
    hidden = np.ones(new.y.shape, dtype=bool)
    np.put_along_axis(hidden, at, False, axis=1)
    inside = np.abs(new.y - prediction.mean) <= NORMAL_90 * np.sqrt(prediction.variance)
    assert abs(inside[hidden].mean() - 0.9) < (0.096 if estimated else 0.048)


def test_level_and_spread_of_simulated_data_are_found_again():
    """A variance of 300 workloads is known to sqrt(2 / 300) = 8 %; four of them. Noise and spread together, for with
    as many features as configurations only their sum is in the data."""
    x, model = truth()
    found = Hierarchical().fit(pool_of(draw(model, 300, np.random.default_rng(5)), x))
    spread = np.diag(model.target @ model.covariance @ model.target.T) + model.noise[0]
    estimated = np.diag(found.target @ found.covariance @ found.target.T) + found.noise[0]
    np.testing.assert_allclose(estimated, spread, rtol=0.33)
    np.testing.assert_allclose(found.target @ found.mean, model.target @ model.mean,
                               atol=4 * np.sqrt(spread.max() / 300))


def test_the_noise_of_simulated_data_is_found_where_features_are_few():
    """100 workloads leave more than 1,000 degrees of freedom: sqrt(2 / 1000) = 4.5 %; two of them, for 25 iterations
    come close."""
    x = np.random.default_rng(3).normal(size=(40, 2))
    phi = kernel_features(pool_of(np.zeros((1, 40)), x), 3.0, 0.5)
    assert phi.shape[1] < 28
    model = FittedHierarchical(phi, np.empty((0, *phi.shape)), np.zeros(phi.shape[1]), np.eye(phi.shape[1]) * 0.5,
                               np.array([0.01]))
    found = Hierarchical(lengthscale=3.0).fit(pool_of(draw(model, 100, np.random.default_rng(5)), x))
    assert found.noise[0] == pytest.approx(0.01, rel=0.09)


def test_a_run_reduces_the_error_on_simulated_data():
    x, model = truth()
    rng = np.random.default_rng(2)
    known, new = Hierarchical().fit(pool_of(draw(model, 60, rng), x)), pool_of(draw(model, 100, rng), x)
    errors = [np.mean((known.predict(supports(new, np.arange(100), np.tile(np.arange(k), (100, 1)))).mean - new.y) ** 2)
              for k in (0, 1, 3, 6)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.3 * errors[0]


def informative(workloads, rng, x):
    """A metric that tells a workload's slope, which one run's target cannot."""
    slope = rng.normal(size=(workloads, 1))
    y = rng.normal(size=(workloads, 1)) + slope * x[:, 0] + 0.1 * rng.normal(size=(workloads, len(x)))
    return pool_of(y, x, (slope + 0.1 * rng.normal(size=y.shape))[..., None])


def test_metrics_that_carry_information_reduce_the_error():
    rng = np.random.default_rng(4)
    x = rng.normal(size=(10, 1))
    pool, new = informative(60, rng, x), informative(100, rng, x)
    support = supports(new, np.arange(100), np.zeros((100, 1), dtype=np.int64))
    errors = {used: np.mean((Hierarchical(metrics=used).fit(pool).predict(support).mean - new.y) ** 2)
              for used in (True, False)}
    assert errors[True] < 0.4 * errors[False]


def test_metrics_of_noise_alone_do_little_harm():
    rng = np.random.default_rng(4)
    x, model = truth()

    def noisy(workloads):
        return pool_of(draw(model, workloads, rng), x, rng.normal(size=(workloads, len(x), 2)))

    pool, new = noisy(60), noisy(100)
    support = supports(new, np.arange(100), np.tile([0, 7], (100, 1)))
    errors = {used: np.mean((Hierarchical(metrics=used).fit(pool).predict(support).mean - new.y) ** 2)
              for used in (True, False)}
    assert errors[True] < 1.15 * errors[False]


def test_a_metric_that_no_run_of_the_pool_has_changes_nothing():
    pool = made_pool(p=1)
    blind = replace(pool, metrics=np.concatenate([pool.metrics, np.full((*pool.y.shape, 1), np.nan)], axis=-1))
    support = some_support(pool)
    expected = Hierarchical().fit(pool).predict(support)
    for there in (np.nan, 5.0):
        more = replace(support, metrics=np.concatenate([support.metrics, np.full((5, 3, 1), there)], axis=-1))
        found = Hierarchical().fit(blind).predict(more)
        np.testing.assert_allclose(found.mean, expected.mean, atol=TOLERANCE)
        np.testing.assert_allclose(found.variance, expected.variance, atol=TOLERANCE)


# odd pools

@pytest.mark.parametrize("y", [
    [[1.0, 2.0, 3.0]],                                # one workload
    [[1.0, np.nan, np.nan]],                          # one run
    [[1.0, 2.0, 3.0]] * 4,                            # identical workloads
    [[2.0] * 3] * 4,                                  # constant targets
    [[0.0] * 3] * 4,
    [[1.0, 2.0, 3.0], [np.nan] * 3],                  # a workload without runs
    [[1.0, np.nan, np.nan], [np.nan, 2.0, np.nan]],   # no configuration twice
    [[1.0, 2.0, np.nan], [2.0, 3.0, np.nan]],         # a configuration that nobody measured
    [[-700.0, 700.0, 0.0], [700.0, -700.0, 0.0]],     # the logarithms of the largest and smallest floats
    [[1e-300, 0.0, 0.0], [0.0, 0.0, 0.0]],
])
@pytest.mark.parametrize("p", [0, 2])
def test_odd_pools_give_finite_predictions(y, p):
    y = np.array(y)
    metrics = np.where(np.isnan(y)[..., None], np.nan, np.ones((*y.shape, p)))
    pool = pool_of(y, np.array([[0.0], [1.0], [2.0]]), metrics)
    model = Hierarchical().fit(pool)
    prediction = model.predict(some_support(pool, episodes=4, k=5))
    assert np.isfinite(prediction.mean).all()
    assert (prediction.variance > 0).all()
    assert np.isfinite(prediction.variance).all()


def test_a_pool_of_one_workload_predicts_that_workload():
    pool = made_pool(workloads=1, missing=0.0)
    nothing = Support(np.full((1, 1), NONE), np.zeros((1, 1)), np.zeros((1, 1, 2)))
    np.testing.assert_allclose(Hierarchical().fit(pool).predict(nothing).mean[0], pool.y[0], atol=0.4)


def test_constant_targets_are_predicted_with_little_doubt():
    pool = pool_of(np.full((5, 4), 2.0), np.arange(4.0)[:, None])
    prediction = Hierarchical().fit(pool).predict(supports(pool, np.array([0]), np.array([[1]])))
    np.testing.assert_allclose(prediction.mean, 2.0, atol=1e-3)
    assert (prediction.variance < 1e-3).all()


def test_a_run_measured_twice_with_the_same_result_counts_as_two():
    model = fitted()
    once = Support(np.array([[2]]), np.array([[5.0]]), np.full((1, 1, 2), np.nan))
    twice = Support(np.array([[2, 2]]), np.array([[5.0, 5.0]]), np.full((1, 2, 2), np.nan))
    for support in (once, twice):
        expected, _ = conditional(model, support, 0)
        np.testing.assert_allclose(model.coefficients(support)[0][0], expected, atol=TOLERANCE)
    assert (model.predict(twice).variance < model.predict(once).variance).any()


def test_targets_and_supports_of_extreme_size_do_not_overflow():
    model = fitted()
    support = Support(np.array([[0, 1]]), np.array([[1e100, -1e100]]), np.full((1, 2, 2), 1e100))
    prediction = model.predict(support)
    assert np.isfinite(prediction.mean).all()
    assert np.isfinite(prediction.variance).all()


def test_a_pool_without_runs_is_an_error():
    with pytest.raises(InputError, match="pool must have at least one measured run, got none"):
        Hierarchical().fit(pool_of(np.full((2, 3), np.nan), np.arange(3.0)[:, None]))


def test_the_seed_does_not_matter():
    pool = made_pool()
    np.testing.assert_array_equal(Hierarchical().fit(pool, 1).covariance, Hierarchical().fit(pool, 2).covariance)


def test_a_level_added_to_all_targets_is_added_to_all_predictions():
    pool = made_pool()
    shifted, support = replace(pool, y=pool.y + 5.0), some_support(pool)
    first = Hierarchical().fit(pool).predict(support)
    second = Hierarchical().fit(shifted).predict(replace(support, y=support.y + 5.0))
    np.testing.assert_allclose(second.mean, first.mean + 5.0, atol=1e-6)
    np.testing.assert_allclose(second.variance, first.variance, rtol=1e-6)


def test_a_thousand_workloads_fit_within_a_gigabyte(monkeypatch):
    """Memory does not depend on the number of iterations: two, for the time."""
    monkeypatch.setattr(hierarchical, "ITERATIONS", 2)
    pool = made_pool(workloads=1000, configurations=80, p=3)
    tracemalloc.start()
    try:
        Hierarchical().fit(pool)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2**30


def test_a_support_where_nothing_was_measured_is_none():
    pool = pool_of([[1.0, np.nan, 3.0]], np.arange(3.0)[:, None], np.array([[[4.0], [np.nan], [np.nan]]]))
    support = supports(pool, np.array([0]), np.array([[0, 1, 2, NONE]]))
    assert support.at.tolist() == [[0, NONE, 2, NONE]]
    assert support.is_run.tolist() == [[True, False, True, False]]
    assert support.y[0, [0, 2]].tolist() == [1.0, 3.0]
    np.testing.assert_array_equal(support.metrics[0, [0, 2], 0], [4.0, np.nan])
