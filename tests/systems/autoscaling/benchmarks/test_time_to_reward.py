import pytest

from systems.autoscaling.benchmarks import time_to_reward_child
from systems.autoscaling.benchmarks.time_to_reward import WAYS, reached, training_table
from systems.autoscaling.benchmarks.time_to_reward_child import Clock, Over, train
from systems.autoscaling.simulator.simulator import Autoscaling

CURVE = [{"seconds": 1.0, "steps": 1000, "reward": 1.3}, {"seconds": 4.0, "steps": 4000, "reward": 1.62}]
RESULTS = {
    "asked": {"trials": 8}, "machine": {"cpu_model": "a core"}, "date": "2026-11-22T00:00:00+00:00",
    "rule": {"rule": "hpa-cpu", "reward": 1.5, "trials": 8},
    "entries": [{"way": "ppo", "seed": 0, "asked_seconds": 30.0, "curve": CURVE},
                {"way": "ppo", "seed": 1, "asked_seconds": 30.0, "curve": CURVE},
                {"way": "ppo", "seed": 2, "asked_seconds": 30.0, "curve": CURVE[:1]},
                {"way": "peer_sac_defaults", "seed": 0, "asked_seconds": 30.0, "curve": CURVE[:1]},
                {"way": "peer_ppo", "seed": 0, "missing": "no module"}]}


def test_the_goal_is_reached_at_the_first_measurement_above_it():
    assert reached(CURVE, 1.6) == 4.0 and reached(CURVE, 1.7) is None


def test_a_row_says_how_many_got_there_and_when():
    rows = training_table(RESULTS).split("\n")
    assert rows[2].startswith("| PPO | 2 of 3 | 4.00 s (4.00 to never) | 151.3 |")
    assert "| 0 of 1 | not within 30 s | 130.0 |" in rows[3]
    assert "Goal: 153.0 an episode, 3 above the best rule (hpa-cpu" in training_table(RESULTS)


def test_measuring_does_not_count_and_ends_at_the_goal(monkeypatch):
    now = iter([0.0, 1.0, 11.0, 12.0, 22.0])
    monkeypatch.setattr(time_to_reward_child.time, "process_time", lambda: next(now))
    clock = Clock(60.0, 1.5, "cpu")
    clock.measured(100, lambda: 1.0)
    with pytest.raises(Over):
        clock.measured(200, lambda: 1.6)
    assert [(point["seconds"], point["steps"]) for point in clock.curve] == [(1.0, 100), (2.0, 200)]


@pytest.mark.parametrize("way", [way for way, described in WAYS.items() if not described.by_peers])
def test_each_of_our_ways_has_a_curve(way):
    clock = Clock(0.0, 9.0, "cpu")
    with pytest.raises(Over):
        train(Autoscaling(), way, 0, clock)
    assert clock.curve[0]["steps"] > 0 and 0.0 < clock.curve[0]["reward"] < 2.0
