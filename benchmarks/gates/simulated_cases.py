"""Paired cases of two simulated models, of which one is better by a known share.

Errors: one part of each error is the target's own noise, which both models share, the other is the model's own; both
parts have the same variance. A better challenger's own part is smaller by so much that its mean squared error is lower
by the share. Rewards: a model's mean reward is -1 (or that of its costs), its spread 1 or more; half of the variance
comes from the episode's seed, which both models share. A better challenger's mean reward is higher by the share of the
mean's size.

    errors, rewards (n,)  challenger, champion; noise (n,): mean 0, variance 1
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

from models.metrics import Better

PERSISTENCE = 0.9  # of what is autocorrelated: correlation of neighbouring windows or episodes
TEST_SHARE = 0.2
WARM_UP = 200  # windows, after which the first error is forgotten
TAIL = 3  # degrees of freedom: squared errors have no variance
STALL = 1.5  # standard deviation of the logarithm of an error's size
COST_SPREAD = 1.0  # standard deviation of the logarithm of an episode's cost
CATASTROPHE = 0.01  # probability of an episode that costs COST_OF_CATASTROPHE times as much
COST_OF_CATASTROPHE = 50.0

Array = NDArray[np.float64]
Noise = Callable[[int, np.random.Generator], Array]


class Simulation(Protocol):
    """A kind of paired cases."""

    @property
    def label(self) -> str:
        """In words, for a table."""

    @property
    def number(self) -> int:
        """Begins the seed of every cell."""

    @property
    def better(self) -> Better:
        """Which scores are better."""

    @property
    def block(self) -> int | None:
        """What the evidence would say of how many neighbours resemble each other."""

    def draw(self, cases: int, improvement: float, rng: np.random.Generator) -> tuple[Array, Array]:
        """(cases,) each: scores of a challenger that is better by this share, and of the champion."""


@dataclass(frozen=True)
class SquaredErrors:
    """Test rows."""

    label: str
    number: int
    noise: Noise
    better: Better = "smaller"
    block: int | None = None

    def draw(self, cases: int, improvement: float, rng: np.random.Generator) -> tuple[Array, Array]:
        """See `Simulation`."""
        shared, own, other = (self.noise(cases, rng) for _ in range(3))
        return (shared + np.sqrt(1 - 2 * improvement) * other) ** 2, (shared + own) ** 2


@dataclass(frozen=True)
class ShiftedRewards:
    """Episodes whose rewards have noise of one shape."""

    label: str
    number: int
    noise: Noise
    block: int | None = 1
    better: Better = "larger"

    def draw(self, cases: int, improvement: float, rng: np.random.Generator) -> tuple[Array, Array]:
        """See `Simulation`."""
        shared, own, other = (np.sqrt(0.5) * self.noise(cases, rng) for _ in range(3))
        return -1 + improvement + shared + other, -1 + shared + own


@dataclass(frozen=True)
class Costs:
    """Episodes whose reward is a negative log-normal cost, with rare catastrophes: of the seed, or of the model."""

    label: str
    number: int
    shared_catastrophes: bool
    block: int | None = 1
    better: Better = "larger"

    def draw(self, cases: int, improvement: float, rng: np.random.Generator) -> tuple[Array, Array]:
        """See `Simulation`."""
        champion, challenger = _ordinary_costs(cases, rng)
        seeds = rng.random((2, cases)) < CATASTROPHE
        factors = np.where(seeds, COST_OF_CATASTROPHE, 1.0)
        factor, other = factors[0], factors[0 if self.shared_catastrophes else 1]
        return -(1 - improvement) * challenger * other, -champion * factor


@dataclass(frozen=True)
class Traded:
    """The challenger's ordinary episodes cost less, its catastrophes are twice as frequent: equal on average."""

    label: str
    number: int
    block: int | None = 1
    better: Better = "larger"

    def draw(self, cases: int, improvement: float, rng: np.random.Generator) -> tuple[Array, Array]:
        """See `Simulation`; there is no improvement."""
        champion, challenger = _ordinary_costs(cases, rng)
        chance = rng.random(cases)
        p, size = CATASTROPHE, COST_OF_CATASTROPHE
        cheaper = (1 - p + p * size - 2 * p * size) / (1 - 2 * p)
        return (-challenger * np.where(chance < 2 * p, size, cheaper), -champion * np.where(chance < p, size, 1.0))


def _ordinary_costs(cases: int, rng: np.random.Generator) -> tuple[Array, Array]:
    shared, own, other = np.sqrt(0.5) * COST_SPREAD * rng.normal(size=(3, cases))
    return np.exp(shared + own), np.exp(shared + other)


def gaussian(cases: int, rng: np.random.Generator) -> Array:
    return rng.normal(size=cases)


def heavy_tailed(cases: int, rng: np.random.Generator) -> Array:
    return rng.standard_t(TAIL, cases) / np.sqrt(TAIL / (TAIL - 2))


def stalls(cases: int, rng: np.random.Generator) -> Array:
    return rng.normal(size=cases) * np.exp(STALL * rng.normal(size=cases) - STALL**2)


def every_window(cases: int, rng: np.random.Generator) -> Array:
    steps = rng.normal(size=cases + WARM_UP) * np.sqrt(1 - PERSISTENCE**2)
    return np.asarray(lfilter([1.0], [1.0, -PERSISTENCE], steps)[WARM_UP:])


def split_windows(cases: int, rng: np.random.Generator) -> Array:
    """As the split by windows leaves them: each is a test row with probability TEST_SHARE. Both models' are the same
    windows, and their gaps are drawn from the number of rows alone."""
    gaps = np.random.default_rng(cases).geometric(TEST_SHARE, cases)
    at = np.cumsum(gaps)
    return every_window(int(at[-1]) + 1, rng)[at]


ERRORS: dict[str, Simulation] = {
    "gaussian": SquaredErrors("Gaussian", 0, gaussian),
    "heavy_tailed": SquaredErrors("heavy-tailed (Student's t, 3 degrees of freedom)", 1, heavy_tailed),
    "stalls": SquaredErrors("stalls (Gaussian, size log-normal with 1.5)", 2, stalls),
    "split_windows": SquaredErrors("autocorrelated, 0.9 from window to window, a fifth of them test rows", 3,
                                   split_windows),
    "every_window": SquaredErrors("autocorrelated, 0.9 from test row to test row", 4, every_window),
}
REWARDS: dict[str, Simulation] = {
    "student_t": ShiftedRewards("heavy-tailed (Student's t, 3 degrees of freedom)", 10, heavy_tailed),
    "shared_catastrophes": Costs("log-normal costs, a seed in 100 is a catastrophe for both", 11, True),
    "own_catastrophes": Costs("log-normal costs, an episode in 100 of each model is a catastrophe", 12, False),
    "sequence": ShiftedRewards("autocorrelated, 0.9 from episode to episode", 13, every_window, None),
    "traded": Traded("equal on average: ordinary episodes at half the cost, twice the catastrophes", 14),
}
FAMILIES = {"errors": ERRORS, "rewards": REWARDS}
