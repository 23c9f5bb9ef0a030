"""What may be written below `task` in a mapping of measurements. measurements_task.py makes a whole task of it."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from feature_store.written.field_errors import FieldError
from feature_store.written.fields import ColumnName, PositiveNumber, PositiveWholeNumber, TaskName, WorkloadName
from feature_store.written.model import ListOf, Written
from models.tasks.few_shot.settings import FewShot
from models.tasks.supervised.task import HIDDEN, LayerWidths
from models.training.settings import TrainingSettings

TRAINING = {"trunk_width": 64, "epochs": 100, "pretrain_epochs": 20}  # in place of TrainingSettings' defaults


class MeasurementsTask(Written):
    """What is wanted of the workloads of a file of measurements."""

    demand: dict[ColumnName, Literal["increasing", "decreasing"]] = Field(
        min_length=1, description="Numbers of the configuration (no products), and the direction that is wanted of the "
                                  "target")
    name: TaskName = Field(default="sizing", description="Names the gates in mlflow.yaml and the registered models")
    description: str | None = Field(default=None, description="What the task is, for reports; default: from the target")
    workloads: Annotated[ListOf[WorkloadName], Field(min_length=1)] | None = Field(
        default=None, description="The ones to adapt; `-w` overrules it. All others are the pool. Default: half of "
                                  "them are adapted, drawn by the seed")
    hidden: LayerWidths = Field(
        default=HIDDEN, json_schema_extra={"unit": "neurons"}, description="Widths of the hidden layers")
    few_shot: FewShot = Field(default=FewShot(), description="How a workload is learned from few runs")
    training: TrainingSettings = Field(
        default_factory=TrainingSettings,
        description="How the base learners are trained; other defaults than a task file's: "
                    + ", ".join(f"{name} {value}" for name, value in TRAINING.items()))
    by_policy: bool = Field(default=False, description="Demand the directions whatever the data say")
    minimum_rows: PositiveWholeNumber = Field(
        default=2, json_schema_extra={"unit": "rows"}, description="A workload with fewer runs is refused")
    accuracy_tolerance: PositiveNumber = Field(
        default=0.05, json_schema_extra={"unit": "scaled target"},
        description="A prediction this near counts as accurate (equation 2 of vPALs)")
    tolerance: float | None = Field(
        default=None, ge=0, description="Of the specification, see specification.md; default: the specification's")

    @model_validator(mode="after")
    def _the_pool_is_what_is_left(self) -> "MeasurementsTask":
        if self.few_shot.pool:
            raise FieldError(["few_shot", "pool"], "expected no pool (all workloads of the file that are not adapted "
                                                   f"are it), got {len(self.few_shot.pool)} workloads")
        return self
