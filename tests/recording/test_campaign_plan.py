"""Plans: determinism, sizes, ranges."""

import dataclasses
from collections import Counter

import numpy as np
import pytest

from feature_store.errors import InputError
from feature_store.schema import CONFIGURATION
from recording.plan import draw_sizes, plan_campaign
from recording.settings import CampaignSettings
from recording.workloads.catalogue import WORKLOADS


def test_the_same_settings_give_the_same_plan_and_another_seed_another() -> None:
    settings = CampaignSettings(combinations=12)
    assert plan_campaign(settings) == plan_campaign(settings)
    assert plan_campaign(settings) != plan_campaign(dataclasses.replace(settings, seed=1))


@pytest.mark.parametrize("profile", ["base", "shifted"])
def test_combinations_differ_and_draw_from_the_ranges_of_the_profile(profile: str) -> None:
    plan = plan_campaign(CampaignSettings(combinations=60, profile=profile))
    assert len({repr(combination.workloads) for combination in plan}) == 60
    assert len({combination.identifier for combination in plan}) == 60
    for combination in plan:
        names = [planned.name for planned in combination.workloads]
        assert len(set(names)) == len(names) <= 5
        for planned in combination.workloads:
            ranges = WORKLOADS[planned.name].ranges(profile)
            assert planned.configuration.keys() == ranges.keys()
            assert all(value in ranges[name] for name, value in planned.configuration.items())


@pytest.mark.parametrize("profile", ["base", "shifted"])
@pytest.mark.parametrize("workload", sorted(WORKLOADS))
def test_every_configurable_property_is_a_column_of_the_schema(workload: str, profile: str) -> None:
    ranges = WORKLOADS[workload].ranges(profile)
    assert ranges.keys() <= CONFIGURATION.keys()
    assert "cpu_quota_cores" in ranges
    assert min(ranges["cpu_quota_cores"]) >= 0.2


def test_interference_lasts_as_long_as_the_combination_and_can_be_left_out() -> None:
    settings = CampaignSettings(combinations=5, seconds_per_combination=40)
    assert all(sum(phase.seconds for phase in one.interference) >= 40 for one in plan_campaign(settings))
    quiet = plan_campaign(dataclasses.replace(settings, interference=False))
    assert all(one.interference == () for one in quiet)


def test_sizes_are_shared_out_by_their_squares() -> None:
    sizes = Counter(draw_sizes(np.random.default_rng(0), 55, 5))
    assert sizes == {1: 1, 2: 4, 3: 9, 4: 16, 5: 25}


@pytest.mark.parametrize("count", [1, 2, 7, 100])
def test_sizes_are_as_many_as_asked_for(count: int) -> None:
    assert len(draw_sizes(np.random.default_rng(0), count, 5)) == count


def test_few_configurations_do_not_stop_a_plan() -> None:
    settings = CampaignSettings(workloads=("training",), theta=1, combinations=30, interference=False)
    assert len(plan_campaign(settings)) == 30


def test_more_combinations_than_there_can_be_are_refused() -> None:
    settings = CampaignSettings(
        workloads=("training",), theta=1, combinations=10_000, seconds_per_combination=3.0, window_s=1, warm_up_s=0.0)
    with pytest.raises(InputError, match=r"combinations must differ, got 10000 and only \d+ that do"):
        plan_campaign(settings)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"workloads": ("nginxx",)}, "did you mean 'nginx'"),
        ({"workloads": ()}, "workloads must be one or more"),
        ({"workloads": ("redis", "redis"), "theta": 1}, "workloads must differ"),
        ({"theta": 6}, "theta must lie in 1..number of workloads, got 6"),
        ({"combinations": 0}, "combinations must be 1 or more, got 0"),
        ({"window_s": 0}, "window_s must be a whole number of scrapes"),
        ({"seconds_per_combination": 5.0}, "seconds_per_combination must leave at least one window"),
        ({"seconds_per_combination": float("inf")}, "and be 86400 at most, got inf"),
        ({"seconds_per_combination": float("inf"), "warm_up_s": float("inf")}, "and be 86400 at most, got inf"),
        ({"environment": "a b"}, "environment must be a name"),
        ({"profile": "night"}, "profile must be one of"),
        ({"warm_up_s": -1.0}, "warm_up_s must be 0 or more"),
        ({"seed": -1}, "seed must be 0 or more"),
    ],
)
def test_unusable_settings_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        CampaignSettings(**change)  # type: ignore[arg-type]
