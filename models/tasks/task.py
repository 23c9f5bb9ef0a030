"""A task: one declarative object a YAML file in this folder describes completely.

It names the telemetry (inputs with units and physical bounds, target), the workloads with their
configurable properties, layer sizes and specification, how to split, and how to train. Adding a
learned performance predictor is adding one such file; gate thresholds stand in mlflow.yaml.

Flow: read by pipelines/ (which workloads to fan out over) and by every component; `features(workload)`
fixes the order of the columns of a model's input, everywhere.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from feature_store.errors import InputError, nearest
from feature_store.names import check_label, check_task_name, check_workload_name
from feature_store.schema import CONFIGURATION, METRICS, TARGETS, Column, TelemetrySchema
from feature_store.strict_yaml import parse_yaml, read_yaml
from models.tasks.few_shot.settings import FewShot, parse_few_shot


@dataclass(frozen=True)
class Quantity:
    """A named measured quantity with its unit and the bounds physics gives it (None: unbounded)."""

    name: str
    unit: str
    minimum: float | None = None
    maximum: float | None = None
    description: str = ""


@dataclass(frozen=True)
class TrainingSettings:
    """How a base learner is trained: Adam and mean squared error, vPALs, section "DNN Training"."""

    method: str = "monotone"
    learning_rate: float = 2e-3
    batch_size: int = 64
    epochs: int = 150
    pretrain_epochs: int = 30
    trunk_width: int = 300
    iterations: int = 20  # limit of the train-verify loop after the planned epochs (Algorithm 1, epsilon)
    epochs_per_iteration: int = 10
    counterexamples_per_iteration: int = 256
    hinge_margin: float = 2e-3  # by how much a counterexample pair shall be ordered, scaled target units
    certified_weight: float = 10.0  # of the certified loss beside the mean squared error, at full ramp
    certified_margin: float = 5e-3  # slope that it asks for, scaled units
    certified_boxes: int = 4  # boxes bounded in a step of it
    loop_verify_seconds: float = 15.0
    verify_seconds: float = 60.0  # budget of the final proof

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise InputError(f"training method must be one of {', '.join(METHODS)}, got {self.method!r}; "
                             + nearest(str(self.method), METHODS))
        for entry in fields(self):
            if entry.name != "method":
                _check_number(getattr(self, entry.name), entry.name, entry.type is int, entry.name in _MAY_BE_ZERO)


METHODS = ("plain", "counterexample_guided", "monotone", "certified", "certified_guided")
_MAY_BE_ZERO = ("pretrain_epochs", "iterations", "hinge_margin", "certified_margin")


@dataclass(frozen=True)
class WorkloadTask:
    """One workload of a task: its configurable properties, hidden layer widths and specification (as in YAML).

    by_policy: the specification is wished for, whatever the data say of it. note: what a reader of its report should
    know of it. refused: why it must not be trained; "" where it may.
    """

    name: str
    configuration: tuple[Quantity, ...]
    hidden: tuple[int, ...]
    specification: Mapping[str, Any]
    by_policy: bool = False
    note: str = ""
    refused: str = ""


@dataclass(frozen=True)
class Task:
    """See the module docstring. `split_by` columns form the groups that no split may cut through.

    few_shot: how a workload is learned from few runs (few_shot.py); None: from telemetry of its own.
    """

    name: str
    description: str
    target: Quantity
    inputs: tuple[Quantity, ...]
    workloads: Mapping[str, WorkloadTask]
    split_by: tuple[str, ...] = ("environment", "window_start")
    test_share: float = 0.2
    accuracy_tolerance: float = 0.05  # equation 2 of vPALs, in units of the scaled target
    minimum_rows: int = 100
    training: TrainingSettings = field(default_factory=TrainingSettings)
    few_shot: FewShot | None = None

    def __post_init__(self) -> None:
        check_task_name(self.name, "name")
        if not self.workloads:
            raise InputError("task must have at least one workload, got none")
        for name in self.workloads:
            check_workload_name(name, "workloads")
            for quantity in (*self.features(name), self.target):
                check_label(quantity.name, "name of a column", f"workloads.{name}")
                check_label(quantity.unit, "unit of a column", f"workloads.{name}", empty=True)
            columns = [quantity.name for quantity in (*self.features(name), self.target)]
            if len(columns) < 2 or len(set(columns)) < len(columns):
                raise InputError(f"workload must have inputs, and all columns must be distinct, got {columns} "
                                 f"(workloads.{name})")
        _check_number(self.test_share, "test_share", whole=False)
        if not self.test_share < 1:
            raise InputError(f"test_share must be below 1, got {self.test_share}")
        _check_number(self.accuracy_tolerance, "accuracy_tolerance", whole=False)
        _check_number(self.minimum_rows, "minimum_rows", whole=True)

    def workload(self, name: str) -> WorkloadTask:
        """The workload called `name`. Raises InputError with the nearest known name."""
        if name not in self.workloads:
            raise InputError(f"workload must be one of task {self.name!r}, got {name!r}; "
                             f"{nearest(name, self.workloads)}")
        return self.workloads[name]

    def features(self, workload: str) -> tuple[Quantity, ...]:
        """Inputs of a workload's model, in the order of its input columns."""
        return self.measured_features(workload) + self._embedding()

    def measured_features(self, workload: str) -> tuple[Quantity, ...]:
        """Those of them that are measured or set: all but the embedding."""
        return self.inputs + self.workload(workload).configuration

    def _embedding(self) -> tuple[Quantity, ...]:
        names = self.few_shot.inputs if self.few_shot else ()
        return tuple(Quantity(name, "sd of the pool", description="embedding of the workload's runs")
                     for name in names)

    def telemetry_schema(self, workload: str) -> TelemetrySchema:
        """The columns that this workload's rows must have, for expectations and features."""
        def column(quantity: Quantity) -> Column:
            return Column(quantity.unit, quantity.minimum, quantity.maximum, quantity.description)

        return TelemetrySchema(
            workload=workload,
            features={q.name: column(q) for q in self.measured_features(workload)},
            target={self.target.name: column(self.target)},
            split_by=self.split_by,
            minimum_rows=self.minimum_rows,
        )


