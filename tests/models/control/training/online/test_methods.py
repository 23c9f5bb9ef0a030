"""Every method: it learns, repeats, goes on after a kill, and stops where losses are no numbers."""

import os
import signal
import subprocess
import sys
import time
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from feature_store.errors import InputError
from models.control.contract.signals import Anchor
from models.control.policy.policy import Policy
from models.control.training.methods import ONLINE, method
from models.control.training.objective import ObjectiveSettings
from models.control.training.online.ddpg import Ddpg
from models.control.training.online.off_policy import OffPolicyLearner
from models.control.training.online.sac import Sac
from models.control.training.online.td3 import Td3
from models.control.training.training_run import Row, TrainedPolicy, evaluate, new_policy, plain_shape
from models.control.training.trajectories import collect, transitions
from tests.models.control.training.pond import Poisoned, Pond

ROOT = Path(__file__).parents[5]
FAST: dict[str, dict[str, Any]] = {
    "ddpg": {"actor_rate": 3e-3}, "td3": {"first_update": 200, "batch_size": 64, "updates_per_step": 1},
    "sac": {"first_update": 200, "batch_size": 64, "updates_per_step": 1},
    "ppo": {"rate": 3e-3, "minibatches": 2, "epochs": 4},
}  # fmt: skip


def settings(name: str, **changes: Any) -> Any:
    common = {"episodes": 4, "applications": 16, "hidden": (16,), "validate_every": 2, "validation_applications": 32,
              "checkpoint_every": 2, "objective": ObjectiveSettings(kind="reward")}
    return method(name).settings(**{**common, **FAST[name], **changes})


def train(name: str, seed: int = 0, **changes: Any) -> TrainedPolicy:
    return method(name).train(Pond(), settings(name, **changes), seed)


def equal(one: Policy, other: Policy) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))


@pytest.mark.parametrize("name", ONLINE)
def test_it_learns(name: str) -> None:
    untrained = new_policy(Pond(), plain_shape(Pond(), (16,)), 0)
    before = evaluate(Pond(), untrained, "held_out", 64, 99)
    trained = train(name, episodes=40, validate_every=10, applications=64)
    after = evaluate(Pond(), trained.policy, "held_out", 64, 99)
    assert not trained.stopped and after.reward > before.reward + 1.0, (before, after)


@pytest.mark.parametrize("name", ONLINE)
def test_equal_seeds_give_equal_policies(name: str) -> None:
    one, same, other = train(name), train(name), train(name, seed=1)
    assert equal(one.policy, same.policy) and one.history == same.history
    assert not equal(one.policy, other.policy)


@pytest.mark.parametrize("name", ONLINE)
def test_a_run_that_stopped_half_way_goes_on_to_the_same_result(name: str, tmp_path: Path) -> None:
    class Killed(Exception):
        pass

    def kill(row: Row) -> None:
        if row.episode == 4:
            raise Killed

    path, wanted = tmp_path / "checkpoint.npz", settings(name, episodes=8)
    with pytest.raises(Killed):
        method(name).train(Pond(), wanted, 3, path, kill)
    seen: list[Row] = []
    resumed = method(name).train(Pond(), wanted, 3, path, seen.append)
    whole = method(name).train(Pond(), wanted, 3)
    assert [row.episode for row in seen] == [6, 8]
    assert resumed.history == whole.history and equal(resumed.policy, whole.policy)
    again = method(name).train(Pond(), wanted, 3, path)
    assert equal(again.policy, whole.policy)


def test_a_run_that_was_killed_goes_on_to_the_same_result(tmp_path: Path) -> None:
    path, wanted = tmp_path / "checkpoint.npz", settings("td3", episodes=400, checkpoint_every=2)
    code = (f"from tests.models.control.training.online.test_methods import *\n"
            f"method('td3').train(Pond(), settings('td3', episodes=400), 3, Path({str(path)!r}))")
    child = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    while not path.exists() and child.poll() is None:
        time.sleep(0.01)
    assert child.poll() is None, "it ended before it could be killed"
    child.send_signal(signal.SIGKILL)
    child.wait()
    short = wanted.model_copy(update={"episodes": 12})
    with pytest.raises(InputError, match=r"expected one of the same method, .* got one that differs in settings \("):
        method("td3").train(Pond(), short, 3, path)
    seen: list[Row] = []

    class Enough(Exception):
        pass

    def stop(row: Row) -> None:
        seen.append(row)
        if len(seen) == 2:
            raise Enough

    with pytest.raises(Enough):
        method("td3").train(Pond(), wanted, 3, path, stop)
    whole: list[Row] = []
    with pytest.raises(Enough):
        method("td3").train(Pond(), wanted, 3, None, lambda row: _until(row, seen[-1].episode, whole, Enough))
    assert [row for row in whole if row.episode >= seen[0].episode] == seen


