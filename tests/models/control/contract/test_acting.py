"""The code that acts beside a policy is the code that its bundle was made with."""

import sys
from pathlib import Path

import pytest

from feature_store.errors import InputError
from models.control.contract.acting import code_sha256, load_acting

RULES = "RULES = {}\n"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`own`: acting.py imports rules.py, and in a function late.py, which imports deep/far.py; aside.py is nobody's."""
    folder = tmp_path / "own"
    (folder / "deep").mkdir(parents=True)
    for name in ("", "deep/"):
        (folder / name / "__init__.py").write_text("")
    (folder / "acting.py").write_text(
        "import math\nfrom own import rules\nfrom own.rules import RULES\nOBSERVER = dict\n"
        "def check_guarantee(*given):\n    from own.late import check\n    return check(*given)\n")
    (folder / "rules.py").write_text(RULES)
    (folder / "late.py").write_text("import own.deep.far\n\ndef check(*given):\n    return given\n")
    (folder / "deep" / "far.py").write_text("")
    (folder / "aside.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    code_sha256.cache_clear()
    yield folder
    for name in [one for one in sys.modules if one.split(".")[0] == "own"]:
        del sys.modules[name]
    code_sha256.cache_clear()


@pytest.mark.parametrize(("file", "counts"), [
    ("acting.py", True), ("rules.py", True), ("late.py", True), ("deep/far.py", True), ("aside.py", False)])
def test_every_file_of_its_package_that_it_reaches_counts(package: Path, file: str, counts: bool) -> None:
    before = code_sha256("own.acting")
    with (package / file).open("a") as opened:
        opened.write("# another thought\n")
    code_sha256.cache_clear()
    assert (code_sha256("own.acting") != before) is counts


@pytest.mark.parametrize("file", ["rules.py", "late.py", "deep/far.py", "deep/near.py"])
def test_a_file_that_is_imported_relative_to_its_package_counts_too(package: Path, file: str) -> None:
    (package / "acting.py").write_text("from . import late\nfrom .rules import RULES\nfrom ....none import nothing\n")
    (package / "late.py").write_text("from .deep import far\n")
    (package / "deep" / "__init__.py").write_text("from .near import one\n")
    (package / "deep" / "near.py").write_text("one = 1\n")
    test_every_file_of_its_package_that_it_reaches_counts(package, file, True)


def test_a_module_that_moved_is_other_code(package: Path) -> None:
    before = code_sha256("own.acting")
    (package / "deep" / "rules.py").write_text(RULES)
    text = (package / "acting.py").read_text().replace("own.rules", "own.deep.rules").replace(
        "from own import rules", "from own.deep import rules")
    (package / "acting.py").write_text(text)
    code_sha256.cache_clear()
    assert code_sha256("own.acting") != before


def test_what_it_holds_is_given_for_its_own_code_alone(package: Path) -> None:
    acting = load_acting("own.acting", code_sha256("own.acting"))
    assert acting.observer is dict and acting.rules == {} and acting.check_guarantee is not None
    with pytest.raises(InputError, match=r"code of own.acting must be what the bundle was made with, 000000000000, got "
                                         "[0-9a-f]{12}: install the version of then, or make the bundle again"):
        load_acting("own.acting", "0" * 64)


@pytest.mark.parametrize(("module", "sha256", "message"), [
    ("own.nowhere", None, "acting must be a module that holds OBSERVER and RULES, got 'own.nowhere'"),
    ("own.nowhere", "0" * 64, "acting must be a module that can be imported, got 'own.nowhere'"),
    ("nowhere.acting", "0" * 64, "acting must be a module that can be imported, got 'nowhere.acting'"),
    ("own.rules", None, "got 'own.rules': module 'own.rules' has no attribute 'OBSERVER'")])
def test_a_module_that_does_not_act_is_refused(package: Path, module: str, sha256: str | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_acting(module, sha256)
