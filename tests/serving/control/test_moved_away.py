"""Since when what did not move away from its safe side."""

import math

from serving.control.moved_away import ROUNDED, moved_away


def test_what_is_less_than_before_moved_away_now():
    ago = {"a": 50.0, "b": 50.0, "c": 50.0}
    before = {"a": 2.0, "b": 2.0, "c": 2.0, "d": 2.0}
    now = {"a": 1.9, "b": 2.1, "c": 2.0 - 1e-7, "d": 1.0, "e": 1.0}
    assert moved_away(ago, before, now) == {"a": 0.0, "b": 50.0, "c": 50.0, "d": 0.0}
    assert moved_away(ago, before, {"a": 1.999}, share=ROUNDED)["a"] == 50.0


def test_where_the_safe_side_is_less_a_raise_moves_away():
    ago, before, now = {"a": 50.0, "b": 50.0, "c": 50.0}, dict.fromkeys("abc", 2.0), {"a": 1.9, "b": 2.1, "c": 2.1}
    assert moved_away(ago, before, now, less=["a", "b"]) == {"a": 50.0, "b": 0.0, "c": 50.0}
    assert moved_away(ago, before, {"b": 2.001}, ["b"], ROUNDED)["b"] == 50.0


def test_what_is_not_known_did_not_move():
    assert moved_away({}, {"a": math.nan, "b": 1.0}, {"a": 1.0, "b": math.nan}) == {}
