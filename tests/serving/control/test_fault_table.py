"""The tables of faults name tests, and these are there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/reference/control-faults.md"
# page -> where its tests are, columns, fewest rows
TABLES = {
    PAGE: (("tests/serving/control", "tests/serving/actuators", "tests/pipelines"), 4, 20),
    ROOT / "docs/reference/faults.md": (("tests/components", "tests/e2e", "tests/pipelines", "tests/serving"), 5, 20),
}


def _tests(folders: tuple[str, ...]) -> set[str]:
    return {node.name for folder in folders for path in (ROOT / folder).rglob("test_*.py")
            for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("page", TABLES, ids=lambda page: page.stem)
def test_every_row_names_tests_and_every_test_that_is_named_is_there(page):
    folders, columns, fewest = TABLES[page]
    text = page.read_text().split("\n## ")[0]  # below it are the tables of measurements
    table = text[text.index("\n| fault |"):].splitlines()
    rows = [line.strip("|").split("|") for line in table if line.startswith("| ")][1:]
    named = [re.findall(r"`(\w+)`", row[-1]) for row in rows]
    assert len(rows) >= fewest
    assert all(len(row) == columns and row[0].strip() and row[1].strip() for row in rows)
    assert all(named)
    assert {name for names in named for name in names} - _tests(folders) == set()
    assert all(name.startswith("test_") for names in named for name in names)


def test_every_kind_of_refusal_is_on_the_page():
    from typing import get_args

    from serving.actuators.actuator import Kind

    row = next(line for line in PAGE.read_text().splitlines() if "the actuator refuses" in line)
    assert [kind for kind in get_args(Kind) if kind not in row] == []
