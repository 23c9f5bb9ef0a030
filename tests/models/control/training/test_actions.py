"""Actions and the targets that they set are each other's inverse, within a policy's limits."""

from dataclasses import replace

import pytest
import torch

from models.control.simulation.scaling import interpolated_log
from models.control.training.actions import Actions, action_of
from models.control.training.training_run import new_policy, plain_shape
from systems.autoscaling.simulator.simulator import Autoscaling
from tests.models.control.training.pond import Pond

ENVIRONMENT = Autoscaling()
POLICY = new_policy(ENVIRONMENT, plain_shape(ENVIRONMENT, (8,)), 0)
OBSERVATION = ENVIRONMENT.observe(ENVIRONMENT.reset(ENVIRONMENT.draw("train", 400, 10, 1)))


def test_targets_give_back_their_actions() -> None:
    actions = Actions(POLICY)
    drawn = 2.0 * torch.rand(400, 3, generator=torch.Generator().manual_seed(0)) - 1.0
    targets = actions.targets(OBSERVATION, drawn)
    again = actions.targets(OBSERVATION, actions.of_targets(OBSERVATION, targets))
    torch.testing.assert_close(again, targets, rtol=1e-4, atol=1e-5)


def test_targets_give_back_their_actions_where_the_policy_is_anchored_elsewhere() -> None:
    """At the place that an anchor says, an action of 0 sets it; measured from the present value it would be another."""
    actions = Actions(new_policy(ENVIRONMENT, replace(plain_shape(ENVIRONMENT, (8,)), anchors=ENVIRONMENT.anchors), 0))
    drawn = 2.0 * torch.rand(400, 3, generator=torch.Generator().manual_seed(0)) - 1.0
    targets = actions.targets(OBSERVATION, drawn)
    again = actions.of_targets(OBSERVATION, targets)
    torch.testing.assert_close(actions.targets(OBSERVATION, again), targets, rtol=1e-4, atol=1e-5)


def test_a_policy_sets_what_its_own_actions_set() -> None:
    actions = Actions(POLICY)
    wished = actions.wished(actions.features(OBSERVATION))
    assert wished.abs().max() < 1.0
    torch.testing.assert_close(actions.targets(OBSERVATION, wished), POLICY(OBSERVATION))


def test_two_replicas_can_become_one() -> None:
    actions = Actions(POLICY)
    observation = OBSERVATION.clone()
    observation[:, 2] = 2.0
    least = actions.targets(observation, -torch.ones(400, 3))
    torch.testing.assert_close(least[:, 2], torch.ones(400))


def test_what_exceeds_the_range_is_cut_and_told() -> None:
    action, excess = action_of(torch.tensor([[0.5, -3.0]]))
    assert action.tolist() == [[0.5, -1.0]] and excess.item() == 2.0


class Rates(Pond):
    """Up and down at four rates, none of which is 1 or another's."""

    controls = tuple(replace(control, most_down=down, most_up=up, whole=False)
                     for control, (down, up) in zip(Pond.controls, ((0.2, 0.7), (0.4, 1.8)), strict=True))


@pytest.mark.parametrize("action", [-1.0, 0.5, -0.25, 0.0])
def test_an_action_is_a_share_of_its_own_control_s_rate(action: float) -> None:
    pond = Rates()
    actions = Actions(new_policy(pond, plain_shape(pond, (4,)), 0))
    observation = pond.observe(pond.reset(pond.draw("train", 5, 10, 1)))
    targets = actions.targets(observation, torch.full((5, 2), action))
    before, after = interpolated_log(observation[:, :2]), interpolated_log(targets)  # the least of both controls is 1
    whole = [(1 + control.most_up) if action > 0 else (1 - control.most_down) for control in pond.controls]
    expected = abs(action) * torch.tensor(whole).log()
    torch.testing.assert_close(after - before, expected.expand(5, 2), rtol=0, atol=1e-4)
    torch.testing.assert_close(actions.of_targets(observation, targets), torch.full((5, 2), action), rtol=0, atol=1e-4)


def test_no_action_exceeds_its_own_control_s_limit() -> None:
    """Interpolated logarithms would let the whole action go further."""
    pond = Rates()
    actions = Actions(new_policy(pond, plain_shape(pond, (4,)), 0))
    observation = pond.observe(pond.reset(pond.draw("train", 5, 10, 1)))
    grown = actions.targets(observation, torch.ones(5, 2)) / observation[:, :2]
    torch.testing.assert_close(grown, torch.tensor([1.7, 2.8]).expand(5, 2))
