"""What is known of boxes of a forest's inputs: how far their outputs are from unsafe. Shared by search and check.

Symbols: n inputs, o outputs, R roots, B boxes, K alternatives of M rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from models.verification.language.claim import Part
from models.verification.language.unsafe_set import UnsafeSet
from models.verification.trees.forest import Floats, Forest, Integers
from models.verification.trees.forest_order import ForestOrder


@dataclass(frozen=True)
class ForestQuery:
    """A part of a claim. forests: those that it is about; of: (R,) which of them each root is about."""

    forests: Sequence[Forest]
    of: Integers
    unsafe: UnsafeSet

    @classmethod
    def of_part(cls, forest: Forest, part: Part) -> "ForestQuery":
        """Of a part of a claim about this forest."""
        match part.obligation:
            case UnsafeSet() as unsafe:
                return cls([forest], np.zeros(len(unsafe.lower), dtype=np.int64), unsafe)
            case ForestOrder() as order:
                return cls(order.forests, order.step_of, order.unsafe)
            case _:
                raise AssertionError("of a forest nothing else is asked")

    @cached_property
    def _groups(self) -> Integers:
        """(R,) equal for roots of the same forest and the same coefficients, which are bounded together."""
        keys: dict[bytes, int] = {}
        return np.array([keys.setdefault(int(k).to_bytes(8) + coefficients.tobytes(), len(keys))
                         for k, coefficients in zip(self.of, self.unsafe.coefficients, strict=True)], dtype=np.int64)

    def bounds(self, lower: Floats, upper: Floats, root: Integers) -> Floats:
        """(B, K, M) upper bounds of the rows over boxes lower, upper (B, n) of the roots (B,).

        A box is safe where in each alternative one of them is below 0.
        """
        found = np.empty((len(lower), *self.unsafe.constants.shape[1:]))
        groups = self._groups[root]
        for group in np.unique(groups):
            of = groups == group
            one = int(root[of.argmax()])
            rows = self.unsafe.coefficients[one]
            largest = self.forests[self.of[one]].largest(lower[of], upper[of], rows.reshape(-1, rows.shape[-1]))
            found[of] = np.nextafter(largest.reshape(-1, *rows.shape[:2]) + self.unsafe.constants[root[of]], np.inf)
        return found

    def check(self, lower: Floats, upper: Floats, root: Integers) -> tuple[NDArray[np.bool_], Floats]:
        """Whether each box is proved, and by how much (B,)."""
        margin = margins(self.bounds(lower, upper, root))
        return margin > 0, margin


def margins(bounds: Floats) -> Floats:
    """(B,) by how much boxes are safe, of bounds (B, K, M)."""
    return np.asarray((-bounds).max(axis=2).min(axis=1))
