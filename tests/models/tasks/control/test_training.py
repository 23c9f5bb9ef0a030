"""Training of a control task: it goes on after a kill to the same result, and stops where it diverges."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
import yaml

from feature_store.errors import InputError
from models.control.contract.acting import load_acting
from models.control.contract.environment import Outcome
from models.control.contract.systems import environment_of
from models.control.simulation.rollout import acting_of
from models.control.training.methods import METHODS, OFFLINE
from models.control.training.trajectories import collect, transitions
from models.control.training.trajectory_log import Header, Step, TrajectoryLog
from models.tasks.control.checking import check_task
from models.tasks.control.experience import of_fallback, of_log, parts_of_log
from models.tasks.control.kind import KIND
from models.tasks.control.policies import demands_of, policy_shape
from models.tasks.control.scoring import Score
from models.tasks.control.telemetry import write_load
from models.tasks.control.training import THROUGH_ENVIRONMENT, never_acts, train, training_settings
from models.tasks.control.tuned_rule import TunedRule
from models.tasks.task import parse_task
from models.training.methods import POLICY_METHODS
from tests.environments.backlog import ENVIRONMENT, Backlog
from tests.models.control.training.logged_steps import to_steps

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


def test_the_reward_counts_where_a_workload_is_trained_for_and_nowhere_else() -> None:
    written = task()
    training = written.training.model_copy(update={"finetune_reward_weight": 0.3})
    weighted = written.model_copy(update={"training": training})
    assert [training_settings(weighted, 3, finetuning).reward_weight for finetuning in (False, True)] == [0.0, 0.3]


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


TINY: dict[str, dict[str, Any]] = {
    "ppo": {"minibatches": 2}, **{name: {"batch_size": 16, "first_update": 16} for name in ("ddpg", "td3", "sac")},
    **{name: {"updates": 20, "report_every": 10} for name in OFFLINE}}


def by(method: str, **changes: Any) -> Any:
    content = yaml.safe_load(FILE.read_text())
    training = {**content["training"], "method": method, "settings": TINY[method], "applications": 8,
                "aims": [0.5, 1.0], **changes}
    return parse_task({**content, "training": training}, "task.yaml")


def watched(task: Any, rounds: int = 2) -> Any:
    return of_fallback(task, ENVIRONMENT, TunedRule(task.fallback, {}, Score(0.0, 0.0, 0.0, 0.0), 1), rounds, 0)


def test_the_names_on_the_command_line_are_those_of_the_methods() -> None:
    assert {*POLICY_METHODS} == {THROUGH_ENVIRONMENT, *METHODS}


@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains_a_policy_for_each_aim_which_keeps_what_holds_by_construction(method: str, tmp_path: Path
                                                                                        ) -> None:
    task, events = by(method), []
    known = watched(task) if never_acts(task) else None
    found = train(task, ENVIRONMENT, 3, 0, tmp_path / "policy.npz", events.append, experience=known)
    assert found.policies.members == (2,) and found.aims == (0.01, 0.02) and not found.stopped
    assert found.policies.shape.gates == policy_shape(task, ENVIRONMENT).gates
    assert not torch.equal(*(found.policies.member(k).weights[0] for k in (0, 1)))
    once_more = found.policies.member(0)
    demands_of(task).project(once_more)  # it is where it would be moved to
    for one, other in zip(weights(once_more), weights(found.policies.member(0)), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)
    assert bool(found.history) is not never_acts(task)
    assert events[-1]["done"] == 1.0 and "policy 2 of 2" in events[-1]["said"]
    tuned = train(task, ENVIRONMENT, 1, 1, tmp_path / "tuned.npz", events.append, found.policies.member(0), known)
    assert torch.equal(tuned.policies.mean, found.policies.mean)  # it went on from that one


@pytest.mark.parametrize(("training", "message"), [
    ({"method": "through_environment", "settings": {"discount": 0.9}}, "training.settings: expected none with method"),
    ({"method": "ppo", "settings": {"episodes": 3}}, "training.settings.episodes: expected it as `rounds`"),
    ({"method": "sac", "settings": {"temprature": 3}}, "temprature: .* 'temperature'.*of method sac, task.yaml"),
    ({"method": "cql", "settings": {"weight": -1}}, "weight: expected a number above 0, got -1 .training.settings"),
    ({"method": "dqn"}, "training.method: expected .*through_environment"),
])
def test_what_a_method_does_not_have_is_refused_by_its_field(training: dict[str, Any], message: str) -> None:
    content = yaml.safe_load(FILE.read_text())
    with pytest.raises(InputError, match=message):
        check_task(parse_task({**content, "training": training}, "task.yaml"), "shop", "task.yaml", None)


def log_of(folder: Path, task: Any, workload: str = "shop") -> Any:
    """As a controller writes it, of three episodes."""
    rule = load_acting(environment_of(task.environment).acting).rules[task.fallback].make({})
    done = collect(ENVIRONMENT, acting_of(ENVIRONMENT, rule), "train", 1, 12, 5)
    header = Header(task.name, tuple((one.name, one.unit) for one in ENVIRONMENT.signals),
                    tuple((one.name, one.unit) for one in ENVIRONMENT.controls))
    steps = [replace(step, application=workload) for step in to_steps(done, "fallback")]
    TrajectoryLog(folder / "steps", header).append(steps)
    return transitions(done)


def with_log(folder: Path, method: str = "cql") -> Any:
    content = yaml.safe_load(FILE.read_text())
    workloads = {name: {**one, "experience": str(folder)} for name, one in content["workloads"].items()}
    return parse_task({**content, "workloads": workloads, "training": {"method": method}}, "task.yaml")


def kept(task: Any, features: Path) -> Path:
    """As `featurize` keeps the log."""
    (features / "shop").mkdir(parents=True)
    for name, text in parts_of_log(task, "shop").items():
        (features / "shop" / name).write_text(text)
    return features


def test_the_log_belongs_to_the_version_of_the_data(tmp_path: Path) -> None:
    moments = pd.date_range("2026-01-05T00:00:00Z", periods=80, freq="1s")
    samples = pd.DataFrame({"workload": "shop", "window_start": moments, "window_s": 1.0, "rate_rps": 10.0})
    versions = []
    for number, log in enumerate(({}, {"steps-000001.jsonl": "a"}, {"steps-000001.jsonl": "ab"})):
        write_load(samples, "shop", ("rate_rps",), 60, (), tmp_path / str(number), log)
        versions.append(json.loads((tmp_path / str(number) / "quality.json").read_text())["data_version"])
    assert len(set(versions)) == 3 and (tmp_path / "2" / "steps-000001.jsonl").read_text() == "ab\n"


def test_an_episode_of_a_year_takes_no_more_room_than_its_steps(tmp_path: Path) -> None:
    task = with_log(tmp_path)
    log_of(tmp_path, task)
    text = next((tmp_path / "steps").glob("*")).read_text()
    (tmp_path / "steps" / "steps-000002.jsonl").write_text(
        text.splitlines()[0] + "\n" + text.splitlines()[1].replace('"step":0', '"step":9999999999') + "\n")
    found = of_log(task, "shop", ENVIRONMENT, kept(task, tmp_path / "features"))
    assert found is not None and len(found) == 11


def test_a_controllers_log_is_what_fine_tuning_learns_from(tmp_path: Path) -> None:
    task = with_log(tmp_path)
    done = log_of(tmp_path, task)
    check_task(task, "shop", "task.yaml", None)
    kept(task, tmp_path / "features")
    log_of(tmp_path, task, "later")  # a controller goes on writing
    found = of_log(task, "shop", ENVIRONMENT, tmp_path / "features")
    assert found is not None and len(found) == 11
    torch.testing.assert_close(found.observation, done.observation)
    torch.testing.assert_close(found.targets, done.targets)
    assert KIND.logs(task, ("shop",)) == (tmp_path / "steps" / "steps-000001.jsonl",)
    assert of_log(by("cql"), "shop", ENVIRONMENT, tmp_path) is None and KIND.logs(by("cql"), ("shop",)) == ()


def test_a_log_of_something_else_is_refused(tmp_path: Path) -> None:
    task = with_log(tmp_path)
    with pytest.raises(InputError, match=r"workloads.shop.experience: expected the absolute path of a folder with"):
        check_task(task, "shop", "task.yaml", None)
    log_of(tmp_path, task, "pond")
    with pytest.raises(InputError, match="must hold steps of workload shop, got pond"):
        of_log(task, "shop", ENVIRONMENT, kept(task, tmp_path / "features"))
    with pytest.raises(InputError, match="expected a method that can learn from what others did, got ppo"):
        check_task(with_log(tmp_path, "ppo"), "shop", "task.yaml", None)
    other = tmp_path / "other"
    TrajectoryLog(other, Header(task.name, (("depth", "m"),), (("serving", "1/s"),)))
    TrajectoryLog(other, Header(task.name, (("depth", "m"),), (("serving", "1/s"),))).append(
        [Step("shop", 0, 0, "policy", (1.0,), (1.0,), 1.0)])
    with pytest.raises(InputError, match=r"signals differ in .*depth"):
        of_log(with_log(other), "shop", ENVIRONMENT, kept(with_log(other), tmp_path / "others"))