def task_path(source: str | Path) -> Path:
    """The file of a task that is given by its name (a file in one of the folders beside this one) or by a path.

    Raises:
        InputError: no task of that name.
    """
    path = Path(source)
    if path.suffix in (".yaml", ".yml"):
        return path
    shipped = {each.stem: each for each in Path(__file__).parent.glob("*/*.yaml")}
    if str(source) not in shipped:
        raise InputError(f"task must be the name of a file in models/tasks or a YAML path, got {str(source)!r}; "
                         + nearest(str(source), shipped))
    return shipped[str(source)]


def load_task(source: str | Path) -> Task:
    """Reads a task as `task_path` finds it.

    Raises:
        InputError: no such task, or a field is unknown, missing or of the wrong kind.
    """
    path = task_path(source)
    return parse_task(read_yaml(path, "task file"), where=str(path))


def read_task(text: str) -> Task:
    """The task in a text of YAML: as it travels through the pipeline's steps. Raises InputError as `load_task`."""
    return parse_task(parse_yaml(text, "task", "task"), "task")


def parse_task(data: Any, where: str) -> Task:
    """Builds a Task from parsed YAML; `where` goes into error messages."""
    data = dict(_mapping(data, where))
    _known(data, {f.name for f in fields(Task)}, where)
    for key in ("name", "target", "inputs", "workloads"):
        if key not in data:
            raise InputError(f"task must have the field {key!r} ({where})")
    workloads = {}
    for name, entry in _mapping(data.pop("workloads"), f"{where}: workloads").items():
        place = f"{where}: workloads.{name}"
        entry = dict(_mapping(entry, place))
        _known(entry, {f.name for f in fields(WorkloadTask)} - {"name"}, place)
        workloads[str(name)] = WorkloadTask(
            name=str(name),
            configuration=_quantities(entry.get("configuration", []), CONFIGURATION, f"{place}.configuration"),
            hidden=_widths(entry.get("hidden", [64, 64]), f"{place}.hidden"),
            specification=_mapping(entry.get("specification", {}), f"{place}.specification"),
            by_policy=_flag(entry.get("by_policy", False), f"{place}.by_policy"),
            note=str(entry.get("note", "")),
            refused=str(entry.get("refused", "")),
        )
    training = dict(_mapping(data.pop("training", {}), f"{where}: training"))
    _known(training, {f.name for f in fields(TrainingSettings)}, f"{where}: training")
    (target,) = _quantities([data.pop("target")], TARGETS, f"{where}: target")
    inputs = _quantities(data.pop("inputs"), METRICS, f"{where}: inputs")
    if data.get("few_shot") is not None:
        data["few_shot"] = parse_few_shot(data["few_shot"], f"{where}: few_shot")
    if "split_by" in data:
        data["split_by"] = _names(data["split_by"], f"{where}: split_by")
    try:
        return Task(target=target, inputs=inputs, workloads=workloads, training=TrainingSettings(**training),
                    **{"description": "", **data})
    except InputError as error:
        raise InputError(f"{error} ({where})") from error


