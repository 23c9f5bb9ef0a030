"""What stands between measurements and a controller: signals that no one measures, for they follow from the past.

An environment keeps such signals in its state (exponential means of the load, seconds since replicas were raised).
Beside a live system an `Observer` keeps them, by the same equations, across restarts (acting.py). No torch: it runs in
a controller.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from feature_store.errors import InputError


class Observer(Protocol):
    """Of one application."""

    @property
    def measured(self) -> tuple[str, ...]:
        """Signals that have to be measured; all others are present values, settings, or follow from these."""

    @property
    def guessed(self) -> tuple[str, ...]:
        """Signals that are taken for what is safe where nobody looked, such as right after a start: whatever they are
        then, it is not for that that an observation is unlike those of training."""

    def observe(self, measured: Mapping[str, float], present: Mapping[str, float], seconds: float) -> dict[str, float]:
        """All signals but the settings.

        Args:
            measured: signal -> value of the last interval; NaN or left out: not known.
            present: signal -> value that is set now.
            seconds: since the call before, by a clock that never jumps; 0 at the first.

        Returns:
            signal -> raw value, not clipped; NaN where it is not known.
        """

    def acted(self, values: Mapping[str, float]) -> None:
        """After `observe`: present value -> what was, or may have been, set for it; someone else may change it before
        the next look."""

    def outcome(self, observation: Mapping[str, float]) -> dict[str, float]:
        """reward, cost, violation and violated (as of `Outcome`) of the interval that was observed; NaN: not known."""

    def state(self) -> dict[str, float]:
        """All that it remembers, as JSON keeps it."""

    def restore(self, state: Mapping[str, float]) -> None:
        """Goes on from what `state` gave; nobody knows what happened meanwhile.

        Raises:
            InputError: it is not what `state` gives.
        """


class RememberedNumbers:
    """What observers share that remember numbers >= 0 alone, each NaN until it is known.

    Attributes:
        remembered: name -> number.
    """

    def __init__(self, *names: str) -> None:
        self._names = names
        self.remembered = dict.fromkeys(names, math.nan)

    def add_to_mean(self, name: str, value: float, weight: float, steps: float = 1.0) -> None:
        """Takes a value into an exponential mean, which begins with it; what is not known changes nothing.

        Args:
            weight: of one step.
            steps: that have passed.
        """
        if math.isfinite(value):
            mean = self.remembered[name]
            passed = 1.0 - (1.0 - weight) ** steps
            self.remembered[name] = mean + passed * (value - mean) if math.isfinite(mean) else value

    def acted(self, values: Mapping[str, float]) -> None:
        """See `Observer`: what was set is seen at the next look."""

    def state(self) -> dict[str, float]:
        """See `Observer`."""
        return {name: self.remembered[name] for name in self._names}

    def restore(self, state: Mapping[str, float]) -> None:
        """See `Observer`."""
        self.remembered |= finite_state(state, self._names, nullable=self._names)


def known_outcome(needed: Iterable[float], came: Callable[[], Mapping[str, Any]]) -> dict[str, float]:
    """What an interval came to; NaN where a number that is needed for it is not known."""
    if not all(map(math.isfinite, needed)):
        return dict.fromkeys(("reward", "cost", "violation", "violated"), math.nan)
    return {name: float(value) for name, value in came().items()}


def finite_state(state: Mapping[str, float], names: tuple[str, ...],
                 nullable: tuple[str, ...] = ()) -> dict[str, float]:
    """A remembered state whose numbers are finite and >= 0. Raises InputError.

    Args:
        nullable: names of those that may be NaN, which JSON keeps as null.
    """
    if set(state) != set(names):
        raise InputError(f"observer's state must have {', '.join(names)}, got {', '.join(sorted(state)) or 'nothing'}")
    found = {}
    for name in names:
        value = math.nan if state[name] is None else state[name]
        known = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
        if not known and not (name in nullable and isinstance(value, float) and math.isnan(value)):
            raise InputError(f"observer's state must be of numbers >= 0, got {state[name]!r} for {name}")
        found[name] = float(value)
    return found
