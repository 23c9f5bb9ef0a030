"""A forest as what it is: for each tree, boxes of inputs that cover all of them, with a value each.

A box is of float32 numbers, which is all that the file takes: its walls are the least and the largest of them inside.
So a box of inputs that is split between two neighbouring float32 numbers loses nothing, and where every tree has one
box left, the outputs are known exactly. Shared by the search and the check of a proof, as the reading is.

Sums are of float64, rounded outward. What the file's own float32 adds is `execution_error`: T values in any order, one
base value and, of an average, one division (Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 4.2).

Symbols: n inputs, o outputs, T trees, L boxes of all trees together, m points, B boxes of inputs, q rows.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from models.verification.checker.time_limit import require_time

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
AT_ONCE = 2**22  # comparisons
FLOAT32 = np.dtype(np.float32)
UNIT32, UNIT64 = 2.0**-24, 2.0**-53
TINY32, TINY64 = 2.0**-126, 2.0**-1022
LARGEST32 = 2.0**127  # half of what float32 holds, so that rounding leads no sum beyond


@dataclass(frozen=True)
class Forest:
    """Trees as boxes of inputs with a value each, which are added up.

    Attributes:
        tree: (L,) number of the tree, ascending; each has at least one box.
        low, high: (L, n) float32 numbers, as float64; infinite where there is no wall.
        values: (L, o) what the tree adds to each output, times the divisor: float32 numbers, or differences of two.
        base: (o,) what is added to all.
        divisor: of an average the number of trees, else 1.
    """

    tree: Integers
    low: Floats
    high: Floats
    values: Floats
    base: Floats
    divisor: int = 1

    @property
    def inputs(self) -> int:
        """n."""
        return self.low.shape[1]

    @property
    def outputs(self) -> int:
        """o."""
        return self.values.shape[1]

    @cached_property
    def starts(self) -> Integers:
        """(T,) the first box of each tree."""
        return np.flatnonzero(np.diff(self.tree, prepend=-1))

    def met(self, low: Floats, high: Floats) -> NDArray[np.bool_]:
        """(B, L) which boxes hold a float32 number of the boxes low, high (B, n), walls included."""
        low, high = rounded_inward(low, high)
        met = np.ones((len(low), len(self.tree)), dtype=bool)
        for feature in range(self.inputs):
            met &= (self.low[:, feature] <= high[:, feature, None]) & (self.high[:, feature] >= low[:, feature, None])
        return met

    def value(self, points: Floats) -> Floats:
        """(m, o) the outputs at points (m, n) as they are fed, in float64."""
        with np.errstate(over="ignore"):
            near = points.astype(np.float32).astype(np.float64)
        found = np.empty((len(points), self.outputs))
        for part in self._parts(len(points), self.outputs):
            sums = self.met(near[part], near[part]).astype(np.float64) @ self.values
            found[part] = sums / self.divisor + self.base
        return found

    @property
    def products(self) -> int:
        """Comparisons of one evaluation."""
        return self.low.size

    @property
    def widest(self) -> int:
        """L: whether each box is met is held for each point that is evaluated."""
        return len(self.tree)

    def rounding(self, points: Floats) -> Floats:
        """(m, o) upper bound of |value - exact value| at points (m, n)."""
        return 2 * (len(self.starts) + 3) * UNIT64 * (self._sizes(points) + abs(self.base)) + TINY64

    def execution_error(self, points: Floats) -> Floats:
        """(m, o) how far the outputs that the file computes may be from `value`, at points (m, n)."""
        return self._executed(self._sizes(points))

    def largest_execution_error(self, low: Floats, high: Floats) -> Floats:
        """(o,) the same over boxes (B, n)."""
        largest = np.zeros(self.outputs)
        for part in self._parts(len(low), self.outputs):
            met = self.met(low[part], high[part])
            sizes = np.where(met[:, :, None], abs(self.values), 0.0)
            largest = np.maximum(largest, np.maximum.reduceat(sizes, self.starts, axis=1).sum(axis=1).max(axis=0))
        return self._executed(largest / self.divisor)

    def _sizes(self, points: Floats) -> Floats:
        """(m, o) sums of absolute values."""
        return np.concatenate([self.met(points[part], points[part]).astype(np.float64) @ abs(self.values)
                               for part in self._parts(len(points), self.outputs)]) / self.divisor

    def _executed(self, sizes: Floats) -> Floats:
        """Of sums of absolute values: additions, an average's division, float64's own. Infinite where a sum, in some
        order, may leave float32."""
        most = sizes * self.divisor + abs(self.base)
        error = 1.01 * (len(self.starts) + 2) * (UNIT32 + UNIT64) * (sizes + abs(self.base)) + TINY32
        return np.where(most <= LARGEST32, error, np.inf)

    def largest(self, low: Floats, high: Floats, rows: Floats) -> Floats:
        """(B, q) upper bounds of rows (q, o) @ y over boxes (B, n), as tight as rounding allows where each tree has one
        box left. -inf where a box holds no float32 number.
        """
        found = np.empty((len(low), len(rows)))
        scores = self.values @ rows.T  # (L, q)
        sizes = abs(self.values) @ abs(rows.T)
        exact = np.isin(rows, (-1.0, 0.0, 1.0)).all(axis=1) & (np.count_nonzero(rows, axis=1) <= 2)
        for part in self._parts(len(low), len(rows)):
            met = self.met(low[part], high[part])
            each = np.maximum.reduceat(np.where(met[:, :, None], scores, -np.inf), self.starts, axis=1)
            most = np.maximum.reduceat(np.where(met[:, :, None], sizes, 0.0), self.starts, axis=1).sum(axis=1)
            fixed = rows @ self.base
            terms = 2 * (len(self.starts) + self.outputs + 3)
            error = terms * UNIT64 * (most / self.divisor + abs(rows) @ abs(self.base))
            total = each.sum(axis=1) / self.divisor + fixed + error
            # Orders that every tree keeps are kept exactly: the sign of a difference of two numbers is never rounded.
            kept = exact & (each <= 0).all(axis=1) & (fixed <= 0)
            found[part] = np.where(kept, np.minimum(total, 0.0), total)
        return found

    def step(self, feature: int, output: int, low: float, high: float) -> "Forest":
        """y[output] at x[feature] = high minus that at low, as a forest of the other inputs, (1,) output.

        Trees that have the same box at both add nothing and are left out, but for one where all do.
        """
        at = [np.flatnonzero((self.low[:, feature] <= value) & (value <= self.high[:, feature]))
              for value in (low, high)]
        trees, lows, highs, values = list[int](), list[Floats](), list[Floats](), list[float]()
        walls = self.low[:, feature]
        for tree in np.unique(self.tree[(low < walls) & (walls <= high)]).tolist():
            before, after = (one[self.tree[one] == tree] for one in at)
            for a in before:
                bottom, top = np.maximum(self.low[a], self.low[after]), np.minimum(self.high[a], self.high[after])
                bottom[:, feature], top[:, feature] = -np.inf, np.inf
                meet = (bottom <= top).all(axis=1)
                lows.append(bottom[meet])
                highs.append(top[meet])
                values += (self.values[after[meet], output] - self.values[a, output]).tolist()
                trees += [tree] * int(meet.sum())
        if not trees:
            everywhere = np.full((1, self.inputs), np.inf)
            return Forest(np.zeros(1, np.int64), -everywhere, everywhere, np.zeros((1, 1)), np.zeros(1))
        numbers = np.unique(trees, return_inverse=True)[1].astype(np.int64)
        return Forest(numbers, np.concatenate(lows), np.concatenate(highs), np.array(values)[:, None], np.zeros(1),
                      self.divisor)

    def _parts(self, boxes: int, columns: int) -> Iterator[slice]:
        """Boxes or points that are looked at together, with a look at the clock before each part."""
        size = max(1, AT_ONCE // (len(self.tree) * max(4, columns)))
        for first in range(0, boxes, size):
            require_time()
            yield slice(first, first + size)


def rounded_inward(low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """The least float32 number that is at least `low`, and the largest that is at most `high`, as float64."""
    with np.errstate(over="ignore"):
        bottom, top = low.astype(np.float32), high.astype(np.float32)
    bottom = np.where(bottom.astype(np.float64) < low, np.nextafter(bottom, np.float32(np.inf)), bottom)
    top = np.where(top.astype(np.float64) > high, np.nextafter(top, np.float32(-np.inf)), top)
    return bottom.astype(np.float64), top.astype(np.float64)
