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
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)]*))?\)")
HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
FENCED = re.compile(r"^ *(```|~~~).*?^ *\1", re.MULTILINE | re.DOTALL)


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
    """To a file or folder that is there, and to a heading of that page."""
    links = [(link, anchor) for link, anchor in LINK.findall(path.read_text())
             if "://" not in link and ("." in link or "/" in link or anchor)]
    assert [link for link, _ in links if not (path.parent / link).exists()] == []
    assert [(link, anchor) for link, anchor in links
            if anchor and anchor not in anchors(path.parent / link if link else path)] == []


def anchors(page: Path) -> list[str]:
    """A page's marks, and its headings as links name them: in small letters, without signs, with - for spaces; the
    second of two equal ones ends in -1."""
    found = re.findall(r'<a id="([^"]+)">', page.read_text())
    for heading in HEADING.findall(FENCED.sub("", page.read_text())):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")
        found.append(f"{name}-{found.count(name)}" if name in found else name)
    return found


def test_no_default_points_outside_of_the_repository() -> None:
    outside = re.compile(r"""["'](?:\.\./|/work|/home)""")
    found = {f"{path.relative_to(ROOT)}:{number}" for path in SOURCES
             for number, line in enumerate(path.read_text().splitlines(), 1)
             if outside.search(line) and "certificate.npz" not in line}  # a path that an attack writes
    assert found == set()
