"""FLASH's interface: what the buffer keeps, what toggling does, and what is refused."""

import numpy as np
import pytest
import torch

from feature_store.errors import InputError
from models.adaptation.networks.flash import BUFFER_SIZE, MetaLearner

ROUNDING = 1e-6


def learner(encoder: str = "attention", expects: str = "samples", warm_up: int = 0) -> MetaLearner:
    made = MetaLearner(encoder, warm_up=warm_up)
    made.register_base_learner("sizing", 3, 1, expects)  # type: ignore[arg-type]
    made.toggle_update(False)
    return made


def samples(count: int, seed: int = 0) -> list[tuple[np.ndarray, float]]:
    generator = np.random.default_rng(seed)
    return [(generator.normal(size=3), float(generator.normal())) for _ in range(count)]


def trajectory(reward: float, steps: int = 4) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.full((steps, 3), reward), np.zeros((steps, 1)), np.full(steps, reward / steps)


def same(a: MetaLearner, b: MetaLearner) -> bool:
    return bool(torch.allclose(a.embedding(), b.embedding(), rtol=0, atol=ROUNDING))


@pytest.mark.parametrize("encoder", ["gru", "attention"])
def test_of_more_samples_than_the_buffer_holds_the_latest_stay(encoder: str) -> None:
    many = samples(BUFFER_SIZE + 9)
    all_of_them, latest = learner(encoder), learner(encoder)
    all_of_them.insert_data_samples(many[:20])
    all_of_them.insert_data_samples(many[20:])
    latest.insert_data_samples(many[9:])
    assert len(all_of_them) == BUFFER_SIZE and same(all_of_them, latest)


def test_trajectories_of_the_highest_and_lowest_rewards_stay() -> None:
    rewards = np.random.default_rng(0).permutation(50).astype(float)
    some, expected = learner(expects="trajectories"), learner(expects="trajectories")
    some.insert_trajectories([trajectory(r) for r in rewards])
    half = BUFFER_SIZE // 2
    expected.insert_trajectories([trajectory(r) for r in rewards if r < half or r >= 50 - half])
    assert len(some) == len(expected) == BUFFER_SIZE and same(some, expected)


def test_early_trajectories_are_not_kept_for_low_rewards() -> None:
    rewards = np.arange(50).astype(float)
    some, expected = learner(expects="trajectories", warm_up=10), learner(expects="trajectories")
    some.insert_trajectories([trajectory(r) for r in rewards])
    expected.insert_trajectories([trajectory(r) for r in [*rewards[10:26], *rewards[34:]]])
    assert same(some, expected)


@pytest.mark.parametrize("encoder", ["gru", "attention"])
def test_the_length_of_one_trajectory_does_not_change_what_another_adds(encoder: str) -> None:
    both = learner(encoder, "trajectories")
    both.insert_trajectories([trajectory(1.0, steps=2), trajectory(-2.0, steps=6)])
    short, long = learner(encoder, "trajectories"), learner(encoder, "trajectories")
    short.insert_trajectories([trajectory(1.0, steps=2)])
    long.insert_trajectories([trajectory(-2.0, steps=6)])
    network = both._registered()
    summaries = []
    for steps, reward in ((2, 1.0), (6, -2.0)):
        rows = torch.tensor(np.concatenate([*trajectory(reward, steps)[:2], trajectory(reward, steps)[2][:, None]], 1))
        summaries.append(network.summary(rows.float()[None], torch.ones(1, steps, dtype=torch.bool)))
    expected = network.embed(torch.cat(summaries).mean(dim=0))
    torch.testing.assert_close(both.embedding(), expected, rtol=0, atol=ROUNDING)


def test_an_empty_buffer_has_an_embedding() -> None:
    for encoder in ("gru", "attention"):
        for expects in ("samples", "trajectories"):
            found = learner(encoder, expects).embedding()
            assert found.shape == (32,) and bool(found.isfinite().all())


def test_with_updates_on_the_base_learners_loss_trains_the_encoder() -> None:
    made = learner()
    made.toggle_update(True)
    made.insert_data_samples(samples(5))
    before = [p.detach().clone() for p in made.parameters()]
    optimizer = torch.optim.Adam(made.parameters(), 3e-4)
    made.embedding().pow(2).sum().backward()
    optimizer.step()
    assert any(not torch.equal(a, b) for a, b in zip(before, made.parameters(), strict=True))


def test_with_updates_off_nothing_changes_even_under_an_optimizer_with_momentum() -> None:
    made = learner("gru")
    made.toggle_update(True)
    made.insert_data_samples(samples(5))
    optimizer = torch.optim.Adam(made.parameters(), 1e-2, weight_decay=0.1)
    made.embedding().sum().backward()
    optimizer.step()
    made.embedding().sum().backward()
    made.toggle_update(False)
    before = [p.detach().clone() for p in made.parameters()]
    optimizer.step()
    assert not made.embedding().requires_grad and not any(p.requires_grad for p in made.parameters())
    assert all(torch.equal(a, b) for a, b in zip(before, made.parameters(), strict=True))
    assert torch.equal(made.embedding(), made.embedding())  # no dropout either


def test_the_seed_alone_decides_the_weights() -> None:
    torch.manual_seed(3)
    first = learner("gru")
    torch.manual_seed(4)
    assert same(first, learner("gru"))


@pytest.mark.parametrize(("sample", "message"), [
    ((np.zeros(2), 0.0), r"features of sample 0 must have the shape \(3,\), got \(2,\)"),
    ((np.zeros(3), np.zeros(2)), r"labels of sample 0 must have the shape \(1,\), got \(2,\)"),
    ((np.array([0, np.nan, 0]), 0.0), "features of sample 0 must be finite, got nan")])
def test_a_sample_that_does_not_fit_is_refused_and_nothing_is_inserted(sample: tuple, message: str) -> None:
    made = learner()
    with pytest.raises(InputError, match=message):
        made.insert_data_samples([sample])
    assert len(made) == 0


def test_use_in_the_wrong_order_or_kind_is_refused() -> None:
    with pytest.raises(InputError, match="must have a base learner, got none"):
        MetaLearner().embedding()
    with pytest.raises(InputError, match="must get the samples it was registered for, got trajectories"):
        learner().insert_trajectories([trajectory(1.0)])
    with pytest.raises(InputError, match="must have one base learner, got 'other' after 'sizing'"):
        learner().register_base_learner("other", 1, 1)
    with pytest.raises(InputError, match="features must be 1 or more, got 0"):
        MetaLearner().register_base_learner("sizing", 0, 1)
    with pytest.raises(InputError, match="trajectory must have a time step, got none"):
        learner(expects="trajectories").insert_trajectories([(np.zeros((0, 3)), np.zeros((0, 1)), np.zeros(0))])
