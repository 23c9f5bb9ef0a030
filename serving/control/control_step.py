"""One step of a controller as it is shown, counted and logged."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from serving.control.shield import Change
from serving.control.who_acts import WhoActs


@dataclass(frozen=True)
class ControlStep:
    """One step, frozen: what was seen, said, changed and done.

    Attributes:
        number: of this run, from 0.
        at: UTC time at its begin, ISO 8601.
        actor: who decided.
        reason: why not the policy; "" where it was.
        version: of the model.
        seen: input -> value; NaN: missing.
        troubles: what was wrong with what was seen.
        outside: inputs beyond the proved box.
        said: control -> what the policy said; None: it was not asked, or had no answer.
        changes: what the shield changed.
        targets: control -> what was to be set; empty where nobody acted.
        done: control -> what the actuator says is set; None: it was not asked, or failed.
        notes: of the actuator.
        failure: of the actuator or the log, "" where there was none.
        took_s: observe, decide, act -> seconds.
        strange: ranges of what training saw (seen_spec.py) that it was beyond.
        shadow: targets are what would have been set; done is what was set, by whoever.
    """

    number: int
    at: str
    actor: WhoActs
    reason: str
    version: str
    seen: Mapping[str, float]
    troubles: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    said: Mapping[str, float] | None = None
    changes: tuple[Change, ...] = ()
    targets: Mapping[str, float] = field(default_factory=dict)
    done: Mapping[str, float] | None = None
    notes: tuple[str, ...] = ()
    failure: str = ""
    took_s: Mapping[str, float] = field(default_factory=dict)
    strange: tuple[str, ...] = ()
    shadow: bool = False
