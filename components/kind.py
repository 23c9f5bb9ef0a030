"""The task of a step, parsed once, and its kind."""

from typing import Any

from feature_store.strict_yaml import parse_yaml
from models.tasks.kind import Kind
from models.tasks.kinds import kind_of
from models.tasks.task import DEFAULT_KIND, parse_task


def task_and_kind(task_yaml: str) -> tuple[Any, Kind]:
    """Of a text of YAML. Raises InputError: a field is unknown, missing or of the wrong kind."""
    data = parse_yaml(task_yaml, "task", "task")
    task = parse_task(data, "task")
    return task, kind_of(data.get("kind", DEFAULT_KIND), "task")
