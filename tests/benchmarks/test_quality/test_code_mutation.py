"""Mutants of the code: made on a copy, told apart by whether a test fails, and the file is as it was afterwards."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.test_quality import code_mutation
from benchmarks.test_quality.code_mutation import SUBJECTS, copied_tree, mutants_of, outcome, planted
from benchmarks.test_quality.code_mutation_tables import planted_table, sampled_table
from tests.e2e.tiny import ROOT

CODE = "def positive(x):\n    return x > 0\n"
TEST = "from sign import positive\n\ndef test_sign():\n    assert positive(1) and not positive(-1)\n"
MACHINE = {"date": "2026-11-22T00:00:00+00:00"}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A file and a test that does not look at zero."""
    (tmp_path / "sign.py").write_text(CODE)
    (tmp_path / "test_sign.py").write_text(TEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow\npythonpath = .\n")
    return tmp_path


@pytest.mark.parametrize(("text", "end"), [
    (CODE, "survived"), (CODE.replace(">", ">="), "survived"), (CODE.replace(">", "<"), "found"),
    (CODE.replace("return", "retur"), "found"), (CODE.replace("return", "while True: pass\n    return"), "no end")],
    ids=["unchanged", "not tested", "tested", "no Python", "endless"])
def test_a_mutant_is_found_where_a_test_fails(
        tree: Path, monkeypatch: pytest.MonkeyPatch, text: str, end: str) -> None:
    monkeypatch.setattr(code_mutation, "TIMEOUT_S", 20.0 if end != "no end" else 3.0)
    assert outcome(tree, "sign.py", text, ("test_sign.py",)) == end
    assert (tree / "sign.py").read_text() == CODE


def test_tests_that_do_not_run_find_nothing(tree: Path) -> None:
    (tree / "pytest.ini").write_text("[pytest]\naddopts = --no-such-option\n")
    with pytest.raises(RuntimeError, match="the tests must run, got exit code 4"):
        outcome(tree, "sign.py", CODE, ("test_sign.py",))


def test_planted_mutants_are_tried_again_unless_the_code_has_changed(tree: Path) -> None:
    entries = [{"file": "sign.py", "before": "x > 0", "after": "x < 0", "tests": ["test_sign.py"], "what": "turned"},
               {"file": "sign.py", "before": "x >= 0", "after": "x < 0", "tests": ["test_sign.py"], "what": "gone"}]
    assert [(entry.get("line"), entry["found"]) for entry in planted(tree, entries)] == [(2, True), (None, None)]


def test_every_mutant_differs_at_its_line(tree: Path) -> None:
    pytest.importorskip("cosmic_ray", reason="pip install -e '.[mutation]'")
    found = mutants_of(tree, "sign.py")
    assert {mutant.after for mutant in found} >= {"return x >= 0", "return x < 0", "return x > 1"}
    for mutant in found:
        assert (mutant.file, mutant.line, mutant.before) == ("sign.py", 2, "return x > 0") != mutant.after
        assert mutant.text.splitlines()[1].strip() == mutant.after


def test_the_tree_is_copied_with_what_is_not_committed_yet(tmp_path: Path) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("this tree is not under git")
    copy = copied_tree(tmp_path)
    for subject in SUBJECTS.values():
        for file in (*subject.files, *subject.tests):
            beside = sorted((ROOT / file).rglob("*.py")) if (ROOT / file).is_dir() else [ROOT / file]
            assert all((copy / path.relative_to(ROOT)).read_bytes() == path.read_bytes() for path in beside)
    assert not (copy / ".git").exists()


def test_tables_say_what_was_found() -> None:
    row: dict[str, Any] = {"subject": "gates", "possible": 1234, "tried": 20, "found": 19, "seed": 3, **MACHINE}
    text = sampled_table({"rows": [row]})
    assert "| gates | 1,234 | 20 | 19 | 1 | 3 | 2026-11-22 |" in text
    entries = [{"file": "a.py", "line": 7, "what": "off by one", "found": found, "found_at_first": found is None}
               for found in (True, False, None)]
    text = planted_table({"mutants": entries, "machine": MACHINE})
    assert "| `a.py`:7 | off by one | no | no |" in text and "1 of 3 found, 1 at first; 2026-11-22." in text
