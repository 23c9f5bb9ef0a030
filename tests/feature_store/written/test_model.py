"""What people write: what is meant is read, and what is not is one line that says what, where and what instead."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field, model_validator

from feature_store.errors import InputError
from feature_store.strict_yaml import parse_located_yaml
from feature_store.written.field_errors import FieldError
from feature_store.written.fields import ColumnName, TaskName, Unit, WorkloadName
from feature_store.written.model import ListOf, Written, check_written, parse_written, read_written


class Column(Written):
    name: str
    unit: str = ""
    minimum: float | None = None
    values: dict[str, float] | ListOf[float] | None = None


class Workload(Written):
    hidden: Annotated[ListOf[Annotated[int, Field(gt=0)]], Field(min_length=1)]
    share: float = Field(0.2, gt=0, lt=1)
    method: Literal["plain", "monotone"] = "monotone"
    box: Annotated[ListOf[float], Field(min_length=2, max_length=2, json_schema_extra={"expected": "[lower, upper]"})] \
        = (0.0, 1.0)
    columns: ListOf[str | Column] = ()
    by_policy: bool = False


class Document(Written):
    name: str = Field(min_length=1)
    workloads: dict[str, Workload]
    trials: Annotated[int, Field(ge=0)] | Literal["auto"] = "auto"
    limits: dict[str, float] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _consistent(self) -> "Document":
        if self.name == "twice":
            raise ValueError("expected a name that is new, got 'twice'")
        for name, workload in self.workloads.items():
            for number, width in enumerate(workload.hidden):
                if width == 13:
                    raise FieldError(["workloads", name, "hidden", number], "expected another width, got 13")
        return self


GOOD = """\
name: demo
workloads:
  nginx:
    hidden: [64, 32]
    columns:
      - psi
      - {name: load, minimum: 1}
