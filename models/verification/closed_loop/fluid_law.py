"""The fluid law that a scaling policy is in a loop with, and what the policy sees of it.

Work flows in at the load a, capacity c works it off, and what is left over is the backlog b. A decision acts one step
later:

    b' = max(0, b + (a - c) dt)
    a' in [a - d, a + d] and in [load_low, load_high]
    c' = the policy's target, within [capacity_low, capacity_high]

Loads and capacities are in one unit (cores that are asked for, cores that run), so that the backlog is in that unit
times seconds. It is a fluid: no randomness, no single requests, no servers that start late. How far the real thing
stays inside of what is proved of it has to be measured.

Symbols: b, a, c as above; n inputs of the policy, m states at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from feature_store.errors import InputError
from models.verification.checker.chain import Chain
from models.verification.closed_loop.chain_builder import chain_interval, chain_values
from models.verification.network.graph import FloatArray

STATE = ("backlog", "load", "capacity")


@dataclass(frozen=True)
class FluidLaw:
    """The law. step_s: dt in seconds; change: d, by how much the load changes in a step at most. Loads are >= 0.

    Raises InputError on limits that are no finite numbers, negative or the wrong way round.
    """

    step_s: float
    load_low: float
    load_high: float
    capacity_low: float
    capacity_high: float
    change: float

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not (np.isfinite(value) and value >= 0):
                raise InputError(f"{name} of a law must be a number >= 0, got {value!r}")
        if not self.step_s > 0:
            raise InputError(f"step_s of a law must be above 0, got {self.step_s!r}")
        for what in ("load", "capacity"):
            low, high = getattr(self, f"{what}_low"), getattr(self, f"{what}_high")
            if low > high:
                raise InputError(f"{what} must be from {what}_low to {what}_high, got {low!r} and {high!r}")

    def next_backlog(self, backlog: FloatArray, load: FloatArray, capacity: FloatArray) -> FloatArray:
        """b' (m,)."""
        return np.maximum(backlog + (load - capacity) * self.step_s, 0.0)

    def next_load(self, load: FloatArray, rise: FloatArray) -> FloatArray:
        """a' (m,) for a rise between -d and d."""
        return np.clip(load + np.clip(rise, -self.change, self.change), self.load_low, self.load_high)

    def next_capacity(self, target: FloatArray) -> FloatArray:
        """c' (m,)."""
        return np.clip(target, self.capacity_low, self.capacity_high)


@dataclass(frozen=True)
class Observation:
    """The policy's inputs as functions of the state: matrix (n, 3 + k) @ (b, a, c, function(b, a, c)) + an interval.

    Something between low and high (n,) is added. An input that does not depend on the state has a row of zeros and lies
    anywhere in its interval, another value at every step; of one that does, the interval is what it is off by (a
    constant, noise, what a piecewise-linear function is off by). function: (3,) -> (k,), a chain in float64, for what
    is not affine in the state (utilisation.py); None: k = 0.

    Raises InputError on shapes that do not fit, and on an interval that is infinite or the wrong way round.
    """

    matrix: FloatArray
    low: FloatArray
    high: FloatArray
    function: Chain | None = None

    def __post_init__(self) -> None:
        columns = len(STATE) + (0 if self.function is None else len(self.function.biases[-1]))
        if self.matrix.ndim != 2 or self.matrix.shape[1] != columns or \
                not self.low.shape == self.high.shape == self.matrix.shape[:1]:
            raise InputError(f"observation must have a row of {columns} and an interval for each input of the policy, "
                             f"got shapes {self.matrix.shape}, {self.low.shape}, {self.high.shape}")
        if self.function is not None and self.function.weights[0].shape[1] != len(STATE):
            raise InputError("function of an observation must take (backlog, load, capacity), got "
                             f"{self.function.weights[0].shape[1]} inputs")
        if not all(np.isfinite(values).all() for values in (self.matrix, self.low, self.high)):
            raise InputError("observation must be of finite numbers, got NaN or infinity")
        if (self.low > self.high).any():
            raise InputError("interval of an observation must have low <= high, got "
                             f"{self.low.tolist()} and {self.high.tolist()}")

    @classmethod
    def of(cls, rows: Sequence[Any] | FloatArray, low: Sequence[float] | None = None,
           high: Sequence[float] | None = None, function: Chain | None = None) -> "Observation":
        """From nested lists; by default nothing is added."""
        matrix = np.array(rows, dtype=np.float64)
        begin = np.zeros(len(matrix)) if low is None else np.array(low, dtype=np.float64)
        return cls(matrix, begin, begin if high is None else np.array(high, dtype=np.float64), function)

    @property
    def inputs(self) -> int:
        """n."""
        return len(self.matrix)

    def of_state(self, state: FloatArray) -> FloatArray:
        """What is seen (m, n) of states (m, 3) but for what is added."""
        known = state if self.function is None else np.hstack([state, chain_values(self.function, state)])
        return np.asarray(known @ self.matrix.T)

    def seen(self, backlog: FloatArray, load: FloatArray, capacity: FloatArray, share: FloatArray) -> FloatArray:
        """What the policy sees (m, n) in states (m,), each input at this share (m, n) of its interval, 0..1."""
        state = np.stack([backlog, load, capacity], axis=1)
        return self.of_state(state) + self.low + share * (self.high - self.low)

    def interval(self, law: FluidLaw, backlog: float) -> tuple[FloatArray, FloatArray]:
        """A box (n,) of all that is seen with up to so much backlog; not rounded outward."""
        low, high = self._known(law, backlog)
        return (np.where(self.matrix > 0, self.matrix * low, self.matrix * high).sum(axis=1) + self.low,
                np.where(self.matrix > 0, self.matrix * high, self.matrix * low).sum(axis=1) + self.high)

    def reach(self, law: FluidLaw, backlog: float) -> FloatArray:
        """(n,): the sum of all absolute terms that an input is added up from, at most."""
        largest = np.maximum(*map(np.abs, self._known(law, backlog)))
        return np.asarray(np.abs(self.matrix) @ largest + np.maximum(np.abs(self.low), np.abs(self.high)))

    def _known(self, law: FluidLaw, backlog: float) -> tuple[FloatArray, FloatArray]:
        """Walls (3 + k,) of the state and of its function."""
        low = np.array([0.0, law.load_low, law.capacity_low])
        high = np.array([backlog, law.load_high, law.capacity_high])
        if self.function is None:
            return low, high
        least, most = chain_interval(self.function, low, high)
        return np.concatenate([low, least]), np.concatenate([high, most])
