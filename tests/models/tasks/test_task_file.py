"""The base of all task files: a kind adds its own fields, and gets names, lines and the common fields from it."""

from typing import Any

import pytest
from pydantic import Field

from feature_store.errors import InputError
from feature_store.strict_yaml import parse_located_yaml
from feature_store.written.model import Written, check_written
from models.tasks.task_file import TaskFile


class TableWorkload(Written):
    """What stands below a workload's name."""

    rows: int = Field(gt=0, description="Rows of its table")


class TableTask(TaskFile[TableWorkload]):
    """A task of a kind outside of the project."""

    step_s: float = Field(default=1.0, gt=0, description="Time between two decisions")


def read(text: str) -> TableTask:
    data, lines = parse_located_yaml(text, "task", "task.yaml")
    return check_written(TableTask, data, "task", "task.yaml", lines)


TEXT = "name: valve\nkind: my_package.tables\nworkloads:\n  a: {rows: 3}\n  b.c: {rows: 4}\n"


def test_a_kinds_own_fields_stand_beside_the_common_ones() -> None:
    task = read(TEXT + "step_s: 2\n")
    assert (task.name, task.kind, task.description, task.step_s) == ("valve", "my_package.tables", "", 2.0)
    assert list(task.workloads) == ["a", "b.c"] and task.workload("b.c").rows == 4


def test_an_unknown_workload_is_named_with_the_nearest() -> None:
    with pytest.raises(InputError, match=r"workload: expected one of task 'valve', got 'bc'; did you mean 'b\.c'"):
        read(TEXT).workload("bc")


@pytest.mark.parametrize(("old", "new", "message"), [
    ("rows: 4", "rows: 0", "workloads.b.c.rows: expected a whole number above 0, got 0 (task.yaml, line 5)"),
    ("rows: 3", "row: 3", "workloads.a.row: unknown field; did you mean 'rows'? (task.yaml, line 4), and 1 more"),
    ("kind: my_package.tables\n", "", "task: the field 'kind' is missing (task.yaml, line 1)"),
    ("name: valve", "name: a.b",
     "name: expected letters, digits, _ and -, at most 128 and no - in front, got 'a.b' (task.yaml, line 1)"),
    ("  a:", "  _a:", "workloads._a: expected letters, digits, _ and -, single dots inside, at most 128 and no _ or - "
                      "in front, got '_a' (task.yaml, line 4)"),
    ("name:", "step: 1\nname:", "step: unknown field; did you mean 'step_s'? (task.yaml, line 1)"),
])
def test_a_mistake_is_named_with_its_line(old: str, new: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read(TEXT.replace(old, new))
    assert str(caught.value) == message


@pytest.mark.parametrize("workloads", [{}, {5: {"rows": 1}}, None])
def test_there_is_a_workload_with_a_name(workloads: Any) -> None:
    with pytest.raises(InputError, match="workloads"):
        check_written(TableTask, {"name": "valve", "kind": "x.y", "workloads": workloads}, "task", "here")
