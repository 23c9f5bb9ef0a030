"""One format: of an environment, of a log, and from one to the other."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from feature_store.errors import InputError
from models.control.training.trajectories import (
    OUTCOMES,
    Trajectories,
    collect,
    from_log,
    joined,
    transitions,
)
from models.control.training.trajectory_log import Header, TrajectoryLog, read_log
from systems.autoscaling.simulator.simulator import Autoscaling
from tests.models.control.training.logged_steps import to_steps

ENVIRONMENT = Autoscaling(steps=12)


def episodes(count: int = 3, steps: int = 12, episode: int = 0, seed: int = 0) -> Trajectories:
    """Everybody keeps what there is."""
    return collect(ENVIRONMENT, lambda observation, _: observation[:, :3].clone(), "train", count, steps, seed,
                   episode=episode)


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
    header = Header("autoscaling", tuple((one.name, one.unit) for one in ENVIRONMENT.signals),
                    tuple((one.name, one.unit) for one in ENVIRONMENT.controls))
    TrajectoryLog(tmp_path, header).append(to_steps(found, "fallback"))
    read = from_log(read_log(tmp_path))
    for name in ("observation", "targets", "taken", *OUTCOMES):
        assert torch.equal(getattr(read, name), getattr(found, name))
    assert (read.application, read.episode) == (("0", "1", "2"), (0, 0, 0))


def test_transitions_leave_out_what_is_not_known() -> None:
    found = episodes(count=2, steps=6)
    assert len(transitions(found)) == 2 * 5
    found.reward[0, 2] = math.nan  # was not measured
    found.taken[1, 3] = False  # record lost: neither it nor the one before it has a successor
    known = transitions(found)
    assert len(known) == 4 + 3 and known.reward.isfinite().all()
    torch.testing.assert_close(known.following[0], found.observation[0, 1])
    with pytest.raises(InputError, match="must have a measured step with a successor, got none of 0 steps"):
        transitions(replace(found, taken=torch.zeros_like(found.taken)))


def test_the_best_of_each_application_come_first_and_the_unmeasured_never() -> None:
    found = joined([episodes(episode=number, seed=number) for number in range(4)])
    rewards = found.reward.clone()
    for i, number in enumerate(found.episode):
        rewards[i] = float(number)
    rewards[-1, 3] = math.nan  # episode 3 of application 2
    best = replace(found, reward=rewards).best(2)
    assert best.application == ("0", "0", "1", "1", "2", "2")
    assert best.episode == (3, 2, 3, 2, 2, 1)
