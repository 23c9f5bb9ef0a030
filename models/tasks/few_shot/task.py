"""The task file of few-shot tasks: a supervised one with `few_shot`, and an embedding among its model's inputs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from models.tasks.few_shot.settings import FewShot, parse_few_shot
from models.tasks.fields import located
from models.tasks.quantity import Quantity
from models.tasks.supervised.task import SupervisedTask, supervised_fields


@dataclass(frozen=True)
class FewShotTask(SupervisedTask):
    """few_shot: how a workload is learned from few runs (settings.py)."""

    few_shot: FewShot = field(default_factory=FewShot)

    def features(self, workload: str) -> tuple[Quantity, ...]:
        """Inputs of a workload's model: the configuration, and then the embedding of its runs."""
        embedding = tuple(Quantity(name, "sd of the pool", description="embedding of the workload's runs")
                          for name in self.few_shot.inputs)
        return self.measured_features(workload) + embedding


def parse_few_shot_task(data: Mapping[str, Any], where: str) -> FewShotTask:
    """From parsed YAML. Raises InputError: a field is unknown, missing or of the wrong kind."""
    values = supervised_fields(data, "few_shot", {"few_shot"}, where)
    values["few_shot"] = parse_few_shot(values.get("few_shot", {}), f"{where}: few_shot")
    with located(where):
        return FewShotTask(**values)
