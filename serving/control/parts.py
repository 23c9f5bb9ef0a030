"""What a control loop is made of: the contracts of its parts, and its settings."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

from models.control.contract.controller import Controller
from models.control.contract.observer import Observer
from serving.actuators.actuator import Actuator
from serving.control.checks import Distribution
from serving.control.pending import steps_behind
from serving.control.shield import Shield
from serving.seen_spec import Familiar
from serving.session import Predictor


@dataclass(frozen=True)
class Share:
    """An input that is another measurement over what was set. of: that input; over: signals of present values."""

    of: str
    over: tuple[str, ...]


@dataclass(frozen=True)
class Readings:
    """Measurements: input -> value, NaN where the source has none; ages_s: where known; fresh_s: the most that an age
    may be, where the source itself says so."""

    values: Mapping[str, float]
    ages_s: Mapping[str, float] = field(default_factory=dict)
    fresh_s: Mapping[str, float] = field(default_factory=dict)

    def with_shares(self, shares: Mapping[str, Share], stood: Sequence[Mapping[str, float]],
                    interval_s: float) -> "Readings":
        """The same with what follows from them; as old as what it follows from. NaN where a part of it is not known.

        By its age (pending.py) a measurement is of an interval, and so of what was set in that one.

        Args:
            stood: signal -> what was set, one for each look, the present one first; at least one. Older measurements
                than that are held against the last of them, and those of a look that knew nothing against the first.
            interval_s: seconds between looks.
        """
        values, ages = dict(self.values), dict(self.ages_s)
        for name, share in shares.items():
            behind = steps_behind(ages.get(share.of, math.nan), interval_s)
            present = stood[min(behind, len(stood) - 1)] or stood[0]
            whole = math.prod(present.get(one, math.nan) for one in share.over)
            values[name] = values.get(share.of, math.nan) / whole if whole > 0 else math.nan
            if share.of in ages:
                ages[name] = ages[share.of]
        return replace(self, values=values, ages_s=ages)


@runtime_checkable
class Reader(Protocol):
    """Where measurements come from."""

    @property
    def interval_s(self) -> float | None:
        """Seconds until it should be read again, where the system says so and not the operator."""

    def read(self) -> Readings:
        """The last interval's. Raises SourceError: nothing came in time."""


@dataclass(frozen=True)
class Model:
    """The policy that may decide now.

    Attributes:
        predictor: None: there is none.
        refused: why it must not decide, "" where it may.
        version: as the record names it.
        age_s: seconds since it was last known to be the champion.
    """

    predictor: Predictor | None
    refused: str
    version: str
    age_s: float = 0.0

    @property
    def familiar(self) -> Familiar | None:
        """What its training saw; None: nothing is known."""
        return None if self.predictor is None else self.predictor.familiar


class Models(Protocol):
    """Where policies come from; asked between two steps."""

    def current(self) -> Model:
        """Never raises: what is wrong with a model is its `refused`."""


@dataclass(frozen=True)
class Parts:
    """All that a loop is made of; see loop.py. holder: this controller, for the lease."""

    reader: Reader
    models: Models
    actuator: Actuator
    shield: Shield
    fallback: Controller
    observer: Observer
    stops: Callable[[], str]
    holder: str


@dataclass(frozen=True)
class Settings:
    """deadline_s: a policy's answer that took longer is not used. fresh_s: input -> most age of a measurement.
    distribution: what an operator says of being out of it. keep_bytes: most of the log that is kept. shares: input ->
    the measurement, and what was set, that it is worked out from. shadow: the actuator sets nothing.
    """

    deadline_s: float = 5.0
    hand_back_after: int = 4
    fresh_s: Mapping[str, float] = field(default_factory=dict)
    distribution: Distribution = field(default_factory=Distribution)
    keep_bytes: float = math.inf
    shares: Mapping[str, Share] = field(default_factory=dict)
    shadow: bool = False
