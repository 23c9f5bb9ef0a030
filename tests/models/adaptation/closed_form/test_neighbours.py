import numpy as np
import pytest

from models.adaptation.closed_form.hierarchical import Hierarchical
from models.adaptation.closed_form.neighbours import FLOOR, FittedNeighbours, Neighbours, filled
from models.adaptation.learner import NONE, Pool, Support, supports
from tests.models.adaptation.synthetic_pools import pool

# Sums of some ten float64 terms of size 1, in another order; squares of logs cancel down to variances.
TOLERANCE = 1e-9


def bare(curves: np.ndarray, metrics: np.ndarray | None = None, settings: Neighbours | None = None,
         effects: np.ndarray | None = None, scales: np.ndarray | None = None) -> FittedNeighbours:
    """Neighbours of curves without gaps."""
    metrics = np.empty((len(curves), 0)) if metrics is None else metrics
    p = metrics.shape[1]
    return FittedNeighbours(settings or Neighbours(), curves, metrics,
                            np.zeros((curves.shape[1], p)) if effects is None else effects,
                            np.ones(p) if scales is None else scales, 0.01)


def loop_weights(fitted: FittedNeighbours, support: Support) -> np.ndarray:
    """The module docstring's formula, one number after the other."""
    found = []
    for e in range(len(support.at)):
        shots = [s for s in range(support.at.shape[1]) if support.at[e, s] != NONE]
        squared = []
        for w, curve in enumerate(fitted.curves):
            if not shots:
                squared.append(0.0)
                continue
            gaps = [curve[support.at[e, s]] - support.y[e, s] for s in shots]
            level = sum(gaps) / len(gaps)
            total = sum((gap - level) ** 2 for gap in gaps) / fitted.settings.ratio**2
            total += (level / fitted.settings.level) ** 2
            each = []
            for j in range(fitted.metrics.shape[1]):
                rest = [support.metrics[e, s, j] - fitted.effects[support.at[e, s], j] for s in shots]
                rest = [value for value in rest if not np.isnan(value)]
                if rest and not np.isnan(fitted.metrics[w, j]):
                    each.append((sum(rest) / len(rest) / fitted.scales[j] - fitted.metrics[w, j]) ** 2)
            if each:
                total += sum(each) / len(each) * np.sqrt(len(each)) / fitted.settings.metric**2
            squared.append(total)
        raw = [np.exp(-(value - min(squared)) / 2) + FLOOR for value in squared]
        found.append([value / sum(raw) for value in raw])
    return np.array(found)


def mixed_support(episodes: int, shots: int, configurations: int, p: int, seed: int = 0) -> Support:
    """Padding and missing metrics here and there; the last has no run."""
    rng = np.random.default_rng(seed)
    at = np.array([rng.permutation(configurations)[:shots] for _ in range(episodes)])
    at[rng.random(at.shape) < 0.3] = NONE
    at[-1] = NONE
    y, metrics = rng.normal(4, 0.5, at.shape), rng.normal(-0.6, 0.5, (*at.shape, p))
    metrics[rng.random(metrics.shape) < 0.3] = np.nan
    y[at == NONE], metrics[at == NONE] = np.nan, np.nan
    return Support(at, y, metrics)


@pytest.mark.parametrize("p", [0, 1, 3])
@pytest.mark.parametrize("seed", range(3))
def test_weights_are_those_of_a_loop_over_workloads(p: int, seed: int) -> None:
    made = pool(8, 6, seed, missing=0.2, metrics=p)
    made.metrics[1] = np.nan
    fitted = Neighbours(0.3, 0.7, 1.4).fit(made)
    support = mixed_support(6, 4, 6, p, seed)
    np.testing.assert_allclose(fitted.weights(support), loop_weights(fitted, support), rtol=TOLERANCE, atol=0)


@pytest.mark.parametrize("p", [0, 2])
def test_prediction_is_the_weighted_mean_and_variance_of_curves_moved_to_the_support(p: int) -> None:
    fitted = Neighbours().fit(pool(8, 6, 1, missing=0.2, metrics=p))
    support = mixed_support(6, 3, 6, p)
    found, weights = fitted.predict(support), fitted.weights(support)
    for e in range(6):
        at = support.at[e][support.at[e] != NONE]
        level = support.y[e][support.at[e] != NONE].mean() if len(at) else 0.0
        moved = np.stack([level + curve - (curve[at].mean() if len(at) else 0.0) for curve in fitted.curves])
        mean = weights[e] @ moved
        np.testing.assert_allclose(found.mean[e], mean, rtol=TOLERANCE)
        np.testing.assert_allclose(found.variance[e], weights[e] @ (moved - mean) ** 2 + fitted.noise, rtol=TOLERANCE)