def _until(row: Row, last: int, rows: list[Row], end: type[Exception]) -> None:
    rows.append(row)
    if row.episode == last:
        raise end


@pytest.mark.parametrize("name", ONLINE)
def test_a_loss_that_is_no_number_stops_it_with_the_last_good_policy(name: str) -> None:
    stopped = method(name).train(Poisoned(), settings(name, episodes=9, validate_every=1), 0)
    sound = method(name).train(Pond(), settings(name, episodes=5, validate_every=1), 0)
    assert stopped.stopped.startswith("training diverged in episode 6: expected a finite loss")
    assert stopped.history == sound.history and equal(stopped.policy, sound.policy)


def test_a_file_that_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.npz"
    path.write_bytes(b"PK no archive")
    with pytest.raises(InputError, match="expected a file that training wrote"):
        method("ppo").train(Pond(), settings("ppo"), 0, path)


class BetterPaid(Pond):
    """Looks the same, and pays otherwise."""

    def step(self, state, targets):  # type: ignore[no-untyped-def]
        state, outcome = super().step(state, targets)
        return state, replace(outcome, reward=2.0 * outcome.reward)


def test_a_checkpoint_of_another_environment_start_or_experience_is_refused(tmp_path: Path) -> None:
    path, wanted = tmp_path / "checkpoint.npz", settings("ddpg")
    known = transitions(collect(Pond(), lambda observation, _: observation[:, :2].clone(), "train", 4, 10, 1))
    start = new_policy(Pond(), plain_shape(Pond(), (16,)), 5)
    method("ddpg").train(Pond(), wanted, 0, path, start=start, experience=known)
    other = replace(known, reward=known.reward + 1.0)
    elsewhere = deepcopy(start)
    elsewhere.shape = replace(start.shape, anchors={"target_room": Anchor({"backlog": 1.0})})
    for differs, environment, begins, seen in (
            ("environment", BetterPaid(), start, known), ("start", Pond(), elsewhere, known),
            ("experience", Pond(), start, other), ("experience", Pond(), start, None)):
        with pytest.raises(InputError, match=f"got one that differs in {differs} \\("):
            method("ddpg").train(environment, wanted, 0, path, start=begins, experience=seen)
    method("ddpg").train(Pond(), wanted, 0, path, start=start, experience=known)


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(InputError, match=r"method must be one of ddpg, .* got 'dppg'; did you mean 'ddpg'"):
        method("dppg")


def test_violations_are_held_at_the_target_where_cost_is_minimised() -> None:
    trained = train("ppo", episodes=60, validate_every=4, applications=64,
                    objective=ObjectiveSettings(kind="cost", violating_share=0.05, multiplier=10.0))
    after = evaluate(Pond(), trained.policy, "held_out", 256, 99)
    assert after.violating_share < 0.1 and after.cost < 16.0, after


@pytest.mark.parametrize(("name", "made"), [("ddpg", Ddpg), ("td3", Td3), ("sac", Sac)])
def test_critics_learn_from_the_experience_of_others_before_the_actor_moves(name: str, made: Any) -> None:
    start, generator = new_policy(Pond(), plain_shape(Pond(), (16,)), 5), torch.Generator().manual_seed(0)
    known = transitions(collect(Pond(), lambda observation, _: observation[:, :2].clone(), "train", 40, 10, 1))
    wanted, policy = settings(name, actor_from=20, first_update=64), deepcopy(start)
    learned = made(policy, wanted, generator)
    learner = OffPolicyLearner(Pond(), wanted, policy, learned, generator, 0, known)
    critic = learned.critic.weights[0].clone()
    assert len(learner.buffer) == len(known)
    for _ in range(20):
        learner.update()
    assert equal(policy, start) and not torch.equal(learned.critic.weights[0], critic)
    for _ in range(2):
        learner.update()
    assert not equal(policy, start)


def test_a_run_begins_with_those_updates() -> None:
    known = transitions(collect(Pond(), lambda observation, _: observation[:, :2].clone(), "train", 40, 10, 1))
    wanted = settings("ddpg", episodes=2, actor_from=30, updates_per_step=1)
    start = new_policy(Pond(), plain_shape(Pond(), (16,)), 5)
    trained = method("ddpg").train(Pond(), wanted, 0, None, None, start, known)
    assert trained.history[-1].updates == 30 + 2 * Pond.steps