def _quantities(entries: Any, known: Mapping[str, Column], where: str) -> tuple[Quantity, ...]:
    """A list of names (of the canonical schema) or of mappings with name, unit, minimum, maximum, description."""
    if not isinstance(entries, list):
        raise InputError(f"a list of columns must stand here, got {entries!r} ({where})")
    quantities = []
    for entry in entries:
        if isinstance(entry, str):
            if entry not in known:
                raise InputError(f"column must be in the schema or be described by a mapping, got {entry!r} "
                                 f"({where}); {nearest(entry, known)}")
            column = known[entry]
            quantities.append(Quantity(entry, column.unit, column.minimum, column.maximum, column.description))
        else:
            entry = _mapping(entry, where)
            _known(entry, {f.name for f in fields(Quantity)}, where)
            if "name" not in entry or "unit" not in entry:
                raise InputError(f"column must have a name and a unit, got {entry!r} ({where})")
            quantities.append(Quantity(**entry))
            for key in ("minimum", "maximum"):
                value = entry.get(key)
                if value is not None and not _is_number(value):
                    raise InputError(f"{key} must be a number, got {value!r} ({where}: {entry['name']})")
    names = [quantity.name for quantity in quantities]
    if len(set(names)) < len(names):
        raise InputError(f"columns must be distinct, got {names} ({where})")
    return tuple(quantities)


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InputError(f"a mapping must stand here, got {value!r} ({where})")
    return value


def _flag(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise InputError(f"true or false must stand here, got {value!r} ({where})")
    return value


def _names(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(name, str) for name in value):
        raise InputError(f"a list of column names must stand here, got {value!r} ({where})")
    return tuple(value)


def _widths(value: Any, where: str) -> tuple[int, ...]:
    if not isinstance(value, list) or not value:
        raise InputError(f"a list of layer widths must stand here, got {value!r} ({where})")
    for width in value:
        _check_number(width, f"width of a layer ({where})", whole=True)
    return tuple(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _check_number(value: Any, what: str, whole: bool, zero: bool = False) -> None:
    kind = "a whole number" if whole else "a number"
    if not _is_number(value) or (whole and not isinstance(value, int)) or value < 0 or (value == 0 and not zero):
        hint = "; YAML reads 2e-3 as text, write 2.0e-3" if isinstance(value, str) and "e" in value else ""
        raise InputError(f"{what} must be {kind} {'from' if zero else 'above'} 0, got {value!r}{hint}")


def _known(data: Mapping[str, Any], known: set[str], where: str) -> None:
    for key in data:
        if key not in known:
            raise InputError(f"field must be known, got {key!r} ({where}); {nearest(str(key), known)}")
