"""The shared backbone: what it is trained on, how a workload starts from it, and its file."""

import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from feature_store.errors import InputError
from models.learners.mlp import linear_layers
from models.tasks.kinds import kind_of
from models.tasks.task import parse_task
from models.training.pretraining import (
    Pretrained,
    WorkloadData,
    load_pretrained,
    nothing_to_pretrain,
    pretrain,
    save_pretrained,
)
from models.training.settings import TrainingSettings
from models.verification.network.fully_connected import network_from_torch
from models.verification.verdict import Status
from models.verification.verify import verify
from tests.models.training.synthetic import data, settings
from tests.models.verification.networks import Queries, sampled_slopes, specification

# float32 sums of some 10 terms in two orders
FLOAT32 = 1e-5


def workload(features: tuple[str, ...], queries: Queries, seed: int = 0, rows: int = 80) -> WorkloadData:
    x, y = data(rows, len(features), seed)
    return WorkloadData(features, x, y, queries)


# cpu rises for both; io rises for the first and falls for the second; quota is the second's own
POOL = {"first": workload(("cpu", "io", "rate"), [(0, 1), (1, 1)]),
        "second": workload(("io", "quota", "cpu"), [(0, -1), (2, 1)], seed=1)}
JOINT = ("cpu", "io", "rate", "quota")


@pytest.fixture(scope="module")
def pretrained() -> Pretrained:
    return pretrain(POOL, settings(), seed=0)


def backbone_value(pretrained: Pretrained, kind: str, name: str, x: np.ndarray) -> np.ndarray:
    """The backbone's answer for rows (m, n) of one workload, with zeros where it lacks a feature."""
    joint = torch.zeros(len(x), len(pretrained.joint_features))
    columns = [pretrained.joint_features.index(feature) for feature in POOL[name].features]
    joint[:, columns] = torch.as_tensor(x, dtype=torch.float32)
    index = torch.full((len(x),), pretrained.workloads.index(name))
    with torch.no_grad():
        found: np.ndarray = pretrained.backbones[kind](joint, index).numpy()
    return found


def test_joint_features_stand_in_the_order_of_their_first_workload(pretrained: Pretrained) -> None:
    assert pretrained.joint_features == JOINT
    assert pretrained.workloads == ("first", "second")
    assert set(pretrained.backbones) == {"monotone", "plain"}


def test_training_fits_the_pool_and_reports_every_epoch() -> None:
    events: list[dict[str, Any]] = []
    pretrain(POOL, settings(pretrain_epochs=15), 0, events.append)
    assert [event["epoch"] for event in events] == list(range(1, 16))
    assert all(event["stage"] == "pretrain" and event["epochs"] == 15 for event in events)
    assert events[-1]["loss"] < 0.7 * events[0]["loss"]


def test_agreed_directions_hold_in_the_monotone_backbone_and_the_others_are_free(pretrained: Pretrained) -> None:
    from models.training.pretraining import _agreed_queries

    assert _agreed_queries(POOL, JOINT) == [(0, 1)]  # cpu; not io, on which the workloads disagree
    first = linear_layers(pretrained.backbones["monotone"].trunk)[0].weight.detach()
    signs = torch.tensor([1.0, -1.0] * 4)
    assert (first[:, 0] * signs >= 0).all()
    assert not (first[:, 1] * signs >= 0).all() and not (first[:, 1] * signs <= 0).all()
    x = np.random.default_rng(0).random((200, 3))
    moved = x.copy()
    moved[:, 0] += 0.5
    rise = backbone_value(pretrained, "monotone", "first", moved) - backbone_value(pretrained, "monotone", "first", x)
    assert (rise >= -FLOAT32).all()


@pytest.mark.parametrize("hidden", [(8, 8), (12, 10), (20, 8, 8), (16, 16, 16, 9)])
@pytest.mark.parametrize("name", list(POOL))
def test_a_plain_start_computes_what_the_backbone_does(pretrained: Pretrained, name: str, hidden) -> None:
    x = np.random.default_rng(1).random((100, 3))
    features, queries = POOL[name].features, POOL[name].queries
    network = network_from_torch(pretrained.start(name, features, hidden, queries, "plain", seed=0))
    np.testing.assert_allclose(network.value(x), backbone_value(pretrained, "plain", name, x), atol=FLOAT32)


