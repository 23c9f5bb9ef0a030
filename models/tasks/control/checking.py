"""What a control task says, held against its environment before any work."""

from collections.abc import Iterable, Mapping
from typing import Any

from feature_store.errors import InputError, nearest
from feature_store.strict_yaml import Lines
from feature_store.written.field_errors import FieldError, field_error
from models.control.contract.environment import ControlledSystem
from models.control.contract.first_steps import check_first_steps
from models.control.contract.signals import Control
from models.control.contract.systems import environment_of
from models.control.policy.policy import Gates
from models.tasks.control.task import ByConstruction, ControlTask
from models.tasks.control.workload import numbers_of, specification_of
from models.verification.language.specification import Specification


def check_task(task: ControlTask, workload: str, where: str, lines: Lines | None) -> None:
    """Refuses what no telemetry could fit. Arguments as of `Kind.check`.

    Raises:
        InputError: with the field and its line.
    """
    try:
        environment = environment_of(task.environment)
        check_first_steps(environment)
    except InputError as error:
        raise field_error(["environment"], str(error).removeprefix("environment: "), where, lines) from error
    try:
        _check_rule(task, workload, environment)
        _check_settings(["workloads", workload, "settings"], task.workload(workload).settings, environment)
        _check_limits(["workloads", workload, "limits"], task.workload(workload).limits, environment.controls)
    except FieldError as error:
        raise field_error(error.path, str(error), where, lines) from error
    _check_profile(task, environment, where, lines)
    _check_training(task, workload, where, lines)
    try:
        _check_by_construction(task, workload, environment)
    except FieldError as error:
        raise field_error(error.path, str(error), where, lines) from error
    _check_shown_settings(task, workload, specification_of(task, workload, environment, where, lines), where, lines)


def _check_shown_settings(task: ControlTask, workload: str, specification: Specification, where: str,
                          lines: Lines | None) -> None:
    """A policy is shown its settings: of one outside of the box nothing is proved, and its edge would be shown."""
    settings = numbers_of(task, workload)
    for number, name in enumerate(specification.feature_names):
        low, high = float(specification.lower[number]), float(specification.upper[number])
        if name in settings and not low <= settings[name] <= high:
            raise field_error(["workloads", workload, "settings", name], f"expected {low:g} to {high:g}, the "
                              f"specification's box of {name}, got {settings[name]:g}", where, lines)


def _check_profile(task: ControlTask, environment: ControlledSystem, where: str, lines: Lines | None) -> None:
    for name in ("t_online", "t_serving"):
        threshold = getattr(task.profile, name)
        if threshold is not None and threshold > environment.largest_reward:
            raise field_error(["profile", name], f"expected at most the largest reward of a step, "
                              f"{environment.largest_reward:g}, got {threshold:g}; no policy could ever reach it",
                              where, lines)


def _check_ceilings(written: ByConstruction, limits: Mapping[str, Any], environment: ControlledSystem) -> None:
    signals = {signal.name: signal for signal in environment.signals}
    for control in environment.controls:
        of, place = written.ceilings.get(control.name, {}), ["by_construction", "ceilings", control.name]
        for name, one in of.items():
            if one.start == one.end or not all(signals[name].low <= end <= signals[name].high
                                               for end in (one.start, one.end)):
                raise FieldError([*place, name], "expected start and end, not equal, inside of "
                                 f"{signals[name].low:g} to {signals[name].high:g} {signals[name].unit}, got "
                                 f"{one.start:g} and {one.end:g}")
        lines = [(one.start, one.end, one.at_most) for one in of.values()]
        if lines == [(control.high, control.low, control.low)] and control.name not in limits:
            continue  # the line on which both are equal: an allotment, which whoever says it may lower by any step
        left = control.high - sum(control.high - one.at_most for one in of.values())
        # in one step from wherever it is, or the limits of change would stand against it beside a live system
        least, most = limits.get(control.name, (control.low, control.high))
        reached = max(least, most * (1.0 - control.most_down))
        if of and not reached <= left <= control.high:
            raise FieldError(place, f"expected an `at_most`, of all ceilings together, from {reached:g}, which one "
                             f"step reaches from the largest value, to {control.high:g} {control.unit}, got {left:g}")


