"""The task file of kinds that learn from labelled rows.

It names the telemetry (inputs with units and physical bounds, target), the workloads with their configurable
properties, layer sizes and specification, how to split, and how to train.

Flow: the kinds' own models derive from `SupervisedTask`; `features(workload)` fixes the order of the columns of a
model's input, everywhere.
"""

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import Field, model_validator

from feature_store.schema import Column, TelemetrySchema
from feature_store.written.field_errors import FieldError
from feature_store.written.fields import PositiveNumber, PositiveWholeNumber, Text
from feature_store.written.model import ListOf, Written
from models.tasks.quantity import ConfigurableProperty, Metric, Quantity, Target
from models.tasks.task_file import TaskFile
from models.training.settings import TrainingSettings

LayerWidths = Annotated[ListOf[PositiveWholeNumber], Field(min_length=1)]
HIDDEN = (64, 64)  # where a task does not say


class WorkloadTask(Written):
    """One workload of a task."""

    configuration: ListOf[ConfigurableProperty] = Field(
        default=(), description="Its configurable properties, inputs beside the task's")
    hidden: LayerWidths = Field(
        default=HIDDEN, json_schema_extra={"unit": "neurons"}, description="Widths of the hidden layers")
    specification: dict[str, Any] = Field(
        default_factory=dict, description="What is to be proved, see specification.md")
    physical_range: bool = Field(
        default=True, description="Answers are held within the target's `minimum` and `maximum`, which is proved")
    by_policy: bool = Field(
        default=False, description="The specification is wished for, whatever the data say of it")
    note: str = Field(default="", description="What a reader of its report should know of it")
    refused: str = Field(default="", description="Why it must not be trained; empty where it may")


class SupervisedTask(TaskFile[WorkloadTask]):
    """A task that learns from labelled rows."""

    target: Target = Field(description="What is predicted: a column of the schema, or a mapping that describes one")
    inputs: ListOf[Metric] = Field(
        description="What all workloads' models are fed: columns of the schema, or mappings that describe one")
    split_by: Annotated[ListOf[Text], Field(min_length=1)] = Field(
        default=("environment", "window_start"),
        description="Columns that form the groups which no split may cut through")
    test_share: float = Field(
        default=0.2, gt=0, lt=1, json_schema_extra={"unit": "share of the groups"}, description="Held out of training")
    accuracy_tolerance: PositiveNumber = Field(
        default=0.05, json_schema_extra={"unit": "scaled target"},
        description="A prediction this near counts as accurate (equation 2 of vPALs)")
    minimum_rows: PositiveWholeNumber = Field(
        default=100, json_schema_extra={"unit": "rows"}, description="A workload with fewer rows is refused")
    training: TrainingSettings = Field(default=TrainingSettings(), description="How the base learners are trained")

    @model_validator(mode="after")
    def _columns_are_distinct(self) -> "SupervisedTask":
        for name in self.workloads:
            features = self.features(name)
            if not features:
                raise FieldError(["workloads", name], "expected `inputs` of the task or a `configuration`, got neither")
            written = list(self._places(name))
            taken = {self.target.name, *(quantity.name for quantity in features[len(written):])}
            for place, quantity in written:
                if quantity.name in taken:
                    raise FieldError(place, f"expected a name that no other column has, got {quantity.name!r}")
                taken.add(quantity.name)
        return self

    def features(self, workload: str) -> tuple[Quantity, ...]:
        """Inputs of a workload's model, in the order of its input columns: the measured ones come first."""
        return self.measured_features(workload)

    def measured_features(self, workload: str) -> tuple[Quantity, ...]:
        """Those of them that are measured or set."""
        return self.inputs + self.workload(workload).configuration

    def physical_range(self, workload: str) -> tuple[float | None, float | None]:
        """What the workload's answers are held within, raw units: what its target can be; None: no end on that side."""
        held = self.workload(workload).physical_range
        return (self.target.minimum, self.target.maximum) if held else (None, None)

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

    def _places(self, workload: str) -> Iterator[tuple[list[str | int], Quantity]]:
        """`measured_features` with the place of each in the file."""
        for number, quantity in enumerate(self.inputs):
            yield ["inputs", number], quantity
        for number, quantity in enumerate(self.workload(workload).configuration):
            yield ["workloads", workload, "configuration", number], quantity