def test_curve_of_the_same_shape_counts_most_whatever_the_others_are() -> None:
    fitted = bare(np.array([[4.0, 3.0, 2.0], [4.0, 4.0, 4.0], [4.0, 5.0, 6.0]]))
    weights = fitted.weights(Support(np.array([[0, 2]]), np.array([[4.0, 6.0]]), np.empty((1, 2, 0))))[0]
    assert weights.argmax() == 2 and weights[2] > 0.95


def test_one_run_tells_of_levels_alone() -> None:
    fitted = bare(np.array([[4.0, 3.0], [4.0, 9.0], [6.0, 3.0]]))
    weights = fitted.weights(Support(np.array([[0]]), np.array([[4.0]]), np.empty((1, 1, 0))))[0]
    assert weights[0] == weights[1] > weights[2]


def test_metrics_tell_curves_of_one_level_apart() -> None:
    fitted = bare(np.array([[4.0, 3.0], [4.0, 5.0]]), np.array([[-2.0], [2.0]]))
    support = Support(np.array([[0]]), np.array([[4.0]]), np.array([[[2.0]]]))
    assert fitted.weights(support)[0, 1] > 0.99
    assert abs(fitted.predict(support).mean[0, 1] - 5.0) < 0.01


def test_workload_whose_metrics_are_not_known_keeps_a_weight_by_its_runs() -> None:
    fitted = bare(np.array([[4.0, 3.0], [4.0, 5.0]]), np.array([[0.0], [np.nan]]))
    weights = fitted.weights(Support(np.array([[0]]), np.array([[4.0]]), np.array([[[0.0]]])))
    np.testing.assert_allclose(weights, 0.5, rtol=TOLERANCE)


def test_far_from_all_of_the_pool_no_workload_is_without_a_share() -> None:
    rng = np.random.default_rng(0)
    fitted = bare(rng.normal(4, 1, (20, 5)))
    weights = fitted.weights(Support(np.array([[0, 1]]), np.array([[200.0, -300.0]]), np.empty((1, 2, 0))))[0]
    assert weights.min() >= FLOOR / (1 + 21 * FLOOR) / 20
    np.testing.assert_allclose(weights.sum(), 1.0, rtol=TOLERANCE)


def test_without_any_run_all_workloads_count_alike() -> None:
    fitted = Neighbours().fit(pool(7, 5, metrics=2))
    support = Support(np.empty((2, 0), dtype=np.int64), np.empty((2, 0)), np.empty((2, 0, 2)))
    np.testing.assert_allclose(fitted.weights(support), 1 / 7, rtol=TOLERANCE)


def test_narrower_bandwidth_makes_the_nearest_count_more() -> None:
    curves = np.random.default_rng(0).normal(4, 0.3, (10, 5))
    support = Support(np.array([[0, 1, 2]]), curves[[3], :3], np.empty((1, 3, 0)))
    shares = [bare(curves, settings=Neighbours(ratio=ratio)).weights(support)[0, 3] for ratio in (0.05, 0.2, 1.0)]
    assert shares[0] > shares[1] > shares[2]


def test_gaps_of_the_pool_alone_are_filled_in() -> None:
    made = pool(9, 7, 2, missing=0.3)
    model = Hierarchical().fit(made)
    curves = filled(made, model)
    there = ~np.isnan(made.y)
    assert (curves[there] == made.y[there]).all()
    every = np.tile(np.arange(7), (9, 1))
    expected = model.predict(supports(made, np.arange(9), every)).mean
    np.testing.assert_allclose(curves[~there], expected[~there], rtol=1e-7)  # the posterior by another closed form
    truth = pool(9, 7, 2).y  # before cells were taken away: the same draws
    assert np.abs(curves - truth)[~there].mean() < 0.2


def test_metric_effects_of_configurations_do_not_count_as_workloads_metrics() -> None:
    """All workloads' metrics are the same but for an effect of the configuration: nobody is nearer by them."""
    made = pool(6, 5, 0, metrics=1)
    made = Pool(made.x, made.distance, made.y, made.runs, np.tile(np.arange(5.0)[None, :, None], (6, 1, 1)), made.noise)
    fitted = Neighbours().fit(made)
    without = Neighbours().fit(Pool(made.x, made.distance, made.y, made.runs, np.empty((6, 5, 0)), made.noise))
    support = Support(np.array([[4]]), np.array([[4.0]]), np.array([[[4.0]]]))
    plain = Support(support.at, support.y, np.empty((1, 1, 0)))
    np.testing.assert_allclose(fitted.weights(support), without.weights(plain), rtol=0.1)
