"""The task file of table controllers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from feature_store.written.model import ListOf, Written, check_written

# What an operator sees, and what the operator's table says: the new limit, and how many replicas more or fewer.
INPUTS = {"p99_over_slo": "1", "utilization": "share", "limit_cores": "cores"}
OUTPUTS = {"new_limit_cores": "cores", "replica_change": "count"}


class WorkloadFields(Written):
    """One workload."""

    specification: dict[str, Any] = Field(description="What is to be proved, see docs/reference/specification.md.")


class TableControllerFile(Written):
    """The content of a task file."""

    name: str = Field(description="Names the gates and the models.")
    kind: str = Field(description="The import path of this package.")
    description: str = Field("", description="For people.")
    knots: ListOf[float] = Field(description="Places of the piecewise linear pieces, of p99_over_slo.")
    episodes: int = Field(100, gt=0, description="Episodes that a controller is judged by.")
    verify_seconds: float = Field(20.0, gt=0, description="Limit of the proof.")
    workloads: dict[str, WorkloadFields] = Field(description="By name.", min_length=1)


@dataclass(frozen=True)
class TableControllerTask:
    """As the stages use it."""

    name: str
    kind: str
    knots: tuple[float, ...]
    episodes: int
    verify_seconds: float
    workloads: Mapping[str, Mapping[str, Any]]


def read_task(data: Mapping[str, Any], where: str) -> TableControllerTask:
    """From the values of a task file. Raises InputError."""
    file = check_written(TableControllerFile, dict(data), "task", where)
    return TableControllerTask(file.name, file.kind, file.knots, file.episodes, file.verify_seconds,
                               {name: entry.specification for name, entry in file.workloads.items()})
