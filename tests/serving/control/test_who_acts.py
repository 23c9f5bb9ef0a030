"""Who acts, and when the policy does again."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feature_store.errors import InputError
from serving.control.who_acts import CHECKS, Situation, Watch


def _lived(steps, hand_back_after):
    watch, actors = Watch(hand_back_after), []
    for trouble, stopped in steps:
        watch, actor, _ = watch.after(Situation(stopped=stopped, refused=trouble))
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
    watch, _, reason = Watch(3).after(Situation())
    assert reason == "2 more good steps until the policy acts"
    assert watch.after(Situation())[2] == "1 more good step until the policy acts"


def test_a_policy_that_failed_itself_begins_anew():
    watch = Watch(2)
    for _ in range(5):
        watch, actor, _ = watch.after(Situation())
    assert actor == "policy"
    assert watch.failed().after(Situation())[1] == "fallback"


def test_at_least_one_good_step_is_needed():
    with pytest.raises(InputError, match="hand_back_after must be"):
        Watch(0)


# what is in the way, alone, in the order of the checks
HINDRANCES = (
    ("nobody", {"stopped": "kill switch"}, "kill switch"),
    ("nobody", {"actuator": "b has the lease"}, "b has the lease"),
    ("nobody", {"present": {"replicas": math.nan, "cores": 0.0}}, "actuator: replicas is not known"),
    ("nobody", {"present": {"replicas": 2.0, "cores": 0.0}}, "cores was set to 0 by someone"),
    ("fallback", {"unwritten": "disk full"}, "disk full"),
    ("fallback", {"refused": "retired"}, "retired"),
    ("fallback", {"troubles": {"p99_ms": "p99 is missing", "rate": "rate is old"}}, "p99 is missing; rate is old"),
    ("fallback", {"strange": {"rate": "rate is 7"}}, "rate is 7"),
)


def test_there_is_a_case_for_every_check():
    assert [actor for actor, _, _ in HINDRANCES] == [actor for actor, _ in CHECKS]


@pytest.mark.parametrize("number", range(len(HINDRANCES)))
def test_the_first_thing_in_the_way_says_who_acts_and_why(number):
    """With all that comes after it in the way too."""
    actor, _, reason = HINDRANCES[number]
    ready = Watch(1).after(Situation())[0]
    together: dict = {}
    for _, one, _ in reversed(HINDRANCES[number:]):
        together |= one
    watch, found, why = ready.after(Situation(**together))
    assert (found, why) == (actor, reason) and watch.good == 0
    assert ready.after(Situation(present={"replicas": 2.0}))[1:] == ("policy", "")
