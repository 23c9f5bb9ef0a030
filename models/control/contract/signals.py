"""What a controller observes and sets, and how a network sees it.

A network sees a signal `linear` or as its logarithm, interpolated between powers of two: piecewise linear, so that what
is trained is what ships and what is proved (a ReLU layer computes it), and a ratio of signals is a difference.

Symbols: n signals, f features, m controls; knots low, 2 low, 4 low, ..., the last one >= high.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

SafeSide = Literal["more", "less"]
_EXACT = 1.0 + 1e-9
ROUNDING = 1e-3  # by so much float32 may miss a whole number that a network means


def rounded_up(target: Any, ceil: Callable[[Any], Any]) -> Any:
    """What is set for a target of whole numbers: beside a live system, in simulation and in the law that proofs are of.

    Up, so that nobody gets less than a policy asked for, unless it is above a whole number by ROUNDING at most.

    Args:
        target: number, array or tensor.
        ceil: of its type, such as torch.ceil.
    """
    return ceil(target - ROUNDING)


class Stepped(Protocol):
    """What can be set of a target: anything, whole numbers, or some levels; and to which side what is between goes."""

    @property
    def whole(self) -> bool:
        """See `Control`."""

    @property
    def levels(self) -> tuple[float, ...]:
        """See `Control`."""

    @property
    def safe_side(self) -> SafeSide:
        """See `Control`."""


def settable(target: Any, control: Stepped, of: Any) -> Any:
    """What is set for a target, live and in simulation: the next whole number or level on its safe side.

    On the other side where that one is no further off than ROUNDING; the outermost level beyond the levels.

    Args:
        target: array or tensor of any shape.
        of: its module, numpy or torch.
    """
    more = control.safe_side == "more"
    if control.levels:
        levels = of.asarray(control.levels, dtype=target.dtype)
        above = of.searchsorted(levels, target - ROUNDING) if more else \
            of.searchsorted(levels, target + ROUNDING, side="right") - 1
        return levels[of.clip(above, 0, len(levels) - 1)]
    if control.whole:
        return rounded_up(target, of.ceil) if more else of.floor(target + ROUNDING)
    return target


@dataclass(frozen=True)
class Signal:
    """One number of an observation.

    Attributes:
        name: as in task files, contracts and trajectories.
        unit: of its values; "1" for shares and ratios.
        low: smallest value that can be observed; > 0 where `scale` is log.
        high: largest value that can be observed, > low.
        scale: how a network sees it.
        meaning: one phrase for a reader.
    """

    name: str
    unit: str
    low: float
    high: float
    scale: Literal["linear", "log"] = "linear"
    meaning: str = ""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise ValueError(f"expected low < high, got {self.low} and {self.high} (signal {self.name})")
        if self.scale == "log" and self.low <= 0:
            raise ValueError(f"expected low > 0 of a logarithm, got {self.low} (signal {self.name})")

    @cached_property
    def knots(self) -> NDArray[np.float64]:
        """(k,) places where the interpolated logarithm bends, in the signal's unit; empty where `scale` is linear."""
        if self.scale == "linear":
            return np.empty(0)
        octaves = max(1, math.ceil(math.log2(self.high / self.low) - 1e-9))
        return np.asarray(self.low * 2.0 ** np.arange(octaves + 1), dtype=np.float64)