def _check_training(task: ControlTask, workload: str, where: str, lines: Lines | None) -> None:
    from models.tasks.control.experience import PARTS, log_folder  # they import torch
    from models.tasks.control.training import LEAST_AIM, method_settings, takes_experience

    method_settings(task, 1, LEAST_AIM, where, lines)
    folder, place = log_folder(task, workload), ("workloads", workload, "experience")
    if folder is None:
        return
    if not takes_experience(task):
        raise field_error(place, "expected a method that can learn from what others did, got "
                          f"{task.training.method}", where, lines)
    if not folder.is_absolute() or not any(part.is_file() for part in folder.glob(PARTS)):
        raise field_error(place, "expected the absolute path of a folder with a controller's log, got "
                          f"{task.workload(workload).experience!r}", where, lines)


def _check_by_construction(task: ControlTask, workload: str, environment: ControlledSystem) -> None:
    written = task.by_construction
    if written is None:
        return
    signals = {signal.name: signal for signal in environment.signals}
    controls = [control.name for control in environment.controls]
    place: list[str | int] = ["by_construction"]
    for name in ("metric", "objective") if written.metric else ():
        _known([*place, name], getattr(written, name), signals, "a signal")
    for name in written.monotone:
        _known([*place, "monotone", name], name, signals, "a signal")
    for part in ("idle", "hold", "enough", "ceilings"):
        for control, conditions in getattr(written, part).items():
            _known([*place, part, control], control, controls, "a control")
            for name in conditions:
                _known([*place, part, control, name], name, signals, "a signal")
    for part in ("retreat", "advance"):
        for control in getattr(written, part):
            _known([*place, part, control], control, controls, "a control")
    _check_steps(written, environment)
    _check_ceilings(written, task.workload(workload).limits, environment)
    for part, free_at, word in (("hold", Gates().held_until, "ends"), ("enough", Gates().held_from, "begins")):
        for control, conditions in getattr(written, part).items():
            for name, full in conditions.items():
                signal, (free, _) = signals[name], free_at(full)
                low, high = signal.low * max(1.0, full / free), signal.high * min(1.0, full / free)
                if not low <= full <= high:
                    raise FieldError([*place, part, control, name], f"expected {low:g} to {high:g} {signal.unit}, so "
                                     f"that it {word} inside of what can be observed, got {full:g}")


def _check_steps(written: ByConstruction, environment: ControlledSystem) -> None:
    """What is demanded of a step is within its limits."""
    for control in environment.controls:
        forced = (written.retreat.get(control.name, 0.0), written.advance.get(control.name, 0.0))
        limits = (control.most_up, control.most_down) if control.safe_side == "more" else (control.most_down,
                                                                                           control.most_up)
        for part, share, most in zip(("retreat", "advance"), forced, limits, strict=True):
            if share > most:
                raise FieldError(["by_construction", part, control.name], f"expected at most {most:g}, by which it may "
                                 f"change in a step, got {share:g}")


def _check_rule(task: ControlTask, workload: str, environment: ControlledSystem) -> None:
    own = task.workload(workload).fallback
    place: list[str | int] = ["fallback"] if own is None else ["workloads", workload, "fallback"]
    _known(place, task.fallback_of(workload), environment.rules, "a rule")


def _check_settings(place: list[str | int], given: Mapping[str, float | str], environment: ControlledSystem) -> None:
    declared = {setting.name: setting for setting in environment.settings}
    for name, value in given.items():
        _known([*place, name], name, declared, "a setting")
        setting = declared[name]
        if setting.choices and value not in setting.choices:
            raise FieldError([*place, name], f"expected one of {', '.join(setting.choices)}, got {value!r}")
        if not setting.choices and not (isinstance(value, float | int) and setting.low <= value <= setting.high):
            raise FieldError([*place, name], f"expected a number from {setting.low:g} to {setting.high:g} "
                                             f"{setting.unit}, got {value!r}")


def _check_limits(place: list[str | int], given: Mapping[str, Any], controls: tuple[Control, ...]) -> None:
    own = {control.name: control for control in controls}
    for name, (low, high) in given.items():
        _known([*place, name], name, own, "a control")
        control = own[name]
        if low < control.low or high > control.high:
            raise FieldError([*place, name], f"expected limits inside of {control.low:g} to {control.high:g} "
                                             f"{control.unit}, got [{low:g}, {high:g}]")
        if control.levels and not {low, high} <= {*control.levels}:
            levels = ", ".join(f"{one:g}" for one in control.levels)
            raise FieldError([*place, name], f"expected two of the levels {levels} {control.unit}, got [{low:g}, "
                                             f"{high:g}]")


def _known(place: list[str | int], name: str, known: Iterable[str], what: str) -> None:
    names = tuple(known)
    if name not in names:
        raise FieldError(place, f"expected {what} of the environment, got {name!r}; {nearest(name, names)}")
