"""The package never gets hotter than its limit: by the law stepped out, by what is taken from it, by its check."""

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from models.tasks.control.demands import demanded
from systems.cpu_frequency import simulator
from systems.cpu_frequency.environment import ENVIRONMENT, SETTINGS
from systems.cpu_frequency.guarantee import bounds_of, check, guarantees, worst
from systems.cpu_frequency.processors import HEAT_J_PER_K, PROCESSORS, Processor

WRITTEN = yaml.safe_load((Path(__file__).parents[3] / "systems/cpu_frequency/cpu_frequency.yaml").read_text())[
    "specification"]["properties"]
PROPERTIES = demanded(WRITTEN, {"target_frequency_ghz.low": 1.2, "target_frequency_ghz.high": 3.3})
BOUNDS = [(1.0, 2.0005), (2.0, 2.6505), (math.inf, 3.0)]
LEVELS = {"target_frequency_ghz": next(one.levels for one in PROCESSORS if one.name == "E5-2683 v3")}
every = pytest.mark.parametrize("of", PROCESSORS, ids=lambda of: of.name)


def found_of(properties: Any = PROPERTIES, **changed: Any) -> dict[str, Any]:
    settings = {one.name: one.default for one in SETTINGS} | changed
    return dict(guarantees(properties, settings))


def after(of: Processor, air_c: float, resistance: float, now: float, ghz: float) -> float:
    """A second of the law, by small steps of its differential equation with the power of its beginning."""
    numbers = of.numbers
    volts = numbers["base_volts"] + numbers["volts_slope"] * (ghz - numbers["base_ghz"])
    watts = numbers["tdp_w"] * (0.2 + 0.25 * 2 ** ((now - of.limit_c) / 30) * volts / numbers["base_volts"]) \
        + numbers["capacity"] * volts**2 * ghz * of.cores
    for _ in range(1000):
        now += 1e-3 * (watts - (now - air_c) / resistance) / HEAT_J_PER_K
    return now


@every
def test_no_order_of_clocks_within_the_bounds_heats_it_above_its_limit(of: Processor) -> None:
    document = json.loads(found_of(processor=of.name)["shipped"].content)
    resistance, random = document["resistance"], np.random.default_rng(0)
    now, hottest = of.limit_c - 6.0, 0.0
    for second in range(3000):
        room = of.limit_c - now
        most = 2.0005 if room <= 1 else 2.6505 if room <= 2 else of.levels[-1]
        most = min(level for level in of.levels if level >= most - 1e-3)
        allowed = [level for level in of.levels if level <= most]
        now = after(of, 35.0, resistance, now, max(allowed) if second % 50 else random.choice(allowed))
        hottest = max(hottest, now)
    assert of.limit_c - 3.0 < hottest <= of.limit_c + 1e-3  # it is tried, and the steps are of a thousandth
    assert worst(of, 35.0, resistance * 1.02, bounds_of(PROPERTIES, of.levels[-1])) is None


def test_the_law_is_the_simulators() -> None:
    (of,) = (one for one in PROCESSORS if one.name == "E5-2683 v3")
    ends = torch.tensor([60.0, 90.0])
    found = simulator.heated(torch.tensor([80.0, 80.0]), ends, torch.tensor([0.3, 0.3]), 1.0)
    assert found.tolist() == pytest.approx([float(end + (80 - end) * math.exp(-1 / (0.3 * HEAT_J_PER_K)))
                                            for end in ends])
    known = worst(of, 35.0, 0.4, BOUNDS)
    assert known is not None
    watts = []
    for room, ghz in ((0.0, 2.0), (1.0, 2.7), (2.0, 3.0)):  # what 2.6505 is rounded to is 2.7
        volts = (0.87 + 0.15 * (ghz - 2.0)) / 0.87
        watts.append(120 * (0.2 + 0.25 * 2 ** (-room / 30) * volts + 0.55 * volts**2 * ghz / 2.0))
    assert known[0] == pytest.approx(max(watts), rel=1e-6)


