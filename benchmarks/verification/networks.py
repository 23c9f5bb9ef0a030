"""The networks of the verification campaign: trained once from fixed seeds, kept in a folder outside of the repository.

All fit one function of 8 inputs in [0, 1] with noise that rises with inputs 0 and 1 and falls with input 2:

| kind | training |
| --- | --- |
| plain | mean squared error alone |
| counterexample | and the slopes at the worst of many sampled points: few violations are left, in small regions |
| certified | and bounds of the slopes over boxes up to the whole (models/training/derivative_penalty.py), long |
| certified_thin | the same with a tenth of the weight for a third of the steps: a proof needs many boxes |
| tangent, tangent_thin | as certified, certified_thin, with bounds from the input on (tangent_bounds.py) |
| tangent_middle | the same with a third of the weight for half of the steps |

Weights depend on the machine's arithmetic: their digest is part of every measurement, and networks that are there
already are not trained again.

Symbols: n = 8 inputs; x (m, n) points; y (m,) targets; F features (index, sign) in which a network shall be monotone.
"""

import hashlib
import math
import os
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.learning.tangent_bounds import tangent_bounds
from feature_store.errors import InputError
from feature_store.whole_files import whole_file
from models.learners.mlp import build_mlp, linear_layers
from models.training.derivative_penalty import DerivativeBound, DerivativePenalty, derivative_bounds
from models.verification.network.fully_connected import ReluNetwork, network_from_torch

INPUTS = 8
QUERIES = ((0, 1), (1, 1), (2, -1))
# Slope by which an order may be violated, in units of the output by unit of the input.
TOLERANCE = 1e-4
SIZES = {"2x64": (64, 64), "2x128": (128, 128), "2x300": (300, 300), "3x300": (300, 300, 300),
         "3x512": (512, 512, 512), "3x1024": (1024, 1024, 1024)}
FEATURES = (1, 3)
TANGENT_SIZES, TWICE = tuple(SIZES)[:5], ("2x64", "2x128")
DEFAULT_FOLDER = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "assay" / "verification-networks"

ROWS, NOISE, BATCH = 3000, 0.02, 128
LEARNING_RATE = 2e-3
# Share of the steps until the second loss is at full weight, and boxes are as large as they get.
RAMP_SHARE = 0.6
BOXES = 4
# Sampled points a step, and the worst of them, whose slopes are trained.
POINTS, WORST_POINTS = 512, 32


@dataclass(frozen=True)
class Recipe:
    """How a kind of network is trained, and in which sizes.

    Attributes:
        steps: of training.
        weight: of the second loss.
        margin: the slope that the second loss asks for.
        bound: of the slope; None: samples of it.
        sizes: None for all.
        twice: sizes of which there are networks from two seeds.
    """

    steps: int
    weight: float = 0.0
    margin: float = 0.0
    bound: DerivativeBound | None = None
    sizes: tuple[str, ...] | None = None
    twice: tuple[str, ...] = ()


KINDS = {
    "plain": Recipe(1000),
    "counterexample": Recipe(1000, weight=1.0, margin=0.1),
    "certified": Recipe(3000, weight=3.0, margin=0.05, bound=derivative_bounds),
    "certified_thin": Recipe(1000, weight=0.3, margin=0.02, bound=derivative_bounds),
    "tangent": Recipe(3000, weight=3.0, margin=0.05, bound=tangent_bounds, sizes=TANGENT_SIZES, twice=TWICE),
    "tangent_middle": Recipe(1500, weight=1.0, margin=0.02, bound=tangent_bounds, sizes=TANGENT_SIZES),
    "tangent_thin": Recipe(1000, weight=0.3, margin=0.02, bound=tangent_bounds, sizes=TANGENT_SIZES, twice=TWICE),
}


@dataclass(frozen=True)
class Instance:
    """One network of the campaign and what is asked about it: monotone in the first `features` of QUERIES?"""

    size: str
    features: int
    kind: str
    seed: int = 0

    @property
    def name(self) -> str:
        return f"{self.size}_F{self.features}_{self.kind}" + (f"_seed{self.seed}" if self.seed else "")

    @property
    def hidden(self) -> tuple[int, ...]:
        return SIZES[self.size]

    @property
    def queries(self) -> tuple[tuple[int, int], ...]:
        return QUERIES[: self.features]

    @property
    def parameters(self) -> int:
        """Number of weights and biases."""
        widths = (INPUTS, *self.hidden, 1)
        return sum((a + 1) * b for a, b in pairwise(widths))


def campaign_instances() -> list[Instance]:
    """All of the campaign, each kind in its own sizes and seeds."""
    return [Instance(size, features, kind, seed) for kind, recipe in KINDS.items() for size in recipe.sizes or SIZES
            for features in FEATURES for seed in ((0, 1) if size in recipe.twice else (0,))]


