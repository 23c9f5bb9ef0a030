"""A measured quantity as it stands in the result files: every single value, their median, and the goal.

    values      one for each repetition, in the order measured; `unit` is theirs
    goal        None, or the comparison that the median must hold
    met         whether it does; None without a goal
    beside      name of the quantity that this one is a peer of, measured in the same run; "" if it is none
"""

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

Comparison = Literal["<", ">"]


@dataclass(frozen=True)
class Goal:
    """The median must be below (or above) `limit`, in the quantity's unit."""

    comparison: Comparison
    limit: float

    def holds(self, value: float) -> bool:
        return value < self.limit if self.comparison == "<" else value > self.limit


def below(limit: float) -> Goal:
    return Goal("<", limit)


def quantity(
    label: str, unit: str, values: Sequence[float], goal: Goal | None = None, beside: str = "",
) -> dict[str, Any]:
    """The JSON of a quantity. Raises ValueError where there is no value: nothing measured is no zero."""
    if not values:
        raise ValueError(f"quantity must have a value, got none ({label})")
    numbers = [float(value) for value in values]
    median = statistics.median(numbers)
    return {"label": label, "unit": unit, "median": median, "minimum": min(numbers), "maximum": max(numbers),
            "values": numbers, "goal": asdict(goal) if goal else None, "met": goal.holds(median) if goal else None,
            "beside": beside}
