"""What a start does otherwise in shadow: it decides beside whoever sets the target, and sets nothing."""

import math
from pathlib import Path

from feature_store.errors import InputError
from models.control.training.trajectory_log import last_step
from serving.actuators.actuator import Actuator, ActuatorError
from serving.actuators.actuators import make_shadow, watch_of
from serving.actuators.kind import Server
from serving.contract import Contract
from serving.control.controller_file import ControllerFile


def require_watchable(actuator: str, give_back: bool | None) -> None:
    """Raises InputError: the actuator's target cannot be watched, or something is to be given back."""
    watch_of(actuator)
    if give_back:
        raise InputError("give-back must be left out in shadow, where nothing is set, got it")


def require_own_log(place: Path, shadow: bool) -> None:
    """Raises InputError: the folder's log is of a controller that acted, for a shadow, or the other way round."""
    last = last_step(place / "steps")
    if last is not None and bool((last.detail or {}).get("shadow")) != shadow:
        was, now = ("a controller that acted", "a shadow") if shadow else ("a shadow", "a controller that acts")
        raise InputError(f"folder must be of {now} alone, got one with the log of {was} ({place}); name another "
                         "(--folder)")


def watched_target(actuator: str, contract: Contract, written: ControllerFile) -> Actuator:
    """What the actuator would act on, to look at. Raises InputError and ActuatorError as `make_shadow`."""
    return make_shadow(actuator, contract, written.actuators, written.hold,
                       Server(written.prometheus, written.timeout_s))


def unknown_present(actuator: Actuator, contract: Contract, written: ControllerFile) -> str:
    """Which present values are missing now, without which nobody decides; "" for none."""
    assert contract.driving is not None
    try:
        present = actuator.present()
    except ActuatorError as error:
        return f"nothing is decided while what is set cannot be read: {error}"
    needed = {*contract.driving.current.values(), *(one for share in written.shares.values() for one in share.over)}
    missing = [name for name in sorted(needed) if not math.isfinite(present.get(name, math.nan))]
    return (f"nothing is decided while nobody knows {', '.join(missing)} ({actuator.name}): give it a limit, or a "
            "number under `watch`" if missing else "")
