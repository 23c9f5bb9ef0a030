"""A small regression problem whose truth rises in x0, while its noise tempts a learner to let it fall."""

from typing import Any

import numpy as np
import torch
from torch import nn

from models.learners.mlp import build_mlp, linear_layers
from models.training.settings import TrainingSettings
from models.training.sign_pattern import initialise
from models.verification.language.specification import FloatArray
from tests.models.verification.networks import Queries

HIDDEN = (12, 10)


def data(rows: int = 160, inputs: int = 3, seed: int = 0) -> tuple[FloatArray, FloatArray]:
    """x (rows, inputs) in 0..1 and y (rows,): flat in x0 but for noise, so that a plain fit violates the order."""
    rng = np.random.default_rng(seed)
    x = rng.random((rows, inputs))
    y = 0.5 + 0.3 * np.sin(4 * x[:, 1]) + 0.05 * x[:, 0] + 0.15 * rng.normal(size=rows)
    return x, y


def settings(**changes: Any) -> TrainingSettings:
    """Seconds, not minutes."""
    return TrainingSettings(**{"epochs": 8, "batch_size": 32, "iterations": 2, "epochs_per_iteration": 2,
                               "learning_rate": 0.01, "pretrain_epochs": 3, "trunk_width": 8,
                               "loop_verify_seconds": 5.0, **changes})


def start(kind: str, queries: Queries, seed: int = 0, inputs: int = 3) -> nn.Sequential:
    """A fresh network; kind "monotone" or "plain"."""
    module = build_mlp(inputs, HIDDEN, torch.Generator().manual_seed(seed))
    if kind == "monotone":
        initialise(linear_layers(module), queries)
    return module
