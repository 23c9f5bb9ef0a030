"""The seam between kinds of task holds: nobody but a kind's own folder knows that kind."""

import ast
import inspect
from pathlib import Path

import pytest

from feature_store.errors import InputError
from models.tasks.kind import Kind
from models.tasks.kinds import kind_names, kind_of
from models.tasks.pages import Pages
from models.tasks.task_file import TaskFile

ROOT = Path(__file__).parents[2]
FOLDERS = ("pipelines", "components", "systems", "serving", "models", "recording", "feature_store")
KINDS = kind_names()
OUTSIDE = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))
           if "benchmarks" not in path.parts
           and not any(path.is_relative_to(ROOT / "models" / "tasks" / kind) for kind in KINDS)]


def test_the_kinds_are_the_folders_that_have_one() -> None:
    assert KINDS == ("control", "few_shot", "prediction")


@pytest.mark.parametrize("path", OUTSIDE, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_module_outside_of_a_kind_knows_that_kind(path: Path) -> None:
    """Neither by an import, nor by a comparison with its name, nor by its name among a table's keys."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom | ast.Import):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            assert not [name for name in names for kind in KINDS if name.startswith(f"models.tasks.{kind}")]
        texts = [part.value for part in (node.comparators if isinstance(node, ast.Compare) else
                                         node.keys if isinstance(node, ast.Dict) else
                                         [node.pattern.value] if isinstance(node, ast.match_case)
                                         and isinstance(node.pattern, ast.MatchValue) else [])
                 if isinstance(part, ast.Constant)]
        assert not set(texts) & set(KINDS), f"{path.name}, line {getattr(node, 'lineno', '?')}"


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_has_every_method_of_the_contract_with_its_arguments(name: str) -> None:
    kind = kind_of(name, "here")
    for protocol, found in ((Kind, kind), (Pages, kind.pages)):
        for method, declared in inspect.getmembers(protocol, inspect.isfunction):
            if not method.startswith("_"):
                assert list(inspect.signature(getattr(type(found), method)).parameters) == list(
                    inspect.signature(declared).parameters), f"{name}.{method}"


@pytest.mark.parametrize("name", KINDS)
def test_the_model_of_a_kinds_task_files_has_the_common_fields_and_knows_its_kind(name: str) -> None:
    model = kind_of(name, "here").task_file
    assert issubclass(model, TaskFile)
    assert set(TaskFile.model_fields) <= set(model.model_fields)
    assert model.model_json_schema()["properties"]["kind"]["const"] == name


@pytest.mark.parametrize(("name", "message"), [
    ("predicton", "kind: expected control, few_shot, prediction or the import path .*; did you mean 'prediction'"),
    (5, r"kind: expected .*got 5; .* \(task.yaml, line 2\)"),
    ("no.such.package", "kind: expected a package with a module `kind`, got 'no.such.package', which cannot be"),
    ("models.tasks.supervised", "kind: expected a package with a module `kind`"),
    ("../x", "kind: expected"),
])
def test_an_unknown_kind_is_named_with_the_nearest_one(name: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        kind_of(name, "task.yaml", 2)


@pytest.mark.parametrize(("init", "module", "message"), [
    ("", "raise RuntimeError('no\\nlicence')", "whose import fails with RuntimeError: no licence"),
    ("", "import no_such_module", "whose import fails with ModuleNotFoundError: No module named 'no_such_module'"),
    ("", "def (", "whose import fails with SyntaxError"),
    ("", "raise SystemExit(0)", "whose import fails with SystemExit: 0"),  # else `assay validate` would end well
    ("raise ValueError('x')", "", "whose import fails with ValueError: x"),
    ("", "", "whose import fails with AttributeError: module '.*' has no attribute 'KIND'"),
    ("", "KIND = None", "got '.*' without task_file, other_files, check, default_telemetry"),
    ("", "KIND = 3", "got '.*' without task_file, other_files, check, default_telemetry"),
])
def test_a_kind_that_cannot_be_imported_or_is_none_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, init: str, module: str, message: str
) -> None:
    outer = f"broken_{tmp_path.name}"  # a name of its own: Python keeps what it has imported
    package = tmp_path / outer / "kind_of_task"
    package.mkdir(parents=True)
    (tmp_path / outer / "__init__.py").touch()
    (package / "__init__.py").write_text(init)
    (package / "kind.py").write_text(module)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match=rf"kind: expected .*{message}.* \(task.yaml, line 2\)$") as refused:
        kind_of(f"{outer}.kind_of_task", "task.yaml", 2)
    assert "\n" not in str(refused.value)
