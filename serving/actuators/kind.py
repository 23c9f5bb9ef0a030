"""How an actuator is asked for in a controller file, and made of what stands there."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from feature_store.errors import InputError
from serving.actuators.actuator import Actuator
from serving.actuators.shadow import Watched
from serving.contract import Contract
from serving.control.file_part import FilePart


@dataclass(frozen=True)
class Server:
    """The Prometheus server of a controller file. timeout_s: for all queries of a look."""

    address: str
    timeout_s: float


@dataclass(frozen=True)
class ActuatorKind:
    """One line of the table (actuators.py).

    Attributes:
        section: its part of the file.
        needs: what that part must say, for the error where it is missing.
        read: the part -> its target. Raises InputError.
        make: of a target, the policy's contract (None: only to give back what was found) and the controls that stay as
            they are. Raises InputError and ActuatorError.
        gives_back: whether it gives back what it found when a controller ends, unless it is told otherwise.
        keeps: whether what it found can be given back without a controller.
        measures: whether it is a `Reader` (serving/control/parts.py) too, so that no server is asked.
        watch: of the same, and the file's server: the target for a shadow, which is looked at, without a lease and
            whoever sets it; None: there is nothing to look at. Raises InputError and ActuatorError.
        kept: of a target: where what it found is kept, as a message says it; None: it does not say.
        lease_s: of a target: seconds after which a lease that nobody renews has run out; None: a lease is free as soon
            as its holder ends.
    """

    section: str
    needs: str
    read: Callable[[FilePart], Any]
    make: Callable[[Any, Contract | None, Collection[str]], Actuator]
    gives_back: bool = False
    keeps: bool = True
    measures: bool = False
    watch: Callable[[Any, Contract, Collection[str], Server], Watched] | None = None
    kept: Callable[[Any], str] | None = None
    lease_s: Callable[[Any], float] | None = None


def require_held(contract: Contract | None, held: Collection[str], sets: Collection[str], what: str) -> None:
    """What an actuator cannot set has to stay as it is: it refuses every decision that changes it, whole.

    Raises:
        InputError: a control that it does not set is not held.
    """
    if contract is None or contract.driving is None:
        return
    if loose := [name for name in contract.driving.current if name not in (*sets, *held)]:
        raise InputError(f"shield.hold must have {', '.join(loose)}, which {what} does not set, got "
                         f"{', '.join(held) or 'nothing'} (controller file)")
