"""An order of a forest in one feature: a step function is ordered if each of its steps is.

Symbols: n inputs, R boxes.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from models.verification.language.unsafe_set import UnsafeSet
from models.verification.obligations.compile import Step
from models.verification.trees.forest import Forest, Integers


@dataclass(frozen=True)
class ForestOrder:
    """All steps of a feature, from the lowest value to the highest; at least one.

    forests: of each step the difference that it makes, x (n,) -> (1,), whatever x[feature] is.
    """

    steps: tuple[Step, ...]
    forests: tuple[Forest, ...]

    @cached_property
    def unsafe(self) -> UnsafeSet:
        """Of all steps, one after the other: R boxes."""
        sets = [step.unsafe for step in self.steps]
        return UnsafeSet(*(np.concatenate([getattr(one, name) for one in sets])
                           for name in ("lower", "upper", "coefficients", "constants")))

    @cached_property
    def step_of(self) -> Integers:
        """(R,) number of the step of each box."""
        return np.repeat(np.arange(len(self.steps)), [len(step.unsafe.lower) for step in self.steps])
