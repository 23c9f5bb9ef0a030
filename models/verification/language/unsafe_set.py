"""What must never happen, in terms of the outputs: the query that VNN-LIB files and range, robustness and order
properties come down to.

A box r is safe if for no x in [lower[r], upper[r]] and no alternative k all M constraints hold at once:

    coefficients[r, k, m] @ y(x) + constants[r, k, m] >= 0   for m = 1..M

Rows of all zeros always hold. Alternatives with fewer constraints are padded with their last one: a row that holds
anyway would always be the nearest to a proof, and the bound of no other be improved.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feature_store.errors import InputError
from models.verification.network.graph import FloatArray


@dataclass(frozen=True)
class UnsafeSet:
    """lower, upper (R, n); coefficients (R, K, M, o); constants (R, K, M). All float64.

    Padding alternatives (that can never happen) have a row of zeros with a constant of -1.
    Raises InputError on walls that are infinite, NaN or the wrong way round, and on NaN in a constraint.
    """

    lower: FloatArray
    upper: FloatArray
    coefficients: FloatArray
    constants: FloatArray

    def __post_init__(self) -> None:
        boxes, inputs = self.lower.shape
        if self.upper.shape != (boxes, inputs) or self.coefficients.ndim != 4 or \
                self.coefficients.shape[0] != boxes or self.constants.shape != self.coefficients.shape[:3]:
            raise InputError(f"boxes and constraints must fit, got shapes {self.lower.shape}, {self.upper.shape}, "
                             f"{self.coefficients.shape}, {self.constants.shape}")
        if not (np.isfinite(self.lower).all() and np.isfinite(self.upper).all()):
            raise InputError("box must be bounded, got an infinite or NaN wall")
        if (self.lower > self.upper).any():
            r, i = np.argwhere(self.lower > self.upper)[0]
            raise InputError(f"box must have lower <= upper, got [{self.lower[r, i]:g}, {self.upper[r, i]:g}] "
                             f"(input {i} of box {r})")
        if not (np.isfinite(self.coefficients).all() and np.isfinite(self.constants).all()):
            raise InputError("constraints must be finite, got NaN or infinity")

    def violation(self, box: NDArray[Any], outputs: FloatArray) -> FloatArray:
        """How far inside the unsafe set the outputs (m, o) are, of inputs in the boxes numbered `box` (m,): (m,).

        The largest over the alternatives of the smallest row; >= 0 is unsafe.
        """
        rows = np.einsum("bkmo,bo->bkm", self.coefficients[box], outputs) + self.constants[box]
        return np.asarray(rows.min(axis=2).max(axis=1))


Alternative = tuple[FloatArray, FloatArray]  # coefficients (M, o), constants (M,)


def unsafe_set(cases: Sequence[tuple[FloatArray, FloatArray, Alternative]], apart: bool = False) -> UnsafeSet:
    """Stacks cases (lower (n,), upper (n,), alternative), those with the same box under one box, padded to fit.

    apart: each under a box of its own. Cases that need splits of different inputs take the sum of their boxes then,
    and their product otherwise.
    """
    if not cases:
        raise InputError("property must have at least one case, got none")
    grouped: dict[bytes, tuple[FloatArray, FloatArray, list[Alternative]]] = {}
    for number, (lower, upper, alternative) in enumerate(cases):
        key = (lower + 0.0).tobytes() + (upper + 0.0).tobytes()  # -0.0 is 0.0
        key += number.to_bytes(8) if apart else b""
        grouped.setdefault(key, (lower, upper, []))[2].append(alternative)
    boxes = list(grouped.values())
    most = max(len(alternatives) for _, _, alternatives in boxes)
    rows = max([1, *(len(constants) for _, _, alternatives in boxes for _, constants in alternatives)])
    outputs = cases[0][2][0].shape[1]
    coefficients = np.zeros((len(boxes), most, rows, outputs))
    constants = np.zeros((len(boxes), most, rows))
    for r, (_, _, alternatives) in enumerate(boxes):
        constants[r, len(alternatives):] = -1.0
        for k, (matrix, offset) in enumerate(alternatives):
            if len(offset):  # else of zeros, which always hold
                fitting = np.minimum(np.arange(rows), len(offset) - 1)
                coefficients[r, k], constants[r, k] = matrix[fitting], offset[fitting]
    return UnsafeSet(np.stack([box[0] for box in boxes]), np.stack([box[1] for box in boxes]), coefficients, constants)
