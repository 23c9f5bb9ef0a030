"""A guarantee is asked for only where the specification covers all that the policy may be shown."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from models.control.contract.guarantee import HeldLive, exceeded, held_live, judged, narrower
from models.control.contract.signals import Ceiling, most_allowed

SHOWN = {"rate_pps": (1.0, 16384.0), "queueing_s": (0.25, 64.0), "most_queueing_s": (0.1, 8.0)}
PRESENT, SETTINGS = {"rate_pps": (4.0, 4000.0)}, {"most_queueing_s": 0.5}
BOX: dict[str, Any] = {"rate_pps": [4.0, 4000.0], "queueing_s": [0.25, 64.0], "most_queueing_s": [0.1, 8.0]}


@pytest.mark.parametrize("walls", [
    {}, {"rate_pps": [1.0, 16384.0]}, {"most_queueing_s": [0.5, 0.5]}, {"queueing_s": [0.0, 100.0]}])
def test_a_box_that_covers_what_may_be_shown_is_enough(walls: dict[str, Any]) -> None:
    assert narrower({"box": BOX | walls}, SHOWN, PRESENT, SETTINGS) == ""


@pytest.mark.parametrize(("changed", "message"), [
    ({"box": BOX | {"rate_pps": [500.0, 4000.0]}}, "of rate_pps, 4 to 4000, got 500 to 4000"),
    ({"box": BOX | {"rate_pps": [4.0, 3999.0]}}, "of rate_pps, 4 to 4000, got 4 to 3999"),
    ({"box": BOX | {"queueing_s": [0.25, 32.0]}}, "of queueing_s, 0.25 to 64, got 0.25 to 32"),
    ({"box": BOX | {"most_queueing_s": [0.1, 0.4]}}, "of most_queueing_s, 0.5 to 0.5, got 0.1 to 0.4"),
    ({"inputs": {"rate_pps": {"values": [4.0, 4000.0]}}}, "of rate_pps, 4 to 4000, got single values"),
    ({"one_hot": [["queueing_s", "rate_pps"]]}, "of rate_pps, 4 to 4000, got single values"),
    ({"box": BOX | {"rate_pps": [float("nan"), 4000.0]}}, "of rate_pps")])
def test_one_that_covers_less_is_told_with_the_input(changed: dict[str, Any], message: str) -> None:
    assert message in narrower({"box": BOX} | changed, SHOWN, PRESENT, SETTINGS)
    assert message in narrower({"box": BOX} | changed, SHOWN, PRESENT, SETTINGS | {"another": 1.0})


def test_a_present_value_without_limits_and_what_is_no_setting_may_be_anything_that_is_observed() -> None:
    assert "of rate_pps, 1 to 16384" in narrower({"box": BOX}, SHOWN, {}, SETTINGS)
    told = {"box": BOX | {"most_queueing_s": [0.5, 0.5]}}
    assert "of most_queueing_s, 0.1 to 8" in narrower(told, SHOWN, PRESENT, {})


CEILING = Ceiling(start=3.0, end=1.0, at_most=2.0)
CLOCK = HeldLive(1.0, 3.0, "frequency_ghz", {"room_c": CEILING})
ROOM = {"room_c": (0.25, 64.0), "frequency_ghz": (1.0, 4.0)}


def clocked(**rule: Any) -> dict[str, Any]:
    return {"range": {"output": "target_ghz", **rule}}


@pytest.mark.parametrize(("rule", "kept"), [
    ({"maximum": 2.0, "when": {"room_c": [0.25, 1]}}, {"maximum"}),
    ({"maximum": 2.49, "when": {"room_c": [0.25, 2]}}, set()),
    ({"maximum": 2.5, "when": {"room_c": [0.25, 2]}}, {"maximum"}),
    ({"minimum": 1.0, "maximum": 3.0}, {"minimum", "maximum"}),
    ({"minimum": 1.5, "maximum": 3.0}, {"maximum"}),
    ({"minimum": 0.9, "maximum": 2.9}, {"minimum"}),
    ({"maximum": 2.0, "when": {"usage": [0.5, 1]}}, set())])
def test_of_a_range_a_guarantee_rests_on_what_the_shield_keeps_for_whoever_acts(rule: dict[str, Any],
                                                                                kept: set[str]) -> None:
    found = held_live([clocked(**rule)], {"target_ghz": CLOCK}, ROOM)
    if not kept:
        assert found == []
    else:
        (one,) = found
        assert {"minimum", "maximum"} & set(one["range"]) == kept and one["range"].get("when") == rule.get("when")


def test_without_its_ceiling_a_clock_is_bounded_by_its_safe_range_alone() -> None:
    bare = replace(CLOCK, ceilings={})
    assert held_live([clocked(maximum=2.0, when={"room_c": [0.25, 1]}), clocked(maximum=3.0)], {"target_ghz": bare},
                     ROOM) == [clocked(maximum=3.0)]


def test_orders_of_a_present_value_and_of_two_outputs_are_the_policy_s_own() -> None:
    others: list[dict[str, Any]] = [
        {"order": {"upper": "frequency_ghz", "lower": "target_ghz", "margin": 0.0}},
        {"order": {"upper": "target_ghz", "lower": "frequency_ghz", "factor": 0.6}},
        {"order": {"upper": "room_c", "lower": "target_ghz", "at_least": {"room_c": "frequency_ghz"}}},
        {"range": {"output": "target_ghz", "minus": "frequency_ghz", "maximum": 0.1}},
        {"monotone": {"features": ["room_c"], "direction": "increasing", "output": "target_ghz"}}]
    assert held_live(others, {"target_ghz": CLOCK}, ROOM) == others
    assert exceeded(others, {"target_ghz": CLOCK}, ROOM) == ""


@settings(max_examples=200, deadline=None)
@given(start=st.floats(0.25, 64.0), end=st.floats(0.25, 64.0), at_most=st.floats(1.0, 3.0), room=st.floats(0.25, 64.0),
       factor=st.floats(0.1, 3.0), margin=st.floats(-3.0, 3.0))
def test_what_counts_as_kept_is_never_exceeded(start: float, end: float, at_most: float, room: float, factor: float,
                                               margin: float) -> None:
    assume(abs(start - end) > 1e-3)
    clock = replace(CLOCK, ceilings={"room_c": Ceiling(start, end, at_most)})
    rule = {"order": {"upper": "room_c", "lower": "target_ghz", "factor": factor, "margin": margin}}
    most = most_allowed(clock.high, clock.ceilings, {"room_c": room})
    if not exceeded([rule], {"target_ghz": clock}, ROOM):
        assert factor * most + margin <= room + 1e-6
    for bound in (1.5, 2.0, 2.5):
        if held_live([clocked(maximum=bound, when={"room_c": [0.25, room]})], {"target_ghz": clock}, ROOM):
            assert all(most_allowed(clock.high, clock.ceilings, {"room_c": one}) <= bound + 1e-6
                       for one in (0.25, (0.25 + room) / 2, room))


def test_a_document_that_says_a_thing_twice_is_refused() -> None:
    found = judged(b'{"format": "f/1", "a": 1, "a": 2}', "f/1", ("a",), lambda document: "It holds.")
    assert not found.accepted and "each thing once" in found.reason
