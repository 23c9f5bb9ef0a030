"""The Vertical Pod Autoscaler against numbers of its own tests and a histogram made sample by sample."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.control.contract.setting import checked
from systems.autoscaling.rules.histogram import DecayingHistogram
from systems.autoscaling.rules.vpa import DAY_S, Recommender, VpaCpu, VpaMemory

HOUR = 3600.0


def linear_histogram(half_life=HOUR):
    """Buckets of about 1, as the tests of the VPA's histogram use."""
    return DecayingHistogram(1, 1.0, 10.0, np.array(half_life), ratio=1.0 + 1e-9)


def percentile(histogram, share):
    return float(histogram.percentiles([np.array(share)])[0][0])


def add(histogram, value, weight, seconds):
    histogram.add(np.array([float(value)]), np.array(float(weight)), np.array(float(seconds)))


def test_buckets_grow_by_5_percent():
    histogram = DecayingHistogram(1, 0.01, 32.0, np.array(DAY_S))
    assert histogram.starts[:3] == pytest.approx([0.0, 0.01, 0.0205])
    assert histogram.starts[-2] < 32.0 <= histogram.starts[-1]
    last = len(histogram.starts) - 1
    assert histogram.bucket(np.array([0.0, 0.0099, 0.01, 0.0204, 1e9])).tolist() == [0, 0, 1, 1, last]


@pytest.mark.parametrize(("share", "expected"), [  # kubernetes/autoscaler: histogram_test.go, TestPercentiles
    (0.0, 2), (0.1, 2), (0.2, 3), (0.3, 3), (0.4, 4), (0.5, 4), (0.6, 4), (0.7, 5), (0.8, 5), (0.9, 5), (1.0, 5)])
def test_percentile_is_the_end_of_its_bucket(share, expected):
    histogram = linear_histogram()
    for number in range(1, 5):
        add(histogram, number + 0.5, number, 0.0)
    assert percentile(histogram, share) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("share", "expected"), [  # decaying_histogram_test.go: TestDecayingHistogramPercentiles
    (0.0, 2), (0.02, 2), (0.03, 3), (0.10, 3), (0.11, 4), (0.34, 4), (0.35, 5), (1.0, 5)])
def test_samples_lose_half_their_weight_in_a_half_life(share, expected):
    histogram = linear_histogram()
    for number in range(1, 5):
        add(histogram, number + 0.5, number, (number - 1) * HOUR)
    assert percentile(histogram, share) == pytest.approx(expected, rel=1e-6)


def test_a_heavy_old_sample_fades_and_long_times_stay_finite():
    histogram = linear_histogram()  # decaying_histogram_test.go: TestSimpleDecay, TestLongtermDecay
    add(histogram, 2.5, 1000, 0)
    add(histogram, 1.5, 1, 20 * HOUR)
    assert percentile(histogram, 0.999) == pytest.approx(2, rel=1e-6)
    assert percentile(histogram, 1.0) == pytest.approx(3, rel=1e-6)
    add(histogram, 0.5, 1, 5000 * HOUR)
    assert percentile(histogram, 1.0) == pytest.approx(1, rel=1e-6)
    assert np.isfinite(histogram.weights).all()


def test_an_empty_histogram_has_percentile_0():
    assert percentile(linear_histogram(), 0.9) == 0.0


@given(st.lists(st.tuples(st.floats(0.0, 30.0), st.floats(0.0, 3000.0)), min_size=1, max_size=20), st.floats(0.0, 1.0),
       st.floats(10.0, 5000.0))
def test_percentile_equals_sorted_samples(samples, share, half_life):
    histogram = DecayingHistogram(1, 0.01, 32.0, np.array(half_life))
    time = 0.0
    weighed = []
    for value, pause in samples:
        time += pause
        add(histogram, value, 1.0, time)
        weighed.append((int(histogram.bucket(np.array([value]))[0]), time))
    total = sum(2.0 ** ((when - time) / half_life) for _, when in weighed)
    running, expected = 0.0, weighed[0][0]
    for bucket, when in sorted(weighed):
        running += 2.0 ** ((when - time) / half_life)
        expected = bucket
        if running >= share * total * (1 + 1e-9):
            break
    got = percentile(histogram, share)
    ends = [*histogram.starts[1:], histogram.starts[-1]]
    close = [ends[bucket] for bucket, _ in weighed]
    assert got in close
    if abs(running - share * total) > 1e-6 * total and share > 1e-6:
        below = sum(2.0 ** ((when - time) / half_life) for bucket, when in weighed if bucket < expected)
        if abs(below - share * total) > 1e-6 * total:
            assert got == ends[expected]


