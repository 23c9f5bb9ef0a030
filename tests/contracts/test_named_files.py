"""Files that docstrings and documents name are there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("pipelines", "components", "systems", "serving", "models", "recording", "feature_store", "benchmarks")
SOURCES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
# of other projects, which the sentence around them names: Kubeflow Pipelines, auto_LiRPA
FOREIGN = {"client/client.py", "examples/vision/jacobian.py"}
NAMED = re.compile(r"(?<![\w/.<>*-])((?:[\w-]+/)*[\w-]+\.(?:py|md|lua|css))\b")
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def named_in(path: Path) -> set[str]:
    """File names in the docstrings of a module, its classes and its functions."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    texts = [ast.get_docstring(node) or "" for node in ast.walk(ast.parse(path.read_text()))
             if isinstance(node, documented)]
    return set(NAMED.findall("\n".join(texts))) - FOREIGN


def is_there(name: str, beside: Path) -> bool:
    """Below the root, beside the file that names it, or, without a folder, anywhere in the project's sources."""
    there = (ROOT / name).is_file() or (beside.parent / name).is_file()
    return there or any(path.as_posix().endswith(f"/{name}") for path in SOURCES)


@pytest.mark.parametrize("path", [path for path in SOURCES if named_in(path)], ids=lambda path: path.stem)
def test_every_file_that_a_docstring_names_is_there(path: Path) -> None:
    assert {name for name in named_in(path) if not is_there(name, path)} == set()


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_link_of_a_document_leads_somewhere(path: Path) -> None:
    links = [link for link in LINK.findall(path.read_text()) if "://" not in link and ("." in link or "/" in link)]
    assert [link for link in links if not (path.parent / link).exists()] == []


def test_no_default_points_outside_of_the_repository() -> None:
    outside = re.compile(r"""["'](?:\.\./|/work|/home)""")
    found = {f"{path.relative_to(ROOT)}:{number}" for path in SOURCES
             for number, line in enumerate(path.read_text().splitlines(), 1)
             if outside.search(line) and "certificate.npz" not in line}  # a path that an attack writes
    assert found == set()
