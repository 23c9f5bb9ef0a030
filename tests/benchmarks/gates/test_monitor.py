"""The benchmark of the monitor counts what it says: alarms where nothing changes, minutes from a change to an alarm."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from benchmarks.gates import changed_policies, changed_services, unchanged_telemetry
from benchmarks.gates.monitor import OF_POLICIES, alarms_table, delays_table, policies_table
from systems.autoscaling.benchmarks.scenarios import LABELS
from systems.autoscaling.simulator.episodes import SCENARIOS as SIMULATED


def test_the_scenarios_are_the_simulators() -> None:
    assert set(LABELS) == {"", *SIMULATED} > set(OF_POLICIES)


@pytest.mark.parametrize("kind", unchanged_telemetry.KINDS)
def test_unchanged_telemetry_keeps_its_distribution(kind: str) -> None:
    frame = unchanged_telemetry.unchanged(kind, 8 * unchanged_telemetry.DAY, 0)
    assert frame.shape == (8 * unchanged_telemetry.DAY, unchanged_telemetry.FEATURES)
    ranks = frame.rank(pct=True)
    early, late = ranks.iloc[:len(frame) // 2].mean(), ranks.iloc[len(frame) // 2:].mean()
    assert (np.abs(early - late) < 0.1).all() and not frame.equals(unchanged_telemetry.unchanged(kind, len(frame), 1))


def test_a_change_is_seen_after_it_and_no_change_never() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=changed_services.STEPS - 1)})
    assert changed_services._drift_delay(frame) == (None, "")
    frame.loc[changed_services.CHANGE:, "a"] += 3.0
    minutes, feature = changed_services._drift_delay(frame)
    assert feature == "a" and minutes is not None and 0 < minutes <= 15


def test_of_a_policy_a_change_is_seen_after_it_and_no_change_never() -> None:
    rng = np.random.default_rng(0)
    steps = pd.DataFrame({"a": rng.normal(size=changed_services.STEPS - 1 - changed_services.WARM_UP)})
    assert changed_policies._delay(steps) == (None, "", 128)  # a look every 80 steps, from 5,120 steps on
    steps.loc[changed_services.CHANGE - changed_services.WARM_UP:, "a"] += 3.0
    minutes, feature, looks = changed_policies._delay(steps)
    assert feature == "a" and minutes is not None and 0 < minutes <= 25 and looks < 40


def test_the_end_of_serving_is_dated_by_its_episode() -> None:
    rewards = 1.5 + 0.05 * np.random.default_rng(0).normal(size=changed_services.STEPS - 1)
    assert changed_services._reward_delay(rewards) is None
    rewards[changed_services.CHANGE:] -= 0.5
    # the mean of ten falls below with the first episode after the change, most of which lies behind it
    assert changed_services._reward_delay(rewards) == pytest.approx(25.0, abs=25.0)


def test_tables_tell_alarms_before_a_change_apart() -> None:
    entries: list[dict[str, Any]] = [
        {"key": ["false alarms", "daily", 0, 4], "looks": 2016, "judged": 50, "monitor": 1, "each look": 7,
         "each feature": 2016},
        {"key": ["policies", "", 0, 2], "drift": [None, 20.0, None], "looks": 1280},
        {"key": ["policies", "load_high_to_low", 0, 2], "drift": [10.0, 20.0, -5.0], "looks": 300},
        {"key": ["delays", "", 0, 2], "drift": [None, 20.0], "reward": [None, -20.0], "cpu": [1.0, 1.0]},
        {"key": ["delays", "payload_file", 0, 2], "drift": [10.0, 20.0], "reward": [-10.0, None], "cpu": [2.0, 2.5]}]
    assert "| daily | 4 | 2,016 | 50 of 50 | 1 | 7 | 2,016 |" in alarms_table({"entries": entries})
    none, payload = delays_table({"entries": entries}).splitlines()[2:]
    assert none.startswith("| none | 2 | 1.00 | - | 1 | 1 | - | 1 | 1 |")
    assert payload.endswith("| 2 | 2.25 | 15.0, 20.0 min | 0 | 0 | - | 1 | 1 |")
    assert policies_table({"entries": entries}).splitlines()[2:] == [
        "| none | 3 | 1,280 | - | 1 | 2 |", "| load high to low | 3 | 300 | 15.0, 20.0 min | 1 | 0 |"]
