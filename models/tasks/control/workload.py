"""The environment of a workload of a control task, and its specification."""

from pathlib import Path

from feature_store.strict_yaml import Lines
from feature_store.written.field_errors import FieldError, field_error
from models.control.contract.environment import Environment
from models.control.contract.systems import environment_of
from models.tasks.control.demands import demanded
from models.tasks.control.task import ControlTask
from models.tasks.control.telemetry import read_features
from models.verification.language.specification import Specification
from models.verification.language.specification_language import parse_specification


def twin_of(task: ControlTask, workload: str, features: Path) -> Environment:
    """The environment that replays the workload's load. Raises InputError as `ControlledSystem.twin`."""
    written = task.workload(workload)
    limits = {name: (low, high) for name, (low, high) in written.limits.items()}
    return environment_of(task.environment).twin(read_features(features, workload), written.settings, limits)


def numbers_of(task: ControlTask, workload: str) -> dict[str, float]:
    """Settings of a workload that are numbers, by name; the default of those that its file leaves out."""
    written = task.workload(workload).settings
    return {setting.name: value for setting in environment_of(task.environment).settings
            for value in [written.get(setting.name, setting.default)] if not isinstance(value, str)}


def limits_of(task: ControlTask, workload: str, environment: Environment) -> dict[str, tuple[float, float]]:
    """control -> (low, high): of the workload, within the environment's."""
    written = task.workload(workload).limits
    return {control.name: (max(low, control.low), min(high, control.high)) for control in environment.controls
            for low, high in [written.get(control.name, (control.low, control.high))]}


def specification_of(task: ControlTask, workload: str, environment: Environment, where: str = "task",
                     lines: Lines | None = None) -> Specification:
    """What is to be proved, in raw units; an input's box is all that can be observed, unless the task says another, and
    what is set at present is inside of the control's limits.

    Args:
        environment: the task's or the workload's.
        lines: of the task, where it was read from a file.

    Raises:
        InputError: as `parse_specification`, with the place.
    """
    written = task.workload(workload)
    own = bool(written.specification)
    place = ("workloads", workload, "specification") if own else ("specification",)
    units = {signal.name: signal.unit for signal in environment.signals}
    units |= {control.name: control.unit for control in environment.controls}
    observed = {signal.name: (signal.low, signal.high) for signal in environment.signals}
    limits = limits_of(task, workload, environment)
    for control in environment.controls:
        (low, high), (least, most) = observed[control.current], limits[control.name]
        observed[control.current] = (max(low, least), min(high, most))
    known = {f"{name}.low": low for name, (low, _) in limits.items()}
    known |= {f"{name}.high": high for name, (_, high) in limits.items()}
    try:
        demands = demanded(task.demanded(workload), numbers_of(task, workload) | known)
    except FieldError as error:
        raise field_error((*place, *error.path), str(error), where, lines) from error
    return parse_specification(
        demands, tuple(signal.name for signal in environment.signals), observed, f"{where}, workload {workload}",
        tuple(control.name for control in environment.controls), units, lines and lines.below(*place))
