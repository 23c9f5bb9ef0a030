"""The contract of a part: what sets one control; a rule is a part for each control (rule.py).

Symbols: N applications. Readings: signal -> (N,) float64 inside of the signal's range, NaN where missing; the limits and
the replicas that stand now are always finite, the replicas whole.
"""

from collections.abc import Mapping
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from models.controllers.setting import Setting, Values

Numbers = NDArray[np.float64]
Flags = NDArray[np.bool_]
Readings = Mapping[str, Numbers]


class Part(Protocol):
    """Sets one control of N applications."""

    declared: ClassVar[tuple[Setting, ...]]
    source: ClassVar[str]

    def __init__(self, values: Values) -> None:
        """Takes all that is declared, checked."""

    def start(self, applications: int) -> None:
        """Forgets everything."""

    def target(self, readings: Readings, seconds: float) -> Numbers:
        """(N,) the control's target in its raw unit; NaN: as it is."""
