"""Generalised advantages against their definition."""

import torch

from models.control.training.online.ppo import PpoLearner, PpoSettings
from models.control.training.training_run import new_policy, plain_shape
from tests.models.control.training.pond import Pond


def test_an_advantage_is_the_discounted_sum_of_errors() -> None:
    settings, generator = PpoSettings(discount=0.9, trace=0.8), torch.Generator().manual_seed(0)
    learner = PpoLearner(Pond(), settings, new_policy(Pond(), plain_shape(Pond(), (4,)), 0), generator, 0)
    reward, values = torch.randn(7, 3, generator=generator), torch.randn(8, 3, generator=generator)
    errors = reward + 0.9 * values[1:] - values[:-1]
    expected = torch.stack([sum((0.72**k * errors[t + k] for k in range(7 - t)), torch.zeros(3)) for t in range(7)])
    torch.testing.assert_close(learner._advantages(reward, values), expected)


def test_the_ratio_of_an_unchanged_policy_is_one() -> None:
    generator = torch.Generator().manual_seed(0)
    policy = new_policy(Pond(), plain_shape(Pond(), (4,)), 0)
    learner = PpoLearner(Pond(), PpoSettings(applications=5), policy, generator, 0)
    features, drawn, worth, _ = learner._acted(0)
    assert features.shape == (11, 5, 4) and drawn.shape == (10, 5, 2) and worth.shape == (10, 5)
    normal = torch.distributions.Normal(learner.actions.wished(features[0]), learner._log_spread.exp())
    expected = normal.log_prob(drawn[0]).sum(dim=1) + 2 * 0.9189385
    torch.testing.assert_close(learner._log_probability(features[0], drawn[0]), expected)
