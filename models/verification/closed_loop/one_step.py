"""One step of a policy and the fluid law as a chain of ReLUs: how the two ranking functions change in it.

    backlog     V = b + (a - c) dt + ramp,   ramp = dt sum over k = 1..K of max(0, a + k d + headroom - factor^k c)
    capacity    U = c - a

V without its ramp is the next backlog before it is cut off at 0. A policy that may raise its capacity by a factor at
most in one step, whatever the backlog, lets V rise first; the ramp is what accumulates until capacity has caught up, if
it rises by `factor` every step while the load rises as well, so that V with it does not.

The chain takes (b, a, c, e, f): the state, the rise of the load counted from -d, and what is free in the observation
counted from its low end. All of it is >= 0. It gives (W', W' - W, V) for W the function that is asked for, V or U.

Rounding. The chain is proved in real arithmetic. It differs from the law with the policy as it is executed by at most
`slack`: the execution error of the policy over all that it can see (checker/rounding.py), and the rounding of the few
constants that are no sums of float64 numbers. The observation is fed as a number of the file's type: inputs that depend
on the state are free within half a step of that type beyond their interval.

Symbols: as of fluid_law.py; K terms of the ramp.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from feature_store.errors import InputError
from models.verification.checker.chain import Chain
from models.verification.checker.rounding import chain_error
from models.verification.closed_loop.chain_builder import Block, ChainBuilder, chain_values, scalars
from models.verification.closed_loop.fluid_law import FluidLaw, Observation
from models.verification.network.graph import FloatArray

Ranked = Literal["backlog", "capacity"]
STATE_VALUES = ("b", "a", "c", "e")
# What the rounding of a constant costs at most, in units of its size: some twenty roundings.
ROUNDED = 64 * 2.0**-53


@dataclass(frozen=True)
class Ramp:
    """How fast a policy raises its capacity under a large backlog: by factor > 1 a step, K steps; headroom >= 0."""

    factor: float
    steps: int
    headroom: float = 0.0

    def __post_init__(self) -> None:
        if not (self.factor > 1 and self.steps >= 1 and self.headroom >= 0 and np.isfinite(self.factor)):
            raise InputError(f"ramp must have a factor > 1, steps >= 1 and a headroom >= 0, got {self}")

    @classmethod
    def of(cls, law: FluidLaw, factor: float, headroom: float) -> "Ramp":
        """With as many steps as it takes from the least capacity to one above every load."""
        steps, capacity = 1, law.capacity_low
        while capacity * factor**steps < law.load_high + (steps + 1) * law.change + headroom:
            steps += 1
            if not capacity > 0 or steps > MOST_RAMP:
                raise InputError("ramp must reach the highest load within "
                                 f"{MOST_RAMP} steps, got a factor of {factor} from {capacity}")
        return cls(factor, steps, headroom)


MOST_RAMP = 64


@dataclass(frozen=True)
class OneStep:
    """A policy, what it sees, and the law. Raises InputError where they do not fit."""

    policy: Chain
    observation: Observation
    law: FluidLaw
    ramp: Ramp | None = None

    def __post_init__(self) -> None:
        inputs, outputs = self.policy.weights[0].shape[1], len(self.policy.biases[-1])
        if inputs != self.observation.inputs or outputs != 1:
            raise InputError(f"policy must take the {self.observation.inputs} inputs that are observed and give one "
                             f"capacity, got {inputs} inputs and {outputs} outputs")

    def highest(self, backlog: float) -> float:
        """V at most, from any backlog up to this one, whatever capacity is running."""
        law = self.law
        return float(self.value(np.array(backlog), np.array(law.load_high), np.array(law.capacity_low)))

    def value(self, backlog: FloatArray, load: FloatArray, capacity: FloatArray) -> FloatArray:
        """V (m,)."""
        return np.asarray(backlog + (load - capacity) * self.law.step_s + self._ramp(load, capacity))

    def _ramp(self, load: FloatArray | float, capacity: FloatArray | float) -> FloatArray | float:
        law, ramp = self.law, self.ramp
        return sum((law.step_s * np.maximum(load + k * law.change + ramp.headroom - ramp.factor**k * capacity, 0.0)
                    for k in range(1, ramp.steps + 1)), 0.0 * load) if ramp else 0.0 * load

    def box(self, backlog: float) -> tuple[FloatArray, FloatArray]:
        """The walls of the chain's inputs with up to so much backlog."""
        law, free = self.law, self._free(backlog)
        low = np.array([0.0, law.load_low, law.capacity_low, 0.0, *np.zeros(len(free.places))])
        high = np.array([backlog, law.load_high, law.capacity_high, 2 * law.change, *free.widths])
        return low, high

    def taken(self, x: FloatArray, backlog: float) -> dict[str, float]:
        """The step that an input of the chain (n,) stands for: the state, the next load, and the policy's target."""
        law, free = self.law, self._free(backlog)
        (seen,) = self.observation.of_state(x[None, :3]) + free.low + free.matrix @ x[4:]
        next_load = law.next_load(x[1:2], x[3:4] - law.change)
        return {"backlog": float(x[0]), "load": float(x[1]), "capacity": float(x[2]), "next_load": float(next_load[0]),
                "target": float(chain_values(self.policy, seen[None])[0, 0])}

    def slack(self, backlog: float, ranked: Ranked) -> float:
        """How far the chain's first two outputs may be from those of the law with the policy as it is executed."""
        law, ramp = self.law, self.ramp
        (error,) = chain_error(self.policy, *self._seen(backlog))
        slope = 1.0 + (sum(ramp.factor**k for k in range(1, ramp.steps + 1)) if ramp else 0.0)
        steps, headroom = (ramp.steps, ramp.headroom) if ramp else (0, 0.0)
        size = (1 + steps) * (backlog / law.step_s + law.load_high + law.capacity_high + steps * law.change + headroom)
        found = float(error + ROUNDED * size) * (slope * law.step_s if ranked == "backlog" else 1.0) * (1 + 1e-9)
        if not np.isfinite(found):
            raise InputError("policy must be executed within a known error of what is proved, got none: its numbers "
                             "may overflow")
        return found

    def chain(self, backlog: float, ranked: Ranked) -> Chain:
        """The chain that gives (W', W' - W, V), with up to so much backlog."""
        law, ramp, free = self.law, self.ramp, self._free(backlog)
        dt, d = law.step_s, law.change
        builder = ChainBuilder({**dict.fromkeys(STATE_VALUES, 1), "f": len(free.places)})
        ramps = {} if ramp is None else {f"r{k}": scalars(k * d + ramp.headroom, a=1.0, c=-(ramp.factor**k))
                                         for k in range(1, ramp.steps + 1)}
        kept = [*STATE_VALUES, "next_b", "over", "under", *ramps]
        builder.layer({"next_b": scalars(0.0, b=1.0, a=dt, c=-dt), "over": scalars(-(d + law.load_high), a=1.0, e=1.0),
                       "under": scalars(law.load_low + d, a=-1.0, e=-1.0), **ramps}, [*STATE_VALUES, "f"])
        matrix, function = self.observation.matrix, self.observation.function
        of_state = {name: matrix[:, [j]] for j, name in enumerate(("b", "a", "c"))}
        if function is not None:
            builder.layer({"state": ({name: np.eye(3)[:, [j]] for j, name in enumerate(("b", "a", "c"))}, np.zeros(3))},
                          [*kept, "f"], relu=False)
            builder.through(function, "state", "known", [*kept, "f"])
            of_state["known"] = matrix[:, 3:]
        builder.layer({"seen": ({**of_state, "f": free.matrix}, free.low)}, kept, relu=False)
        builder.through(self.policy, "seen", "target", kept)
        # the law's own limits of c', counted down from the upper one so that nothing cancels
        builder.layer({"below": scalars(law.capacity_high, target=-1.0)}, kept)
        builder.layer({"above": scalars(law.capacity_high - law.capacity_low, below=-1.0)}, kept)
        if ramps:
            builder.layer({f"n{k}": _next_ramp(law, ramp, k) for k in range(1, len(ramps) + 1)}, [*kept, "above"])
        builder.layer({"y": self._ranked(ranked, len(ramps))}, relu=False)
        return builder.chain()

    def _ranked(self, ranked: Ranked, ramps: int) -> Block:
        """(W', W' - W, V) of what is kept."""
        law = self.law
        dt = law.step_s
        now = {"b": 1.0, "a": dt, "c": -dt, **{f"r{k}": dt for k in range(1, ramps + 1)}}
        if ranked == "backlog":
            size, before = dt, now
            after = {"next_b": 1.0, **{f"n{k}": dt for k in range(1, ramps + 1)}}
        else:
            size, before, after = -1.0, {"c": 1.0, "a": -1.0}, {}
        # a' - c' = a + e - d - over + under - capacity_low - above, times its size
        after = {**after, "a": size, "e": size, "over": -size, "under": size, "above": -size}
        constant = -size * (law.change + law.capacity_low)
        change = {name: after.get(name, 0.0) - before.get(name, 0.0) for name in {**after, **before}}
        names = list({**after, **now})
        rows = [after, change, now]
        return ({name: np.array([[row.get(name, 0.0)] for row in rows]) for name in names},
                np.array([constant, constant, 0.0]))

    def _seen(self, backlog: float) -> tuple[FloatArray, FloatArray]:
        """The walls of all that the policy is fed with."""
        (low, high), off = self.observation.interval(self.law, backlog), self._off(backlog)
        return low - off, high + off

    def _free(self, backlog: float) -> "_Free":
        """What is free in the observation, with what rounding adds on the way to the policy."""
        off = self._off(backlog)
        low, high = self.observation.low - off, self.observation.high + off
        width = (high - low) * (1 + 4 * 2.0**-53)
        places = np.flatnonzero(width > 0)
        return _Free(places, low, width[places], np.eye(len(low))[:, places])

    def _off(self, backlog: float) -> FloatArray:
        """How far what is fed may be from what is seen (n,): a step of the type, twice what rounding to it takes."""
        observation, info = self.observation, np.finfo(self.policy.fed)
        reach = observation.reach(self.law, backlog)
        depends, held = observation.matrix.any(axis=1), observation.low.astype(self.policy.fed) == observation.low
        exact = ~depends & held & (observation.low == observation.high)
        fed = np.where(exact, 0.0, float(info.eps) * reach + float(info.tiny))
        return fed + np.where(depends, ROUNDED * reach, 0.0)


@dataclass(frozen=True)
class _Free:
    """places: the inputs of the policy that are free by so much (widths), from low (n,) on; matrix (n, free)."""

    places: NDArray[np.integer[Any]]
    low: FloatArray
    widths: FloatArray
    matrix: FloatArray


def _next_ramp(law: FluidLaw, ramp: Ramp | None, k: int) -> Block:
    """max(0, a' + k d + headroom - factor^k c') before it is cut off."""
    assert ramp is not None
    grown = ramp.factor**k
    of: Mapping[str, float] = {"a": 1.0, "e": 1.0, "over": -1.0, "under": 1.0, "above": -grown}
    return scalars((k - 1) * law.change + ramp.headroom - grown * law.capacity_low, **of)
