"""Pretraining of the shared backbone over all workloads, and each workload's start from it.

The interface is what later learners keep: `pretrain` takes every workload's scaled training data, and
`start` gives one workload's initial network. Two backbones are trained on the same batches: one on the
sign pattern for the verified learners, an ordinary one for their twins.

Symbols: J joint features; x (m, n) scaled features and y (m,) scaled target of one workload.
"""

import zipfile
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from feature_store.errors import InputError
from models.learners.backbone import Backbone, grow, holds_trunk
from models.learners.mlp import build_mlp, linear_layers
from models.training.adam import Adam
from models.training.denormal_numbers import denormals_flushed
from models.training.settings import TrainingSettings
from models.training.sign_pattern import initialise, project
from models.verification.language.specification import FloatArray

Queries = Sequence[tuple[int, int]]

# The one head of a backbone that tells workloads apart by their embedding, an input.
POOL_HEAD = "_pool"

# What NumPy, zipfile and torch raise on a file that is cut, damaged or of another kind.
UNREADABLE = (OSError, EOFError, LookupError, TypeError, ValueError, RuntimeError, zipfile.BadZipFile, zlib.error)


@dataclass(frozen=True)
class WorkloadData:
    """One workload's share of the pool: feature names (n), x (m, n), y (m,), and its monotone (feature, sign)s."""

    features: tuple[str, ...]
    x: FloatArray
    y: FloatArray
    queries: Queries


@dataclass(frozen=True)
class Pretrained:
    """Backbones by kind ("monotone", "plain"), none where nothing was pretrained, with the order of their joint
    features and workloads."""

    joint_features: tuple[str, ...]
    workloads: tuple[str, ...]
    backbones: Mapping[str, Backbone]

    def start(self, workload: str, features: Sequence[str], hidden: Sequence[int], queries: Queries, kind: str,
              seed: int) -> nn.Sequential:
        """The initial network of a workload: the backbone grown to the sizes `hidden`; kind as in `backbones`.

        A workload that the pool does not have starts from the mean of the heads, and keeps fresh weights on features
        that the pool does not have. Where nothing was pretrained all weights are fresh.
        """
        network = build_mlp(len(features), hidden, torch.Generator().manual_seed(seed))
        if kind == "monotone":
            initialise(linear_layers(network), queries)
        if self.backbones:
            head = POOL_HEAD if POOL_HEAD in self.workloads else workload
            columns = [self.joint_features.index(name) if name in self.joint_features else None for name in features]
            known = self.workloads.index(head) if head in self.workloads else None
            network = grow(self.backbones[kind], known, columns, network)
        if kind == "monotone":
            project(linear_layers(network), queries)
        return network


def nothing_to_pretrain(hidden: Collection[Sequence[int]], settings: TrainingSettings) -> str:
    """Why no network of such hidden layers starts from a backbone; "" where one does."""
    if any(holds_trunk(widths, settings.trunk_width) for widths in hidden):
        return ""
    narrowest = min((min(widths) for widths in hidden if len(widths) > 1), default=None)
    hint = "" if narrowest is None else f"; trunk_width: {narrowest} would do"
    return (f"nothing was pretrained: to start from a backbone of width {settings.trunk_width} (training.trunk_width) "
            f"takes two or more hidden layers, none of them narrower, which no workload has{hint}")


def pretrain(
    pool: Mapping[str, WorkloadData], settings: TrainingSettings, seed: int,
    on_progress: Callable[[dict[str, Any]], None] = lambda event: None,
) -> Pretrained:
    """Trains both backbones on the pool. Raises InputError for an empty pool."""
    if not pool:
        raise InputError("pool must have at least one workload, got none")
    joint = tuple(dict.fromkeys(name for data in pool.values() for name in data.features))
    x, y, workload = _joint_data(pool, joint)
    queries = _agreed_queries(pool, joint)
    kinds = ("monotone", "plain")
    backbones = {kind: Backbone(len(joint), len(pool), settings.trunk_width, torch.Generator().manual_seed(seed))
                 for kind in kinds}
    initialise(backbones["monotone"].layers, queries)
    optimisers = {kind: Adam(backbones[kind].parameters()) for kind in kinds}
    batches = torch.Generator().manual_seed(seed)
    for epoch in range(settings.pretrain_epochs):
        total = 0.0
        with denormals_flushed():
            for batch in torch.randperm(len(x), generator=batches).split(settings.batch_size * 2):
                for kind in kinds:
                    loss = ((backbones[kind](x[batch], workload[batch]) - y[batch]) ** 2).mean()
                    optimisers[kind].step(loss, settings.learning_rate)
                    if kind == "monotone":
                        project(backbones[kind].layers, queries)
                        total += float(loss.detach()) * len(batch)
        on_progress({"stage": "pretrain", "epoch": epoch + 1, "epochs": settings.pretrain_epochs,
                     "loss": total / len(x)})
    return Pretrained(joint, tuple(pool), backbones)


def _joint_data(pool: Mapping[str, WorkloadData], joint: Sequence[str]) -> tuple[torch.Tensor, ...]:
    """x (sum m, J) with zeros where a workload lacks a feature, y (sum m,), workload index (sum m,)."""
    xs, ys, ids = [], [], []
    for index, data in enumerate(pool.values()):
        x = np.zeros((len(data.x), len(joint)), dtype=np.float32)
        x[:, [joint.index(name) for name in data.features]] = data.x
        xs.append(x)
        ys.append(data.y.astype(np.float32))
        ids.append(np.full(len(data.x), index))
    return tuple(torch.as_tensor(np.concatenate(parts)) for parts in (xs, ys, ids))


def _agreed_queries(pool: Mapping[str, WorkloadData], joint: Sequence[str]) -> list[tuple[int, int]]:
    """Monotone directions of the joint features; a feature on which two workloads disagree is left free."""
    directions: dict[int, set[int]] = {}
    for data in pool.values():
        for feature, sign in data.queries:
            directions.setdefault(joint.index(data.features[feature]), set()).add(sign)
    return [(feature, signs.pop()) for feature, signs in directions.items() if len(signs) == 1]


def save_pretrained(pretrained: Pretrained, path: Path) -> None:
    """Writes names and weights as one .npz of plain arrays."""
    arrays = {f"{kind}/{name}": value.numpy() for kind, backbone in pretrained.backbones.items()
              for name, value in backbone.state_dict().items()}
    names = {"joint_features": np.array(pretrained.joint_features), "workloads": np.array(pretrained.workloads)}
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **names, **arrays)


def load_pretrained(path: Path) -> Pretrained:
    """Reads what save_pretrained wrote. Raises InputError for any other file."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        joint, workloads = (tuple(arrays.pop(key).tolist()) for key in ("joint_features", "workloads"))
        backbones = {}
        for kind in ("monotone", "plain"):
            state = {name.split("/", 1)[1]: torch.as_tensor(value) for name, value in arrays.items()
                     if name.startswith(kind + "/")}
            backbones[kind] = Backbone(len(joint), len(workloads), state["head.weight"].shape[1], torch.Generator())
            backbones[kind].load_state_dict(state)
    except UNREADABLE as error:
        raise InputError(f"pretrained backbone must be readable, got {error} ({path})") from error
    return Pretrained(joint, workloads, backbones)
