"""The task file of few-shot tasks: a supervised one with `few_shot`, and an embedding among its model's inputs."""

from dataclasses import replace
from typing import Literal

from pydantic import Field

from feature_store.schema import TelemetrySchema
from models.tasks.few_shot.settings import FewShot
from models.tasks.quantity import Quantity
from models.tasks.supervised.task import SupervisedTask


class FewShotTask(SupervisedTask):
    """A supervised task whose workloads are learned from few runs."""

    kind: Literal["few_shot"] = Field(description="Kind of task")
    few_shot: FewShot = Field(default=FewShot(), description="How a workload is learned from few runs")

    def features(self, workload: str) -> tuple[Quantity, ...]:
        """Inputs of a workload's model: the configuration, and then the embedding of its runs."""
        embedding = tuple(Quantity(name=name, unit="sd of the pool", description="embedding of the workload's runs")
                          for name in self.few_shot.inputs)
        return self.measured_features(workload) + embedding

    def telemetry_schema(self, workload: str) -> TelemetrySchema:
        """A row a run: equal ones are runs that took equally long."""
        return replace(super().telemetry_schema(workload), repeats_count=True)
