"""The contract of an actuator: it reads what is set now, sets targets, and gives back what it found.

An actuator decides nothing. The control loop (serving/control/) checks, shields and logs before it calls `apply`, calls
it from one thread, and only while it holds the lease. What went wrong is an `ActuatorError`, whose `kind` the loop
logs, counts and acts on; after one, nothing is assumed: `present` is read again before the next decision.

Numbers are raw, by the names of the contract: present values by the name of the signal that observes a control
(`replicas`), targets by the control's (`target_replicas`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from feature_store.errors import AssayError

Kind = Literal["conflict", "forbidden", "throttled", "unreachable", "gone", "refused"]


class ActuatorError(AssayError):
    """A target could not be read or set.

    Attributes:
        kind: conflict: someone else changed it at the same time; forbidden: this controller may not; throttled: later;
            unreachable: no answer in time; gone: the target is not there; refused: this change is not possible.
        partly: control -> value that was set before it went wrong.
    """

    exit_code = 1

    def __init__(self, kind: Kind, message: str, partly: Mapping[str, float] | None = None) -> None:
        super().__init__(message)
        self.kind, self.partly = kind, dict(partly or {})


@dataclass(frozen=True)
class Applied:
    """What was done.

    Attributes:
        values: control -> what is set now; it may differ from the target where the actuator has to round.
        notes: anything an operator should know, a phrase each, such as a resize that waits.
    """

    values: Mapping[str, float]
    notes: tuple[str, ...] = field(default=())


class Actuator(Protocol):
    """One target: a group of processes, a Deployment."""

    @property
    def name(self) -> str:
        """Of the actuator and its target, as the log says it: "cgroup /assay/nginx"."""

    def present(self) -> Mapping[str, float]:
        """Signal -> value of what is set, and of what only it knows, such as the replicas that serve.

        Raises:
            ActuatorError: it cannot be read.
        """

    def apply(self, targets: Mapping[str, float]) -> Applied:
        """Sets targets by control. Safe to repeat.

        Raises:
            ActuatorError: with what was set nevertheless.
        """

    def acquire(self, holder: str) -> str:
        """Takes or renews the lease on the target: "" where `holder` has it, else who does.

        A lease that is not renewed runs out, so that a controller that was killed blocks no one for long.

        Raises:
            ActuatorError: nobody can say who has it; then nobody acts.
        """

    def release(self, holder: str) -> None:
        """Gives the lease back."""

    def restore(self, *, lowering: bool = True) -> bool | None:
        """Sets everything to what was found before the first `apply`, also by a process that was killed.

        Args:
            lowering: also what was found below what stands; else that stays, and can be given back later.

        Returns:
            False where nothing is known of what was found: nothing was set, and what stands may be a controller's.
            None, of an actuator that does not tell, counts as True.

        Raises:
            ActuatorError: it cannot, or something stays because it would have been lowered.
        """
