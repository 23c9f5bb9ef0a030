"""Offline methods: each update rule against its equations."""

import torch
from torch import Tensor, nn

from models.control.training.actions import Actions
from models.control.training.offline.bcq import Bcq, BcqSettings
from models.control.training.offline.behaviour_cloning import BehaviourCloning
from models.control.training.offline.cql import Cql, CqlSettings
from models.control.training.offline.iql import Iql, IqlSettings
from models.control.training.offline.offline_run import OfflineSettings
from models.control.training.offline.td3_bc import Td3Bc, Td3BcSettings
from models.control.training.replay_buffer import Batch
from tests.models.control.training.plain_updates import (
    ACTOR_RATE,
    CONTROLS,
    COUNT,
    CRITIC_RATE,
    DISCOUNT,
    RATES,
    Reference,
    assert_same,
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


def test_behaviour_cloning_is_the_mean_square_distance() -> None:
    policy = wide_policy()
    method = BehaviourCloning(Actions(policy), OfflineSettings(**RATES), torch.Generator())
    reference = Reference(actor=(policy, ACTOR_RATE))

    def plain(batch: Batch, worth: Tensor, generator: torch.Generator) -> Tensor:
        loss = ((wished(reference.actor, batch.features) - batch.action) ** 2).mean()
        reference.descend(loss, "actor")
        return loss

    compare(method.update, plain)
    assert_same((policy, reference.actor))


def test_td3_bc_is_equation_5_of_its_paper() -> None:
    policy = wide_policy()
    method = Td3Bc(Actions(policy), Td3BcSettings(**RATES, alpha=1.7), torch.Generator().manual_seed(0))
    reference, updates = Reference(actor=(policy, ACTOR_RATE), critic=(method.critic, CRITIC_RATE)), 0

    def plain(batch: Batch, worth: Tensor, generator: torch.Generator) -> Tensor:
        nonlocal updates
        updates += 1
        loss = squares(reference.critic, batch, td3_target(reference, batch, worth, generator))
        reference.descend(loss, "critic")
        if updates % 2 == 0:
            action, excess = cut(reference.actor, batch.features)
            value = q(reference.critic, batch.features, action)[0]
            weight = 1.7 / float(value.detach().abs().mean())
            reference.descend(excess - weight * value.mean() + ((action - batch.action) ** 2).mean(), "actor")
            reference.follow("actor", "critic")
        return loss

    compare(method.update, plain)
    assert_same((policy, reference.actor), (method.critic, reference.critic),
                (method._slow_critic, reference.slow_critic))


def test_iql_is_equations_5_to_7_of_its_paper() -> None:
    policy = wide_policy()
    method = Iql(Actions(policy), IqlSettings(**RATES, expectile=0.8, sharpness=2.0), torch.Generator().manual_seed(0))
    reference = Reference(actor=(policy, ACTOR_RATE), critic=(method._critic, CRITIC_RATE),
                          value=(method._value, CRITIC_RATE))

    def plain(batch: Batch, worth: Tensor, generator: torch.Generator) -> Tensor:
        known = torch.minimum(*q(reference.slow_critic, batch.features, batch.action))
        value = output(reference.value, batch.features)[0][:, 0]
        difference = known - value
        share = torch.tensor([0.2 if one < 0 else 0.8 for one in difference.detach().tolist()])
        weight = (2.0 * difference.detach()).exp().clamp(max=100.0)
        reference.descend((share * difference**2).mean(), "value")
        distance = ((wished(reference.actor, batch.features) - batch.action) ** 2).sum(dim=1)
        reference.descend((weight * distance).mean(), "actor")
        with torch.no_grad():
            target = worth + DISCOUNT * output(reference.value, batch.following)[0][:, 0]
        loss = squares(reference.critic, batch, target)
        reference.descend(loss, "critic")
        reference.follow("critic")
        return loss

    compare(method.update, plain)
    assert_same((policy, reference.actor), (method._critic, reference.critic), (method._value, reference.value),
                (method._slow_critic, reference.slow_critic))


def test_cql_adds_its_gap_to_the_critics_loss() -> None:
    policy, drawn = wide_policy(), 3
    method = Cql(Actions(policy), CqlSettings(**RATES, weight=1.5, drawn=drawn, spread=0.3),
                 torch.Generator().manual_seed(0))
    reference, updates = Reference(actor=(policy, ACTOR_RATE), critic=(method.critic, CRITIC_RATE)), 0

    def log_sums(batch: Batch, generator: torch.Generator) -> list[Tensor]:
        """(B,) of each critic: log of the mean of exp Q over density."""
        many = batch.features.repeat_interleave(drawn, dim=0)
        actions = [2 * torch.rand(COUNT * drawn, CONTROLS, generator=generator) - 1]
        densities = [torch.full((COUNT * drawn,), 0.25)]
        for features in (batch.features, batch.following):
            centre = cut(reference.actor, features)[0].detach().repeat_interleave(drawn, dim=0)
            action = centre + 0.3 * noise(generator, COUNT * drawn)
            inside = (action.abs() <= 1).all(dim=1)
            density = torch.distributions.Normal(centre, 0.3).log_prob(action).sum(dim=1).exp()
            densities.append(torch.where(inside, density, torch.inf))
            actions.append(action.clamp(-1, 1))
        terms = [torch.stack([value.exp() / density for value, density in zip(
            (q(reference.critic, many, action)[member] for action in actions), densities, strict=True)])
            for member in range(2)]
        return [term.reshape(3, COUNT, drawn).mean(dim=(0, 2)).log() for term in terms]

    def plain(batch: Batch, worth: Tensor, generator: torch.Generator) -> Tensor:
        nonlocal updates
        updates += 1
        loss = squares(reference.critic, batch, td3_target(reference, batch, worth, generator))
        known = q(reference.critic, batch.features, batch.action)
        gaps = [(many - one).mean() for many, one in zip(log_sums(batch, generator), known, strict=True)]
        reference.descend(loss + 1.5 * (gaps[0] + gaps[1]) / 2, "critic")
        if updates % 2 == 0:
            action, excess = cut(reference.actor, batch.features)
            reference.descend(excess - q(reference.critic, batch.features, action)[0].mean(), "actor")
            reference.follow("actor", "critic")
        return loss

    compare(method.update, plain)
    assert_same((policy, reference.actor), (method.critic, reference.critic),
                (method._slow_critic, reference.slow_critic))


def test_bcq_is_algorithm_1_of_its_paper() -> None:
    policy, generated, latent = wide_policy(), 3, 2 * CONTROLS
    method = Bcq(Actions(policy), BcqSettings(**RATES, generated=generated, shift=0.2, pessimism=0.6,
                                              generator_hidden=8), torch.Generator().manual_seed(0))
    reference = Reference(actor=(policy, ACTOR_RATE), **{name: (getattr(method, f"_{name}"), CRITIC_RATE)
                          for name in ("encoder", "decoder", "shift", "critic")})

    def decoded(features: Tensor, generator: torch.Generator) -> Tensor:
        hidden = noise(generator, len(features), latent).clamp(-0.5, 0.5)
        return output(reference.decoder, features, hidden)[0].clamp(-1, 1)

    def shifted(features: Tensor, action: Tensor, network: nn.Module) -> Tensor:
        return (action + 0.2 * output(network, features, action)[0].tanh()).clamp(-1, 1)

    def plain(batch: Batch, worth: Tensor, generator: torch.Generator) -> Tensor:
        encoded = output(reference.encoder, batch.features, batch.action)[0]
        mean, spread = encoded[:, :latent], encoded[:, latent:].clamp(-4, 15).exp()
        again = output(reference.decoder, batch.features, mean + spread * noise(generator, COUNT, latent))[0]
        normal = torch.distributions.Normal
        divergence = torch.distributions.kl_divergence(normal(mean, spread), normal(0.0, 1.0)).mean()
        reference.descend(((again - batch.action) ** 2).mean() + 0.5 * divergence, "encoder", "decoder")
        with torch.no_grad():
            many = batch.following.repeat_interleave(generated, dim=0)
            action = shifted(many, decoded(many, generator), reference.slow_shift)
            one, two = q(reference.slow_critic, many, action)
            soft = 0.6 * torch.minimum(one, two) + 0.4 * torch.maximum(one, two)
            target = worth + DISCOUNT * soft.reshape(COUNT, generated).amax(dim=1)
        loss = squares(reference.critic, batch, target)
        reference.descend(loss, "critic")
        action = decoded(batch.features, generator).detach()
        moved = shifted(batch.features, action, reference.shift)
        reference.descend(-q(reference.critic, batch.features, moved)[0].mean(), "shift")
        reference.follow("critic", "shift")
        with torch.no_grad():
            many = batch.features.repeat_interleave(generated, dim=0)
            action = shifted(many, decoded(many, generator), reference.shift)
            best = q(reference.critic, many, action)[0].reshape(COUNT, generated).argmax(dim=1)
            chosen = torch.stack([action[row * generated + int(one)] for row, one in enumerate(best)])
        reference.descend(((wished(reference.actor, batch.features) - chosen) ** 2).mean(), "actor")
        return loss

    compare(method.update, plain)
    assert_same((policy, reference.actor), (method._critic, reference.critic), (method._shift, reference.shift),
                (method._encoder, reference.encoder), (method._decoder, reference.decoder),
                (method._slow_shift, reference.slow_shift), (method._slow_critic, reference.slow_critic))
