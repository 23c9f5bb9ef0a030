"""Which inputs are witnesses against an unsafe set of outputs.

An unsafe set is closed: outputs on its edge are in it. But float64 does not see the edge sharply, so a
point is a witness only if it is unsafe in real arithmetic for certain: every constraint of an alternative holds by at
least what rounding may have added to it (`rounding` of the outputs, and of the constraint itself). A tie, or a
violation that rounding may have made up, is none; the property is then left open, whatever the type that ships makes of
it.

Symbols: n inputs, o outputs, P points.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.verification.language.unsafe_set import UnsafeSet
from models.verification.network.graph import TINY, UNIT, FloatArray, Function


@dataclass(frozen=True)
class OutputWitness:
    """An input x (n,) of box number `box` whose outputs (o,) are unsafe by `violation`, more than rounding, float64."""

    box: int
    x: FloatArray
    outputs: FloatArray
    violation: float


def output_witnesses(function: Function, unsafe: UnsafeSet, points: FloatArray, boxes: NDArray[np.int64],
                     violation: FloatArray) -> list[OutputWitness]:
    """Those of the points (P, n) of boxes (P,) that are unsafe beyond rounding, with their violation (P,)."""
    coefficients, constants = unsafe.coefficients[boxes], unsafe.constants[boxes]
    with np.errstate(over="ignore", invalid="ignore"):  # what is infinite or NaN is not certain
        outputs, off = function.value(points), function.rounding(points)
        terms = np.abs(coefficients) @ np.abs(outputs)[:, None, :, None]
        doubt = (np.abs(coefficients) @ off[:, None, :, None] + 2 * (function.outputs + 2) * UNIT * terms)[..., 0]
        doubt += 4 * UNIT * np.abs(constants) + TINY * (4 * function.outputs + np.abs(coefficients).sum(axis=3)
                                                        + np.abs(outputs).sum(axis=1)[:, None, None])
        doubt[~coefficients.any(axis=3)] = 0  # the constant alone
        rows = (coefficients @ outputs[:, None, :, None])[..., 0] + constants
        holds = np.any(np.all(rows >= doubt, axis=2), axis=1)
    return [OutputWitness(int(boxes[i]), points[i], outputs[i], float(violation[i])) for i in np.flatnonzero(holds)]
