"""Utilisation in the fluid law as a chain of ReLUs, and how far the chain is from it.

In a step of dt seconds capacity c has a dt + b to work off, so that it is busy for the share

    u = min(1, (a + b / dt) / c) = exp(-max(0, log c - log(a + b / dt)))

Logarithms are sums of hinges that are counted down from their kinks, log x = log top - sum of w relu(k - x) with every
w > 0; so is exp(-v), a convex function that falls. Nothing cancels, and all are chords between kinks, which are off by

    log, kinks a factor r apart:     s - 1 - log s,        s = log r / (r - 1)
    exp(-v), kinks h apart from 0:   1 - s + s log s,      s = (1 - exp(-h)) / h     (largest next to 0)

at most. max and exp(-v) for v >= 0 pass a difference on undiminished at most, so that u is off by two
logarithms and one
exponential.
"""

import numpy as np

from feature_store.errors import InputError
from models.verification.checker.chain import Chain
from models.verification.closed_loop.fluid_law import FluidLaw
from models.verification.network.graph import FloatArray

# What float64 takes from the kinks and slopes, generously.
ROUNDED = 1e-9


def utilisation(law: FluidLaw, backlog: float, kinks: int = 24) -> tuple[Chain, float]:
    """The chain (b, a, c) -> (u,), and how far it is from u at most with up to so much backlog.

    Add that to the interval of the input that is observed. Raises InputError where load or capacity may be 0, or there
    are fewer than two kinks.
    """
    least, most = law.load_low, law.load_high + backlog / law.step_s
    if not (least > 0 and law.capacity_low > 0 and kinks >= 2):
        raise InputError("utilisation needs a load and a capacity above 0 and at least 2 kinks, got "
                         f"{least:g}, {law.capacity_low:g} and {kinks}")
    of_demand, demand_off = _logarithm(least, most, kinks)
    of_capacity, capacity_off = _logarithm(law.capacity_low, law.capacity_high, kinks)
    deepest = max(float(np.log(law.capacity_high / least)), 0.1)
    at = np.linspace(0.0, deepest, kinks)
    slope = -np.diff(np.exp(-at)) / np.diff(at)
    s = float(slope[0])
    first = np.vstack([np.outer(np.ones(kinks - 1), [-1 / law.step_s, -1.0, 0.0]),
                       np.outer(np.ones(kinks - 1), [0.0, 0.0, -1.0])])
    # v = log c - log demand: the tops of both, less the capacity's hinges, plus the demand's
    weights = (first, np.concatenate([of_demand[1], -of_capacity[1]])[None], -np.ones((kinks - 1, 1)),
               np.append(-np.diff(slope), slope[-1])[None])
    biases = (np.concatenate([of_demand[0], of_capacity[0]]), np.array([np.log(law.capacity_high) - np.log(most)]),
              at[1:], np.array([np.exp(-deepest)]))
    return Chain(weights, biases, ("relu",) * 3), demand_off + capacity_off + 1 - s + s * np.log(s) + ROUNDED


def _logarithm(low: float, high: float, kinks: int) -> tuple[tuple[FloatArray, FloatArray], float]:
    """Kinks k and weights w of log x = log high - sum of w relu(k - x), and what it is off by at most."""
    if not low < high:
        return (np.full(kinks - 1, high), np.zeros(kinks - 1)), 0.0
    at = np.geomspace(low, high, kinks)
    slope = np.diff(np.log(at)) / np.diff(at)
    ratio = float((at[1:] / at[:-1]).max())
    s = np.log(ratio) / (ratio - 1)
    return (at[1:], np.append(-np.diff(slope), slope[-1])), float(s - 1 - np.log(s))
