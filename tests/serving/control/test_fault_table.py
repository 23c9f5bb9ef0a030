"""The table of faults names tests, and these are there."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/reference/control-faults.md"
FOLDERS = ("tests/serving/control", "tests/serving/actuators", "tests/pipelines")


def _tests() -> set[str]:
    return {node.name for folder in FOLDERS for path in (ROOT / folder).rglob("test_*.py")
            for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)}


def test_every_row_names_tests_and_every_test_that_is_named_is_there():
    table = PAGE.read_text().split("\n## ")[0]  # below it are the tables of measurements
    rows = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("| ")][1:]
    named = [re.findall(r"`(\w+)`", row[3]) for row in rows]
    assert len(rows) >= 20
    assert all(len(row) == 4 and row[0].strip() and row[1].strip() for row in rows)
    assert all(named)
    assert {name for names in named for name in names} <= _tests()
    assert all(name.startswith("test_") for names in named for name in names)


def test_every_kind_of_refusal_is_on_the_page():
    from typing import get_args

    from serving.actuators.actuator import Kind

    row = next(line for line in PAGE.read_text().splitlines() if "the actuator refuses" in line)
    assert [kind for kind in get_args(Kind) if kind not in row] == []
