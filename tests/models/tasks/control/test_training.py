"""Training of a control task: it goes on after a kill to the same result, and stops where it diverges."""

from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from feature_store.errors import InputError
from models.control.contract.environment import Outcome
from models.tasks.control.training import train
from models.tasks.task import parse_task
from tests.environments.backlog import ENVIRONMENT, Backlog

FILE = Path(__file__).parents[3] / "environments" / "backlog.yaml"
ROUNDS = 8


def task() -> Any:
    content = yaml.safe_load(FILE.read_text())
    training = {**content["training"], "applications": 8, "steps": 20, "window": 10, "aims": [0.5, 1.0]}
    return parse_task({**content, "training": training}, "task.yaml")


class Killed(BaseException):
    """In place of a signal, which no code sees coming."""


class Diverging(Backlog):
    """Costs become NaN from a round on: the one after so many draws of training episodes."""

    def __init__(self, draws: int) -> None:
        super().__init__()
        self.left = draws

    def draw(self, split: str, count: int, steps: int, seed: int, scenario: str = "", applications: Any = None) -> Any:
        self.left -= 1
        return super().draw(split, count, steps, seed, scenario, applications)

    def step(self, state: Any, targets: torch.Tensor) -> Any:
        after, outcome = super().step(state, targets)
        cost = outcome.cost * float("nan") if self.left < 0 else outcome.cost
        return after, Outcome(outcome.reward, cost, outcome.violation, outcome.violated, outcome.measures)


def weights(policy: Any) -> list[torch.Tensor]:
    return list(policy.state_dict().values())


def test_training_that_was_killed_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    whole = train(task(), ENVIRONMENT, ROUNDS, 0, tmp_path / "whole.npz", lambda event: None)

    def kill(event: dict[str, Any]) -> None:
        if event["done"] > 0.6:
            raise Killed

    with pytest.raises(Killed):
        train(task(), ENVIRONMENT, ROUNDS, 0, tmp_path / "policy.npz", kill)
    assert (tmp_path / "policy.npz").exists()
    rounds: list[float] = []
    again = train(task(), ENVIRONMENT, ROUNDS, 0, tmp_path / "policy.npz", lambda event: rounds.append(event["done"]))
    assert min(rounds) > 0.4  # it did not begin anew
    for one, other in zip(weights(whole.policies), weights(again.policies), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
    assert not (tmp_path / "policy.npz").exists()


def test_another_seed_gives_other_weights(tmp_path: Path) -> None:
    one, other = (train(task(), ENVIRONMENT, 2, seed, tmp_path / "policy.npz", lambda event: None) for seed in (0, 1))
    assert not torch.equal(weights(one.policies)[0], weights(other.policies)[0])


def test_training_that_diverges_keeps_the_best_weights_until_then_and_says_so(tmp_path: Path) -> None:
    found = train(task(), Diverging(16), 20, 0, tmp_path / "policy.npz", lambda event: None)
    assert "no finite number" in found.stopped
    assert all(torch.isfinite(one).all() for one in weights(found.policies))


def test_training_that_diverges_at_once_is_an_error_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no finite number.*before any weights were judged") as refused:
        train(task(), Diverging(1), 20, 0, tmp_path / "policy.npz", lambda event: None)
    assert "\n" not in str(refused.value)
