"""Rules that set one target from what is measured now and from a memory, all applications at once.

Where something is not measured, or the rule says no number, the target stays as it is, and so does the memory.

Symbols: N applications.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from models.control.contract.controller import Array
from models.control.contract.setting import Setting, Value, Values, checked
from models.control.contract.signals import Control

Seen = Mapping[str, Array]
Memory = dict[str, Array]
Decide = Callable[[Seen, Memory, Values], Array]  # (N,) targets; changes the memory in place


@dataclass(frozen=True)
class OneTargetRule:
    """Implements `RuleFamily`.

    Attributes:
        control: the target.
        needed: signals, the target's present value among them.
        first: memory at the beginning, the same for all.
        at_most: signal that a target is never above; "": none.
    """

    name: str
    declared: Sequence[Setting]
    decide: Decide
    control: Control
    needed: Sequence[str]
    first: Mapping[str, float] = field(default_factory=dict)
    at_most: str = ""

    def make(self, settings: Mapping[str, Value]) -> "OneTargetController":
        """See `RuleFamily`."""
        return OneTargetController(self, checked(settings, self.declared, self.name))


class OneTargetController:
    """Implements `Controller`."""

    def __init__(self, rule: OneTargetRule, values: Values) -> None:
        self.name, self._rule, self._values = rule.name, rule, values
        self._memory: Memory = {}

    @property
    def settings(self) -> Mapping[str, float | str]:
        """See `Controller`."""
        return {name: float(value) for name, value in self._values.items()}

    def start(self, applications: int) -> None:
        """See `Controller`."""
        self._memory = {name: np.full(applications, value) for name, value in self._rule.first.items()}

    def act(self, observation: Mapping[str, Array], seconds: float) -> dict[str, Array]:
        """See `Controller`."""
        control = self._rule.control
        seen = {name: np.asarray(observation[name], dtype=np.float64) for name in self._rule.needed}
        known = np.all([np.isfinite(values) for values in seen.values()], axis=0)
        usable, before = {name: np.where(known, values, 1.0) for name, values in seen.items()}, dict(self._memory)
        with np.errstate(all="ignore"):
            target = self._rule.decide(usable, self._memory, self._values)
            if self._rule.at_most:
                target = np.minimum(target, usable[self._rule.at_most])
        self._memory = {name: np.where(known, values, before[name]) for name, values in self._memory.items()}
        stays = np.nan_to_num(seen[control.current], nan=control.low)
        return {control.name: np.clip(np.where(known & np.isfinite(target), target, stays), control.low, control.high)}
