"""Schemas and field tables say what the models say, and every shipped and documented file fits both."""

import json
import re
import textwrap
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from feature_store.errors import InputError
from feature_store.strict_yaml import parse_yaml, read_yaml
from feature_store.written.model import check_written
from models.tasks.control.training import method_settings
from models.tasks.task import task_path
from pipelines.documents.__main__ import main
from pipelines.documents.field_tables import field_table, fill
from pipelines.documents.schemas import schema
from pipelines.documents.written_files import FILES
from tests.e2e.tiny import ROOT

SHIPPED = sorted(path for folder in ("examples", "feature_store", "models", "systems")
                 for path in (ROOT / folder).rglob("*.yaml"))
HEADER = re.compile(r"# yaml-language-server: \$schema=(\S+)\n")
# page, what the block begins with, what it is
EXAMPLES = (
    ("docs/recipes/bring-your-own-telemetry.md", "workload:    {constant: checkout}", "telemetry-mapping"),
    ("docs/recipes/bring-your-own-telemetry.md", "window_s: 60\n", "production-map"),
    ("docs/reference/measurements.md", "workload: {column: workload}\nconfiguration:", "measurement-mapping"),
    ("docs/recipes/add-a-control-task.md", "name: backlog\n", "task-control"),
    ("docs/reference/serve.md", "pod_label: app", "scheduler-extender"),
    ("feature_store/measurement_mapping.py", "workload: {column: workload}\n", "measurement-mapping"),
    ("feature_store/sources/production_map.py", "window_s: 60 ", "production-map"),
    ("serving/predictions/extender_file.py", "pod_label: app", "scheduler-extender"),
    ("models/tasks/few_shot/measurements_task.py", "demand: {nodes: decreasing} ", "measurements-task"),
)

WORKLOAD_EXAMPLE = ("docs/recipes/add-a-workload.md", "workloads:\n")  # a part of a task


def test_this_projects_schemas_and_field_tables_are_up_to_date() -> None:
    assert main(["--check"]) == 0


def fits(name: str, data: Any, where: str) -> None:
    """Raises where data do not fit the model or the schema."""
    check_written(FILES[name].model, data, name, where)
    plain = json.loads(json.dumps(data, default=lambda value: value.isoformat() if isinstance(value, date) else None))
    errors = list(Draft202012Validator(schema(name)).iter_errors(plain))
    assert not errors, f"{where}: {errors[0].json_path}: {errors[0].message}"


@pytest.mark.parametrize("name", FILES)
def test_a_schema_is_a_schema(name: str) -> None:
    Draft202012Validator.check_schema(schema(name))
    assert "expected" not in json.dumps(schema(name)), "what only our errors use"


