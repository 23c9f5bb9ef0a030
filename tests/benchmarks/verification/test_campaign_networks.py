"""The campaign's networks: the same from the same recipe, closer to a proof where trained for one, or refused."""

from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.verification import networks as verification_networks
from benchmarks.verification.networks import (
    KINDS,
    QUERIES,
    SIZES,
    Instance,
    Recipe,
    campaign_instances,
    load_or_train,
    target,
    train,
    weights_digest,
)
from feature_store.errors import InputError
from models.training.derivative_penalty import derivative_bounds, preactivation_bounds
from models.verification.network.fully_connected import ReluNetwork, network_from_torch
from tests.models.verification.networks import sampled_slopes

TINY = Instance("2x8", 1, "plain")


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SIZES, "2x8", (8, 8))
    monkeypatch.setitem(KINDS, "plain", Recipe(3))


def bound_of_the_box(network: ReluNetwork) -> float:
    weights, biases = ([torch.as_tensor(array) for array in arrays] for arrays in (network.weights, network.biases))
    layers = preactivation_bounds(weights, biases, torch.zeros(1, 8), torch.ones(1, 8))
    return float(derivative_bounds(weights, layers, QUERIES).min())


def lowest_slope(network: ReluNetwork) -> float:
    return float(sampled_slopes(network, np.random.default_rng(0).random((4000, 8)), QUERIES).min())


def test_the_function_rises_and_falls_as_the_networks_shall() -> None:
    x = torch.rand(2000, 8, generator=torch.Generator().manual_seed(0)).requires_grad_()
    gradient, = torch.autograd.grad(target(x).sum(), x)
    for feature, sign in QUERIES:
        assert float((sign * gradient[:, feature]).min()) > 0.0


def test_training_is_the_same_from_the_same_seed() -> None:
    recipe = Recipe(5, weight=1.0, margin=0.1)
    first, second, other = (network_from_torch(train((8, 8), QUERIES, recipe, seed)) for seed in (0, 0, 1))
    assert weights_digest(first) == weights_digest(second) != weights_digest(other)


def test_every_recipe_does_what_it_is_for() -> None:
    plain, sampled, certified = (network_from_torch(train((16, 16), QUERIES, recipe)) for recipe in (
        Recipe(400), Recipe(400, weight=1.0, margin=0.1),
        Recipe(400, weight=3.0, margin=0.05, bound=derivative_bounds)))
    lowest = [lowest_slope(network) for network in (plain, sampled, certified)]
    assert lowest[0] < 2 * lowest[1] < 0 < lowest[2]
    assert bound_of_the_box(certified) > 0.1 * bound_of_the_box(sampled)


def test_a_second_seed_is_another_network_of_another_name(tmp_path: Path) -> None:
    other = Instance(TINY.size, TINY.features, TINY.kind, seed=1)
    first, second = (load_or_train(instance, tmp_path) for instance in (TINY, other))
    assert weights_digest(first) != weights_digest(second)
    assert {path.name for path in tmp_path.iterdir()} == {"2x8_F1_plain.npz", "2x8_F1_plain_seed1.npz"}


def test_the_campaign_has_every_kind_in_one_and_three_features() -> None:
    names = [instance.name for instance in campaign_instances()]
    assert len(set(names)) == len(names)
    assert {"3x1024_F3_certified", "3x512_F1_tangent", "2x64_F3_tangent_thin_seed1"} <= set(names)
    assert "3x1024_F1_tangent" not in names and "2x64_F1_certified_seed1" not in names


def test_a_network_is_trained_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    first = load_or_train(TINY, tmp_path / "new", said.append)
    assert said == ["training 2x8_F1_plain"]
    monkeypatch.setattr(verification_networks, "train", None)
    again = load_or_train(TINY, tmp_path / "new", said.append)
    assert weights_digest(again) == weights_digest(first) and len(said) == 1
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["2x8_F1_plain.npz"]


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut short", b"text"])
def test_a_damaged_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "2x8_F1_plain.npz").write_bytes(content)
    with pytest.raises(InputError, match="network must be readable"):
        load_or_train(TINY, tmp_path)


def test_a_network_of_other_sizes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load_or_train(TINY, tmp_path)
    monkeypatch.setitem(SIZES, "2x8", (8, 9))
    with pytest.raises(InputError, match=r"layers \[8, 9\], got 8 and \[8, 8\]"):
        load_or_train(TINY, tmp_path)


def test_parameters_are_counted() -> None:
    network = network_from_torch(train((8, 8), [(0, 1)], Recipe(0)))
    count = sum(array.size for array in (*network.weights, *network.biases))
    assert TINY.parameters == count
