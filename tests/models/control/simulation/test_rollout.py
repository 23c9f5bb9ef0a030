"""Rollouts against an environment that can be computed by hand."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest
import torch

from feature_store.errors import InputError
from models.control.contract.environment import Outcome
from models.control.contract.signals import Control, Signal
from models.control.simulation.rollout import roll_out
from systems.autoscaling.rules.rules import make
from systems.autoscaling.simulator.simulator import Autoscaling


class CountingState(NamedTuple):
    step: int
    level: torch.Tensor


@dataclass(frozen=True)
class Counting:
    """The level becomes what is asked for; the cost is the level, the reward the number of the step."""

    signals = (Signal("level", "1", 0.5, 100.0, "log"), Signal("number", "1", 0.0, 1000.0))
    controls = (Control("target_level", "level", "1", 0.5, 100.0, 0.9, 9.0),)
    step_seconds = 10.0

    def reset(self, episodes):
        return CountingState(0, torch.as_tensor(episodes, dtype=torch.float32))

    def observe(self, state):
        return torch.stack([state.level, torch.full_like(state.level, float(state.step))], dim=1)

    def step(self, state, targets):
        level = targets[:, 0]
        after = CountingState(state.step + 1, level)
        return after, Outcome(torch.full_like(level, float(state.step)), level, torch.zeros_like(level),
                              (level > 5).float(), {"twice": 2 * level})


class Adding:
    """A controller that adds its number of actions to the level."""

    name, settings = "adding", {}

    def start(self, applications):
        self.acted, self.seconds = 0, []

    def act(self, observation, seconds):
        self.acted += 1
        self.seconds.append(seconds)
        assert (observation["number"] == self.acted - 1).all()
        return {"target_level": observation["level"] + self.acted}


def test_means_are_of_the_steps_after_the_warm_up():
    controller = Adding()
    done = roll_out(Counting(), controller, [1.0, 2.0], steps=4, warm_up=2)
    # levels after each step: 2 4 7 11 and 3 5 8 12
    assert done.cost.tolist() == [9.0, 10.0]
    assert done.violated.tolist() == [1.0, 1.0]
    assert done.reward.tolist() == [2.5, 2.5]
    assert done.measures["twice"].tolist() == [18.0, 20.0]
    assert done.steps == 2
    assert controller.seconds == [0.0, 10.0, 20.0, 30.0]
    assert roll_out(Counting(), controller, [1.0, 2.0], steps=4, warm_up=0).violated.tolist() == [0.5, 0.5]


def test_a_policy_is_called_with_tensors():
    done = roll_out(Counting(), lambda observation: observation[:, :1] * 2, [1.0], steps=3, warm_up=0)
    assert done.cost.tolist() == [pytest.approx((2 + 4 + 8) / 3)]


def test_summary_and_split():
    done = roll_out(Counting(), Adding(), [1.0, 2.0, 3.0, 4.0], steps=4, warm_up=2)
    assert done.summary()["cost"] == pytest.approx(done.cost.mean())
    assert done.summary()["twice"] == pytest.approx(2 * done.cost.mean())
    first, second = done.split(2)
    assert first.cost.tolist() == done.cost[:2].tolist()
    assert second.measures["twice"].tolist() == done.measures["twice"][2:].tolist()


def test_targets_that_are_not_finite_and_no_steps_are_refused():
    with pytest.raises(ValueError, match=r"expected finite targets, got NaN or infinity \(step 0 of a rollout\)"):
        roll_out(Counting(), lambda observation: observation[:, :1] * float("nan"), [1.0], steps=2, warm_up=0)
    with pytest.raises(InputError, match="warm-up must be from 0 to 4 of 5 steps, got 5"):
        roll_out(Counting(), Adding(), [1.0], steps=5, warm_up=5)


@pytest.mark.parametrize("name", ["hpa-cpu-p99-vpa-memory", "keda-forecast"])
def test_settings_side_by_side_equal_each_alone_in_the_real_environment(name):
    environment = Autoscaling()
    episodes = environment.draw("train", 5, 41, seed=2)
    targets = np.array([0.4, 0.7, 0.9])
    repeated = episodes.take(torch.arange(5).repeat(3))
    together = roll_out(environment, make(name, {"replicas_cpu_target": np.repeat(targets, 5)}), repeated, 40, 10)
    for part, target in zip(together.split(3), targets, strict=True):
        alone = roll_out(environment, make(name, {"replicas_cpu_target": float(target)}), episodes, 40, 10)
        assert part.cost.tolist() == alone.cost.tolist()
        assert part.violated.tolist() == alone.violated.tolist()
        assert part.reward.tolist() == alone.reward.tolist()
