"""A controlled system is its folder: nobody outside names it, and each keeps the contract from training to acting."""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from models.control.contract.acting import code_sha256, load_acting
from models.control.contract.first_steps import check_first_steps
from models.control.contract.systems import environment_names, environment_of
from models.metrics import METRICS
from models.tasks.task import load_task

ROOT = Path(__file__).parents[2]
SYSTEMS = tuple(sorted(path.name for path in (ROOT / "systems").iterdir() if (path / "environment.py").is_file()))
OUTSIDE = [path for folder in ("pipelines", "components", "serving", "models", "recording", "feature_store", "deploy")
           for path in sorted((ROOT / folder).rglob("*.py"))]
SAMPLE = "autoscaling"  # tests of what all systems share take this one
every_system = pytest.mark.parametrize("system", SYSTEMS)


def imported(path: Path) -> set[str]:
    """Modules that a file names in its imports, at the top or inside of functions."""
    return _looked_at(path)[0]


def words(path: Path) -> set[str]:
    """Those of the texts in a file's code that are names and paths, not sentences."""
    return _looked_at(path)[1]


@cache
def _looked_at(path: Path) -> tuple[set[str], set[str]]:
    """Each file is parsed once, for all tests and systems."""
    modules: set[str] = set()
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            modules |= {f"{node.module}", *(f"{node.module}.{one.name}" for one in node.names)}
        elif isinstance(node, ast.Import):
            modules |= {one.name for one in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and " " not in node.value:
            found |= set(re.split(r"\W+", node.value))
    return modules, found


@pytest.mark.parametrize("system", sorted({*SYSTEMS} - {SAMPLE}))
def test_each_goes_its_whole_way_in_a_test(system: str) -> None:
    """From a load to a signed champion that acts: whole_way.py and what acts; the sample's is the demo's and e2e's."""
    whole = ROOT / "tests" / "systems" / system / "test_whole.py"
    assert "tests.systems.whole_way.small_champion" in imported(whole)
    assert "control" in words(whole), "what was trained acts"


def test_the_systems_are_the_folders_that_have_an_environment() -> None:
    assert environment_names() == SYSTEMS and "autoscaling" in SYSTEMS
    folders = {path.name for path in (ROOT / "systems").iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders == set(SYSTEMS)


@pytest.mark.parametrize("path", OUTSIDE, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_nobody_outside_of_systems_imports_one(path: Path) -> None:
    assert not [name for name in imported(path) if name.split(".")[0] == "systems"]


@every_system
def test_a_system_knows_no_other_system(system: str) -> None:
    for path in (ROOT / "systems" / system).rglob("*.py"):
        others = {name.split(".")[1] for name in imported(path) if name.startswith("systems.")}
        assert others <= {system}, path


@pytest.mark.parametrize("system", [name for name in SYSTEMS if name != SAMPLE])
def test_no_code_outside_of_its_folders_names_it(system: str) -> None:
    """So that its folder, its tests and its pages can be deleted, and everything else still passes its tests."""
    own = (ROOT / "systems" / system, ROOT / "tests" / "systems" / system)
    others = [path for folder in ("systems", "tests", "benchmarks") for path in (ROOT / folder).rglob("*.py")]
    for path in (*OUTSIDE, *others):
        if not any(path.is_relative_to(folder) for folder in own):
            assert system not in words(path) and f"systems.{system}" not in imported(path), path


@every_system
def test_its_first_steps_hold_with_every_rule(system: str) -> None:
    check_first_steps(environment_of(system))


@every_system
def test_it_comes_with_a_task_of_its_name_for_its_own_environment(system: str) -> None:
    task = load_task(system)
    assert (task.kind, task.environment, task.name) == ("control", system, system)


@every_system
def test_what_acts_of_it_is_here_and_needs_no_torch(system: str) -> None:
    module = environment_of(system).acting
    acting = load_acting(module, code_sha256(module))
    assert set(acting.rules) == set(environment_of(system).rules)
    code = f"import sys, {module}; print([name for name in ('torch', 'onnx', 'pandas') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@every_system
def test_its_outcome_has_the_measures_that_gates_may_ask_for(system: str) -> None:
    """What a gate asks of every control task is a known metric with a unit."""
    assert {"mean_cost", "mean_reward", "violating_share"} <= set(METRICS)
    assert environment_of(system).cost_unit and all(environment_of(system).measures.values())
