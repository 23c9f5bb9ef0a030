"""A task: one declarative object that a YAML file describes completely; what all kinds of task have in common.

    name: performance        # names the gates (mlflow.yaml) and the registered models
    kind: prediction         # a folder beside this file, see kinds.py; default: prediction
    workloads: {...}         # what is trained, one model each
    ...                      # the kind's own fields

The kind's model (kind.py, `task_file`) reads the file, and is what it returns: the steps work with it.

Flow: read once by the command line (which workloads to fan out over) and once by each step.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from feature_store.errors import InputError, nearest
from feature_store.strict_yaml import Lines, parse_located_yaml, read_located_yaml
from feature_store.written.field_errors import at_line, line_of, value_text

DEFAULT_KIND = "prediction"
_ROOT = Path(__file__).resolve().parents[2]
SHIPPED = (_ROOT / "models" / "tasks", _ROOT / "systems")


def task_path(source: str | Path) -> Path:
    """The file of a task that is given by its name (a file in the folder of its kind, or of its system) or by a path.

    Raises:
        InputError: no task of that name.
    """
    path = Path(source)
    if path.suffix in (".yaml", ".yml"):
        return path
    shipped = {each.stem: each for folder in SHIPPED for each in folder.glob("*/*.yaml")}
    if str(source) not in shipped:
        raise InputError(f"task: expected the name of a shipped task or a path that ends in .yaml, "
                         f"got {str(source)!r}; {nearest(str(source), shipped)}")
    return shipped[str(source)]


def load_task(source: str | Path) -> Any:
    """Reads a task as `task_path` finds it.

    Raises:
        InputError: no such task, or a field is unknown, missing or of the wrong kind.
    """
    path = task_path(source)
    data, lines = read_located_yaml(path, "task file")
    return parse_task(data, str(path), lines)


def read_task(text: str) -> Any:
    """The task in a text of YAML: as it travels through the pipeline's steps. Raises InputError as `load_task`."""
    data, lines = parse_located_yaml(text, "task", "task")
    return parse_task(data, "task", lines)


def parse_task(data: Any, where: str, lines: Lines | None = None) -> Any:
    """Builds a task from parsed YAML, by the model of its kind.

    Args:
        data: the content of a task file.
        where: goes into error messages.
        lines: of the content, where it comes from a text.

    Raises:
        InputError: as `load_task`, or there is no such kind.
    """
    from feature_store.written.model import check_written
    from models.tasks.kinds import kind_of

    if not isinstance(data, Mapping):
        raise InputError(f"task: expected a mapping, got {value_text(data)} {at_line(where, line_of(lines, []))}")
    kind = kind_of(data.get("kind", DEFAULT_KIND), where, line_of(lines, ["kind"]))
    return check_written(kind.task_file, data, "task", where, lines)