@dataclass(frozen=True)
class Control:
    """One target that a controller sets. It may change by limited shares a step, which is part of its network.

    Attributes:
        name: of the target, as in task files, contracts and trajectories.
        current: name of the signal that observes its present value; the signal's `scale` is log.
        unit: of both.
        low: smallest value that may be set.
        high: largest value that may be set.
        most_down: largest share of the present value that one step removes, in (0, 1).
        most_up: largest share of the present value that one step adds, > 0.
        whole: whether what is set is a whole number (`rounded_up`); one may then always be added or removed, else 3
            could never become 2: at least min((1 - most_down) x, x - 1), at most max((1 + most_up) x, x + 1).
        levels: the only values that may be set, ascending, such as the frequencies of a processor; none: any between
            `low` and `high`, which are among them. One step reaches the next level at least, by `most_down` and
            `most_up`.
        safe_side: where it may go at any time: `more` of a resource, `less` of what congests or heats. Whatever holds
            changes back while the objective is missed or nobody sees it, holds back those away from this side.
    """

    name: str
    current: str
    unit: str
    low: float
    high: float
    most_down: float
    most_up: float
    whole: bool = False
    meaning: str = ""
    safe_side: SafeSide = "more"
    levels: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", tuple(self.levels))  # JSON has lists
        if not self.levels:
            return
        inside = self.levels[0] > 0 and {self.low, self.high} <= {*self.levels}
        ratios = [above / below for below, above in pairwise(self.levels)] if inside else []
        if self.whole or not inside or not all(ratio > 1.0 for ratio in ratios):
            raise ValueError(f"expected ascending levels above 0 of a target that is not whole, low and high among "
                             f"them, got {self.levels} (control {self.name})")
        most = max(ratios, default=1.0)
        if most > (1.0 + self.most_up) * _EXACT or most * (1.0 - self.most_down) > _EXACT:
            raise ValueError(f"expected most_up and most_down that reach the next level, {most:g} times the one "
                             f"below, got {self.most_up:g} and {self.most_down:g} (control {self.name})")

    @property
    def span(self) -> float:
        """What shares of its range are shares of, > 0: of a target that is fixed, its value."""
        return self.high - self.low or self.high


@dataclass(frozen=True)
class Ceiling:
    """What a target may be at most: the control's `high` up to `start` of a signal, `at_most` from `end` on, in between
    on the line through both; with an end below its start the other way round. It goes before the limits of change."""

    start: float
    end: float
    at_most: float

    def taken_off(self, high: float) -> float:
        """Of a control's `high`, from `end` on; a workload's limits may be below `at_most`."""
        return max(high - self.at_most, 0.0)

    def share(self, value: float) -> float:
        """Of what is taken off, at a value of the signal."""
        return min(max((value - self.start) / (self.end - self.start), 0.0), 1.0)


def most_allowed(most: float, ceilings: Mapping[str, Ceiling], seen: Mapping[str, float]) -> float:
    """What a target may be at most by its ceilings; of a signal that is not known nothing follows.

    Args:
        most: what it may be without any.
        ceilings: signal -> ceiling.
        seen: signal -> value.
    """
    off = (one.taken_off(most) * one.share(seen[name]) for name, one in ceilings.items()
           if math.isfinite(seen.get(name, math.nan)))
    return most - sum(off)


@dataclass(frozen=True)
class Feature:
    """A sum of scaled signals that a network takes: log(p99 / SLO) is {"p99_ms": 1, "slo_ms": -1}.

    Attributes:
        name: for readers.
        terms: signal -> coefficient of its scaled value.
    """

    name: str
    terms: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Anchor:
    """Where a control's target stands before the MLP changes it: exp(sum of terms * scaled signals + offset).

    An anchor at the present value alone makes the policy an integrator: what is learned is a change, and a small bias
    drifts to a limit. With less than 1 of the present value the target is drawn to what the other terms say.
    """

    terms: Mapping[str, float]
    offset: float = 0.0


def feature_matrix(features: Sequence[Feature], signals: Sequence[Signal]) -> NDArray[np.float64]:
    """(f, n): features = matrix @ scaled signals. Raises ValueError for a term that is no signal."""
    names = [signal.name for signal in signals]
    matrix = np.zeros((len(features), len(names)))
    for row, feature in enumerate(features):
        for name, coefficient in feature.terms.items():
            if name not in names:
                raise ValueError(f"expected one of {', '.join(names)}, got {name!r} (feature {feature.name})")
            matrix[row, names.index(name)] = coefficient
    return matrix
