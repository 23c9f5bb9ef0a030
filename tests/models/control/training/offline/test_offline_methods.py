"""Offline methods: what they take from the data, what they do better, and that they stay near what was seen."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from feature_store.errors import InputError
from models.control.policy.policy import Policy
from models.control.simulation.rollout import Acting
from models.control.training.actions import Actions
from models.control.training.methods import OFFLINE, method
from models.control.training.objective import ObjectiveSettings
from models.control.training.offline.bcq import Bcq, BcqSettings
from models.control.training.offline.cql import Cql, CqlSettings
from models.control.training.offline.iql import expectile_loss
from models.control.training.offline.offline_run import OfflineRow, OfflineTrained, policy_for
from models.control.training.replay_buffer import Batch
from models.control.training.training_run import evaluate, plain_shape
from models.control.training.trajectories import collect, transitions
from tests.models.control.training.pond import Pond


def fallback(spread: float, seed: int = 0) -> Acting:
    """Serves at 14 requests/s, with noise: too fast, on average, for a load of 10."""
    generator = torch.Generator().manual_seed(seed)

    def act(observation: Tensor, seconds: float) -> Tensor:
        noise = spread * torch.randn(len(observation), 2, generator=generator)
        return torch.tensor([14.0, 20.0]) * noise.exp()

    return act


ENOUGH = 800  # updates
EXPERIENCE = transitions(collect(Pond(), fallback(0.3), "train", 300, 10, 0))
START = policy_for(plain_shape(Pond(), (16,)), EXPERIENCE, 0)


def train(name: str, seed: int = 0, **changes: Any) -> OfflineTrained:
    values = {"updates": 400, "batch_size": 64, "report_every": 100, "objective": ObjectiveSettings(kind="reward")}
    found = method(name)
    path = changes.pop("checkpoint", None)
    progress = changes.pop("progress", None)
    experience = changes.pop("experience", EXPERIENCE)
    return found.train(START, experience, found.settings(**{**values, **changes}), seed, path, progress)


def reward_of(policy: Policy) -> float:
    return evaluate(Pond(), policy, "held_out", 128, 99).reward


def equal(one: Policy, other: Policy) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))


def test_a_clone_does_what_the_fallback_did() -> None:
    calm = transitions(collect(Pond(), fallback(0.0), "train", 300, 10, 0))
    policy = train("behaviour_cloning", experience=calm, updates=1500).policy
    rule = evaluate(Pond(), lambda observation: fallback(0.0)(observation, 0), "held_out", 128, 99)
    assert reward_of(policy) == pytest.approx(rule.reward, abs=0.5)
    assert reward_of(START) < rule.reward - 2.0


@cache
def reward_of_a_clone() -> float:
    return reward_of(train("behaviour_cloning", updates=ENOUGH).policy)


@pytest.mark.parametrize("name", [name for name in OFFLINE if name != "behaviour_cloning"])
def test_it_does_better_than_a_clone(name: str) -> None:
    assert reward_of(train(name, updates=ENOUGH).policy) > reward_of_a_clone() + 0.2


@pytest.mark.parametrize("name", OFFLINE)
def test_it_goes_on_to_the_same_policy(name: str, tmp_path: Path) -> None:
    class Killed(Exception):
        pass

    def kill(row: OfflineRow) -> None:
        if row.updates == 20:
            raise Killed

    path, common = tmp_path / "checkpoint.npz", {"updates": 40, "report_every": 10}
    with pytest.raises(Killed):
        train(name, checkpoint=path, progress=kill, **common)
    seen: list[OfflineRow] = []
    resumed, whole = train(name, checkpoint=path, progress=seen.append, **common), train(name, **common)
    assert [row.updates for row in seen] == [30, 40]
    assert equal(resumed.policy, whole.policy) and resumed.history == whole.history
    assert not equal(whole.policy, train(name, seed=1, **common).policy)


@pytest.mark.parametrize("name", OFFLINE)
def test_a_loss_that_is_no_number_stops_it(name: str) -> None:
    stopped = train(name, actor_rate=1e30, updates=40, report_every=20)
    assert stopped.stopped.startswith("training diverged before update 20: expected a finite loss")
    assert equal(stopped.policy, START) and not stopped.history


def test_a_checkpoint_of_other_data_is_refused(tmp_path: Path) -> None:
    path, other = tmp_path / "checkpoint.npz", replace(EXPERIENCE, reward=EXPERIENCE.reward + 1.0)
    train("iql", checkpoint=path, updates=100)
    with pytest.raises(InputError, match=r"expected one of the same .* got one that differs in experience"):
        train("iql", checkpoint=path, updates=100, experience=other)


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(InputError, match="did you mean 'bcq'"):
        method("bqc")


def narrow(count: int, generator: torch.Generator) -> tuple[Batch, Tensor]:
    """States in which actions near (0.5, -0.5) alone were done; they are worth nothing."""
    features = torch.randn(count, len(START.mean), generator=generator)
    action = torch.tensor([0.5, -0.5]) + 0.05 * torch.randn(count, 2, generator=generator)
    zero = torch.zeros(count)
    return Batch(features, action, zero, zero, zero, features), zero


def test_bcq_generates_what_was_done() -> None:
    generator = torch.Generator().manual_seed(0)
    method = Bcq(Actions(START), BcqSettings(generator_hidden=32), generator)
    for _ in range(400):
        method.update(*narrow(128, generator), generator)
    chosen = method.chosen(torch.randn(500, len(START.mean), generator=generator), generator)
    assert (chosen - torch.tensor([0.5, -0.5])).abs().max() < 0.3


def test_cql_values_unseen_actions_below_seen_ones() -> None:
    generator = torch.Generator().manual_seed(0)
    method = Cql(Actions(policy_for(plain_shape(Pond(), (16,)), EXPERIENCE, 0)), CqlSettings(), generator)
    for _ in range(150):
        method.update(*narrow(128, generator), generator)
    batch, _ = narrow(500, generator)
    seen = method.critic.values(batch.features, batch.action)
    unseen = method.critic.values(batch.features, -batch.action)
    assert (unseen < seen - 1.0).all()


def test_cql_estimates_the_integral_of_exp_q() -> None:
    generator = torch.Generator().manual_seed(0)
    method = Cql(Actions(START), CqlSettings(drawn=20_000, spread=1.0), generator)
    with torch.no_grad():
        for critic in method.critic.parameters():
            critic.mul_(3.0)
    batch, _ = narrow(2, generator)
    grid = torch.linspace(-0.995, 0.995, 200)  # middles
    points = torch.cartesian_prod(grid, grid)
    exact = torch.stack([method.critic.values(state.expand(len(points), -1), points).logsumexp(dim=1)
                         for state in batch.features], dim=1) + torch.log(torch.tensor(0.01**2))
    torch.testing.assert_close(method._log_sum(batch, generator), exact, atol=0.05, rtol=0)  # of 60,000 drawn actions


@pytest.mark.parametrize("expectile", [0.5, 0.7, 0.9])
def test_the_expectile_loss_is_least_at_the_expectile(expectile: float) -> None:
    sample = torch.randn(2000, generator=torch.Generator().manual_seed(0))
    values = torch.linspace(-1.5, 1.5, 601)
    least = values[torch.stack([expectile_loss(sample - value, expectile) for value in values]).argmin()]
    below, above = (sample - least).clamp(max=0).abs().sum(), (sample - least).clamp(min=0).sum()
    assert float(expectile * above) == pytest.approx(float((1 - expectile) * below), rel=0.05)


def test_what_a_fallback_hardly_moves_is_not_blown_up() -> None:
    calm = transitions(collect(Pond(), lambda observation, _: torch.tensor([[8.0, 16.0]]).expand(len(observation), 2),
                               "train", 50, 10, 0))
    actions = Actions(policy_for(plain_shape(Pond(), (8,)), calm, 0))
    moved = calm.observation.clone()
    moved[:, 0] *= 2.0
    difference = (actions.features(moved) - actions.features(calm.observation)).abs()
    assert difference[:, 0].max() < 3.0  # log 2 over a quarter
