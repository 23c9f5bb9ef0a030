"""A control loop made of a checked bundle, an operator's file and an actuator."""

import math
import os
import secrets
import socket
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from feature_store.errors import InputError, nearest
from models.control.contract.acting import load_acting
from models.control.contract.controller import Controller
from models.control.contract.observer import Observer
from serving.actuators.actuator import Actuator
from serving.actuators.shadow import Shadow
from serving.contract import Contract
from serving.control.checks import beyond_training, checked, first_of
from serving.control.controller_file import ControllerFile
from serving.control.loop import ControlLoop
from serving.control.parts import Models, Parts, Reader, Settings
from serving.control.prometheus_reader import PrometheusReader
from serving.control.shield import Limit, Shield

MB = 1_000_000


def acting_for(contract: Contract) -> tuple[Observer, Controller]:
    """What acts beside a policy: the observer of its system, and the rule that its contract names.

    Raises:
        InputError: it names none, or none that is installed here with the code that the bundle was made with.
    """
    if contract.driving is None or contract.fallback is None:
        raise InputError("contract must name what acts and a fallback, got no `driving` or `fallback` "
                         f"({contract.task}, {contract.workload}); make the bundle again")
    acting = load_acting(contract.driving.acting.module, contract.driving.acting.sha256)
    if contract.fallback.rule not in acting.rules:
        raise InputError(f"fallback must be one of {', '.join(acting.rules)}, got {contract.fallback.rule!r}; "
                         f"{nearest(contract.fallback.rule, acting.rules)}")
    return acting.observer(), acting.rules[contract.fallback.rule].make(contract.fallback.settings)


def shield_of(contract: Contract, written: ControllerFile) -> Shield:
    """The safe ranges of a contract, with what an operator adds."""
    if contract.fallback is None or contract.driving is None:
        raise InputError(f"contract must have safe ranges and say how it is driven, got no `fallback` or `driving` "
                         f"({contract.task}, {contract.workload}); make the bundle again")
    ranges = contract.fallback.safe_ranges
    if unknown := [name for name in written.hold if name not in ranges]:
        raise InputError(f"shield.hold must be of {', '.join(ranges)}, got {unknown[0]!r}; "
                         f"{nearest(unknown[0], ranges)}")
    for name, safe in ranges.items():
        # a policy's own changes keep within the rates: none of one direction would ever be made
        least = min((rate for rate in (safe.most_up, safe.most_down) if rate > 0), default=math.inf)
        if written.hysteresis >= least and name not in (*written.hold, *contract.driving.whole,
                                                             *contract.driving.levels):
            raise InputError(f"shield.hysteresis must be below {least:g}, the most that {name} changes by in a step, "
                             f"got {written.hysteresis:g}")
    limits = [Limit(name, contract.driving.current[name], safe, name in contract.driving.whole, written.hysteresis,
                    written.cool_down_s, name in written.hold, contract.driving.levels.get(name, ()))
              for name, safe in ranges.items()]
    return Shield(limits, written.budgets)


def _never_fit(contract: Contract, models: Models, written: ControllerFile) -> Mapping[str, str]:
    """Why no policy would act on what never changes, by what is wrong with it; empty where it may."""
    assert contract.driving is not None
    if impossible := checked(contract, written.fixed, written.fixed).troubles:
        return impossible
    constant = checked(contract, {**contract.driving.settings, **written.fixed}, contract.input_names)
    return beyond_training(models.current().familiar, constant, written.distribution)


def with_settings(contract: Contract, given: Mapping[str, float]) -> Contract:
    """The contract with an operator's settings, such as another objective, in place of those of training.

    The proof holds for them where its box does; whether training saw them is checked as of everything else that never
    changes.

    Raises:
        InputError: one is no setting of the bundle, or outside of the box that is proved.
    """
    if not given:
        return contract
    own = {} if contract.driving is None else contract.driving.settings
    boxes = {item.name: (item.minimum, item.maximum) for item in contract.inputs}
    for name, value in given.items():
        if name not in own:
            raise InputError(f"settings must be of {', '.join(own) or 'none'}, got {name!r}; {nearest(name, own)}")
        low, high = boxes[name]
        if not low <= value <= high:
            raise InputError(f"settings.{name} must be {low:g} to {high:g}, for which the bundle is proved, got "
                             f"{value:g}")
    assert contract.driving is not None
    return replace(contract, driving=replace(contract.driving, settings={**own, **given}))


def make_loop(contract: Contract, models: Models, written: ControllerFile, actuator: Actuator,
              stops: Callable[[], str], folder: Path) -> ControlLoop:
    """Puts a controller together.

    Args:
        contract: of the policy.
        folder: of this controller alone.

    Raises:
        InputError: contract, file and folder do not fit together.
    """
    shield = shield_of(contract, written)
    assert contract.driving is not None
    names = contract.input_names
    if unknown := [name for name in written.distribution.ignored if name not in names]:
        raise InputError(f"out_of_distribution.ignore must be of {', '.join(names)}, got {unknown[0]!r}; "
                         f"{nearest(unknown[0], names)}")
    assert contract.driving is not None
    present = [name for one in contract.driving.current.values() for name in (one, f"ready_{one}") if name in names]
    for name, share in written.shares.items():
        if unknown := [one for one in share.over if one not in present]:
            raise InputError(f"signals.{name}.over must be of what is set, {', '.join(present)}, got {unknown[0]!r}; "
                             f"{nearest(unknown[0], present)}")
    observer, fallback = acting_for(contract)
    if written.prometheus:
        written.require_all(observer.measured)
    if never := _never_fit(contract, models, written):
        what = "settings and fixed" if written.settings else "fixed"
        raise InputError(f"{what} must be values that a policy may act on, got {first_of(tuple(never.values()))}: none "
                         "would ever act")
    reader: Reader
    fresh_s: Mapping[str, float] = {}
    if written.prometheus:
        reader = PrometheusReader(written.prometheus, written.signals, written.fixed, written.timeout_s)
        fresh_s = reader.fresh_s | {name: reader.fresh_s[share.of] for name, share in written.shares.items()}
    elif isinstance(actuator, Reader):
        reader = actuator
    else:
        raise InputError("actuator must measure by itself, as its ACTUATOR says, got one that does not "
                         f"({actuator.name})")
    parts = Parts(reader, models, actuator, shield, fallback, observer, stops,
                  f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(4)}")
    settings = Settings(written.deadline_s, written.hand_back_after, fresh_s, written.distribution,
                        written.keep_mb * MB, written.shares, isinstance(actuator, Shadow))
    return ControlLoop(contract, parts, settings, folder)
