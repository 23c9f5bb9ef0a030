"""How fast a policy that sets replicas and their CPU limit raises capacity under a backlog: one claim a number of them.

Capacity is a product, replicas k times limit L. The number is whole: for each k the capacity that runs, k L, is linear,
and what runs next is at least

    c' >= l (r' - k) + k L'      wherever L >= l, r' >= k and L' >= L, for then (r' - k) (L' - l) >= 0

The last two are orders of the policy's own specification ("while the objective is missed, nothing is taken away"), as
is that its targets rise with the latency: it is enough to take the least latency that a backlog makes. So the claim,
for every load and every limit, cell by cell of limits from l on, and all that is free in what is seen, is

    V >= v0, c <= a + headroom   =>   l (r' - k) + k L' >= growth k L       V = b + (a - c) dt: the next backlog

A backlog keeps capacity busy: utilisation is 1 and what is used is c. A request that comes last waits V / c.

Targets are cut to the law's upper limits before they count: what is beyond them nobody sets.

Rounding. The claim leaves room for what execution adds to the targets (checker/rounding.py), for the 0.001 by which
replicas are rounded down before they are rounded up, for the margins of the orders, and for what an order in the
latency may be violated by. What is fed is off by half a step of the file's type at most; inputs that depend on the
state are free by that.

Symbols: n inputs; b backlog, a load, c capacity (cores); L CPU limit; k replicas; x (3 + free,) the chain's inputs:
load, limit, least latency, and what is free, counted from its low end.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feature_store.errors import InputError
from models.verification.checker.chain import Chain
from models.verification.checker.rounding import chain_error
from models.verification.closed_loop.chain_builder import ROUNDED, ChainBuilder, chain_values
from models.verification.network.graph import FloatArray

PARTS = ("load", "limit", "replicas", "used", "latency")
# Limits of neighbouring cells: beyond the first one a cell counts growth of replicas by so much less.
CELL, GRAIN = 1.25, 64
# The 99th percentile of a step in which the backlog rises steadily is at least this share of the last wait.
PERCENTILE = 0.99
# Replicas are rounded up, but for so much; and the margin of "no limit is taken away", in cores.
ROUNDED_DOWN, KEPT = 1e-3, 5e-4


@dataclass(frozen=True)
class Scaler:
    """A policy, and what it sees of the fluid law: matrix (n, 5) @ (a, L, k, used cores, latency in ms) + an interval.

    policy: n inputs -> targets; limit, replicas: positions of the two targets among them. low, high (n,): what is added
    lies between them, another value at every step. shown_low, shown_high (n,): what is beyond is cut to them before
    the policy sees it. falls: by how much limit and replicas may fall while the latency rises. Raises InputError where
    these do not fit.
    """

    policy: Chain
    matrix: FloatArray
    low: FloatArray
    high: FloatArray
    limit: int
    replicas: int
    shown_low: FloatArray | None = None
    shown_high: FloatArray | None = None
    falls: tuple[float, float] = (0.0, 0.0)

    def __post_init__(self) -> None:
        inputs, outputs = self.policy.weights[0].shape[1], len(self.policy.biases[-1])
        if self.matrix.shape != (inputs, len(PARTS)) or not self.low.shape == self.high.shape == (inputs,):
            raise InputError(f"observation must have a row of {len(PARTS)} and an interval for each of {inputs} "
                             f"inputs, got shapes {self.matrix.shape}, {self.low.shape}, {self.high.shape}")
        if not all(np.isfinite(values).all() for values in (self.matrix, self.low, self.high)) or \
                (self.low > self.high).any():
            raise InputError("observation must be of finite numbers with low <= high")
        if not all(0 <= one < np.inf for one in self.falls):
            raise InputError(f"targets must rise with the latency but for a known amount, got {self.falls}")
        if not {self.limit, self.replicas} <= set(range(outputs)) or self.limit == self.replicas:
            raise InputError(f"limit and replicas must be two of {outputs} outputs, got {self.limit} and "
                             f"{self.replicas}")


@dataclass(frozen=True)
class ScalerLaw:
    """The fluid law of a scaler (docs/reference/closed-loop.md), in cores: c = k L.

    change: d, by how much the load changes in a step at most. objective_ms: of latency; while it is missed nothing is
    taken away. kept_share: of its capacity, what is left after a step at least, by the limits of change of the
    policy's specification. Raises InputError on limits that do not fit.
    """

    step_s: float
    load_low: float
    load_high: float
    change: float
    limit_low: float
    limit_high: float
    replicas_low: int
    replicas_high: int
    objective_ms: float
    kept_share: float

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not (np.isfinite(value) and (value > 0 or (name == "change" and value == 0))):
                raise InputError(f"{name} of a law must be a number > 0, got {value!r}")
        if self.load_low > self.load_high or self.limit_low > self.limit_high or self.kept_share > 1 or \
                self.replicas_low > self.replicas_high:
            raise InputError(f"limits of a law must have low <= high, got {self}")

    def misses(self, backlog: float) -> bool:
        """Whether that backlog misses the objective whatever capacity is running."""
        return PERCENTILE * 1e3 * backlog >= self.objective_ms * self.replicas_high * self.limit_high

    @property
    def least(self) -> float:
        """The least capacity that runs."""
        return self.replicas_low * self.limit_low


@dataclass(frozen=True)
class CatchingUp:
    """The claim of one number of replicas. backlog: v0, core seconds; headroom: cores; growth: factor > 1 a step."""

    scaler: Scaler
    law: ScalerLaw
    replicas: int
    backlog: float
    headroom: float
    growth: float

    def cells(self) -> list[tuple[float, float]]:
        """Limits from and to, of the cells; none where that many replicas never have too little capacity."""
        law = self.law
        top = min(law.limit_high, (law.load_high + self.headroom) / self.replicas)
        found, low = [], law.limit_low
        while low < top:
            high = max(np.floor(low * CELL * GRAIN), np.floor(low * GRAIN) + 1) / GRAIN
            found.append((low, float(min(high, top))))
            low = float(high)
        return found or ([(low, low)] if low == top else [])

    def require_shown(self) -> None:
        """Raises InputError where the claim is about observations that the policy is never shown: beyond the range of a
        signal it sees the end of the range. Of the latency its least counts: targets rise with it."""
        scaler = self.scaler
        if scaler.shown_low is None or scaler.shown_high is None:
            return
        latency = PARTS.index("latency")
        for cell in self.cells():
            least, most = self._known(cell)
            most[latency] = least[latency]
            matrix = scaler.matrix
            low = np.where(matrix > 0, matrix * least, matrix * most).sum(axis=1) + scaler.low
            high = np.where(matrix > 0, matrix * most, matrix * least).sum(axis=1) + scaler.high
            if len(beyond := np.flatnonzero((low < scaler.shown_low) | (high > scaler.shown_high))):
                place = int(beyond[0])
                raise InputError(
                    f"input {place} of the policy must stay within {scaler.shown_low[place]:g} to "
                    f"{scaler.shown_high[place]:g}, beyond which it is cut before the policy sees it, got "
                    f"{low[place]:g} to {high[place]:g} with {self.replicas} replicas")

    def box(self, cell: tuple[float, float]) -> tuple[FloatArray, FloatArray]:
        """Walls of the chain's inputs in a cell."""
        law, (low, high) = self.law, cell
        begin = min(max(law.load_low, self.replicas * low - self.headroom), law.load_high)
        latency = PERCENTILE * 1e3 * self.backlog / (self.replicas * high)
        _, widths, _ = self._free()
        least, most = np.array([begin, low, latency]), np.array([law.load_high, high, latency])
        return np.concatenate([least, np.zeros(len(widths))]), np.concatenate([most, widths])

    def chain(self) -> Chain:
        """(r' - k, k L' - growth k L) of x, of targets that are cut to the law's upper limits."""
        scaler, k = self.scaler, float(self.replicas)
        low, widths, places = self._free()
        builder = ChainBuilder({"a": 1, "L": 1, "p": 1, "f": len(widths)})
        matrix, inputs = scaler.matrix, len(low)
        builder.layer({"seen": ({"a": matrix[:, [0]], "L": matrix[:, [1]] + k * matrix[:, [3]], "p": matrix[:, [4]],
                                 "f": np.eye(inputs)[:, places]}, low + k * matrix[:, 2])}, ["L"], relu=False)
        builder.through(scaler.policy, "seen", "y", ["L"])
        most = np.array([float(self.law.replicas_high), self.law.limit_high])  # no more is ever set
        rows = np.zeros((2, len(scaler.policy.biases[-1])))
        rows[0, scaler.replicas] = rows[1, scaler.limit] = 1.0
        builder.layer({"short": ({"y": -rows}, most)}, ["L"])
        builder.layer({"out": ({"short": np.diag([-1.0, -k]), "L": np.array([[0.0], [-self.growth * k]])},
                               most * np.array([1.0, k]) - np.array([k, 0.0]))}, relu=False)
        return builder.chain()

    def claim_text(self) -> str:
        """What must not happen, as VNN-LIB: in no cell."""
        count = 3 + len(self._free()[1])
        lines = [f"(declare-const X_{i} Real)" for i in range(count)]
        lines += ["(declare-const Y_0 Real)", "(declare-const Y_1 Real)", "(assert (or"]
        for cell in self.cells():
            walls = " ".join(f"(>= X_{i} {a!r}) (<= X_{i} {b!r})"
                             for i, (a, b) in enumerate(zip(*(side.tolist() for side in self.box(cell)), strict=True)))
            lines.append(f"  (and {walls} (<= (+ (* {cell[0]!r} Y_0) Y_1) {self.slack(cell)!r}))")
        return "\n".join([*lines, "))"]) + "\n"

    def slack(self, cell: tuple[float, float]) -> float:
        """How far the sum may be from l (r'' - k) + k L' as it is executed, with what the cross term may lack."""
        scaler, k, (low, high) = self.scaler, self.replicas, cell
        least, most = self._seen(cell)
        error = chain_error(scaler.policy, least, most)
        size = (2 * k + 1) * high * (1 + self.growth) + low * self.law.replicas_high + k * self.law.limit_high
        falls_limit, falls_replicas = scaler.falls
        found = float(low * (error[scaler.replicas] + ROUNDED_DOWN + falls_replicas)
                      + k * (error[scaler.limit] + falls_limit) + (k + 1) * KEPT + ROUNDED * size) * (1 + 1e-9)
        if not np.isfinite(found):
            raise InputError("policy must be executed within a known error of what is proved, got none: its numbers "
                             "may overflow")
        return found

    def sampled(self, count: int, seed: int) -> tuple[float, FloatArray]:
        """The least growth of capacity among so many random points, half of them corners, and that point x."""
        random = np.random.default_rng([seed, self.replicas])
        chain, worst = replace(self, growth=1.0).chain(), (np.inf, np.zeros(0))
        for cell in self.cells():
            least, most = self.box(cell)
            share = random.random((count, len(least)))
            share[: count // 2, 3:] = np.round(share[: count // 2, 3:])
            x = least + share * (most - least)
            y = chain_values(chain, x)
            grown = 1.0 + (cell[0] * y[:, 0] + y[:, 1]) / (self.replicas * x[:, 1])
            if grown.min() < worst[0]:
                worst = float(grown.min()), x[grown.argmin()]
        return worst

    def seen_at(self, x: FloatArray) -> FloatArray:
        """What the policy sees (n,) at an input of the chain."""
        low, _, places = self._free()
        known = np.array([x[0], x[1], self.replicas, self.replicas * x[1], x[2]])
        return np.asarray(self.scaler.matrix @ known + low + np.eye(len(low))[:, places] @ x[3:])

    def _known(self, cell: tuple[float, float] | None) -> tuple[FloatArray, FloatArray]:
        """Walls (5,) of what is seen, in a cell or in all of them."""
        law, k = self.law, float(self.replicas)
        low, high = cell or (law.limit_low, law.limit_high)
        latency = PERCENTILE * 1e3 * self.backlog / k
        return (np.array([law.load_low, low, k, k * low, latency / high]),
                np.array([law.load_high, high, k, k * high, latency / low]))

    def _seen(self, cell: tuple[float, float]) -> tuple[FloatArray, FloatArray]:
        (least, most), matrix, off = self._known(cell), self.scaler.matrix, self._off()
        return (np.where(matrix > 0, matrix * least, matrix * most).sum(axis=1) + self.scaler.low - off,
                np.where(matrix > 0, matrix * most, matrix * least).sum(axis=1) + self.scaler.high + off)

    def _off(self) -> FloatArray:
        """How far what is fed may be from what is seen (n,)."""
        scaler, info = self.scaler, np.finfo(self.scaler.policy.fed)
        _, most = self._known(None)
        reach = np.abs(scaler.matrix) @ most + np.maximum(np.abs(scaler.low), np.abs(scaler.high))
        constant = scaler.low + scaler.matrix[:, 2] * self.replicas
        exact = ~scaler.matrix[:, [0, 1, 3, 4]].any(axis=1) & (scaler.low == scaler.high) & (
            constant.astype(scaler.policy.fed) == constant)
        return np.where(exact, 0.0, (float(info.eps) + ROUNDED) * reach + float(info.tiny))

    def _free(self) -> tuple[FloatArray, FloatArray, NDArray[np.integer[Any]]]:
        """low (n,), widths and places of what is free, with what rounding adds."""
        off = self._off()
        low, high = self.scaler.low - off, self.scaler.high + off
        width = (high - low) * (1 + 4 * 2.0**-53)
        places = np.flatnonzero(width > 0)
        return low, width[places], places