@pytest.mark.parametrize("path", [ROOT / "mlflow.yaml", *SHIPPED], ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_shipped_file_names_its_schema_and_fits_it(path: Path) -> None:
    header = HEADER.match(path.read_text())
    assert header, f"{path}: the first line must name the schema"
    named = (path.parent / header[1]).resolve()
    assert named.is_file(), header[1]
    fits(named.name.removesuffix(".schema.json"), read_yaml(path, "file"), str(path))


@pytest.mark.parametrize(("page", "start", "name"), EXAMPLES)
def test_every_documented_example_fits_its_schema(page: str, start: str, name: str) -> None:
    fits(name, parse_yaml(block(page, start), "example", page), page)


def block(page: str, start: str) -> str:
    """The example on a page that begins with a text: fenced, or as long as it is indented."""
    text = (ROOT / page).read_text()
    at = text.index(start)
    line = text.rfind("\n", 0, at) + 1
    indent = text[line:at]
    rows = []
    for row in text[line:].splitlines():
        if row.strip().startswith("```") or (row.strip() and not row.startswith(indent)):
            break
        rows.append(row)
    return textwrap.dedent("\n".join(rows))


def test_every_specification_of_the_reference_fits_its_schema() -> None:
    page = "docs/reference/specification.md"
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert len(blocks) >= 8
    for text in blocks:
        data = parse_yaml(text, "example", page)
        fits("specification" if "features" in data else "task-specification", data, text)


def test_the_recipes_workload_fits_into_the_task_that_it_is_added_to() -> None:
    task = read_yaml(task_path("performance"), "task")
    page, start = WORKLOAD_EXAMPLE
    added = parse_yaml(block(page, start), "example", page)["workloads"]
    assert not set(added) & set(task["workloads"])
    fits("task-prediction", {**task, "workloads": {**task["workloads"], **added}}, page)


def test_a_training_method_s_example_fits_into_a_control_task() -> None:
    page = "docs/reference/training-by-acting.md"
    written = parse_yaml(block(page, "training:\n  method"), "example", page)
    content = read_yaml(task_path("autoscaling"), "task")
    whole = {**content, **written}
    fits("task-control", whole, page)
    task = check_written(FILES["task-control"].model, whole, "task", page)
    assert method_settings(task, 3, 0.02).discount == 0.95 and task.workload("web").experience


def test_every_page_with_a_block_of_yaml_has_it_tried() -> None:
    """A new example has to stand in EXAMPLES, or be the recipe's workload; a controller's file has no schema."""
    tried = {page for page, _, _ in EXAMPLES} | {"docs/reference/specification.md", WORKLOAD_EXAMPLE[0]}
    # tests/serving/control/test_documents.py
    tried |= {"docs/reference/control.md", "docs/reference/kubernetes-actuator.md"}
    tried.add("docs/reference/training-by-acting.md")  # above
    pages = [path for path in (ROOT / "docs").rglob("*.md") if "```yaml" in path.read_text()]
    assert {path.relative_to(ROOT).as_posix() for path in pages} <= tried


@pytest.mark.parametrize(("name", "wrong"), [
    ("mlflow", {"tracking": {"url": "x"}}), ("telemetry-mapping", {"workload": {}, "columns": {}}),
    ("measurement-mapping", {"workload": "a"}), ("metric-map", {"metrics": {"a": {"expression": 3}}}),
    ("production-map", {"workloads": {"a": {"latency_ms": "x", "configuration": {"conections": 1}}}}),
    ("specification", {"properties": [{"range": {"output": "y0", "maximum": "high"}}]}),
    ("task-specification", {"properties": [{"monotone": {"features": ["a"]}}], "units": {"a": "ms"}}),
    ("task-prediction", {"name": "a", "target": "latency_ms", "inputs": ["cpu_tim"], "workloads": {"a": {}}}),
    ("task-few_shot", {"name": "a", "kind": "prediction", "target": "latency_ms", "inputs": ["cpu_time"],
                       "workloads": {"a": {}}}),
    ("measurements-task", {"demand": {"nodes": "down"}}),
    ("scheduler-extender", {"pod_label": "app", "workloads": {}}),
])
def test_a_schema_refuses_what_the_reader_refuses(name: str, wrong: Any) -> None:
    with pytest.raises(InputError):
        check_written(FILES[name].model, wrong, name, "here")
    assert not Draft202012Validator(schema(name)).is_valid(wrong)


def test_a_table_has_type_default_unit_and_meaning_of_every_field() -> None:
    lines = field_table("telemetry-mapping").splitlines()
    assert lines[0] == "| field | type | default | unit | meaning |"
    assert [line for line in lines if line.startswith("| `time.unit` | `iso`, `s`, `ms`, `us` or `ns` | `iso` |  | ")]
    assert [line for line in lines if line.startswith("| `time.window_s` | number above 0 | none | s | Length of a ")]
    assert "| `environment` | mapping | `{constant: base}` |  | Which machine and load range a row is of |" in lines
    assert any(line.startswith("| `columns.*.column` | text | required |") for line in lines)


def test_a_mapping_whose_fields_have_their_own_defaults_is_as_below() -> None:
    lines = field_table("task-control").splitlines()
    assert "| `training` | mapping | as below |  | How policies are trained |" in lines


@pytest.mark.parametrize("name", FILES)
def test_every_field_has_a_meaning(name: str) -> None:
    assert not [line for line in field_table(name).splitlines()[2:] if line.endswith("|  |")]


def test_a_part_of_a_file_has_a_table_of_its_own() -> None:
    lines = field_table("mlflow promotion").splitlines()
    assert [line.split("`")[1] for line in lines[2:]] == [
        "minimum_improvement", "minimum_improvement_of_spread", "minimum_gain", "confidence", "specification_leeway"]


def test_a_table_may_leave_out_what_has_a_table_of_its_own() -> None:
    fields = [line.split("`")[1] for line in field_table("mlflow without promotion gates").splitlines()[2:]]
    assert "promotion" in fields and "gates" in fields and "keys.public" in fields
    assert not [field for field in fields if field.startswith(("promotion.", "gates."))]


def test_a_page_is_filled_and_what_stood_there_is_replaced() -> None:
    page = "# A\n<!-- fields: mlflow keys -->\nold\n<!-- end fields -->\nrest\n"
    filled = fill(page)
    assert "old" not in filled and "| `private` | text | required |" in filled and filled.endswith("-->\nrest\n")
    assert fill(filled) == filled


@pytest.mark.parametrize(("page", "message"), [
    ("<!-- fields: mlflov -->\n<!-- end fields -->", "got 'mlflov'; did you mean 'mlflow'"),
    ("<!-- fields: mlflow nothing -->\n<!-- end fields -->", "expected a field with fields below it, got 'nothing'"),
    ("<!-- fields: mlflow -->\n", "expected a line `<!-- end fields -->`"),
])
def test_an_unusable_marker_is_named_with_its_page(tmp_path: Path, capsys: pytest.CaptureFixture[str], page: str,
                                                   message: str) -> None:
    (tmp_path / "README.md").write_text(page)
    assert main([], tmp_path) == 2
    told = capsys.readouterr().err
    assert message in told and "(README.md)" in told


def test_check_changes_nothing_and_names_what_is_stale(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "README.md").write_text("<!-- fields: mlflow -->\n<!-- end fields -->\n")
    assert main(["--check"], tmp_path) == 1
    assert "README.md is not up to date: run `make tables`" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]
    assert main([], tmp_path) == 0 and main(["--check"], tmp_path) == 0
