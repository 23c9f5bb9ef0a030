"""What a policy saves against rules: the best rule is one that keeps the objective, and differences are paired."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from feature_store.errors import InputError
from models.tasks.control.comparing import against, figures
from models.tasks.control.judging import Played
from models.tasks.task import load_task, parse_task

TASK = load_task("tests/environments/backlog.yaml")  # 2 % of the steps may violate
NOTHING = np.zeros((1, 1, 1), dtype=np.float32)


def played(cost: "np.ndarray", share: float, reward: float = 1.0) -> Played:
    return Played(np.full(len(cost), reward), cost, np.full(len(cost), share), {}, NOTHING, NOTHING, {})


def test_a_gate_may_ask_for_the_mean_of_a_measure() -> None:
    one = replace(played(np.full(4, 1.0), 0.0), measures={"power_w": np.array([40.0, 60.0, 50.0, 90.0])})
    assert figures(one)["mean_power_w"] == 60.0 and "mean_power_w" not in figures(played(np.full(4, 1.0), 0.0))


def noise(seed: int, count: int = 100) -> "np.ndarray":
    return np.random.default_rng(seed).normal(0, 1, count)


def test_the_best_rule_keeps_the_objective_however_cheap_another_one_is() -> None:
    rules = {"cheap": played(np.full(100, 1.0), 0.3), "fair": played(np.full(100, 4.0), 0.01),
             "dear": played(np.full(100, 8.0), 0.0)}
    best, metrics = against(TASK, played(np.full(100, 3.0), 0.02), rules, "own_")
    assert best == "fair" and metrics["own_cost_saved"] == pytest.approx(0.25)
    assert metrics["own_rule_violating_share"] == pytest.approx(0.01)


def test_where_no_rule_keeps_it_the_one_that_violates_least_is_the_best() -> None:
    rules = {"one": played(np.full(100, 1.0), 0.3), "two": played(np.full(100, 4.0), 0.1)}
    assert against(TASK, played(np.full(100, 3.0), 0.0), rules, "")[0] == "two"


def test_a_policy_that_violates_more_is_held_to_rules_that_may_do_so_too() -> None:
    rules = {"cheap": played(np.full(100, 1.0), 0.05), "fair": played(np.full(100, 4.0), 0.01)}
    best, metrics = against(TASK, played(np.full(100, 3.0), 0.06), rules, "")
    assert best == "cheap" and metrics["cost_saved"] < 0


def test_a_reward_is_held_against_the_largest_of_the_rules_that_keep_the_objective() -> None:
    rules = {"cheap": played(np.full(100, 2.0), 0.0, 1.0), "dear": played(np.full(100, 4.0), 0.0, 3.0),
             "missing": played(np.full(100, 1.0), 0.3, 9.0)}
    best, metrics = against(TASK, played(np.full(100, 3.0), 0.02, 2.0), rules, "")
    assert (best, metrics["rule_cost"], metrics["rule_reward"], metrics["reward_gain"]) == ("cheap", 2.0, 3.0, -1.0)


def test_so_few_episodes_that_no_interval_can_be_drawn_are_refused_in_the_task_file() -> None:
    content = {**yaml.safe_load(Path("tests/environments/backlog.yaml").read_text()), "judging": {"episodes": 7}}
    with pytest.raises(InputError, match=r"judging\.episodes: expected a whole number from 8, got 7"):
        parse_task(content, "task.yaml")


def test_what_all_episodes_share_does_not_widen_the_interval() -> None:
    common = 10 + 3 * noise(0)
    rules = {"rule": played(common, 0.0)}
    _, paired = against(TASK, played(0.9 * common, 0.0), rules, "")
    _, unpaired = against(TASK, played(0.9 * (10 + 3 * noise(1)), 0.0), rules, "")
    assert paired["cost_saved_upper"] - paired["cost_saved_lower"] < 0.2 * (
        unpaired["cost_saved_upper"] - unpaired["cost_saved_lower"])
    assert 0.05 < paired["cost_saved_lower"] < paired["cost_saved"] < paired["cost_saved_upper"]


def test_an_equal_policy_does_not_pass_by_luck() -> None:
    """The lower end is above 0 in at most 5 % of 200 comparisons of a policy that is as dear as the rule."""
    passed = [against(TASK, played(10 + noise(2 * seed), 0.0), {"rule": played(10 + noise(2 * seed + 1), 0.0)},
                      "")[1]["cost_saved_lower"] > 0 for seed in range(200)]
    assert np.mean(passed) <= 0.05


def test_the_worst_tenth_is_of_the_episodes_and_the_upper_end_is_above_the_mean() -> None:
    share = np.concatenate([np.zeros(90), np.full(10, 0.5)])
    found = figures(Played(share, share, share, {}, NOTHING, NOTHING, {}))
    assert found["worst_tenth_violating_share"] == 0.5 and found["worst_tenth_reward"] == 0.0
    assert found["violating_share"] == pytest.approx(0.05) and 0.05 < found["violating_share_upper"] < 0.3
