"""A task: one declarative object that a YAML file describes completely; what all kinds of task have in common.

    name: performance        # names the gates (mlflow.yaml) and the registered models
    kind: prediction         # a folder beside this file, see kinds.py; default: prediction
    workloads: {...}         # what is trained, one model each
    ...                      # the kind's own fields

Flow: read once by the command line (which workloads to fan out over) and once by each step.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from feature_store.errors import InputError, nearest
from feature_store.strict_yaml import parse_yaml, read_yaml
from models.tasks.fields import mapping_at

DEFAULT_KIND = "prediction"


class Task(Protocol):
    """What the pipeline knows of a task: its name and kind, and the names of its workloads."""

    @property
    def name(self) -> str:
        """Names the gates and the registered models."""

    @property
    def kind(self) -> str:
        """Name of its kind, see kinds.py."""

    @property
    def workloads(self) -> Mapping[str, Any]:
        """What is trained, by name; the values are the kind's."""


def task_path(source: str | Path) -> Path:
    """The file of a task that is given by its name (a file in the folder of its kind) or by a path.

    Raises:
        InputError: no task of that name.
    """
    path = Path(source)
    if path.suffix in (".yaml", ".yml"):
        return path
    shipped = {each.stem: each for each in Path(__file__).parent.glob("*/*.yaml")}
    if str(source) not in shipped:
        raise InputError(f"task: expected the name of a file in models/tasks or a path that ends in .yaml, "
                         f"got {str(source)!r}; {nearest(str(source), shipped)}")
    return shipped[str(source)]


def load_task(source: str | Path) -> Any:
    """Reads a task as `task_path` finds it.

    Raises:
        InputError: no such task, or a field is unknown, missing or of the wrong kind.
    """
    path = task_path(source)
    return parse_task(read_yaml(path, "task file"), where=str(path))


def read_task(text: str) -> Any:
    """The task in a text of YAML: as it travels through the pipeline's steps. Raises InputError as `load_task`."""
    return parse_task(parse_yaml(text, "task", "task"), "task")


def parse_task(data: Any, where: str) -> Any:
    """Builds a task from parsed YAML, by the parser of its kind.

    Args:
        data: the content of a task file.
        where: goes into error messages.

    Raises:
        InputError: as `load_task`, or there is no such kind.
    """
    from models.tasks.kinds import kind_of

    content = mapping_at(data, where)
    return kind_of(content.get("kind", DEFAULT_KIND), where).parse(content, where)
