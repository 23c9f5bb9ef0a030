"""Tuning of rules: what is found is better, keeps its target, and is the same again."""

from itertools import pairwise

import numpy as np
import pytest

from feature_store.errors import InputError
from models.control.simulation.rollout import Rollout, roll_out
from models.control.training.rule_tuning import Trial, Tuner, side_by_side, tune
from systems.autoscaling.rules.rules import RULES, make
from systems.autoscaling.simulator.simulator import Autoscaling

RULE = "hpa-cpu"
ENVIRONMENT = Autoscaling()
STEPS = 40


@pytest.fixture(scope="module")
def episodes():
    return ENVIRONMENT.draw("train", 16, STEPS + 1, seed=0)


def search(episodes, trials=24, target: float | None = 0.1):
    tuner = Tuner(ENVIRONMENT, RULES[RULE], episodes, STEPS, seed=1)
    tuner.search(trials, target)
    return tuner


def test_a_search_beats_the_defaults_and_ends_with_its_best(episodes):
    tuner = search(episodes, target=0.05)
    best = tuner.best(0.05)
    default = roll_out(ENVIRONMENT, make(RULE), episodes, STEPS)
    assert default.violated.mean() > 0.05
    assert best.kept
    assert best.violated <= 0.05
    assert best.cost == min(trial.cost for trial in tuner.trials if trial.violated <= 0.05)
    again = roll_out(ENVIRONMENT, RULES[RULE].make(best.settings), episodes, STEPS)
    assert (again.cost.mean(), again.violated.mean(), again.reward.mean()) == (best.cost, best.violated, best.reward)


def test_the_first_trial_is_the_default(episodes):
    first = search(episodes, trials=2).trials[0].settings
    defaults = make(RULE).settings
    assert {name: value for name, value in first.items() if value != defaults[name]} == {}


def test_for_the_reward_the_largest_one_is_kept(episodes):
    tuner = search(episodes, target=None)
    assert tuner.best(None).reward == max(trial.reward for trial in tuner.trials)
    assert tuner.best(None).target is None


def test_for_the_reward_at_most_as_many_violations_are_kept_as_are_allowed(episodes):
    tuner = Tuner(ENVIRONMENT, RULES[RULE], episodes, STEPS, seed=1)
    figures = [(1.0, 0.1, 2.0), (2.0, 0.04, 1.5), (1.5, 0.03, 1.0)]
    tuner.trials = [
        Trial(tuner.searched({}), Rollout(*(np.full(16, one) for one in (reward, cost, violated, 0.0)), {}, 1))
        for cost, violated, reward in figures]
    found = [tuner.best(None), tuner.best(0.05, reward=True), tuner.best(0.05)]
    assert [one.reward for one in found] == [2.0, 1.5, 1.0]
    assert [one.objective for one in found] == ["reward", "reward", "violations"]
    assert tuner.best(0.01, reward=True).violated == 0.03, "where none keeps that, the fewest"
    tuner.trials = []
    tuner.search(24, 1e-3, reward=True)
    asked = [trial.settings["replicas_cpu_target"] for trial in tuner.trials[16:]]
    tuner.trials = []
    tuner.search(24, None)
    assert asked != [trial.settings["replicas_cpu_target"] for trial in tuner.trials[16:]], "the search has a price too"


def test_where_no_trial_keeps_the_target_the_fewest_violations_are_kept(episodes):
    tuner = search(episodes, trials=4)
    best = tuner.best(0.0)
    if not best.kept:
        assert best.violated == min(trial.violated for trial in tuner.trials)
    with pytest.raises(InputError, match="search must come before the best settings are asked for"):
        Tuner(ENVIRONMENT, RULES[RULE], episodes, STEPS).best(0.1)


def test_an_equal_seed_finds_the_same(episodes):
    assert search(episodes, 20).best(0.1) == search(episodes, 20).best(0.1)


def test_a_front_is_never_beaten(episodes):
    front = search(episodes).front()
    assert all(a.cost < b.cost and a.violated > b.violated for a, b in pairwise(front))


def test_a_tuned_rule_is_made_again_of_its_settings(episodes):
    best = search(episodes, 4).best(0.1)
    assert RULES[RULE].make(best.settings).settings == best.settings


def test_tuning_as_a_whole_serves_the_target_and_the_reward():
    tuner = tune(ENVIRONMENT, RULES[RULE], applications=48, steps=50, target=0.25, effort=0.1)
    assert len(tuner.trials) == 3 * 1 + 1 + (5 + 3 + 2) + 2
    assert tuner.best(0.25).kept
    assert tuner.best(None).reward >= tuner.best(0.25).reward


def test_refining_only_improves_and_stays_in_the_ranges(episodes):
    tuner = search(episodes, 8)
    before = tuner.best(0.1)
    tuner.refine(40, 0.1)
    after = tuner.best(0.1)
    assert len(tuner.trials) == 48
    assert (not after.kept, after.cost) < (not before.kept, before.cost)
    ranges = {setting.name: setting.search for setting in RULES[RULE].declared if setting.search}
    for trial in tuner.trials:
        assert all(low <= trial.settings[name] <= high for name, (low, high) in ranges.items())


def test_settings_found_for_another_rule_are_tried_first(episodes):
    tuner = Tuner(ENVIRONMENT, RULES["hpa-cpu-vpa-memory"], episodes, STEPS)
    found = tuner.searched({"replicas_cpu_target": 0.5, "replicas_down_percent": 1.0, "cpu_nothing": 3.0})
    assert found["replicas_cpu_target"] == 0.5
    assert found["replicas_down_percent"] == 5.0  # where the search of it begins
    assert found["memory_margin"] == 0.15
    assert "cpu_nothing" not in found


def test_settings_side_by_side_are_each_repeated():
    made = side_by_side([{"a": 1.0, "b": "x"}, {"a": 2.0, "b": "y"}], 2)
    assert made["a"].tolist() == [1, 1, 2, 2]
    assert made["b"].tolist() == ["x", "x", "y", "y"]
    with pytest.raises(InputError, match="settings tried side by side must name the same ones, got one without 'b'"):
        side_by_side([{"a": 1.0, "b": "x"}, {"a": 2.0}], 2)


@pytest.mark.parametrize("reward", [False, True])
def test_where_no_violation_is_allowed_the_least_violations_are_found(episodes, reward):
    tuner = Tuner(ENVIRONMENT, RULES[RULE], episodes, STEPS, seed=1)
    tuner.search(8, 0.0, reward=reward)
    assert tuner.best(0.0, reward=reward).violated == min(trial.violated for trial in tuner.trials)
