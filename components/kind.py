"""The task of a step, parsed once, and its kind."""

from typing import Any

from models.tasks.kind import Kind
from models.tasks.kinds import kind_of
from models.tasks.task import read_task


def task_and_kind(task_yaml: str) -> tuple[Any, Kind]:
    """Of a text of YAML. Raises InputError: a field is unknown, missing or of the wrong kind."""
    task = read_task(task_yaml)
    return task, kind_of(task.kind, "task")