def test_a_monotone_start_computes_what_the_backbone_does_where_directions_agree() -> None:
    pool = {"first": workload(("cpu", "io", "rate"), [(0, 1), (1, 1)]),
            "second": workload(("io", "quota", "cpu"), [(0, 1), (2, 1)], seed=1)}
    found = pretrain(pool, settings(), seed=0)
    x = np.random.default_rng(2).random((100, 3))
    for name, entry in pool.items():
        network = network_from_torch(found.start(name, entry.features, (14, 12, 10), entry.queries, "monotone", 0))
        np.testing.assert_allclose(network.value(x), backbone_value(found, "monotone", name, x), atol=FLOAT32)


def test_a_workload_that_the_pool_lacks_starts_from_the_mean_of_the_heads(pretrained: Pretrained) -> None:
    x = np.random.default_rng(4).random((50, 2))
    joint = torch.zeros(50, len(JOINT))
    joint[:, [1, 0]] = torch.as_tensor(x, dtype=torch.float32)
    with torch.no_grad():
        wanted = np.mean([pretrained.backbones["plain"](joint, torch.full((50,), k)).numpy() for k in (0, 1)], axis=0)
    network = network_from_torch(pretrained.start("new", ("io", "cpu"), (12, 10), [], "plain", seed=0))
    np.testing.assert_allclose(network.value(x), wanted, atol=FLOAT32)


def test_a_feature_that_the_pool_lacks_keeps_fresh_weights_and_the_start_is_monotone(pretrained: Pretrained) -> None:
    network = network_from_torch(pretrained.start("new", ("cpu", "fresh"), (12, 10), [(0, 1), (1, -1)], "monotone", 0))
    assert np.abs(network.weights[0][:, 1]).max() > 0
    assert verify(network, specification(2, [(0, 1), (1, -1)])).status is Status.PROVED


@pytest.mark.parametrize("name", list(POOL))
def test_a_monotone_start_is_proved_also_where_the_pool_disagreed(pretrained: Pretrained, name: str) -> None:
    entry = POOL[name]
    network = network_from_torch(pretrained.start(name, entry.features, (12, 10), entry.queries, "monotone", 0))
    points = np.random.default_rng(3).normal(size=(300, 3))
    assert (sampled_slopes(network, points, entry.queries) >= 0).all()
    assert verify(network, specification(3, entry.queries)).status is Status.PROVED


def test_a_workload_that_pretraining_never_saw_starts_afresh(pretrained: Pretrained) -> None:
    features = ("new", "cpu")
    a = pretrained.start("third", features, (12, 10), [(1, 1)], "monotone", seed=4)
    b = pretrained.start("third", features, (12, 10), [(1, 1)], "monotone", seed=4)
    other = pretrained.start("third", features, (12, 10), [(1, 1)], "monotone", seed=5)
    assert torch.equal(a[0].weight, b[0].weight) and not torch.equal(a[0].weight, other[0].weight)
    points = np.random.default_rng(0).normal(size=(100, 2))
    assert (sampled_slopes(network_from_torch(a), points, [(1, 1)]) >= 0).all()


def test_a_network_smaller_than_the_trunk_starts_afresh(pretrained: Pretrained) -> None:
    features, queries = POOL["first"].features, POOL["first"].queries
    for hidden in ((6, 6), (12,)):
        network = pretrained.start("first", features, hidden, queries, "plain", seed=0)
        fresh = pretrained.start("unknown", features, hidden, queries, "plain", seed=0)
        assert torch.equal(network[0].weight, fresh[0].weight)


def test_starting_does_not_change_the_backbone(pretrained: Pretrained) -> None:
    before = {name: value.clone() for name, value in pretrained.backbones["plain"].state_dict().items()}
    network = pretrained.start("first", POOL["first"].features, (12, 10), [(0, 1)], "plain", 0)
    with torch.no_grad():
        network[0].weight.add_(1.0)
        network[0].bias.add_(1.0)
    after = pretrained.backbones["plain"].state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())


def test_a_seed_gives_one_backbone(pretrained: Pretrained) -> None:
    torch.manual_seed(99)
    again = pretrain(POOL, settings(), seed=0)
    other = pretrain(POOL, settings(), seed=1)
    for kind in ("monotone", "plain"):
        state, same, unlike = (found.backbones[kind].state_dict() for found in (pretrained, again, other))
        assert all(torch.equal(value, same[name]) for name, value in state.items())
        assert not torch.equal(state["head.weight"], unlike["head.weight"])


def test_no_epoch_at_all_is_an_initialised_backbone() -> None:
    found = pretrain(POOL, settings(pretrain_epochs=0), seed=0)
    x = np.random.default_rng(0).random((10, 3))
    assert np.isfinite(backbone_value(found, "monotone", "first", x)).all()


