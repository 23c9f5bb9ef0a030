"""A guarantee is asked for only where the specification covers all that the policy may be shown."""

from typing import Any

import pytest

from models.control.contract.guarantee import judged, narrower

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


def test_a_document_that_says_a_thing_twice_is_refused() -> None:
    found = judged(b'{"format": "f/1", "a": 1, "a": 2}', "f/1", ("a",), lambda document: "It holds.")
    assert not found.accepted and "each thing once" in found.reason
