"""The task file of predictions."""

from typing import Literal

from pydantic import Field

from models.tasks.supervised.task import SupervisedTask


class PredictionTask(SupervisedTask):
    """A supervised task without further fields."""

    kind: Literal["prediction"] = Field(default="prediction", description="Kind of task")
