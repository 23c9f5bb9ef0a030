"""The digest of the code behind a measurement changes with the code, and with nothing else."""

from pathlib import Path

import pytest

from benchmarks.harness.code_digest import code_digest
from benchmarks.verification.campaign import TOOLS
from benchmarks.verification.campaign_entries import tool_code

FILES = {
    "engine/search.py": '"""Search."""\nfrom engine.bounds import bound\n\n\ndef run() -> int:\n    return bound()\n',
    "engine/bounds.py": '"""Bounds."""\nimport math\n\n\ndef bound():\n    """One."""\n    return math.floor(1)\n',
    "engine/report.py": "PAGES = 1\n",
    "other/tool.py": "SIZE = 1\n",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def digest(root: Path) -> str:
    return code_digest("engine.search", "engine", root)


@pytest.mark.parametrize(("file", "old", "new", "changed"), [
    ("engine/search.py", "return bound()", "return -bound()", True),
    ("engine/bounds.py", "floor(1)", "floor(2)", True),
    ("engine/bounds.py", '"""One."""', '"""Another."""', False),
    ("engine/bounds.py", '"""Bounds."""', "# no docstring", False),
    ("engine/search.py", "def run", "# why\ndef run", False),
    ("engine/report.py", "1", "2", False),
    ("other/tool.py", "1", "2", False),
])
def test_what_changes_the_digest(root: Path, file: str, old: str, new: str, changed: bool) -> None:
    before = digest(root)
    path = root / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    assert (digest(root) != before) is changed


def test_a_module_that_becomes_reached_counts(root: Path) -> None:
    before = digest(root)
    path = root / "engine/bounds.py"
    path.write_text(path.read_text().replace("import math\n", "import math\n\nfrom engine import report\n"))
    imported = digest(root)
    assert imported != before
    (root / "engine/report.py").write_text("PAGES = 2\n")
    assert digest(root) != imported


def test_every_tool_s_code_is_found() -> None:
    codes = {tool: tool_code(tool) for tool in TOOLS}
    assert codes["assay"] == codes["assay_search"]
    assert len(set(codes.values())) == len(TOOLS) - 1 and all(len(code) == 16 for code in codes.values())
