"""Factors of one value, beside a MatMul: onnxruntime multiplies them together, in float32 whatever the file's type is.

By default it takes a Mul or Div by one constant that stands before or after a MatMul into the product, as alpha of a
FusedMatMul (its MatMulScaleFusion): a float32, in which c1 c2 and 1 / c are computed. A file of float64 then computes
with other factors than it holds, and one of float32 with 0 or infinity where it multiplies by 1e-30 on both sides of a
MatMul. Points of the box do not show it where it matters in a sliver of the box alone. So a file is read only if every
product of its factors and their reciprocals is within float32's range and, in float64, a float32 exactly.

NumPy alone: both readers of files use it, the search's and the checker's.
"""

import math

import numpy as np
from numpy.typing import DTypeLike

DIGITS, RANGE = 24, 100  # bits of a float32, and how far from 1 products may get: 2^-100 to 2^100, float32 has 2^±126


class ScalarFactors:
    """The factors of one file so far."""

    def __init__(self) -> None:
        self.odd, self.exponents = 1, 0  # the product of what is not a power of 2, and the sum of the exponents' sizes

    def objection(self, factor: float, divides: bool, dtype: DTypeLike) -> str:
        """Takes one more factor, or divisor, of a file of this type; why it is refused, or nothing."""
        if factor == 0 or not math.isfinite(factor):  # 0 is 0 in every type; no other is a weight
            return ""
        over, _ = abs(factor).as_integer_ratio()  # divided by a power of 2
        odd = over // (over & -over)
        self.odd *= odd
        self.exponents += abs(math.frexp(factor)[1] - 1) + (odd > 1)
        if np.dtype(dtype) == np.float64 and (self.odd.bit_length() > DIGITS or (divides and odd > 1)):
            return (f"scalar factors of float64 beside a MatMul must be exact in float32, also multiplied together and "
                    f"inverted, for onnxruntime rounds them to it, got {factor!r}: multiply them into the weights")
        if self.exponents > RANGE:
            return (f"scalar factors beside a MatMul must be within 2^-{RANGE} and 2^{RANGE} together, for onnxruntime "
                    f"multiplies them in float32, got {factor!r} besides others: multiply them into the weights")
        return ""
