"""The task file of table controllers."""

from typing import Any

from pydantic import Field

from feature_store.written.model import ListOf, Written
from models.tasks.task_file import TaskFile

# What an operator sees, and what the operator's table says: the new limit, and how many replicas more or fewer.
INPUTS = {"p99_over_slo": "1", "utilization": "share", "limit_cores": "cores"}
OUTPUTS = {"new_limit_cores": "cores", "replica_change": "count"}


class TableWorkload(Written):
    """One workload."""

    specification: dict[str, Any] = Field(description="What is to be proved, see docs/reference/specification.md")


class TableControllerTask(TaskFile[TableWorkload]):
    """A task file: the fields of every task, and these."""

    knots: ListOf[float] = Field(description="Where the pieces of the controller meet, in p99_over_slo")
    episodes: int = Field(default=100, gt=0, description="Episodes that a controller is judged by")
    verify_seconds: float = Field(default=20.0, gt=0, description="Limit of the proof")