def test_bounds_are_those_that_are_proved_where_there_is_little_room() -> None:
    assert bounds_of(PROPERTIES, 3.0) == BOUNDS
    assert bounds_of([], 3.0) == [(math.inf, 3.0)]
    mine: dict[str, Any] = {"output": "target_frequency_ghz", "maximum": 1.5}
    others = [{"range": {**mine, "when": {"room_c": [2, 3]}}}, {"range": {**mine, "output": "another"}},
              {"range": {**mine, "when": {"room_c": [0.25, 1], "usage": [0, 0.5]}}}, {"monotone": {}},
              {"range": {**mine, "minus": "frequency_ghz"}}]
    assert bounds_of(others, 3.0) == [(math.inf, 3.0)], "none of them holds for all that is hot"
    assert bounds_of([{"range": mine}], 3.0) == [(math.inf, 1.5)]


@every
def test_it_says_of_which_air_cooling_and_power(of: Processor) -> None:
    cool, warm = (found_of(processor=of.name, ambient_c=air)["found"][0] for air in (20.0, 40.0))
    assert cool["status"] == warm["status"] == "PROVED" and warm["change"] == 40.0
    assert f"an {of.name} with air of at most 40 degC" in warm["statement"]
    assert cool["bound"] == warm["bound"] > of.tdp_w * 0.95
    resistances = [json.loads(found_of(processor=of.name, ambient_c=air)["shipped"].content)["resistance"]
                   for air in (20.0, 40.0)]
    assert resistances[0] > resistances[1]


@every
def test_the_page_says_what_follows(of: Processor) -> None:
    page = (Path(__file__).parents[3] / "docs/reference/cpu-frequency.md").read_text(encoding="utf-8")
    found = found_of(processor=of.name, ambient_c=35.0)
    resistance = json.loads(found["shipped"].content)["resistance"]
    watts = math.ceil(found["found"][0]["bound"])
    row = f"| {of.name} | {resistance:g} K/W | {of.numbers['resistance']:.3g} K/W | {watts} W |"
    assert row in page


def test_without_bounds_nothing_is_guaranteed_of_a_hot_package() -> None:
    unbounded = [one for one in PROPERTIES if "when" not in one.get("range", {})]
    least = json.loads(found_of(unbounded)["shipped"].content)["resistance"]
    assert least < 0.75 * json.loads(found_of()["shipped"].content)["resistance"], "a sink for the highest clock"
    content = found_of()["shipped"].content
    assert "do not" in check(content, unbounded, LEVELS).reason


def test_a_cap_of_power_is_kept_by_a_clock_that_is_bounded_and_by_no_other() -> None:
    """Stepped out with the power of the law written anew: all cores busy, at the most that is allowed."""
    (one,) = found_of(power_cap_w=150.0)["found"]
    assert one["status"] == "UNKNOWN" and "may take 194 W in a second, its cap is 150 W" in one["reason"]
    bounded = demanded(WRITTEN, {"target_frequency_ghz.low": 1.2, "target_frequency_ghz.high": 2.4})
    found = found_of(bounded, power_cap_w=150.0)
    (one,) = found["found"]
    assert one["status"] == "PROVED" and "which is within its cap of 150 W; from" in one["statement"]
    (of,) = (one for one in PROCESSORS if one.name == "E5-2683 v3")
    resistance, now, most = json.loads(found["shipped"].content)["resistance"], 60.0, 0.0
    for _ in range(2000):
        ghz = 2.0 if of.limit_c - now <= 1 else 2.4
        volts = (0.87 + 0.15 * (ghz - 2.0)) / 0.87
        watts = 120 * (0.2 + 0.25 * 2 ** ((now - of.limit_c) / 30) * volts + 0.55 * volts**2 * ghz / 2.0)
        most, now = max(most, watts), after(of, 35.0, resistance, now, ghz)
    assert 0.97 * one["bound"] < most <= one["bound"] < 150.0
    lower = {**json.loads(found["shipped"].content), "cap_w": 0.99 * one["bound"]}
    assert "within its cap" in check(json.dumps(lower).encode(), bounded, LEVELS).reason
    assert "within its cap" in check(found["shipped"].content, PROPERTIES, LEVELS).reason


