"""Who acts: the policy, its fallback, or nobody. A pure state machine.

    policy    as long as nothing is in its way
    fallback  from the first trouble on, and until `hand_back_after` steps in a row were good
    nobody    while the kill switch is on or another controller has the lease; afterwards the fallback begins
"""

from dataclasses import dataclass
from typing import Literal

from feature_store.errors import InputError

Actor = Literal["policy", "fallback", "nobody"]


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

    def after(self, trouble: str, stopped: str) -> tuple["Watch", Actor, str]:
        """One step on.

        Args:
            trouble: why the policy must not act, "" where it may.
            stopped: why nobody must, "".

        Returns:
            The watch after it, who acts, and why not the policy ("" where it does).
        """
        if stopped:
            return Watch(self.hand_back_after, 0), "nobody", stopped
        if trouble:
            return Watch(self.hand_back_after, 0), "fallback", trouble
        good = min(self.good + 1, self.hand_back_after)
        if good < self.hand_back_after:
            left = self.hand_back_after - good
            return (Watch(self.hand_back_after, good), "fallback",
                    f"{left} more good {'step' if left == 1 else 'steps'} until the policy acts")
        return Watch(self.hand_back_after, good), "policy", ""

    def failed(self) -> "Watch":
        """After a step in which the policy itself failed."""
        return Watch(self.hand_back_after, 0)
