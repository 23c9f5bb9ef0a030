"""The fit of the queueing law finds the parameters that made the data."""

import dataclasses

import numpy as np
import pytest

from systems.autoscaling.twin.recorded_law import (
    LawParameters,
    Points,
    fit,
    predict_p99_ms,
    told_by,
)

FREE = ("cpu_ms", "cv2", "fixed_ms", "contention")
TRUTHS = [
    LawParameters(cpu_ms=1.0, cv2=0.6, fixed_ms=0.4, contention=0.3),
    LawParameters(cpu_ms=0.3, cv2=4.0, fixed_ms=2.0, contention=0.05),
    LawParameters(cpu_ms=6.0, cv2=0.2, fixed_ms=5.0, contention=0.6),
]


def made_points(truth: LawParameters, noise: float = 0.0) -> Points:
    shapes = [(0.25, 1, 1), (0.5, 1, 1), (1.0, 1, 1), (0.3, 1, 2), (0.3, 1, 4), (1.5, 2, 1)]
    loads = (0.15, 0.35, 0.55, 0.7, 0.85, 0.95, 1.2)
    random = np.random.default_rng(3)
    rows = np.array([(quota, workers, instances, load) for quota, workers, instances in shapes for load in loads])
    quota, workers, instances, load = (np.ascontiguousarray(column) for column in rows.T)
    rate = load * instances * np.minimum(quota, workers) * 1000.0 / truth.cpu_ms
    points = Points(rate, quota, workers, instances, load, np.full(len(load), truth.cpu_ms), np.ones(len(load)),
                    begin_s=2.0, seconds=6.0, timeout_s=2.0)
    scatter = np.exp(noise * random.standard_normal(len(load)))
    return dataclasses.replace(points, p99_ms=predict_p99_ms(truth, points) * scatter)


def log_errors(parameters: LawParameters, points: Points) -> np.ndarray:
    """|ln(predicted / measured)| of the 99th percentile, a point."""
    return np.abs(np.log(predict_p99_ms(parameters, points) / points.p99_ms))


@pytest.mark.parametrize("truth", TRUTHS)
def test_parameters_are_recovered(truth: LawParameters) -> None:
    found = fit(made_points(truth), FREE)
    assert found.cpu_ms == pytest.approx(truth.cpu_ms, rel=0.01)
    assert found.cv2 == pytest.approx(truth.cv2, rel=0.05)
    assert found.fixed_ms == pytest.approx(truth.fixed_ms, rel=0.1, abs=0.05 * truth.cpu_ms)
    assert found.contention == pytest.approx(truth.contention, abs=0.05)


def test_noise_of_the_percentiles_is_what_is_left() -> None:
    truth = TRUTHS[0]
    points = made_points(truth, noise=0.1)
    found = fit(points, FREE)
    assert found.cv2 == pytest.approx(truth.cv2, rel=0.4)
    # the median of |N(0, 0.1)| is 0.067
    assert 0.03 < np.median(log_errors(found, points)) < 0.11


def test_a_burst_is_recovered_and_explains_what_the_plain_law_cannot() -> None:
    truth = dataclasses.replace(TRUTHS[0], burst_periods=0.4)
    points = made_points(truth)
    found = fit(points, (*FREE, "burst_periods"))
    assert found.burst_periods == pytest.approx(0.4, abs=0.05)
    plain = fit(points, FREE)
    assert np.median(log_errors(found, points)) < 0.05 < np.median(log_errors(plain, points))


def test_what_the_points_cannot_tell_stays_as_it_was() -> None:
    points = made_points(TRUTHS[0])
    single = points.take(np.flatnonzero(points.quota <= 1.0))
    assert told_by(points, FREE) == FREE and told_by(single, FREE) == ("cpu_ms", "cv2", "fixed_ms")
    assert fit(single, FREE).contention == 0.0
    whole = points.take(np.flatnonzero(points.quota == 1.0))
    assert told_by(whole, ("cv2", "burst_periods")) == ("cv2",)


def test_only_what_is_free_is_fitted() -> None:
    start = LawParameters(cpu_ms=2.0, cv2=0.9, fixed_ms=0.1, contention=0.2)
    found = fit(made_points(TRUTHS[0]), ("cpu_ms",), start)
    assert dataclasses.replace(found, cpu_ms=2.0) == start and found.cpu_ms != 2.0


def test_more_load_never_means_less_latency_and_the_time_out_is_the_most() -> None:
    points = made_points(TRUTHS[0])
    for shape in {tuple(row) for row in np.stack([points.quota, points.workers, points.instances], axis=1)}:
        same = np.flatnonzero((np.stack([points.quota, points.workers, points.instances], axis=1) == shape).all(axis=1))
        p99 = points.p99_ms[same][np.argsort(points.load[same])]
        assert (np.diff(p99) > -1e-9).all() and p99.max() <= 2000.0