def recommender(**settings):
    return Recommender(checked(settings, VpaCpu.declared, "test"), 1, VpaCpu.FIRST, VpaCpu.LARGEST)


def test_confidence_is_the_documented_one():
    made = recommender()  # estimator_test.go: 9 samples, 2 minutes apart: 9 / (60 * 24) = 0.00625
    for number in range(9):
        made.count(np.array([1.0]), 120.0 * number)
    assert made.confidence()[0] == 0.00625
    made = recommender(confidence_interval_s=18 * 60)
    for number in range(9):
        made.count(np.array([1.0]), 120.0 * number)
    assert made.confidence()[0] == 0.5


def test_bounds_follow_the_documented_multipliers():
    # recommender.go: upper * 3 after 12 h of history, * 2 after 24 h; lower * 0.95 after 60 minutes
    for hours, upper_factor in ((12, 3.0), (24, 2.0)):
        made = recommender(margin=0.0)
        for minute in range(60 * hours + 1):
            made.count(np.array([1.0]), 60.0 * minute)
            made.histogram.add(np.array([1.0]), np.array(1.0), np.array(60.0 * minute))
        target, _, upper = made.bounds()
        assert upper[0] / target[0] == pytest.approx(upper_factor)
    made = recommender(margin=0.0)
    for minute in range(61):
        made.count(np.array([1.0]), 60.0 * minute)
        made.histogram.add(np.array([1.0]), np.array(1.0), np.array(60.0 * minute))
    target, lower, _ = made.bounds()
    assert lower[0] / target[0] == pytest.approx(0.95, abs=0.005)


def test_target_is_the_percentile_with_15_percent_more_and_at_least_25_millicores():
    made = recommender()
    made.histogram.add(np.array([1.0]), np.array(1.0), np.array(0.0))
    end = made.histogram.starts[made.histogram.bucket(np.array([1.0]))[0] + 1]
    assert made.bounds()[0][0] == pytest.approx(1.15 * end)
    assert 1.0 < end <= 1.05 * 1.05
    assert recommender().bounds()[0][0] == 0.025


def part(kind, **settings):
    made = kind(checked(settings, kind.declared, "test"))
    made.start(1)
    return made


def memory(limit, used):
    return {"memory_limit_mib": np.array([float(limit)]), "memory_utilization": np.array([used / limit]),
            "memory_used_mib": np.array([float(used)])}


def cpu(limit, used):
    return {"cpu_limit_cores": np.array([float(limit)]), "cpu_used_of_replica_cores": np.array([float(used)])}


def test_memory_keeps_one_peak_a_window():
    made = part(VpaMemory, window_s=600)
    for step, used in enumerate((300, 500, 400, 450)):
        made.target(memory(1000, used), 15.0 * step)
    histogram = made._recommender.histogram
    assert (histogram.weights > 0).sum() == 1
    assert histogram.weights[0, histogram.bucket(np.array([500.0]))[0]] > 0
    made.target(memory(1000, 450), 600.0)  # the next window
    assert (histogram.weights > 0).sum() == 2


@pytest.mark.parametrize(("limit", "needed"), [(1000, 1200), (300, 400)])  # * 1.2, or 100 MiB more
def test_a_kill_raises_the_peak_and_is_answered_at_once(limit, needed):
    made = part(VpaMemory, margin=0.0)
    made.target(memory(limit, 0.5 * limit), 0.0)
    asked = made.target(memory(limit, 1.02 * limit), 60.0)
    assert max(needed, 1.02 * needed) <= asked[0] <= 1.02 * needed * 1.06


def test_inside_the_bounds_an_update_waits_for_age_and_difference():
    settings = {"lifetime_s": 600.0, "half_life_s": 60.0, "margin": 0.0}
    made = part(VpaCpu, **settings)
    readings = cpu(2.0, 1.0)
    asked = [float(made.target(readings, 60.0 * minute)[0]) for minute in range(12)]
    assert np.isnan(asked[:10]).all()  # upper bound still far above: inside
    assert asked[10] == pytest.approx(1.0, abs=0.06)
    assert asked[11] == asked[10]


def test_below_the_lower_bound_an_update_is_made_at_once():
    made = part(VpaCpu)
    readings = cpu(0.2, 0.2)
    asked = [float(made.target(readings, 60.0 * minute)[0]) for minute in range(30)]
    assert np.isnan(asked[0])  # no history: the lower bound is 0
    assert 0.22 < next(value for value in asked if not np.isnan(value)) < 0.26


def test_missing_metrics_count_nowhere():
    made = part(VpaCpu)
    readings = cpu(1.0, np.nan)
    assert all(np.isnan(made.target(readings, 60.0 * minute)[0]) for minute in range(5))
    assert made._recommender.histogram.weights.sum() == 0