def load_or_train(instance: Instance, folder: Path, say: Callable[[str], None] = lambda text: None) -> ReluNetwork:
    """The network from `folder`; trained and written there if it is missing.

    Raises:
        InputError: the file is damaged or holds a network of other sizes.
    """
    path = folder / f"{instance.name}.npz"
    if not path.is_file():
        say(f"training {instance.name}")
        network = network_from_torch(train(instance.hidden, instance.queries, KINDS[instance.kind],
                                           instance.seed))
        _write(path, network)
    network = _read(path)
    widths = (*(len(bias) for bias in network.biases[:-1]),)
    if network.inputs != INPUTS or widths != instance.hidden:
        raise InputError(f"network must have {INPUTS} inputs and layers {list(instance.hidden)}, got {network.inputs} "
                         f"and {list(widths)} ({path})")
    return network


def weights_digest(network: ReluNetwork) -> str:
    """SHA-256 (hex) of shapes and values."""
    digest = hashlib.sha256()
    for array in (*network.weights, *network.biases):
        digest.update(repr(array.shape).encode() + np.ascontiguousarray(array, dtype="<f4").tobytes())
    return digest.hexdigest()


def target(x: Tensor) -> Tensor:
    """The function that the networks fit: (m,) in about [-0.4, 1.1]."""
    return (0.5 * torch.sigmoid(6 * (x[:, 0] - 0.5)) + 0.3 * x[:, 0] * x[:, 3]
            + 0.3 * torch.relu(x[:, 1] - 0.4) + 0.1 * x[:, 1] - 0.2 * x[:, 2] - 0.1 * x[:, 2] ** 2
            + 0.2 * torch.sin(4 * x[:, 4]) * x[:, 5] - 0.15 * x[:, 6] * x[:, 7])


def train(hidden: Sequence[int], queries: Sequence[tuple[int, int]], recipe: Recipe, seed: int = 0) -> nn.Sequential:
    """A network trained by the recipe; the same one for the same seed, machine and number of threads."""
    random = torch.Generator().manual_seed(seed)
    x = torch.rand(ROWS, INPUTS, generator=random)
    y = target(x) + NOISE * torch.randn(ROWS, generator=random)
    network = build_mlp(INPUTS, hidden, random)
    optimiser = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE, fused=True)
    bounds = DerivativePenalty(queries, torch.zeros(INPUTS), torch.ones(INPUTS), recipe.margin, BOXES,
                               torch.Generator().manual_seed(seed + 1), recipe.bound)
    for step in range(recipe.steps):
        # down to zero: what is left of wrong weights on the way to a proof is of the size of the last steps
        optimiser.param_groups[0]["lr"] = LEARNING_RATE * 0.5 * (1 + math.cos(math.pi * step / recipe.steps))
        rows = torch.randint(ROWS, (BATCH,), generator=random)
        loss = ((network(x[rows])[:, 0] - y[rows]) ** 2).mean()
        ramp = min(step / (RAMP_SHARE * recipe.steps), 1.0)
        if recipe.weight and ramp > 0:
            second = (bounds(linear_layers(network), ramp) if recipe.bound
                      else _sampled_shortfall(network, queries, recipe.margin, random))
            loss = loss + recipe.weight * ramp * second
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return network


def _sampled_shortfall(network: nn.Sequential, queries: Sequence[tuple[int, int]], margin: float,
                       random: torch.Generator) -> Tensor:
    """Mean shortfall of the slopes from `margin` at the worst of random points."""
    points = torch.rand(POINTS, INPUTS, generator=random)
    worst = _slopes(network, points, queries, trained=False).amin(1).argsort()[:WORST_POINTS]
    return torch.relu(margin - _slopes(network, points[worst], queries, trained=True)).mean()


def _slopes(network: nn.Sequential, points: Tensor, queries: Sequence[tuple[int, int]], trained: bool) -> Tensor:
    """sign * dy/dx[feature] at points (m, n): (m, F)."""
    points = points.clone().requires_grad_()
    gradient, = torch.autograd.grad(network(points).sum(), points, create_graph=trained)
    return gradient[:, [feature for feature, _ in queries]] * torch.tensor([float(sign) for _, sign in queries])


def _write(path: Path, network: ReluNetwork) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    layers = {f"weight_{k}": weight for k, weight in enumerate(network.weights)}
    layers |= {f"bias_{k}": bias for k, bias in enumerate(network.biases)}
    with whole_file(path) as new, new.open("wb") as file:
        np.savez(file, allow_pickle=False, **layers)


def _read(path: Path) -> ReluNetwork:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            layers = range(len(stored.files) // 2)
            return ReluNetwork(tuple(stored[f"weight_{k}"] for k in layers),
                               tuple(stored[f"bias_{k}"] for k in layers))
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise InputError(f"network must be readable, got {error}; remove it to train it again ({path})") from error
