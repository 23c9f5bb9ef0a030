"""Policies for the tests of closed loops: capacity as a function of backlog, load and running capacity."""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from models.verification.checker.chain import Chain
from models.verification.closed_loop.fluid_law import FluidLaw, Observation

Array = NDArray[np.float64]
FLOAT32 = np.dtype(np.float32)
SEEN = Observation.of(np.eye(3))


def law(change: float = 0.05) -> FluidLaw:
    """Loads of 0.2 to 0.9 cores, capacities of 0.05 to 1.2, steps of one second."""
    return FluidLaw(1.0, 0.2, 0.9, 0.05, 1.2, change)


def policy(weights: list[Array], biases: list[Array]) -> Chain:
    """As stored in float32."""
    stored = [[np.asarray(a, dtype=np.float32).astype(np.float64) for a in arrays] for arrays in (weights, biases)]
    return Chain(tuple(stored[0]), tuple(stored[1]), ("relu",) * (len(weights) - 1), FLOAT32, FLOAT32)


def affine(of_backlog: float = 0.5, headroom: float = 0.1) -> Chain:
    """Load plus headroom plus a share of the backlog."""
    return policy([np.array([[of_backlog, 1.0, 0.0]])], [np.array([headroom])])


def fitted(width: int, seed: int = 0, full_at: float = 0.6) -> Chain:
    """Two layers of positive weights, fitted to load plus headroom plus backlog, full capacity from `full_at` on."""
    random = np.random.default_rng(seed)
    first = np.abs(random.normal(size=(width, 3))) * np.array([1.0, 1.0, 0.0])
    first[: width // 4] = [1.0, 0.0, 0.0]
    first[width // 4 : width // 2] = [0.0, 1.0, 0.0]
    x = np.column_stack([random.uniform(0, 3, 600) * random.random(600), random.uniform(0.1, 1, 600), np.zeros(600)])
    kinks = random.permutation(x)[:width]
    offset = -(first * kinks).sum(axis=1)
    offset[width // 2] = 1.0  # a neuron that is always on
    second = np.abs(random.normal(size=(width, width))) * (random.random((width, width)) < 4 / width)
    second = np.maximum(second, np.eye(width))
    hidden = np.maximum(np.maximum(x @ first.T + offset, 0) @ second.T, 0)
    wanted = x[:, 1] + 0.08 + np.minimum(x[:, 0], full_at) * (1.3 / full_at)
    last, _ = nnls(np.column_stack([hidden, np.ones(len(x))]), wanted)
    return policy([first, second, last[None, :-1]], [offset, np.zeros(width), last[-1:]])


def lazy(enough: float = 0.8) -> Chain:
    """Load plus headroom while there is little backlog; with much of it no more than `enough`, below the top load."""
    # the smaller of a + 0.1 + 0.5 b and a cap that falls from enough + 0.5 without backlog to `enough` from 1 on
    weights = [np.array([[0.5, 1.0, 0.0], [-1.0, 0.0, 0.0]]), np.array([[1.0, 0.0], [1.0, -0.5]]),
               np.array([[1.0, -1.0]])]
    return policy(weights, [np.array([0.1, 1.0]), np.array([0.0, -enough]), np.array([0.0])])


def rate_limited(factor: float = 1.5, down: float = 0.75) -> Chain:
    """The running capacity times at most `factor` and at least `down`, towards load plus headroom plus backlog."""
    # want = a + 0.1 + b; c' = min(factor c, max(down c, want))
    weights = [np.array([[1.0, 1.0, -down], [0.0, 0.0, 1.0]]),  # w = relu(want - down c), c
               np.array([[-1.0, factor - down], [0.0, 1.0]]),  # relu((factor - down) c - w), c
               np.array([[-1.0, factor]])]
    return policy(weights, [np.array([0.1, 0.0]), np.zeros(2), np.zeros(1)])


def random_policy(seed: int = 0, width: int = 32) -> Chain:
    """He-initialised."""
    random = np.random.default_rng(seed)
    sizes = (3, width, width, 1)
    weights = [random.normal(size=(after, before)) * (2 / before) ** 0.5
               for before, after in pairwise(sizes)]
    return policy(weights, [random.normal(size=size) * 0.1 for size in sizes[1:]])
