"""Which step a measurement is of."""

import math

import pytest

from serving.control.pending import MOST_BEHIND, lasted, left, logged, settled, steps_behind


def _waiting(*numbers, **detail):
    return tuple({"application": "a", "episode": 0, "step": number, "actor": "policy", "observation": [1.0, None],
                  "targets": [2.0], "detail": dict(detail)} for number in numbers)


@pytest.mark.parametrize(("age_s", "interval_s", "behind"), [
    (0.0, 15.0, 0), (7.0, 15.0, 0), (8.0, 15.0, 1), (15.0, 15.0, 1), (23.0, 15.0, 2), (-3.0, 15.0, 0),
    (math.nan, 15.0, 0), (math.inf, 15.0, 0), (5.0, 0.0, 0)])
def test_an_age_says_how_many_steps_before(age_s, interval_s, behind):
    assert steps_behind(age_s, interval_s) == behind


def _numbers(steps):
    return [one["step"] for one in steps]


@pytest.mark.parametrize(("behind", "without", "of", "after", "waiting"), [
    (0, [3, 4], 5, None, []), (1, [3], 4, 5, [5]), (2, [], 3, 4, [4, 5]),
    (3, [], None, None, [3, 4, 5]), (MOST_BEHIND + 1, [], None, None, [3, 4, 5])])
def test_a_measurement_is_of_one_step_and_those_before_have_none(behind, without, of, after, waiting):
    found = settled(_waiting(3, 4, 5), behind)
    assert _numbers(found.without) == without
    assert (found.of and found.of["step"], found.after and found.after["step"]) == (of, after)
    assert _numbers(found.waiting) == waiting


def test_nothing_waits_for_ever():
    found = settled(_waiting(*range(9)), MOST_BEHIND + 1)
    assert _numbers(found.without) == [0, 1, 2, 3]
    assert settled((), 0).of is None


def test_a_step_is_over_once():
    once = lasted(_waiting(1, 2), 15.0)
    assert [one["detail"].get("interval_s") for one in once] == [None, 15.0]
    assert lasted(once, 99.0) == once
    assert lasted((), 1.0) == ()


@pytest.mark.parametrize(("interval_s", "mark"), [(15.0, "measured"), (17.9, "measured"), (18.1, "irregular"),
                                                  (11.9, "irregular")])
def test_an_irregular_step_has_no_reward(interval_s, mark):
    step = logged(_waiting(1, interval_s=interval_s)[0], {"reward": 1.0, "cost": 2.0}, 15.0)
    assert (step.mark, math.isfinite(step.reward), math.isfinite(step.cost)) == (mark, *[mark == "measured"] * 2)
    assert math.isnan(step.observation[1])


@pytest.mark.parametrize("outcome", [{}, {"reward": math.nan}])
def test_what_was_not_measured_is_missing(outcome):
    assert logged(_waiting(1, interval_s=15.0)[0], outcome, 15.0).mark == "missing"


def test_what_a_controller_before_wrote_is_not_written_twice():
    assert _numbers(left(_waiting(1, 2), None)) == [1, 2]
    assert _numbers(left(_waiting(1, 2), logged(_waiting(1)[0], {}, 15.0))) == [2]
