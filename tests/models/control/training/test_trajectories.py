"""One format: of an environment, of a log, and from one to the other."""

import math
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

from feature_store.errors import InputError
from models.control.training.trajectories import (
    Trajectories,
    Transitions,
    collect,
    joined,
    transitions,
    transitions_of_log,
)
from models.control.training.trajectory_log import OUTCOMES, Header, ReadLog, Step, TrajectoryLog, read_log
from systems.autoscaling.simulator.simulator import Autoscaling
from tests.models.control.training.logged_steps import to_steps

ENVIRONMENT = Autoscaling(steps=12)
HEADER = Header("autoscaling", tuple((one.name, one.unit) for one in ENVIRONMENT.signals),
                tuple((one.name, one.unit) for one in ENVIRONMENT.controls))


def episodes(count: int = 3, steps: int = 12, seed: int = 0) -> Trajectories:
    """Everybody keeps what there is."""
    return collect(ENVIRONMENT, lambda observation, _: observation[:, :3].clone(), "train", count, steps, seed)


def require_equal(found: Transitions, expected: Transitions) -> None:
    for name, value in vars(expected).items():
        assert getattr(found, name).dtype == value.dtype and torch.equal(getattr(found, name), value), name


def test_what_was_collected_is_what_the_environment_did() -> None:
    found = episodes()
    state = ENVIRONMENT.reset(ENVIRONMENT.draw("train", 3, 12, 0))
    for step in range(12):
        observation = ENVIRONMENT.observe(state)
        state, outcome = ENVIRONMENT.step(state, observation[:, :3])
        assert torch.equal(found.observation[:, step], observation)
        for name in OUTCOMES:
            assert torch.equal(getattr(found, name)[:, step], getattr(outcome, name))


def test_a_log_gives_back_what_went_in(tmp_path: Path) -> None:
    found = episodes()
    TrajectoryLog(tmp_path, HEADER).append(to_steps(found, "fallback"))
    require_equal(transitions_of_log(read_log(tmp_path)), transitions(found))


def test_transitions_leave_out_what_is_not_known() -> None:
    found = episodes(count=2, steps=6)
    assert len(transitions(found)) == 2 * 5
    found.reward[0, 2] = math.nan  # was not measured
    found.observation[1, 3, 0] = math.nan  # nor was this: neither it nor the one before it has a successor
    known = transitions(found)
    assert len(known) == 4 + 3 and known.reward.isfinite().all() and known.following.isfinite().all()
    torch.testing.assert_close(known.following[0], found.observation[0, 1])
    found.targets[0, 0, 1] = math.inf
    assert len(transitions(found)) == 3 + 3
    with pytest.raises(InputError, match="must have a measured step with a successor, got none of 12 steps in 2 epi"):
        transitions(replace(found, cost=torch.full_like(found.cost, math.nan)))
    with pytest.raises(InputError, match="must have a measured step with a successor, got none of 2 steps in 2 epi"):
        transitions(episodes(count=2, steps=1))


@pytest.mark.parametrize(("number", "changes", "gone"), [
    (4, None, {3, 4}), (0, None, {0}), (11, None, {10}), (4, {"reward": math.nan, "mark": "missing"}, {4}),
    (4, {"targets": (1.0, math.nan, 1.0)}, {4}), (4, {"cost": math.inf}, {4}), (4, {"violated": 1e39}, {4}),
    (4, {"observation": (math.nan,) * len(ENVIRONMENT.signals)}, {3, 4}),
    (11, {"reward": math.nan, "mark": "late"}, set()),
    (11, {"observation": (math.nan,) * len(ENVIRONMENT.signals)}, {10}),
], ids=["lost", "first lost", "last lost", "no reward", "no target", "no cost", "beyond float32", "not observed",
        "last without reward", "last not observed"])
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_a_step_of_a_log_that_is_lost_or_not_known_costs_its_own_transitions(
        number: int, changes: dict[str, Any] | None, gone: set[int]) -> None:
    steps = to_steps(episodes(count=1), "policy")
    changed = [*steps[:number], *([] if changes is None else [replace(steps[number], **changes)]), *steps[number + 1:]]
    whole = transitions_of_log(ReadLog(HEADER, tuple(steps), ()))
    left = [row for row in range(11) if row not in gone]
    require_equal(transitions_of_log(ReadLog(HEADER, tuple(changed), ())),
                  Transitions(**{name: value[left] for name, value in vars(whole).items()}))


def test_no_transition_goes_from_one_episode_or_application_to_another() -> None:
    """Steps come in any order, and those that look like one episode's next ones are another's."""
    one = to_steps(episodes(count=1), "policy")
    parts = [[replace(step, application=name, episode=episode) for step in some]
             for name, episode, some in (("a", 2, one[:5]), ("a", 10, one[5:9]), ("b", 0, one[9:]))]
    mixed: list[Step] = [step for part in reversed(parts) for step in part]
    Random(0).shuffle(mixed)
    found = transitions_of_log(ReadLog(HEADER, tuple(mixed), ()))
    assert len(found) == 4 + 3 + 2
    require_equal(found, joined([transitions_of_log(ReadLog(HEADER, tuple(part), ())) for part in parts]))


def test_a_log_without_a_step_and_its_successor_is_refused() -> None:
    steps = to_steps(episodes(count=2), "policy")
    for kept, message in (((), "none of 0 steps in 0 episodes"), (steps[:2], "none of 2 steps in 2 episodes"),
                          ((steps[0], steps[4]), "none of 2 steps in 1 episodes"),
                          ([replace(step, cost=math.nan) for step in steps], "none of 24 steps in 2 episodes")):
        with pytest.raises(InputError, match=f"must have a measured step with a successor, got {message}"):
            transitions_of_log(ReadLog(HEADER, tuple(kept), ()))
