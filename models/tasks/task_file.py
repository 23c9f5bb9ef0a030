"""What all task files have in common. A task is what its file says: the model that reads the file is the task.

    class TableWorkload(Written):                  # what stands below a workload's name
        rows: int = Field(gt=0, description="Rows of its table")

    class TableTask(TaskFile[TableWorkload]):      # name, kind, description, workloads; and what else the kind needs
        step_s: float = Field(default=1.0, gt=0, description="Time between two decisions")

The kind names its model (kind.py, `task_file`); `parse_task` (task.py) reads files with it, and the JSON Schema and the
field table are made of it. Rules beyond a field's type are validators, see feature_store/written/model.py.
"""

from typing import Generic, TypeVar

from pydantic import Field

from feature_store.errors import InputError, nearest
from feature_store.written.fields import TaskName, WorkloadName
from feature_store.written.model import Written

Workload = TypeVar("Workload", bound=Written)


class TaskFile(Written, Generic[Workload]):
    """The fields that the pipeline knows; the kind's own model derives from it, with its model of a workload."""

    name: TaskName = Field(description="Names the gates in mlflow.yaml and the registered models")
    kind: str = Field(description="Kind of task: a folder of models/tasks, or the import path of a package")
    description: str = Field(default="", description="What the task is, for reports")
    workloads: dict[WorkloadName, Workload] = Field(
        min_length=1, description="What is trained, one model each, by the names that the telemetry has")

    def workload(self, name: str) -> Workload:
        """The workload called `name`. Raises InputError with the nearest known name."""
        if name not in self.workloads:
            raise InputError(f"workload: expected one of task {self.name!r}, got {name!r}; "
                             f"{nearest(name, self.workloads)}")
        return self.workloads[name]
