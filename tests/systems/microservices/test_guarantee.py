"""What is proved of one service's agent says that all together stay within the node."""

from pathlib import Path

import yaml

from systems.microservices.environment import SETTINGS
from systems.microservices.guarantee import LIMITS

PROPERTIES = yaml.safe_load((Path(__file__).parents[3] / "systems/microservices/microservices.yaml").read_text())[
    "specification"]["properties"]
WITHOUT = [one for one in PROPERTIES if one.get("order", {}).get("upper") != "allotment_cores"]


def test_it_says_of_how_many_services_and_cores() -> None:
    found = LIMITS.guarantees(PROPERTIES, {one.name: one.default for one in SETTINGS})
    (one,) = found["found"]
    assert one["status"] == "PROVED" and 48.0 < one["bound"] < 48.02
    assert "12 services" in one["statement"] and "a node of 48, for ever" in one["statement"]
    assert LIMITS.check(found["shipped"].content, PROPERTIES).accepted
    reason = LIMITS.check(found["shipped"].content, WITHOUT).reason
    assert "target_cores must be proved to be at most allotment_cores" in reason


def test_without_the_property_nothing_is_said() -> None:
    (one,) = LIMITS.guarantees(WITHOUT, {one.name: one.default for one in SETTINGS})["found"]
    assert one["status"] == "UNKNOWN" and one["bound"] is None
    assert LIMITS.margin_of(PROPERTIES) == 0.001