@pytest.mark.parametrize(("change", "reason"), [
    ({"cap_w": 100.0}, "within its cap of 100 W"), ({"cap_w": 401.0}, "at most 400 W"),
    ({"cap_w": None}, "at most 400 W"),
    ({"resistance": 3.1, "cap_w": 400.0}, "at most 3 K/W"), ({"resistance": 1e16}, "at most 3 K/W"),
    ({"resistance": 0.5}, "bounds that do not"), ({"air_c": 45.0}, "bounds that do not"),
    ({"resistance": -1.0}, "above 0"), ({"air_c": None}, "-50 to 45"), ({"air_c": True}, "-50 to 45"),
    ({"resistance": "0.1"}, "above 0"), ({"processor": "Z80"}, "a known one"), ({"levels": [1.2]}, "must be assay-cpu"),
    ({"format": "x"}, "must be assay-cpu")])
def test_a_changed_guarantee_is_refused(change: dict[str, Any], reason: str) -> None:
    content = found_of()["shipped"].content
    assert check(content, PROPERTIES, LEVELS).accepted
    found = check(json.dumps({**json.loads(content), **change}).encode(), PROPERTIES, LEVELS)
    assert not found.accepted and reason in found.reason
    assert not check(b"PK", PROPERTIES, LEVELS).accepted


def test_a_resistance_that_hides_a_second_proves_nothing() -> None:
    """With 1e16 K/W a second changes no digit of a temperature, and with infinitely many it is no number."""
    for resistance in (1e16, 1e300, math.inf):
        content = json.dumps({"format": "assay-cpu-heat/2", "processor": "E5-2683 v3", "air_c": 45.0,
                              "resistance": resistance, "cap_w": 400.0}).encode()
        found = check(content, [], LEVELS)
        assert not found.accepted and "resistance above 0, at most 3 K/W" in found.reason
    (of,) = (one for one in PROCESSORS if one.name == "E5-2683 v3")
    assert worst(of, 45.0, math.nan, [(math.inf, 3.0)]) is None


@every
def test_another_processors_guarantee_is_refused(of: Processor) -> None:
    content = found_of(processor=of.name)["shipped"].content
    low, high = of.levels[1], of.levels[-2]
    for levels in (of.levels, of.levels[1:-1], (low, *(one for one in of.levels if low < one < high), high)):
        assert check(content, PROPERTIES, {"target_frequency_ghz": levels}).accepted
    others = [one.levels for one in PROCESSORS if one is not of]  # also where they are neighbours among its own
    for levels in (*others, (of.levels[0], of.levels[-1]), (*of.levels, 9.0), ()):
        found = check(content, PROPERTIES, {"target_frequency_ghz": levels})
        assert not found.accepted and f"levels that may be set must be those of the {of.name}" in found.reason
    assert "got none GHz" in check(content, PROPERTIES, {}).reason


def test_what_could_not_be_told_from_another_processors_is_not_guaranteed() -> None:
    """What is made is what the check of the bundle accepts, for the levels that the workload's limits leave."""
    name = "E5-2695 v4"
    for high, status in ((3.0, "UNKNOWN"), (2.9, "PROVED"), (3.1, "PROVED"), (3.3, "PROVED")):
        limits = {"target_frequency_ghz": (1.2, high)}
        found = ENVIRONMENT.guarantees(b"", PROPERTIES, {"processor": name}, limits)
        assert found["found"][0]["status"] == status and (found["shipped"] is None) == (status == "UNKNOWN")
    reason = ENVIRONMENT.guarantees(b"", PROPERTIES, {"processor": name}, {"target_frequency_ghz": (1.15, 3.05)})[
        "found"][0]["reason"]
    assert reason.startswith("The levels that may be set, 1.2 to 3 GHz, are those of the E5-2683 v3")


def test_it_never_says_more_power_than_the_cap_that_is_kept() -> None:
    bounded = demanded(WRITTEN, {"target_frequency_ghz.low": 1.2, "target_frequency_ghz.high": 2.4})
    watts = found_of(bounded)["found"][0]["bound"]
    caps = (watts, watts + 1e-9, watts + 1e-3, math.ceil(10 * watts) / 10, math.ceil(watts), math.ceil(watts) + 0.5)
    for cap in caps:
        said = found_of(bounded, power_cap_w=cap)["shipped"].checked.statement
        found = re.search(r"takes at most (\S+) W in any second, which is within its cap of (\S+) W;", said)
        assert found and watts <= float(found[1]) <= float(found[2]) == cap
    assert f"takes at most {math.ceil(watts)} W in any second;" in found_of(bounded)["shipped"].checked.statement
