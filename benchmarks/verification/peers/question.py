"""What every peer is asked and what it answers.

The question: is sign * f non-falling in input i on a box, where a pair may violate the order by at most
tolerance times its distance?

    violation(low, high) = sign * (f(low) - f(high)) - tolerance * (high[i] - low[i])  for high[i] >= low[i], else equal

It is refuted by one pair with a violation > 0, proved if there is none; for a piecewise linear f that is
sign * df/dx[i] >= -tolerance in every activation region. A peer is a function solve(question, seconds, threads).
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from models.verification.language.specification import FloatArray
from models.verification.network.fully_connected import ReluNetwork
from models.verification.verdict import Status, Witness

# Solvers take no strict inequality: they search for a violation of at least this, scaled output units.
SMALLEST_VIOLATION = 1e-6


@dataclass(frozen=True)
class Question:
    """One feature and direction (sign +1: increasing, -1: decreasing) on the box lower, upper (n,), float64."""

    network: ReluNetwork
    feature: int
    sign: int
    lower: FloatArray
    upper: FloatArray
    tolerance: float


@dataclass(frozen=True)
class PeerResult:
    """A peer's answer.

    Attributes:
        seconds: solve time alone.
        setup_seconds: imports and model building.
        peak_rss_mib: largest resident memory of the peer's processes (NaN: not measured).
        witness: REFUTED only, its outputs float64.
    """

    status: Status
    reason: str
    seconds: float = 0.0
    setup_seconds: float = 0.0
    witness: Witness | None = None
    peak_rss_mib: float = float("nan")


Solve = Callable[[Question, float, int], PeerResult]


def violations(question: Question, low: FloatArray, high: FloatArray) -> FloatArray:
    """Violation of each pair low, high (m, n), float64: (m,)."""
    distance = high[:, question.feature] - low[:, question.feature]
    outputs = question.network.value(low), question.network.value(high)
    return np.asarray(question.sign * (outputs[0] - outputs[1]) - question.tolerance * distance)


def refuted(
    question: Question, low: FloatArray, high: FloatArray, reason: str, seconds: float, setup_seconds: float,
) -> PeerResult:
    """REFUTED by the most violating of the pairs low, high (m, n) if it replays in float64, else UNKNOWN.

    The points are clipped to the box, and `high` is made to differ from `low` in the feature alone.
    """
    feature = question.feature
    low = np.clip(np.atleast_2d(low), question.lower, question.upper)
    end = np.clip(np.atleast_2d(high), question.lower, question.upper)[:, feature]
    high = low.copy()
    high[:, feature] = np.maximum(end, low[:, feature])
    excess = violations(question, low, high)
    # what rounding alone can make of a pair that violates nothing
    excess = excess - question.network.rounding(low) - question.network.rounding(high)
    best = int(excess.argmax())
    if not excess[best] > 0:
        reason = f"its counterexample does not replay in float64: violation {excess[best]:.3g}"
        return PeerResult(Status.UNKNOWN, reason, seconds, setup_seconds)
    output_low, output_high = (float(question.network.value(side[[best]])[0]) for side in (low, high))
    witness = Witness(feature, question.sign, low[best], high[best], output_low, output_high, float(excess[best]))
    return PeerResult(Status.REFUTED, reason, seconds, setup_seconds, witness)


def pairs_around(question: Question, points: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Pairs (low, high) of many distances around points (m, n) at which sign * df/dx[i] is below -tolerance."""
    points = np.atleast_2d(points)[:32]
    side = question.upper[question.feature] - question.lower[question.feature]
    reach = side * 0.5 ** np.arange(24)
    low, high = (np.repeat(points, len(reach), axis=0) for _ in range(2))
    low[:, question.feature] -= np.tile(reach, len(points)) / 2
    high[:, question.feature] += np.tile(reach, len(points)) / 2
    return low, high


def signed_slopes(question: Question, points: FloatArray) -> FloatArray:
    """sign * df/dx[i] at points (m, n), of the activation region each lies in, float64: (m,)."""
    weights = [weight.astype(np.float64) for weight in question.network.weights]
    masks, a = [], np.asarray(points, dtype=np.float64)
    for weight, bias in zip(weights[:-1], question.network.biases[:-1], strict=True):
        z = a @ weight.T + bias
        masks.append(z > 0)
        a = np.maximum(z, 0.0)
    slope = np.broadcast_to(weights[-1], (len(a), weights[-1].shape[1]))
    for weight, mask in zip(reversed(weights[:-1]), reversed(masks), strict=True):
        slope = (slope * mask) @ weight
    return np.asarray(question.sign * slope[:, question.feature])


class Clock:
    """Wall time since it was made, in seconds."""

    def __init__(self) -> None:
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started
