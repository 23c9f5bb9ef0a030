"""Who acts in a step: the policy, its fallback, or nobody. A pure state machine.

The first check that finds something in the way says who acts instead of the policy, and why; after it the fallback acts
until `hand_back_after` steps in a row were good. docs/reference/control.md has them in the same order, and after them
what loop.py does after a decision: a policy that raised or was late, a shield that failed. Which rule is the fallback
says the bundle's contract (made.py).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from feature_store.errors import InputError
from serving.control.checks import first_of

WhoActs = Literal["policy", "fallback", "nobody"]


@dataclass(frozen=True)
class Situation:
    """What is known before a decision; "" and empty where nothing is in the way.

    Attributes:
        stopped: by the kill switch.
        actuator: why it cannot be asked, or who else has the lease.
        present: signal -> what is set; NaN: not known.
        unwritten: what of the last step could not be written down.
        refused: why the model must not decide.
        troubles: input -> what is wrong with its measurement.
        strange: range of what training saw -> how an observation is beyond it.
    """

    stopped: str = ""
    actuator: str = ""
    present: Mapping[str, float] = field(default_factory=dict)
    unwritten: str = ""
    refused: str = ""
    troubles: Mapping[str, str] = field(default_factory=dict)
    strange: Mapping[str, str] = field(default_factory=dict)


def _unknown(now: Situation) -> str:
    names = [name for name, value in now.present.items() if not math.isfinite(value)]
    return f"actuator: {', '.join(names)} is not known" if names else ""


def _nothing(now: Situation) -> str:
    names = [name for name, value in now.present.items() if value <= 0]
    return f"{', '.join(names)} was set to 0 by someone" if names else ""


CHECKS: tuple[tuple[WhoActs, Callable[[Situation], str]], ...] = (
    ("nobody", lambda now: now.stopped),
    ("nobody", lambda now: now.actuator),
    ("nobody", _unknown),
    ("nobody", _nothing),
    ("fallback", lambda now: now.unwritten),
    ("fallback", lambda now: now.refused),
    ("fallback", lambda now: first_of(tuple(now.troubles.values()))),
    ("fallback", lambda now: first_of(tuple(now.strange.values()))),
)


@dataclass(frozen=True)
class Watch:
    """Attributes:
    hand_back_after: good steps in a row until the policy acts again, >= 1.
    good: steps in a row that were good; as many as are needed where the policy acts.
    """

    hand_back_after: int = 4
    good: int = 0

    def __post_init__(self) -> None:
        if self.hand_back_after < 1:
            raise InputError(f"hand_back_after must be a number of steps >= 1, got {self.hand_back_after}")

    def after(self, now: Situation) -> tuple["Watch", WhoActs, str]:
        """One step on: the watch after it, who acts, and why not the policy ("" where it does)."""
        for actor, check in CHECKS:
            if reason := check(now):
                return self.failed(), actor, reason
        good = min(self.good + 1, self.hand_back_after)
        if left := self.hand_back_after - good:
            return (Watch(self.hand_back_after, good), "fallback",
                    f"{left} more good {'step' if left == 1 else 'steps'} until the policy acts")
        return Watch(self.hand_back_after, good), "policy", ""

    def failed(self) -> "Watch":
        """After a step in which the policy could not act, or failed."""
        return Watch(self.hand_back_after, 0)
