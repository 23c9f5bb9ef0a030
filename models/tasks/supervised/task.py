"""The task file of kinds that learn from labelled rows.

It names the telemetry (inputs with units and physical bounds, target), the workloads with their configurable
properties, layer sizes and specification, how to split, and how to train.

Flow: the kinds' own parsers call `supervised_fields`; `features(workload)` fixes the order of the columns of a model's
input, everywhere.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from feature_store.errors import InputError, nearest
from feature_store.names import check_label, check_task_name, check_workload_name
from feature_store.schema import CONFIGURATION, METRICS, TARGETS, Column, TelemetrySchema
from models.tasks.fields import check_number, flag_at, mapping_at, names_at, refuse_unknown, widths_at
from models.tasks.quantity import Quantity, quantities_at
from models.training.settings import TrainingSettings, parse_training

REQUIRED = ("name", "target", "inputs", "workloads")
WORKLOAD_FIELDS = ("configuration", "hidden", "specification", "by_policy", "note", "refused")


@dataclass(frozen=True)
class WorkloadTask:
    """One workload of a task.

    Attributes:
        name: as in the telemetry.
        configuration: its configurable properties, inputs beside the task's.
        hidden: widths of the hidden layers.
        specification: as in YAML (docs/reference/specification.md).
        by_policy: the specification is wished for, whatever the data say of it.
        note: what a reader of its report should know of it.
        refused: why it must not be trained; "" where it may.
    """

    name: str
    configuration: tuple[Quantity, ...]
    hidden: tuple[int, ...]
    specification: Mapping[str, Any]
    by_policy: bool = False
    note: str = ""
    refused: str = ""


@dataclass(frozen=True)
class SupervisedTask:
    """A task that learns from labelled rows.

    Attributes:
        kind: name of its kind (models/tasks/kinds.py).
        split_by: columns that form the groups which no split may cut through.
        test_share: share of the groups that are not trained on, in (0, 1).
        accuracy_tolerance: equation 2 of vPALs, in units of the scaled target.
        minimum_rows: fewer rows of a workload are refused.
    """

    name: str
    kind: str
    description: str
    target: Quantity
    inputs: tuple[Quantity, ...]
    workloads: Mapping[str, WorkloadTask]
    split_by: tuple[str, ...] = ("environment", "window_start")
    test_share: float = 0.2
    accuracy_tolerance: float = 0.05
    minimum_rows: int = 100
    training: TrainingSettings = field(default_factory=TrainingSettings)

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
        check_number(self.test_share, "test_share", whole=False)
        if not self.test_share < 1:
            raise InputError(f"test_share must be below 1, got {self.test_share}")
        check_number(self.accuracy_tolerance, "accuracy_tolerance", whole=False)
        check_number(self.minimum_rows, "minimum_rows", whole=True)

    def workload(self, name: str) -> WorkloadTask:
        """The workload called `name`. Raises InputError with the nearest known name."""
        if name not in self.workloads:
            raise InputError(f"workload must be one of task {self.name!r}, got {name!r}; "
                             f"{nearest(name, self.workloads)}")
        return self.workloads[name]

    def features(self, workload: str) -> tuple[Quantity, ...]:
        """Inputs of a workload's model, in the order of its input columns."""
        return self.measured_features(workload)

    def measured_features(self, workload: str) -> tuple[Quantity, ...]:
        """Those of them that are measured or set."""
        return self.inputs + self.workload(workload).configuration

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


def supervised_fields(data: Mapping[str, Any], kind: str, more: set[str], where: str) -> dict[str, Any]:
    """The fields of a SupervisedTask out of parsed YAML.

    Args:
        data: the content of a task file.
        kind: name of the task's kind.
        more: names of further fields of that kind, which are left as they are.
        where: goes into error messages.

    Raises:
        InputError: a field is unknown, missing or of the wrong kind.
    """
    values = dict(data)
    refuse_unknown(values, set(SupervisedTask.__dataclass_fields__) | more, where)
    for key in REQUIRED:
        if key not in values:
            raise InputError(f"task must have the field {key!r} ({where})")
    (values["target"],) = quantities_at([values["target"]], TARGETS, f"{where}: target")
    values["inputs"] = quantities_at(values["inputs"], METRICS, f"{where}: inputs")
    values["workloads"] = {str(name): _workload(str(name), entry, f"{where}: workloads.{name}")
                           for name, entry in mapping_at(values["workloads"], f"{where}: workloads").items()}
    values["training"] = parse_training(values.get("training", {}), f"{where}: training")
    if "split_by" in values:
        values["split_by"] = names_at(values["split_by"], f"{where}: split_by")
    return {"description": "", **values, "kind": kind}


def _workload(name: str, entry: Any, where: str) -> WorkloadTask:
    entry = mapping_at(entry, where)
    refuse_unknown(entry, set(WORKLOAD_FIELDS), where)
    return WorkloadTask(
        name=name,
        configuration=quantities_at(entry.get("configuration", []), CONFIGURATION, f"{where}.configuration"),
        hidden=widths_at(entry.get("hidden", [64, 64]), f"{where}.hidden"),
        specification=mapping_at(entry.get("specification", {}), f"{where}.specification"),
        by_policy=flag_at(entry.get("by_policy", False), f"{where}.by_policy"),
        note=str(entry.get("note", "")),
        refused=str(entry.get("refused", "")),
    )
