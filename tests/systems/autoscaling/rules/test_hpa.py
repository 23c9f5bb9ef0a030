"""The behaviour of autoscaling/v2 against the examples of its documentation."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.control.contract.setting import checked
from systems.autoscaling.rules.hpa import BEHAVIOR, Behavior


def behavior(**settings):
    made = Behavior(checked({"max_replicas": 1000, **settings}, BEHAVIOR, "test"))
    made.start()
    return made


def run(made, current, desired, step=15.0):
    """Replicas after each of the desired numbers, obeyed at once."""
    trail = []
    current = np.array([float(current)])
    for number, wanted in enumerate(desired):
        current = made.replicas(current, np.array([float(wanted)]), number * step)
        trail.append(int(current[0]))
    return trail


def test_documented_policies_10_percent_or_4_pods_a_minute():
    # "if there are 80 replicas and the target has to be scaled down to 10 replicas then during the first step 8
    # replicas will be reduced. In the next iteration when the number of replicas is 72, 10% of the pods is 7.2 but the
    # number is rounded up to 8. ... When the number of replicas falls below 40 the first policy (Pods) is applied"
    made = behavior(down_window_s=0, down_percent=10, down_percent_period_s=60, down_pods=4, down_pods_period_s=60)
    trail = run(made, 80, [10] * 14, step=60.0)
    assert trail == [72, 64, 57, 51, 45, 40, 36, 32, 28, 24, 20, 16, 12, 10]


def test_a_period_counts_what_was_removed_within_it():
    made = behavior(down_window_s=0, down_percent=10, down_percent_period_s=60, down_pods=4, down_pods_period_s=60)
    assert run(made, 80, [10] * 9) == [72, 72, 72, 72, 64, 64, 64, 64, 57]


def test_documented_select_min_takes_the_smaller_change():
    # "to ensure that no more than 5 Pods are removed per minute": 10 % or 5 pods, Min
    made = behavior(down_window_s=0, down_percent=10, down_percent_period_s=60, down_pods=5, down_pods_period_s=60,
                    down_select="Min")
    assert run(made, 80, [1] * 4, step=60.0) == [75, 70, 65, 60]
    made = behavior(down_window_s=0, down_percent=10, down_percent_period_s=60, down_pods=5, down_pods_period_s=60,
                    down_select="Min")
    assert run(made, 20, [1, 1], step=60.0) == [18, 16]


def test_documented_disabled_never_scales_down():
    assert run(behavior(down_window_s=0, down_select="Disabled"), 8, [2, 2, 12, 2]) == [8, 8, 12, 12]


def test_default_scale_up_doubles_or_adds_four_in_15_seconds():
    assert run(behavior(), 1, [100] * 6) == [5, 10, 20, 40, 80, 100]
    assert run(behavior(up_select="Min"), 1, [100] * 4) == [2, 4, 8, 12]


def test_scale_up_of_a_period_counts_what_was_added_within_it():
    made = behavior(up_percent=100, up_percent_period_s=60, up_pods=0)
    assert run(made, 4, [100] * 6) == [8, 8, 8, 8, 16, 16]


def test_default_scale_down_waits_for_the_largest_proposal_of_five_minutes():
    trail = run(behavior(), 10, [2] * 24)
    assert trail[:20] == [10] * 20  # the first proposal was what ran, at 0 s; it is young until 300 s
    assert trail[20:] == [2] * 4
    trail = run(behavior(), 10, [2] * 5 + [6] + [2] * 40)
    assert trail[20:25] == [6] * 5
    assert trail[25] == 2


def test_up_window_takes_the_smallest_recent_proposal():
    assert run(behavior(up_window_s=60), 4, [4, 8, 8, 8, 8, 8]) == [4, 4, 4, 4, 8, 8]


def test_bounds_hold_at_once_and_no_proposal_changes_nothing():
    assert run(behavior(max_replicas=5), 9, [9]) == [5]
    assert run(behavior(min_replicas=3), 1, [1]) == [3]
    assert run(behavior(), 9, [np.nan, np.nan]) == [9, 9]


def test_a_missing_proposal_is_not_remembered():
    assert run(behavior(down_window_s=30), 9, [9, np.nan, 2, 2]) == [9, 9, 2, 2]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2 ** 32 - 1))
def test_all_at_once_equals_one_alone(seed):
    rng = np.random.default_rng(seed)
    applications = 5
    chosen = {
        "down_window_s": rng.choice([0.0, 30.0, 60.0], applications),
        "up_window_s": rng.choice([0.0, 30.0], applications),
        "down_percent": rng.uniform(0, 100, applications), "down_pods": rng.integers(0, 5, applications).astype(float),
        "down_percent_period_s": rng.choice([15.0, 60.0], applications),
        "up_percent": rng.uniform(0, 200, applications), "up_pods": rng.integers(0, 5, applications).astype(float),
        "up_pods_period_s": rng.choice([15.0, 45.0], applications),
        "up_select": rng.choice(["Max", "Min", "Disabled"], applications),
        "down_select": rng.choice(["Max", "Min", "Disabled"], applications),
        "min_replicas": rng.integers(1, 4, applications).astype(float),
        "max_replicas": rng.integers(4, 60, applications).astype(float),
    }
    together = behavior(**chosen)
    alone = [behavior(**{name: value[number].item() for name, value in chosen.items()})
             for number in range(applications)]
    current = rng.integers(1, 40, applications).astype(float)
    for step in range(12):
        desired = np.where(rng.random(applications) < 0.2, np.nan, rng.integers(1, 70, applications))
        at_once = together.replicas(current, desired, 15.0 * step)
        one_by_one = [float(made.replicas(current[[number]], desired[[number]], 15.0 * step)[0])
                      for number, made in enumerate(alone)]
        assert at_once.tolist() == one_by_one
        current = np.where(rng.random(applications) < 0.3, rng.integers(1, 40, applications), at_once)


def test_a_percentage_rounds_in_the_documented_direction():
    assert run(behavior(down_window_s=0, down_percent=10, down_percent_period_s=15), 5, [1]) == [4]
    assert run(behavior(up_percent=10, up_pods=0), 5, [50]) == [6]


@pytest.mark.parametrize("select", ["max", "Most"])
def test_an_unknown_word_is_refused(select):
    with pytest.raises(Exception, match=r"value must be one of Max, Min, Disabled, got .* \(test, setting up_select\)"):
        behavior(up_select=select)
