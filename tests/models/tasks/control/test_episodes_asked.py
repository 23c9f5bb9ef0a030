"""Which episodes of which environment each stage asks for: what chooses or tunes never sees a held-out one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from models.control.policy.policy import Policy
from models.control.training.through_environment import stack
from models.tasks.control import pretraining
from models.tasks.control.choosing import better, member_scores
from models.tasks.control.comparing import JudgedEpisodes
from models.tasks.control.policies import policy_shape
from models.tasks.control.seen import seen_in_training
from models.tasks.control.training import train
from models.tasks.control.tuned_rule import tune
from models.tasks.task import parse_task
from models.training.seeds import seeded
from tests.environments.asked import Asked, Recording

FILE = Path(__file__).parents[3] / "environments" / "backlog.yaml"
ROUNDS, SEED = 3, 5


def task() -> Any:
    content = yaml.safe_load(FILE.read_text())
    training = {**content["training"], "applications": 8, "steps": 20, "window": 10, "aims": [0.5, 1.0], "rounds": 2,
                "budget": 1.0, "rule_trials": 3}
    judging = {**content["judging"], "episodes": 24, "steps": 20}
    return parse_task({**content, "training": training, "judging": judging}, "task.yaml")


def policy(seed: int = 0) -> Policy:
    return Policy(policy_shape(task(), Recording([])), seeded(seed))


def acting(observation: Any, seconds: float) -> Any:
    return policy()(observation)


STAGES: dict[str, Callable[[Recording, Path], object]] = {
    "training": lambda here, folder: train(task(), here, ROUNDS, SEED, folder / "policy.npz", lambda event: None),
    "scores of the policies": lambda here, _: member_scores(task(), here, stack([policy(), policy(1)]), SEED),
    "the better of two": lambda here, _: better(task(), here, policy(), policy(1), SEED),
    "tuning of a rule": lambda here, _: tune(task(), "headroom", here, SEED),
    "what training saw": lambda here, _: seen_in_training(task(), here, acting, {}),
}


def asked_by(stage: str, folder: Path) -> list[Asked]:
    found: list[Asked] = []
    STAGES[stage](Recording(found), folder)
    assert found, "nothing was asked"
    return found


@pytest.mark.parametrize("stage", STAGES)
def test_whatever_chooses_or_tunes_asks_for_training_episodes_alone(stage: str, tmp_path: Path) -> None:
    assert {one.split for one in asked_by(stage, tmp_path)} == {"train"}


def test_what_judges_asks_for_held_out_episodes_alone() -> None:
    asked: list[Asked] = []
    JudgedEpisodes(task(), Recording(asked))
    assert {one.split for one in asked} == {"held_out"}


def test_no_episode_that_policies_are_chosen_by_is_one_of_their_training(tmp_path: Path) -> None:
    trained = {one.seed for one in asked_by("training", tmp_path)}
    for stage in ("scores of the policies", "the better of two"):
        assert not trained & {one.seed for one in asked_by(stage, tmp_path)}


def test_gradients_are_of_the_differentiable_environment_and_weights_chosen_in_the_exact_one(tmp_path: Path) -> None:
    asked = asked_by("training", tmp_path)
    learned = [one for one in asked if one.role == "differentiable"]
    judged = [one for one in asked if one.role == "exact"]
    assert len(judged) == ROUNDS + 1 and len({one.seed for one in judged}) == 1, "at the start and after each round"
    assert len({one.seed for one in learned}) >= ROUNDS, "new episodes each round"
    assert not {one.seed for one in judged} & {one.seed for one in learned}


def test_pretraining_looks_at_held_out_episodes_after_everything_is_chosen(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Asked] = []
    monkeypatch.setattr(pretraining, "environment_of", lambda name: Recording(asked))
    monkeypatch.setattr("models.tasks.control.tuned_rule.environment_of", lambda name: Recording(asked))
    before: list[Asked] = []

    def chosen(*arguments: Any) -> dict[str, Any]:
        before.extend(asked)
        return {}

    monkeypatch.setattr(pretraining, "on_held_out_applications", chosen)
    pretraining.pretrain(task(), SEED, tmp_path / "pretrained.zip", tmp_path, lambda event: None)
    assert before == asked and {one.split for one in asked} == {"train"}
