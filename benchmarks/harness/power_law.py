"""How a cost grows: the exponent b of cost = a * size^b, by least squares on the logarithms."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class PowerLaw:
    """cost = factor * size^exponent; residual: root mean square of the fit's errors, in logarithms (natural)."""

    factor: float
    exponent: float
    residual: float

    def cost(self, size: float) -> float:
        return float(self.factor * size**self.exponent)


def fit_power_law(sizes: Sequence[float], costs: Sequence[float]) -> PowerLaw:
    """Fits the line log(cost) = log(factor) + exponent * log(size).

    Raises:
        ValueError: fewer than two distinct sizes, or a size or cost that has no logarithm.
    """
    if len(set(sizes)) < 2:
        raise ValueError(f"sizes must hold at least two distinct ones, got {list(sizes)}")
    if not all(value > 0 and math.isfinite(value) for value in (*sizes, *costs)):
        raise ValueError(f"sizes and costs must be positive, got {list(sizes)} and {list(costs)}")
    x, y = [math.log(size) for size in sizes], [math.log(cost) for cost in costs]
    exponent, offset = statistics.linear_regression(x, y)
    errors = [b - offset - exponent * a for a, b in zip(x, y, strict=True)]
    return PowerLaw(math.exp(offset), exponent, math.sqrt(sum(error**2 for error in errors) / len(errors)))
