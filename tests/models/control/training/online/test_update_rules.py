"""TD3, SAC and PPO: each update rule against its equations; of DDPG: test_ddpg.py; PPO's advantages: test_ppo.py."""

import math
from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn

from models.control.training.online.ppo import PpoLearner, PpoSettings
from models.control.training.online.sac import Sac, SacSettings
from models.control.training.online.td3 import Td3, Td3Settings
from models.control.training.replay_buffer import Batch
from tests.models.control.training.plain_updates import (
    ACTOR_RATE,
    CONTROLS,
    COUNT,
    CRITIC_RATE,
    DISCOUNT,
    FEATURES,
    RATES,
    ROUNDING,
    Reference,
    assert_same,
    batches,
    compare,
    cut,
    noise,
    output,
    q,
    squares,
    td3_target,
    wide_policy,
    wished,
)
from tests.models.control.training.pond import Pond


@pytest.mark.parametrize("moves_actor", [True, False])
def test_td3_is_algorithm_1_of_its_paper(moves_actor: bool) -> None:
    policy = wide_policy()
    start = deepcopy(policy)
    method = Td3(policy, Td3Settings(**RATES), torch.Generator().manual_seed(0))
    reference, updates = Reference(actor=(policy, ACTOR_RATE), critic=(method.critic, CRITIC_RATE)), 0

    def plain(batch: Batch, worth: Tensor, generator: torch.Generator) -> Tensor:
        nonlocal updates
        updates += 1
        loss = squares(reference.critic, batch, td3_target(reference, batch, worth, generator))
        reference.descend(loss, "critic")
        if updates % 2 == 0:
            action, excess = cut(reference.actor, batch.features)
            if moves_actor:
                reference.descend(excess - q(reference.critic, batch.features, action)[0].mean(), "actor")
            reference.follow("actor", "critic")
        return loss

    compare(lambda *batch: method.update(*batch, moves_actor), plain)
    assert_same((policy, reference.actor), (method.critic, reference.critic),
                (method._slow_critic, reference.slow_critic), (method._slow_actor.policy, reference.slow_actor))
    assert (not torch.equal(policy.weights[0], start.weights[0])) == moves_actor


def test_sac_is_algorithm_1_of_its_paper() -> None:
    policy, temperature_rate = wide_policy(), 0.02
    method = Sac(policy, SacSettings(**RATES, temperature=0.3, temperature_rate=temperature_rate, target_spread=0.2),
                 torch.Generator().manual_seed(0))
    reference = Reference(actor=(policy, ACTOR_RATE), critic=(method.critic, CRITIC_RATE),
                          spread=(method._spread, ACTOR_RATE), log_alpha=(method._log_temperature, temperature_rate))
    entropy_of_one = 0.5 * math.log(2 * math.pi * math.e)
    target_entropy = CONTROLS * (entropy_of_one + math.log(0.2))

    def drawn(features: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        centre, excess = cut(reference.actor, features)
        log_spread = output(reference.spread, features)[0].clamp(-5, 0)
        action = (centre + log_spread.exp() * noise(generator)).clamp(-1, 1)
        return action, (entropy_of_one + log_spread).sum(dim=1), excess

    def plain(batch: Batch, worth: Tensor, generator: torch.Generator) -> Tensor:
        alpha = float(reference.log_alpha[0].detach().exp())
        with torch.no_grad():
            following, entropy, _ = drawn(batch.following, generator)
            one, two = q(reference.slow_critic, batch.following, following)
            target = worth + DISCOUNT * (torch.minimum(one, two) + alpha * entropy)
        loss = squares(reference.critic, batch, target)
        reference.descend(loss, "critic")
        reference.follow("critic")
        action, entropy, excess = drawn(batch.features, generator)
        one, two = q(reference.critic, batch.features, action)
        reference.descend(excess - (torch.minimum(one, two) + alpha * entropy).mean(), "actor", "spread")
        # J(alpha) = E[-alpha log pi - alpha H]: falls while the entropy is larger than its target
        surplus = float(entropy.detach().mean()) - target_entropy
        reference.descend(reference.log_alpha[0].exp() * surplus, "log_alpha")
        return loss

    compare(lambda *batch: method.update(*batch, True), plain)
    assert_same((policy, reference.actor), (method.critic, reference.critic), (method._spread, reference.spread),
                (method._slow_critic, reference.slow_critic), (method._log_temperature, reference.log_alpha))


@pytest.mark.parametrize(("spread", "rises"), [(0.05, True), (0.6, False)])
def test_the_temperature_rises_where_actions_vary_too_little(spread: float, rises: bool) -> None:
    method = Sac(wide_policy(), SacSettings(**RATES, target_spread=0.2), torch.Generator().manual_seed(0))
    with torch.no_grad():
        method._spread.weights[-1].zero_()
        method._spread.biases[-1].fill_(math.log(spread))
    before = float(method._log_temperature[0].detach())
    ((batch, worth),) = batches(1, torch.Generator().manual_seed(0))
    method.update(batch, worth, torch.Generator().manual_seed(1), True)
    assert (float(method._log_temperature[0].detach()) > before) == rises


def test_ppo_clips_the_ratio_of_normalised_advantages() -> None:
    settings = PpoSettings(epochs=2, minibatches=4, clip=0.05, rate=CRITIC_RATE, entropy=0.03, value_hidden=8)
    policy, generator = wide_policy(), torch.Generator().manual_seed(0)
    learner = PpoLearner(Pond(), settings, policy, generator, 0)
    known_policy, log_spread = deepcopy(policy), nn.Parameter(learner._log_spread.detach().clone())
    value, order_of = deepcopy(learner._value), torch.Generator()
    of_actor = torch.optim.Adam([*known_policy.parameters(), log_spread], CRITIC_RATE)
    of_value = torch.optim.Adam(value.parameters(), CRITIC_RATE)
    features, advantage, returns = (torch.randn(*shape, generator=generator) for shape in
                                    ((COUNT, FEATURES), (COUNT,), (COUNT,)))
    drawn = wished(policy, features).detach() + 0.6 * noise(generator)
    log_density = torch.distributions.Normal(wished(policy, features).detach(), 0.6).log_prob(drawn).sum(dim=1)
    order_of.set_state(generator.get_state())
    loss = learner._passes(features, drawn, learner._log_probability(features, drawn).detach(), advantage, returns)
    errors = []
    for _ in range(2):
        for rows in torch.randperm(COUNT, generator=order_of).chunk(4):
            part = (advantage[rows] - advantage[rows].mean()) / advantage[rows].std()
            wish = wished(known_policy, features[rows])
            density = torch.distributions.Normal(wish, log_spread.exp()).log_prob(drawn[rows]).sum(dim=1)
            ratio = (density - log_density[rows]).exp()
            gains = torch.stack([ratio * part, ratio.clamp(0.95, 1.05) * part]).amin(dim=0)
            excess = ((wish - wish.clamp(-1, 1)) ** 2).mean()
            of_actor.zero_grad()
            (excess - gains.mean() - 0.03 * log_spread.sum()).backward()
            of_actor.step()
            error = ((output(value, features[rows])[0][:, 0] - returns[rows]) ** 2).mean()
            of_value.zero_grad()
            error.backward()
            of_value.step()
            errors.append(float(error.detach()))
    assert loss == pytest.approx(sum(errors) / 8, rel=1e-4)
    assert_same((policy, known_policy), (learner._value, value))
    torch.testing.assert_close(learner._log_spread, log_spread, atol=ROUNDING, rtol=0)
