"""Actions and the targets that they set are each other's inverse, within a policy's limits."""

import torch

from models.environments.autoscaling.simulator import Autoscaling
from models.training.reinforcement.actions import Actions, action_of
from models.training.reinforcement.training_run import new_policy

ENVIRONMENT = Autoscaling()
POLICY = new_policy(ENVIRONMENT, (8,), 0)
OBSERVATION = ENVIRONMENT.observe(ENVIRONMENT.reset(ENVIRONMENT.draw("train", 400, 10, 1)))


def test_targets_give_back_their_actions() -> None:
    actions = Actions(POLICY)
    drawn = 2.0 * torch.rand(400, 3, generator=torch.Generator().manual_seed(0)) - 1.0
    targets = actions.targets(OBSERVATION, drawn)
    again = actions.targets(OBSERVATION, actions.of_targets(OBSERVATION, targets))
    torch.testing.assert_close(again, targets, rtol=1e-4, atol=1e-5)


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
