"""The lifecycle on training episodes: who acts when, and thresholds that no policy can reach."""

from pathlib import Path

import numpy as np
import pytest
import yaml

from feature_store.errors import InputError
from models.control.contract.systems import environment_of
from models.tasks.control.checking import check_task
from models.tasks.control.timeline import profile_of, timeline
from models.tasks.task import load_task, parse_task

TASK = load_task("tests/environments/backlog.yaml")
SYSTEM = environment_of(TASK.environment)


def test_a_policy_that_is_better_than_the_fallback_comes_to_serve_and_not_before() -> None:
    fallback, policy = np.full(60, 0.6), np.full(60, 0.8)
    found = timeline(profile_of(TASK, SYSTEM, 40, fallback), fallback, policy)
    assert [one["after"] for one in found["transitions"]] == ["online", "serving"]
    assert found["stages"][0] == "offline" and found["stages"][-1] == "serving"
    assert [one["episode"] for one in found["transitions"]] == [9, 19]


@pytest.mark.parametrize("mean", [2.0, 0.0, -2.0])
def test_what_ends_offline_training_by_default_is_less_than_the_fallback_s_reward_of_either_sign(mean: float) -> None:
    assert profile_of(TASK, SYSTEM, 1, np.full(60, mean) / 2).t_online == pytest.approx(mean / 2 - 0.025 * abs(mean))


def test_a_policy_that_is_worse_never_serves() -> None:
    fallback, policy = np.full(60, 0.6), np.full(60, 0.5)
    assert timeline(profile_of(TASK, SYSTEM, 40, fallback), fallback, policy)["serving_share"] == 0


def test_a_reward_that_is_missing_never_promotes() -> None:
    fallback, policy = np.full(60, 0.6), np.where(np.arange(60) % 5 == 0, np.nan, 0.8)
    assert timeline(profile_of(TASK, SYSTEM, 40, fallback), fallback, policy)["serving_share"] == 0


@pytest.mark.parametrize("name", ["t_online", "t_serving"])
def test_a_threshold_that_no_policy_can_reach_is_refused_with_its_line(name: str) -> None:
    content = {**yaml.safe_load(Path("tests/environments/backlog.yaml").read_text()), "profile": {name: 1.5}}
    with pytest.raises(InputError, match=f"profile.{name}: expected at most the largest reward of a step, 1, got 1.5"):
        check_task(parse_task(content, "task.yaml"), "shop", "task.yaml", None)
