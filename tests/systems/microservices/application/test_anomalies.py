"""The plan of anomalies: drawn from the seed alone, with labels that are true of it."""

from itertools import combinations

import pytest

from systems.microservices.application.anomalies import (
    KINDS,
    LOAD,
    Anomaly,
    load_factor,
    places,
    plan_segment,
)
from systems.microservices.application.graph import ENTRY, SERVICES
from systems.microservices.application.settings import ApplicationSettings

SETTINGS = ApplicationSettings(seed=3)
PLANS = [plan_segment(SETTINGS, number) for number in range(20)]
ALL = [one for plan in PLANS for one in plan]


def test_the_same_seed_gives_the_same_plan_and_segments_differ() -> None:
    assert plan_segment(SETTINGS, 4) == PLANS[4] != PLANS[5]
    assert plan_segment(ApplicationSettings(seed=4), 4) != PLANS[4]


def test_a_campaign_of_two_hours_has_enough_of_every_kind() -> None:
    assert len(ALL) >= 300 and {one.kind for one in ALL} == set(KINDS)
    assert len({one.service for one in ALL} - {""}) >= 12
    assert sum(one.alone for one in ALL) >= 150


def test_alone_is_what_no_other_overlaps() -> None:
    for plan in PLANS:
        overlapping = {index for (one, a), (other, b) in combinations(enumerate(plan), 2)
                       if a.start_s < b.end_s and b.start_s < a.end_s for index in (one, other)}
        assert overlapping == {index for index, one in enumerate(plan) if not one.alone}


def test_every_anomaly_has_its_place_its_time_and_its_strength() -> None:
    for one in ALL:
        assert one.service in places(one.kind) and 0 < one.intensity <= 1
        assert 6 <= one.start_s < one.end_s <= SETTINGS.segment_s - 6 and 6 <= one.end_s - one.start_s <= 9


def test_places_are_those_that_need_what_becomes_scarce() -> None:
    assert places(LOAD) == ("",)
    assert set(places("disk")) == {"images", "reviews", "orders", "mariadb"}
    assert ENTRY in places("cpu") and ENTRY not in places("network_delay")
    assert not {"analytics", "notification"} & {name for kind in KINDS for name in places(kind)}
    assert set(places("network_bandwidth")) < set(SERVICES)


def test_load_is_more_only_while_there_is_an_anomaly_of_load() -> None:
    anomalies = [Anomaly(10.0, 18.0, "", LOAD, 0.5, True), Anomaly(30.0, 38.0, "cart", "cpu", 1.0, True)]
    assert load_factor(anomalies, 12.0) == pytest.approx(1.65)
    assert load_factor(anomalies, 18.0) == load_factor(anomalies, 31.0) == 1.0