@pytest.mark.parametrize(("hidden", "said"), [
    ([(64, 64), (300, 300)], ""), ([(64, 64), (80, 70)], "trunk_width: 64 would do"), ([(512,)], "no workload has")])
def test_where_no_workload_can_start_from_the_backbone_none_is_made_and_that_is_said(
        tmp_path: Path, hidden: list[tuple[int, ...]], said: str) -> None:
    assert nothing_to_pretrain(hidden, TrainingSettings())[-len(said):] == said
    task = parse_task({
        "name": "t", "target": {"name": "latency_ms", "unit": "ms"}, "inputs": [{"name": "cpu", "unit": "share"}],
        "workloads": {f"w{k}": {"hidden": widths} for k, widths in enumerate(hidden)}}, "test")
    arguments = task, list(task.workloads), 0, tmp_path, tmp_path / "made", tmp_path, lambda event: None
    if said:
        assert said in kind_of("prediction", "test").pretrain(*arguments)
    else:
        with pytest.raises(FileNotFoundError):  # the features, which it reads
            kind_of("prediction", "test").pretrain(*arguments)


def test_without_a_backbone_a_workload_starts_fresh_as_one_does_that_is_too_small(pretrained: Pretrained) -> None:
    starts = [found.start("first", POOL["first"].features, (7, 9), [(0, 1)], "monotone", 0)
              for found in (Pretrained((), (), {}), pretrained)]
    assert all(torch.equal(one, other) for one, other in zip(*(start.parameters() for start in starts), strict=True))


def test_an_empty_pool_is_refused() -> None:
    with pytest.raises(InputError, match="pool must have at least one workload, got none"):
        pretrain({}, settings(), seed=0)


def test_a_backbone_comes_back_from_its_file_bit_for_bit(pretrained: Pretrained, tmp_path: Path) -> None:
    path = tmp_path / "backbone.npz"
    save_pretrained(pretrained, path)
    found = load_pretrained(path)
    assert (found.joint_features, found.workloads) == (pretrained.joint_features, pretrained.workloads)
    for kind in ("monotone", "plain"):
        a, b = pretrained.backbones[kind].state_dict(), found.backbones[kind].state_dict()
        assert set(a) == set(b) and all(torch.equal(value, b[name]) for name, value in a.items())
    entry = POOL["second"]
    starts = [p.start("second", entry.features, (12, 10), entry.queries, "monotone", 0) for p in (pretrained, found)]
    assert torch.equal(starts[0][0].weight, starts[1][0].weight)


def stored(pretrained: Pretrained, **changes: Any) -> bytes:
    arrays: Mapping[str, Any] = {
        **{f"{kind}/{name}": value.numpy() for kind, backbone in pretrained.backbones.items()
           for name, value in backbone.state_dict().items()},
        "joint_features": np.array(pretrained.joint_features), "workloads": np.array(pretrained.workloads)}
    file = io.BytesIO()
    np.savez(file, **{name: value for name, value in {**arrays, **changes}.items() if value is not None})
    return file.getvalue()


DAMAGED: dict[str, Callable[[Pretrained], bytes]] = {
    "empty": lambda p: b"",
    "text": lambda p: b"not an archive",
    "cut": lambda p: stored(p)[:1000],
    "no names": lambda p: stored(p, workloads=None),
    "no head": lambda p: stored(p, **{"plain/head.weight": None}),
    "another head": lambda p: stored(p, **{"plain/head.weight": np.ones((5, 8), dtype=np.float32)}),
    "a head of one dimension": lambda p: stored(p, **{"plain/head.weight": np.ones(8, dtype=np.float32)}),
    "a layer of another width": lambda p: stored(p, **{"monotone/trunk.2.weight": np.ones((4, 8), np.float32)}),
    "names that are a number": lambda p: stored(p, joint_features=np.array(3)),
    "pickled": lambda p: stored(p, workloads=np.array(["a", None], dtype=object)),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_an_input_error_with_its_path(pretrained: Pretrained, tmp_path: Path, name: str) -> None:
    path = tmp_path / "backbone.npz"
    path.write_bytes(DAMAGED[name](pretrained))
    with pytest.raises(InputError, match=r"(?s)pretrained backbone must be readable.*backbone\.npz"):
        load_pretrained(path)


def test_a_missing_file_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="pretrained backbone must be readable"):
        load_pretrained(tmp_path / "none.npz")
