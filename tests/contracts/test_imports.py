"""What a controller imports: no torch, no mlflow, no kfp, no Great Expectations, in a fresh process."""

import json
import subprocess
import sys

import pytest

from tests.e2e.tiny import ROOT

HEAVY = ("torch", "mlflow", "kfp", "great_expectations", "sklearn", "matplotlib", "rich", "typer", "model_signing",
         "pydantic")


def imported(modules: str) -> list[str]:
    """The HEAVY packages that are loaded after importing `modules`."""
    code = f"import json, sys, {modules}; print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    found: list[str] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("modules", ["serving.session, serving.bundle",
                                     "serving.ledger, serving.signature, serving.inputs",
                                     "serving.actuators.dry_run, serving.actuators.cgroup"])
def test_serving_loads_nothing_heavy(modules: str) -> None:
    assert imported(modules) == []


def test_the_registry_brings_mlflow_and_neither_torch_nor_kfp() -> None:
    found = imported("serving.registry")
    assert "mlflow" in found and not {"torch", "kfp", "great_expectations"} & set(found)


def test_the_command_line_starts_without_the_heavy_ones() -> None:
    """`assay --help` and `assay check` must not wait for what they do not use."""
    assert not {"torch", "mlflow", "kfp", "great_expectations", "sklearn", "matplotlib", "pydantic"} & set(
        imported("pipelines.command_line"))


@pytest.mark.parametrize(("task", "checked"), [("performance", True), ("autoscaling", False)])
def test_a_task_is_read_without_what_draws_its_pages(task: str, checked: bool) -> None:
    """Every step reads it, and the command line; a predictor's is checked without torch (a policy's takes steps)."""
    check = "[kind_of(task.kind, '').check(task, name, '', None) for name in task.workloads]" if checked else "task"
    loads = f"models.tasks.task; from models.tasks.kinds import kind_of; task = models.tasks.task.load_task({task!r})"
    assert not {"torch", "matplotlib", "kfp", "mlflow"} & set(imported(f"{loads}; {check}; import json"))


STEPS = sorted(path.stem for path in (ROOT / "components").glob("*.py") if path.stem not in ("__init__", "definitions"))


@pytest.mark.parametrize("step", STEPS)
def test_a_running_step_loads_no_compiler_and_nothing_that_its_kind_may_not_need(step: str) -> None:
    """components/definitions.py is for compiling; a step's own file knows no kfp, and kinds import what is heavy."""
    assert not {"kfp", "torch", "sklearn", "great_expectations", "matplotlib"} & set(imported(f"components.{step}"))
