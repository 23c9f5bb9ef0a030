"""DDPG is Algorithm 3.3 with Table 5.2: against a plain implementation, update by update."""

from copy import deepcopy

import torch
from torch import Tensor, nn

from models.control.policy.policy import Policy
from models.control.training.actions import Actions
from models.control.training.online.ddpg import TABLE_3_3, Ddpg, DdpgSettings
from models.control.training.replay_buffer import Batch
from models.control.training.training_run import new_policy, plain_shape
from tests.models.control.training.pond import Pond

ROUNDING = 2e-5  # float32, ten updates of Adam


def test_table_5_2_and_where_table_3_3_differs() -> None:
    settings = DdpgSettings()
    assert (settings.batch_size, settings.buffer_size, settings.actor_rate, settings.critic_rate, settings.discount,
            settings.target_share, settings.noise, settings.exploration, settings.exploration_decay) == (
        64, 10**6, 3e-4, 3e-3, 0.99, 3e-3, 0.2, 1.0, 1e-6)
    assert (settings.hidden, settings.critic_hidden, settings.updates_per_step) == ((40, 40), 40, 1)
    different = {name for name in DdpgSettings.model_fields if getattr(settings, name) != getattr(TABLE_3_3, name)}
    assert different == {"buffer_size", "discount", "target_share"}
    assert (TABLE_3_3.buffer_size, TABLE_3_3.discount, TABLE_3_3.target_share) == (10**5, 0.9, 2e-3)


def plain_critic(critic: nn.Module) -> nn.Sequential:
    layers: list[nn.Module] = []
    for weight, bias in zip(critic.weights, critic.biases, strict=True):  # type: ignore[arg-type]
        linear = nn.Linear(*weight[0].shape)
        linear.weight.data, linear.bias.data = weight[0].T.clone(), bias[0, 0].clone()
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def test_an_update_is_equations_3_2_and_3_3() -> None:
    settings, generator = DdpgSettings(hidden=(8,), critic_hidden=8), torch.Generator().manual_seed(0)
    policy = new_policy(Pond(), plain_shape(Pond(), (8,)), 0)
    method = Ddpg(policy, settings, generator)
    actor, critic = deepcopy(policy), plain_critic(method.critic)
    slow_actor, slow_critic = deepcopy(actor), deepcopy(critic)
    of_actor, of_critic = (torch.optim.Adam(part.parameters(), rate) for part, rate in ((actor, 3e-4), (critic, 3e-3)))

    def value(network: nn.Sequential, features: Tensor, action: Tensor) -> Tensor:
        return network(torch.cat([features, action], dim=1))[:, 0]

    def act(network: Policy, features: Tensor) -> tuple[Tensor, Tensor]:
        wished = Actions(network).wished(features)
        return wished.clamp(-1, 1), wished

    for _ in range(10):
        batch = Batch(*(torch.randn(64, width, generator=generator) for width in (4, 2)),
                      *(torch.randn(64, generator=generator) for _ in range(3)), torch.randn(64, 4,
                      generator=generator))
        method.update(batch, batch.reward, generator, moves_actor=True)
        with torch.no_grad():
            target = batch.reward + 0.99 * value(slow_critic, batch.following, act(slow_actor, batch.following)[0])
        loss = ((value(critic, batch.features, batch.action) - target) ** 2).mean()
        of_critic.zero_grad()
        loss.backward()
        of_critic.step()
        action, wished = act(actor, batch.features)
        of_actor.zero_grad()
        (((wished - action) ** 2).mean() - value(critic, batch.features, action).mean()).backward()
        of_actor.step()
        with torch.no_grad():
            for slow, fast in ((slow_actor, actor), (slow_critic, critic)):
                for one, other in zip(slow.parameters(), fast.parameters(), strict=True):
                    one.copy_(3e-3 * other + (1 - 3e-3) * one)
    for one, other in zip(policy.parameters(), actor.parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=ROUNDING, rtol=0)
    torch.testing.assert_close(method.critic.weights[0][0].T, critic[0].weight, atol=ROUNDING, rtol=0)
    torch.testing.assert_close(method._slow_critic.weights[0][0].T, slow_critic[0].weight, atol=ROUNDING, rtol=0)


def test_the_noise_is_an_ornstein_uhlenbeck_process_that_loses_its_factor() -> None:
    policy = new_policy(Pond(), plain_shape(Pond(), ()), 0)
    for part in policy.parameters():
        part.data.zero_()
    method = Ddpg(policy, DdpgSettings(exploration_decay=1e-4), torch.Generator())
    generator, features = torch.Generator().manual_seed(0), torch.zeros(4000, 4)
    method.begin_episode(4000)
    actions = torch.stack([method.explore(features, generator) for _ in range(60)])
    # stationary standard deviation sigma / sqrt(1 - (1 - theta)^2), cut at 1
    expected = (0.2 / (1 - 0.85**2) ** 0.5 * torch.randn(100_000, generator=generator)).clamp(-1, 1).std()
    assert abs(actions[-1].std() - expected * (1 - 60e-4)) < 0.01
    correlation = (actions[-1] * actions[-2]).mean() / actions[-2].square().mean()
    assert abs(correlation - 0.85) < 0.02
    torch.testing.assert_close(method.state()["exploration"], torch.tensor(1 - 60e-4))