"""


def test_what_is_meant_is_read(tmp_path: Path) -> None:
    (tmp_path / "d.yaml").write_text(GOOD)
    for document in (read_written(Document, tmp_path / "d.yaml", "file"), parse_written(Document, GOOD, "file", "here"),
                     check_written(Document, parse_written(Document, GOOD, "f", "h").model_dump(
                         exclude_none=True), "file", "code")):
        workload = document.workloads["nginx"]
        assert workload.hidden == (64, 32) and workload.share == 0.2
        assert workload.columns == ("psi", Column(name="load", minimum=1.0))


def in_workload(line: str) -> str:
    return f"name: demo\nworkloads:\n  nginx:\n    hidden: [1]\n{line}\n"


@pytest.mark.parametrize(("text", "message"), [
    ("", "file: expected a mapping, got nothing (here, line 1)"),
    ("3", "file: expected a mapping, got 3 (here, line 1)"),
    ("\n\n- 1\n- 2", "file: expected a mapping, got [1, 2] (here, line 3)"),
    ("name: demo", "file: the field 'workloads' is missing (here, line 1)"),
    ("name: ''\nworkloads: {}", "name: expected a text that is not empty, got '' (here, line 1)"),
    ("name: 3\nworkloads: {}", "name: expected a text that is not empty, got 3; write it in "
     "quotes (here, line 1)"),
    ("name:\nworkloads: {}", "name: expected a text that is not empty, got nothing (here, line 1)"),
    ("name: true\nworkloads: {}", "name: expected a text that is not empty, got true; write "
     "it in quotes (here, line 1)"),
    ("workloads: {}\nnmae: demo\nname: d", "nmae: unknown field; did you mean 'name'? (here, line 2)"),
    ("name: d\nworkloads: [a]", "workloads: expected a mapping, got ['a'] (here, line 2)"),
    ("name: d\nworkloads:\n  3: {hidden: [1]}", "workloads[3]: expected a text as a name, got 3; write it in "
     "quotes (here, line 3)"),
    ("name: d\nworkloads:\n  nginx:\n    share: 0.5",
     "workloads.nginx: the field 'hidden' is missing (here, line 3)"),
    ("name: demo\nworkloads:\n  nginx:\n    hidden:\n      - x",
     "workloads.nginx.hidden[0]: expected a whole number above 0, got 'x' (here, line 5)"),
    ("name: demo\nworkloads:\n  nginx:\n    hidden:\n      []",
     "workloads.nginx.hidden: expected a list of at least 1 entry, got [] (here, line 4)"),
    *((in_workload(f"    {line}"), f"workloads.nginx.{rest} (here, line 5)") for line, rest in (
        ("share: 1", "share: expected a number above 0 and below 1, got 1"),
        ("share: true", "share: expected a number above 0 and below 1, got true"),
        ("share: .nan", "share: expected a number above 0 and below 1, got nan"),
        ("share: 2e-3", "share: expected a number above 0 and below 1, got '2e-3'; YAML reads 2e-3 as text, write "
                        "2.0e-3"),
        ("share: '0.5'", "share: expected a number above 0 and below 1, got '0.5'; write it without quotes"),
        ("share: 2020-01-02", "share: expected a number above 0 and below 1, got 2020-01-02"),
        ("method: plan", "method: expected plain or monotone, got 'plan'; did you mean 'plain'?"),
        ("method: 3", "method: expected plain or monotone, got 3"),
        ("box: 3", "box: expected [lower, upper], got 3"),
        ("box: [1]", "box: expected [lower, upper], got [1]"),
        ("box: [1, 2, 3]", "box: expected [lower, upper], got [1, 2, 3]"),
        ("box: [1, x]", "box[1]: expected a number, got 'x'"),
        ("box: {1: 2, 3: 4}", "box: expected [lower, upper], got {1: 2, 3: 4}"),
        ("by_policy: 1", "by_policy: expected true or false, got 1"),
        ("by_policy: 'yes'", "by_policy: expected true or false, got 'yes'"),
        ("hiden: 1", "hiden: unknown field; did you mean 'hidden'?"),
        ("columns: [3]", "columns[0]: expected a text or a mapping, got 3"),
        ("columns: [psi, {unit: ms}]", "columns[1]: the field 'name' is missing"),
        ("columns: [{name: a, uint: ms}]", "columns[0].uint: unknown field; did you mean 'unit'?"),
        ("columns: [{name: 2}]", "columns[0].name: expected a text, got 2; write it in quotes"),
        ("columns: [{name: a, minimum: }]", "columns[0].minimum: expected a number, got nothing; leave the field out"),
        ("columns: [{name: a, values: }]", "columns[0].values: expected a mapping or a list, got nothing; leave the "
                                           "field out"),
        ("columns: [{name: a, minimum: '1'}]", "columns[0].minimum: expected a number, got '1'; write it without "
                                               "quotes"),
    )),
    ("name: d\nworkloads: {}\ntrials: -1", "trials: expected a whole number from 0 or auto, got -1 (here, line 3)"),
    ("name: d\nworkloads: {}\ntrials: aut",
     "trials: expected a whole number from 0 or auto, got 'aut'; did you mean 'auto'? (here, line 3)"),
    ("name: d\nworkloads: {}\nlimits: {a: x}", "limits.a: expected a number, got 'x' (here, line 3)"),
    ("name: d\nworkloads: {}\nlimits: {a: " + "9" * 400 + "}",
     "limits.a: expected a number, got a number of more than 77 digits (here, line 3)"),
    ("name: twice\nworkloads: {}", "file: expected a name that is new, got 'twice' (here, line 1)"),
    ("name: d\nworkloads:\n  a: {hidden: [1]}\n  b:\n    hidden:\n    - 1\n    - 13",
     "workloads.b.hidden[1]: expected another width, got 13 (here, line 7)"),
    ("name: d\nworkloads:\n  b: {hidden: [x]}\n  a: {hidden: [y, z], hiden: 1}",
     "workloads.b.hidden[0]: expected a whole number above 0, got 'x' (here, line 3), and 3 more"),
    ("name: d\nworkloads: {}\nname: e", "key must be given once, got 'name' twice (here, line 3)"),
])
def test_a_mistake_is_one_line(text: str, message: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_written(Document, text, "file", "here")
    assert str(refused.value) == message


def test_a_mistake_in_a_file_names_it(tmp_path: Path) -> None:
    path = tmp_path / "d.yaml"
    path.write_text("name: d\nworkloads: 3\n")
    with pytest.raises(InputError) as refused:
        read_written(Document, path, "file")
    assert str(refused.value) == f"workloads: expected a mapping, got 3 ({path}, line 2)"
    with pytest.raises(InputError, match="file must be a readable file"):
        read_written(Document, tmp_path / "none.yaml", "file")


def test_values_without_lines_are_read_too() -> None:
    data = json.loads('{"name": "d", "workloads": {"a": {"hidden": ["x"]}}}')
    with pytest.raises(InputError) as refused:
        check_written(Document, data, "request", "server")
    assert str(refused.value) == "workloads.a.hidden[0]: expected a whole number above 0, got 'x' (server)"


def test_a_part_of_a_document_is_read_with_its_lines() -> None:
    data, lines = parse_located_yaml("a: 1\ntask:\n  name: d\n  workloads: 3\n", "file", "here")
    with pytest.raises(InputError) as refused:
        check_written(Document, data["task"], "task", "here: task", lines.below("task"))
    assert str(refused.value) == "workloads: expected a mapping, got 3 (here: task, line 4)"


def test_lines_follow_aliases_and_merged_keys() -> None:
    text = "name: d\nworkloads:\n  a: &a\n    hidden: [1]\n    share: 2.5\n  b:\n    <<: *a\n    hidden: [2]\n"
    with pytest.raises(InputError) as refused:
        parse_written(Document, text, "file", "here")
    assert str(refused.value) == ("workloads.a.share: expected a number above 0 and below 1, got 2.5 (here, line 5), "
                                  "and 1 more")


class Named(Written):
    task: TaskName = "t"
    workload: WorkloadName = "w"
    column: ColumnName = "c"
    unit: Unit = ""
    by_name: dict[WorkloadName, int] = Field(default_factory=dict)


@pytest.mark.parametrize(("text", "message"), [
    ("task: a.b", "task: expected letters, digits, _ and -, at most 128 and no - in front, got 'a.b' (here, line 1)"),
    ("workload: ../x", "workload: expected letters, digits, _ and -, single dots inside, at most 128 and no _ or - in "
     "front, got '../x' (here, line 1)"),
    ("by_name:\n  ok: 1\n  ../x: 2", "by_name.../x: expected letters, digits, _ and -, single dots inside, at most 128 "
     "and no _ or - in front, got '../x' (here, line 3)"),
    ("column: ' '", "column: expected a text that is not blank, got ' ' (here, line 1)"),
    ('unit: "a\\e[1m"', "unit: expected no control characters, no marks that change the direction of text and no blank "
     "or private-use characters, got 'a\\x1b[1m' (here, line 1)"),
])
def test_names_are_held_to_their_rules(text: str, message: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_written(Named, text, "file", "here")
    assert str(refused.value) == message


def test_long_values_are_not_printed_whole() -> None:
    for value, told in (("x" * 500, "got '" + "x" * 78 + "…"), (list(range(500)), "got a list of 500 entries"),
                        ({str(k): k for k in range(500)}, "got a mapping of 500 fields")):
        with pytest.raises(InputError, match="expected a number") as refused:
            check_written(Document, {"name": "d", "workloads": {}, "limits": {"a": value}}, "file", "here")
        assert told in str(refused.value) and len(str(refused.value)) < 200


plain = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
                     lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
                         st.sampled_from(["name", "workloads", "hidden", "share", "box", "columns", "a"]) | st.text(
                             max_size=3) | st.integers(), inner, max_size=4), max_leaves=12)


@settings(max_examples=300, deadline=None)
@given(plain)
def test_whatever_is_written_is_read_or_refused_in_one_line(data: Any) -> None:
    try:
        check_written(Document, data, "file", "here")
    except InputError as error:
        assert "\n" not in str(error) and "(here)" in str(error)
