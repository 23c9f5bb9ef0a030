"""Since when what was not lowered."""

import math

from serving.control.lowered import ROUNDED, lowered


def test_what_is_less_than_before_was_lowered_now():
    ago = {"a": 50.0, "b": 50.0, "c": 50.0}
    before = {"a": 2.0, "b": 2.0, "c": 2.0, "d": 2.0}
    now = {"a": 1.9, "b": 2.1, "c": 2.0 - 1e-7, "d": 1.0, "e": 1.0}
    assert lowered(ago, before, now) == {"a": 0.0, "b": 50.0, "c": 50.0, "d": 0.0}
    assert lowered(ago, before, {"a": 1.999}, ROUNDED)["a"] == 50.0


def test_what_is_not_known_was_not_lowered():
    assert lowered({}, {"a": math.nan, "b": 1.0}, {"a": 1.0, "b": math.nan}) == {}
