"""Who acts, and when the policy does again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feature_store.errors import InputError
from serving.control.watch import Watch


def _lived(steps, hand_back_after):
    watch, actors = Watch(hand_back_after), []
    for trouble, stopped in steps:
        watch, actor, _ = watch.after(trouble, stopped)
        actors.append(actor)
    return actors


REASON = st.sampled_from(["", "p99 is missing"])


@given(st.lists(st.tuples(REASON, st.sampled_from(["", "", "", "kill switch"])), max_size=40), st.integers(1, 6))
def test_a_policy_acts_only_after_enough_good_steps_in_a_row(steps, needed):
    for number, actor in enumerate(_lived(steps, needed)):
        last = steps[max(0, number - needed + 1):number + 1]
        all_good = len(last) == needed and not any(trouble or stopped for trouble, stopped in last)
        assert (actor == "policy") == all_good
        assert (actor == "nobody") == bool(steps[number][1])


def test_it_says_how_many_good_steps_are_left():
    watch, _, reason = Watch(3).after("", "")
    assert reason == "2 more good steps until the policy acts"
    assert watch.after("", "")[2] == "1 more good step until the policy acts"


def test_a_policy_that_failed_itself_begins_anew():
    watch = Watch(2)
    for _ in range(5):
        watch, actor, _ = watch.after("", "")
    assert actor == "policy"
    assert watch.failed().after("", "")[1] == "fallback"


def test_at_least_one_good_step_is_needed():
    with pytest.raises(InputError, match="hand_back_after must be"):
        Watch(0)
