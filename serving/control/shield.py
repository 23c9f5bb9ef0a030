"""What stands between a decision and an actuator: whatever a policy or a rule says, this is what may be set.

In this order, so that what comes later holds in the end:

    hold         a target that an operator keeps as it is, whatever is said below
    hysteresis   a change too small to be worth one is none
    blind        while measurements are missing or not fit to decide on, nothing moves away from its safe side
    missed       while the objective is missed, or nobody knows whether it is met, neither
    cool-down    after something moved away from its safe side, it does not for a while
    range        the target's safe range; where one of the three above holds, it moves nothing away either
    rate         at most a share of the present value, up or down; a whole number may always move by one, and what
                 stands beside the levels to the nearest, unless that is away from the safe side while one of the three
                 holds
    ceiling      what the system's task allows while a signal is high, or low: a clock without room below the limit of
                 temperature; where the signal is seen it holds whatever is said above
    budget       cores and replicas of all together; only what grows is cut, nothing that is there is taken for it

A control's safe side is that of the system's `Control` (systems/*/interface.py), which a bundle's contract carries. Of
a resource it is more: nothing is taken away from a service that may need it. What someone else set above the range
stays until a step that is observed, satisfied and past the cool-down, and then comes down at the rate. Of what congests
a network or heats a processor it is less: there nothing is added.

All is a pure function of the targets, what is set now, and the time since things moved away. A proved policy needs
none of it: what the shield changes of one is worth an alert.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from feature_store.errors import InputError
from models.control.contract.signals import ROUNDING, SafeSide, settable
from serving.fallback_spec import SafeRange

Reason = Literal["hysteresis", "blind", "missed", "cool_down", "range", "rate", "ceiling", "budget"]
_EXACT = 1e-6  # share by which a target may miss a limit of its own network, which computes in float32


@dataclass(frozen=True)
class Change:
    """What the shield changed.

    Attributes:
        control: name of the target.
        reason: which of its rules did.
        wanted: what came in.
        allowed: what went out of that rule.
    """

    control: str
    reason: Reason
    wanted: float
    allowed: float

    def __str__(self) -> str:
        return f"{self.control} {self.wanted:g} -> {self.allowed:g} ({self.reason.replace('_', '-')})"


@dataclass(frozen=True)
class Limit:
    """Of one target.

    Attributes:
        control: its name.
        current: name of the present value.
        safe: its range and rates (the contract's `safe_ranges`).
        whole: whether it is a whole number.
        hysteresis: share of the present value below which a change is none, in [0, 1).
        cool_down_s: seconds after it moved away from its safe side in which it does not again, >= 0.
        held: whether it stays as it is, whatever is decided; not counted as a change.
        levels: the only values that may be set, ascending; none: any.
    """

    control: str
    current: str
    safe: SafeRange
    whole: bool = False
    hysteresis: float = 0.0
    cool_down_s: float = 0.0
    held: bool = False
    levels: tuple[float, ...] = ()

    @property
    def safe_side(self) -> SafeSide:
        """See `Control`."""
        return self.safe.safe_side

    def at_most(self, value: float) -> float:
        """The most that may be set of what is at most this; the least level, where all are above it."""
        if self.levels:
            return max((level for level in self.levels if level <= value), default=self.levels[0])
        return float(math.floor(value)) if self.whole else value

    def __post_init__(self) -> None:
        if not 0 <= self.hysteresis < 1:
            raise InputError(f"hysteresis must be a share from 0 to below 1, got {self.hysteresis!r} ({self.control})")
        if not 0 <= self.cool_down_s < math.inf:
            raise InputError(f"cool_down_s must be a number >= 0, got {self.cool_down_s!r} ({self.control})")


@dataclass(frozen=True)
class Budget:
    """The most that the product of some targets may be: replicas times cores of each.

    Attributes:
        name: as messages name it.
        controls: the product of these, of which the first are cut first.
        most: in the product's unit.
    """

    name: str
    controls: tuple[str, ...]
    most: float

    def __post_init__(self) -> None:
        if not 0 < self.most < math.inf:
            raise InputError(f"budget must be a number > 0, got {self.most!r} ({self.name})")


@dataclass(frozen=True)
class Shielded:
    """targets: control -> what may be set. changes: in the order in which they were made."""

    targets: Mapping[str, float]
    changes: tuple[Change, ...] = field(default=())


class Shield:
    """The rules of one bundle and one operator."""

    def __init__(self, limits: Sequence[Limit], budgets: Sequence[Budget] = ()) -> None:
        """Args:
            limits: one for each target.
            budgets: of the operator.

        Raises:
            InputError: a budget of a target without limits.
        """
        self.limits, self.budgets = tuple(limits), tuple(budgets)
        self._of = {limit.control: limit for limit in limits}
        for budget in budgets:
            if unknown := [name for name in budget.controls if name not in self._of]:
                raise InputError(f"budget must be of {', '.join(self._of)}, got {', '.join(unknown)} ({budget.name})")

    def allowed(self, targets: Mapping[str, float], present: Mapping[str, float],
                moved_away_s: Mapping[str, float], *, blind: bool, missed: bool) -> Shielded:
        """What may be set of targets.

        Args:
            targets: control -> finite value, one for each limit.
            present: signal -> value; finite of what is set now, each limit's `current`.
            moved_away_s: control -> seconds since it moved away from its safe side; left out: long ago.
            blind: whether measurements are missing or not fit to decide on.
            missed: whether the objective is missed, or nobody knows that it is met.

        Raises:
            InputError: a value is missing or not finite: nothing may be set then.
        """
        found: dict[str, float] = {}
        changes: list[Change] = []
        for limit in self.limits:
            wanted, now = _finite(targets, limit.control, "target"), _finite(present, limit.current, "present value")
            cooling = moved_away_s.get(limit.control, math.inf) < limit.cool_down_s
            keeps: Reason | None = "blind" if blind else "missed" if missed else "cool_down" if cooling else None
            found[limit.control] = self._one(limit, wanted, now, keeps, present, changes)
        for budget in self.budgets:
            self._within(budget, found, present, changes)
        return Shielded(found, tuple(changes))

    def _one(self, limit: Limit, wanted: float, now: float, keeps: Reason | None, seen: Mapping[str, float],
             changes: list[Change]) -> float:
        """What may be set of one target. keeps: why it may not move away from its safe side now, None: it may."""
        if limit.held:
            return now
        value = wanted

        def cut(reason: Reason, allowed: float) -> None:
            nonlocal value
            if abs(allowed - value) > _EXACT * max(abs(value), abs(allowed)):
                changes.append(Change(limit.control, reason, value, allowed))
            value = allowed

        value = wanted = float(settable(np.asarray(wanted), limit, np))
        if value != now and abs(value - now) <= limit.hysteresis * abs(now):
            cut("hysteresis", now)
        more = limit.safe.safe_side == "more"
        if keeps is not None and (value < now if more else value > now):
            cut(keeps, now)
        least, most = limit.safe.minimum, limit.safe.maximum
        if keeps is not None:
            least, most = (least, max(most, now)) if more else (min(least, now), most)
        cut("range", min(max(value, least), most))
        least, most = self.reachable(limit, now)
        allowed = min(max(value, least), most)
        if keeps is not None:  # a level in reach may lie on the other side of what is set
            allowed = max(allowed, now) if more else min(allowed, now)
        cut("rate", allowed)
        if limit.safe.ceilings:
            ceiling = float(settable(np.asarray(limit.safe.at_most(seen)), limit, np))  # as what a policy says is
            cut("ceiling", min(value, ceiling))
        return value

    @staticmethod
    def reachable(limit: Limit, now: float) -> tuple[float, float]:
        """The least and the most that one step may set."""
        least, most = now * (1.0 - limit.safe.most_down), now * (1.0 + limit.safe.most_up)
        if limit.whole:
            least, most = float(math.ceil(min(least, now - 1.0))), float(math.floor(max(most, now + 1.0)))
        if limit.levels:  # of what somebody else set in between, or beyond them, the nearest one is in reach
            nearest = min(limit.levels, key=lambda level: abs(level - now))
            inside = [level for level in limit.levels if least - ROUNDING <= level <= most + ROUNDING] or [nearest]
            least, most = inside[0], inside[-1]
        return least, most

    def _within(self, budget: Budget, found: dict[str, float], present: Mapping[str, float],
                changes: list[Change]) -> None:
        for name in budget.controls:
            total = math.prod(found[other] for other in budget.controls)
            if total <= budget.most * (1.0 + _EXACT):
                return
            limit = self._of[name]
            # what grows is cut, down to what is there at most
            kept = min(found[name], present[limit.current])
            least = max(kept, limit.safe.minimum)
            others = total / found[name]
            affordable = budget.most / others if others > 0 else math.inf
            allowed = max(least, limit.at_most(affordable))
            if allowed < found[name]:
                changes.append(Change(name, "budget", found[name], allowed))
                found[name] = allowed


def _finite(values: Mapping[str, float], name: str, what: str) -> float:
    value = values.get(name, math.nan)
    if not math.isfinite(value):
        raise InputError(f"{what} must be a finite number, got {value!r} ({name})")
    return float(value)
