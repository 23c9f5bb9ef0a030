"""The M best trajectories are those of highest reward; the embedding knows applications apart, and no order."""

import pytest
import torch

from feature_store.errors import InputError
from models.control.adaptation.inputs import Nothing
from models.control.adaptation.side_by_side import run
from models.control.adaptation.trajectories import Recorder, TrajectoryStore
from models.control.adaptation.trajectory_encoder import KINDS, EncoderSettings, TrajectoryEncoder
from tests.models.control.adaptation.adapting import policies, small


def test_the_best_are_those_of_highest_reward_best_first():
    store = TrajectoryStore.empty(2, 3, length=1, numbers=1)
    for value, reward in ((1.0, 0.5), (2.0, 1.5), (3.0, 1.0)):
        store.add(torch.tensor([0]), torch.full((1, 1, 1), value), torch.tensor([reward]))
    records, there = store.best(torch.tensor([0, 1]), 2)
    assert records[0].flatten().tolist() == [2.0, 3.0]
    assert there.tolist() == [[True, True], [False, False]]


def test_a_full_store_forgets_the_oldest_and_an_episode_without_a_reward_is_never_taken():
    store = TrajectoryStore.empty(1, 2, length=1, numbers=1)
    for value, reward in ((1.0, 9.0), (2.0, float("nan")), (3.0, 1.0)):
        store.add(torch.tensor([0]), torch.full((1, 1, 1), value), torch.tensor([reward]))
    records, there = store.best(torch.tensor([0]), 2)
    assert there.tolist() == [[True, False]]
    assert records[0, 0].item() == 3.0


@pytest.mark.parametrize("kind", KINDS)
def test_an_embedding_knows_applications_apart_but_not_the_order_of_trajectories(kind):
    generator = torch.Generator().manual_seed(0)
    records = torch.randn(3, 4, 5, 6, generator=generator)
    there = torch.tensor([[True] * 4, [True, True, False, False], [False] * 4])
    encoder = TrajectoryEncoder(EncoderSettings(kind, width=8, head=(8,), embedding=3), 6, seed=0).eval()
    embedding = encoder(records, there)
    assert embedding.abs().max() <= 1.0
    assert (embedding[0] - embedding[1]).abs().max() > 1e-3
    assert embedding[2].tolist() == [0.0] * 3
    order = torch.tensor([1, 0, 3, 2])
    torch.testing.assert_close(encoder(records[:, order], there[:, order]), embedding, rtol=0, atol=1e-6)
    unseen = torch.where(there[..., None, None], records, torch.nan)
    torch.testing.assert_close(encoder(unseen, there), embedding, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", ["gru", "attention"])
def test_what_comes_first_within_a_trajectory_matters_to_a_recurrent_network_alone(kind):
    records = torch.randn(1, 1, 6, 4, generator=torch.Generator().manual_seed(0))
    encoder = TrajectoryEncoder(EncoderSettings(kind, width=8, head=(8,), embedding=3), 4, seed=0)
    shuffled = records[:, :, [2, 0, 1, 5, 4, 3]]
    same = torch.allclose(encoder(records, torch.ones(1, 1, dtype=torch.bool)),
                          encoder(shuffled, torch.ones(1, 1, dtype=torch.bool)), atol=1e-6)
    assert same == (kind == "attention")


def test_encoder_settings_are_checked():
    with pytest.raises(InputError, match="gru, attention or deep_sets, got 'lstm'"):
        EncoderSettings("lstm")
    with pytest.raises(InputError, match="from 1 to 20, got 21"):
        EncoderSettings(trajectories=21)


def test_records_of_real_episodes_tell_applications_apart():
    environment = small()
    policy = policies(environment, 1, Nothing())
    recorder = Recorder(environment, policy.mean, policy.spread, stride=4)
    episodes = environment.draw("train", 2, 21, 0, applications=[0, 5])
    found = run(environment, policy, Nothing(), episodes, 20, 0, recorder=recorder)
    assert found.records.shape == (1, 2, 5, recorder.numbers)
    encoder = TrajectoryEncoder(EncoderSettings(width=8, head=(8,), embedding=3, stride=4), recorder.numbers, seed=0)
    first, second = encoder(found.records[0][:, None], torch.ones(2, 1, dtype=torch.bool))
    assert (first - second).abs().max() > 1e-3
