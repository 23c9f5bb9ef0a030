"""Against the worked examples of the Kubernetes documentation and one replica after the other."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from systems.autoscaling.rules.replica_proposals import from_total, from_utilization, from_value, largest


def array(*values):
    return np.array(values, dtype=float)


def by_utilization(current, measured, starting, missing, utilization, target, tolerance=0.1):
    return float(from_utilization(*(array(v) for v in (current, measured, starting, missing, utilization, target)),
                                  array(tolerance), array(tolerance))[0])


@pytest.mark.parametrize(("current", "utilization", "target", "expected"), [
    (10, 0.2, 0.1, 20),   # "if the current metric value is 200m, and the desired value is 100m, ... doubled"
    (10, 0.05, 0.1, 5),   # "If the current value is instead 50m, you'll halve the number of replicas"
    (50, 0.90, 0.75, 60),  # Kubernetes 1.33: configurable tolerance: 50 x (90/75) = 60
    (50, 0.82, 0.75, 50),  # within 10 %: nothing
    (50, 0.68, 0.75, 50),
    (50, 0.83, 0.75, 56),  # ceil(50 * 83 / 75)
    (3, 0.30, 0.30, 3),
])
def test_documented_examples(current, utilization, target, expected):
    assert by_utilization(current, current, 0, 0, utilization, target) == expected


def test_a_share_of_float32_counts_its_whole_percent():
    assert by_utilization(50, 50, 0, 0, float(np.float32(0.9)), 0.75) == 60


def test_tolerances_up_and_down_differ():
    # KEP-4951: "5% tolerance for scale-down, and no tolerance for scale-up"
    up, down = (from_utilization(array(100.0), array(100.0), array(0.0), array(0.0), array(utilization), array(0.75),
                                 array(0.0), array(0.05)) for utilization in (0.76, 0.72))
    assert (up[0], down[0]) == (102, 100)


def test_replicas_that_start_use_nothing_on_the_way_up():
    assert by_utilization(10, 5, 5, 0, 0.9, 0.3) == 15  # 5 * 0.9 / 10 = 0.45 of 0.3: 10 * 1.5
    assert by_utilization(10, 5, 5, 0, 0.5, 0.3) == 10  # 0.25 of 0.3 would scale down: nothing
    assert by_utilization(10, 5, 5, 0, 0.1, 0.3) == 2   # on the way down they do not count: ceil(5 / 3)


def test_missing_metrics_use_all_on_the_way_down_and_nothing_on_the_way_up():
    assert by_utilization(10, 5, 0, 5, 0.1, 0.9) == 7    # (5 * 0.1 + 5) / 10 = 0.55 of 0.9: ceil(6.1)
    assert by_utilization(10, 5, 0, 5, 0.9, 0.3) == 15
    assert by_utilization(10, 5, 0, 5, 0.2, 0.5) == 10   # 0.6 of 0.5 would scale up: nothing
    assert by_utilization(10, 5, 0, 5, 0.5, 0.5) == 10
    assert by_utilization(10, 5, 0, 5, 0.9, 1.5) == 8    # a target above 100 %: they use the target, so 1.2 of 1.5


def one_after_the_other(current, measured, starting, missing, percent, target):
    """The rules of the documentation, pod by pod, exactly."""
    pods = [percent] * measured
    ratio = Fraction(sum(pods) // len(pods), target)
    if missing and ratio < 1:
        pods += [max(100, target)] * missing
    if missing and ratio > 1:
        pods += [0] * missing
    if starting and ratio > 1:
        pods += [0] * starting
    adjusted = Fraction(sum(pods) // len(pods), target)
    if abs(1 - adjusted) <= Fraction(1, 10):
        return current
    proposal = adjusted * len(pods)
    if len(pods) > measured:
        up = ratio > 1
        if (adjusted > 1) != up or (up and math.ceil(proposal) < current) or (not up and math.ceil(proposal) > current):
            return current
    return proposal


@given(st.integers(1, 40), st.integers(0, 20), st.integers(0, 20), st.integers(0, 300), st.integers(5, 150))
@example(2, 1, 3, 83, 110)  # 99 % of 110 % is tolerated; 1.1 * 100 is above 110
def test_equals_pods_counted_one_by_one(measured, starting, missing, percent, target):
    current = measured + starting + missing
    expected = one_after_the_other(current, measured, starting, missing, percent, target)
    ratio = percent / target
    if abs(abs(1 - ratio) - 0.1) < 1e-9:
        return  # on the edge of the tolerance both answers are right: 1 - 0.9 is above 0.1 in binary
    found = by_utilization(current, measured, starting, missing, percent / 100, target / 100)
    whole = Fraction(expected).denominator == 1  # binary rounding may add one, as in Kubernetes: 18 / 7 * 42 > 108
    assert found == math.ceil(expected) or (whole and found == expected + 1)


def test_no_measured_replica_is_no_proposal():
    assert math.isnan(by_utilization(3, 0, 3, 0, 0.9, 0.5))
    assert math.isnan(by_utilization(3, 3, 0, 0, math.nan, 0.5))


def test_one_value_for_the_application_is_set_against_ready_replicas():
    tolerance = array(0.1)
    assert from_value(array(6.0), array(4.0), array(1.6), array(0.8), tolerance, tolerance)[0] == 8
    assert from_value(array(6.0), array(4.0), array(0.85), array(0.8), tolerance, tolerance)[0] == 6
    assert np.isnan(from_value(array(6.0), array(4.0), array(np.nan), array(0.8), tolerance, tolerance)[0])


def test_a_total_is_divided_by_the_target_of_a_replica():
    tolerance = array(0.1)
    assert from_total(array(3.0), array(1000.0), array(100.0), tolerance, tolerance)[0] == 10
    assert from_total(array(10.0), array(1050.0), array(100.0), tolerance, tolerance)[0] == 10  # 1.05: tolerated
    assert from_total(array(10.0), array(101.0), array(100.0), tolerance, tolerance)[0] == 2


def test_the_largest_proposal_wins_and_a_missing_metric_stops_scaling_down():
    current = array(5.0, 5.0, 5.0, 5.0)
    first = array(8.0, 2.0, np.nan, np.nan)
    second = array(7.0, 3.0, 9.0, 2.0)
    assert largest(current, [first, second])[:3].tolist() == [8, 3, 9]
    assert np.isnan(largest(current, [first, second])[3])
    assert np.isnan(largest(current, [array(np.nan, 1, 1, 1)])[0])


@given(st.lists(st.floats(0.0, 2.0), min_size=2, max_size=20), st.integers(1, 60), st.integers(0, 20))
def test_more_utilization_never_asks_for_fewer(shares, measured, starting):
    shares = np.sort(np.array(shares))
    same = np.ones_like(shares)
    proposals = from_utilization(same * (measured + starting), same * measured, same * starting, same * 0, shares,
                                 array(0.6), array(0.1), array(0.1))
    assert (np.diff(proposals) >= 0).all()
