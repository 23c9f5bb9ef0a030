"""Actuators by name: those that come with Assay, or the import path of a module that holds an `ACTUATOR`."""

import importlib
from collections.abc import Callable, Collection, Mapping
from typing import Any

from feature_store.errors import InputError, nearest
from serving.actuators import cgroup, dry_run, kubernetes, watch
from serving.actuators.actuator import Actuator
from serving.actuators.kind import ActuatorKind, Server
from serving.actuators.shadow import Shadow, Watched
from serving.contract import Contract

ACTUATORS: Mapping[str, ActuatorKind] = {"dry-run": dry_run.KIND, "cgroup": cgroup.KIND, "kubernetes": kubernetes.KIND,
                                         "watch": watch.KIND}


def actuator_kind(name: str) -> ActuatorKind:
    """Raises InputError: there is none of that name."""
    if name in ACTUATORS:
        return ACTUATORS[name]
    if "." not in name:
        raise InputError(f"actuator must be one of {', '.join(ACTUATORS)}, or the import path of a module, got "
                         f"{name!r}; {nearest(name, ACTUATORS)}")
    try:
        kind = importlib.import_module(name).ACTUATOR
    except (ImportError, AttributeError, TypeError, ValueError) as error:  # of a name that begins or ends with a dot
        raise InputError(f"actuator must be a module that holds an ACTUATOR, got {name!r}: {error}") from error
    if not isinstance(kind, ActuatorKind):
        raise InputError(f"actuator must be a module whose ACTUATOR is an ActuatorKind, got {type(kind).__name__} "
                         f"({name})")
    return kind


def make_actuator(name: str, contract: Contract | None, targets: Mapping[str, Any], held: Collection[str]) -> Actuator:
    """An actuator by name.

    Args:
        contract: of the policy; None: only to give back what was found.
        targets: part of the controller file -> what an actuator read there.
        held: controls that stay as they are.

    Raises:
        InputError: there is none of that name, or the file does not say what it needs.
    """
    kind = actuator_kind(name)
    return kind.make(_target(kind, targets), contract, held)


def watch_of(name: str) -> Callable[[Any, Contract, Collection[str], Server], Watched]:
    """How an actuator's target is looked at alone. Raises InputError: it cannot be."""
    kind = actuator_kind(name)
    if kind.watch is None:
        why = "measures by what it sends itself" if kind.measures else "has nothing to look at"
        raise InputError("actuator must be one whose target can be watched in shadow, such as "
                         f"{', '.join(known for known, one in ACTUATORS.items() if one.watch)}, got {name}, which "
                         f"{why} (--actuator)")
    return kind.watch


def make_shadow(name: str, contract: Contract, targets: Mapping[str, Any], held: Collection[str],
                server: Server) -> Shadow:
    """What watches an actuator's target and sets nothing. Arguments as of `make_actuator`.

    Args:
        server: of the controller file.

    Raises:
        InputError: as `make_actuator`, or the target cannot be watched.
        ActuatorError: it cannot be read.
    """
    assert contract.driving is not None
    target = _target(actuator_kind(name), targets)
    return Shadow(watch_of(name)(target, contract, held, server), contract.driving.current)


def _target(kind: ActuatorKind, targets: Mapping[str, Any]) -> Any:
    if kind.section not in targets:
        raise InputError(f"{kind.section} must {kind.needs}, got nothing (controller file)")
    return targets[kind.section]
