"""Every command of README, tutorial and recipes, against one small finished state.

Executed: what looks at a finished run (check, predict, history, promote, rollback), schedules (against a crontab of the
test's own and a small KFP server), the signature's own tool. Only taken apart, option by option and type by type:

    assay run      takes minutes; tests/e2e/test_run.py executes it, with the command that its own report prints
    assay record   loads this machine with real servers; tests/recording does
    assay control  acts until it is stopped; tests/pipelines/test_control_command.py starts it
    assay init     looks at a service; tests/systems/autoscaling/service/test_init.py has one
    make           installs; `make -n` says what it would do
    sudo           the program that it starts must be there
    python -c      executed: it writes the telemetry of an example
    python -m      the module must be there
"""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import typer
import yaml
from typer.testing import CliRunner, Result

from models.tasks.task import load_task, task_path
from pipelines.command_line import app
from pipelines.commands import bundle_commands
from tests.components.steps import IGNORED_WARNING, Steps
from tests.e2e import tiny
from tests.e2e.documents import DOCUMENTS, Command, commands_of
from tests.pipelines.kfp_server import kfp_server

pytestmark = pytest.mark.filterwarnings(IGNORED_WARNING)

WORKLOADS = ("redis", "training")
REDIS = ("--workload", "redis")
CRONTAB = """#!/bin/sh
case "$1" in
  -l) cat "$TABLE";;
  -r) : > "$TABLE";;
  -) cat > "$TABLE";;
  *) cat "$1" > "$TABLE";;
esac
"""


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


@dataclass(frozen=True)
class Finished:
    """A user's clone after two runs: version 1 is champion, version 2 waits. What the commands said in between."""

    folder: Path
    after_first: dict[str, Result]


def small_task() -> dict[str, Any]:
    """The shipped task with two of its workloads, small networks and few epochs."""
    data: dict[str, Any] = yaml.safe_load(task_path("performance").read_text())
    data["workloads"] = {name: {**data["workloads"][name], "hidden": [16, 16]} for name in WORKLOADS}
    data["training"] = tiny.task()["training"] | {"epochs": 4, "pretrain_epochs": 1}
    return data


def run_of(folder: Path, seed: int) -> Steps:
    telemetry = tiny.ROOT / "data" / "base" / "samples.parquet"
    frame = pd.read_parquet(telemetry)
    path = folder / "samples.parquet"
    frame[frame["workload"].isin(WORKLOADS)].reset_index(drop=True).to_parquet(path, index=False)
    return Steps(folder / f"run-{seed}", small_task(), str(path), WORKLOADS, seed)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finished]:
    folder = tmp_path_factory.mktemp("clone")
    configuration = tiny.configuration("manual")  # a second version waits, whichever is better
    gates = configuration["gates"]["performance"]
    configuration["gates"]["performance"] = {name: gates[name] for name in ("specification", "parity")}
    tiny.write_yaml(configuration, folder / "mlflow.yaml")
    (folder / "bin").mkdir()
    crontab = folder / "bin" / "crontab"
    crontab.write_text(CRONTAB)
    crontab.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch, kfp_server() as server:
        patch.chdir(folder)
        for name, value in (("ASSAY_HOME", str(folder / ".assay")), ("ASSAY_CONFIG", str(folder / "mlflow.yaml")),
                            ("ASSAY_PROGRESS", str(folder / "events.jsonl")), ("ASSAY_KFP_ENDPOINT", server.url),
                            ("TABLE", str(folder / "table")), ("PATH", f"{crontab.parent}:{os.environ['PATH']}")):
            patch.setenv(name, value)
        (folder / "table").write_text("")
        steps = run_of(folder, 0)
        steps.train()
        assert steps.gate()
        steps.register()
        assert call("promote", *REDIS, "--reason", "the first").exit_code == 0
        after = {name: call(name, *REDIS) for name in ("promote", "rollback")}
        second = replace(steps, folder=folder / "run-1", seed=1)
        second.train()
        assert second.gate()
        assert second.register()["redis"]["alias"] == "challenger"
        assert call("promote", "--workload", "training", "--reason", "the first").exit_code == 0
        yield Finished(folder, after)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_command_works(document: str, finished: Finished, tmp_path: Path) -> None:
    found = commands_of(document, tmp_path)
    for command in found:
        try_command(command, finished)
    expected = document != "docs/recipes/add-an-actuator.md"  # which has none
    assert bool(found) is expected


def try_command(command: Command, finished: Finished) -> None:
    program, *arguments = command.words
    match program, arguments:
        case "assay", ["run" | "record" | "validate" | "control" | "init" | "shadow-report", *_]:
            take_apart(arguments)
        case "assay", _:
            arguments = [os.environ["ASSAY_KFP_ENDPOINT"] if word == "URL" else word for word in arguments]
            done = call(*arguments)
            assert done.exit_code == 0, f"{command}\n{done.output}"
        case "make", _:
            subprocess.run(["make", "-n", *arguments], cwd=tiny.ROOT, check=True, capture_output=True)
        case "model_signing", _:
            tool = Path(sys.executable).with_name("model_signing")
            done = subprocess.run([tool, *arguments], cwd=finished.folder, capture_output=True, text=True)
            assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        case "python", ["-c", _]:
            done = subprocess.run([sys.executable, *arguments], cwd=finished.folder, capture_output=True, text=True,
                                  env={**os.environ, "PYTHONPATH": str(tiny.ROOT)})
            assert done.returncode == 0, f"{command}\n{done.stderr}"
        case "python", ["-m", module, *_]:
            assert importlib.util.find_spec(module) is not None, command
        case "sudo", [script]:
            assert os.access(tiny.ROOT / script, os.X_OK), command
        case _:
            raise AssertionError(f"no way to try it: {command}")


def take_apart(arguments: list[str]) -> None:
    """Every option must be known and its value of the right type; raises click's error."""
    group: Any = typer.main.get_command(app)
    group.commands[arguments[0]].make_context(arguments[0], arguments[1:])


def test_the_row_of_the_tutorial_is_that_of_the_shipped_task(tmp_path: Path) -> None:
    rows = [command.words for document in ("README.md", "docs/tutorial.md")
            for command in commands_of(document, tmp_path / document.replace("/", "-")) if "--row" in command.words]
    assert len(rows) == 2
    for words in rows:
        given = set(json.loads(words[words.index("--row") + 1]))
        given |= {value.partition("=")[0] for option, value in pairwise(words) if option == "--set"}
        workload = words[words.index("--workload") + 1]
        assert given == {quantity.name for quantity in load_task("performance").features(workload)}


def test_a_metric_that_prometheus_does_not_give_is_not_assumed(
        finished: Finished, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a setting may be left out: the middle of a pressure's range would be a made-up measurement."""
    monkeypatch.setattr(bundle_commands, "_live_values", lambda *_: {})
    done = call("predict", "--workload", "training", "--at", "now", "--prometheus", "http://127.0.0.1:1")
    assert done.exit_code == 2 and "columns must include psi_cpu_some" in done.stderr


def test_what_the_tutorial_says_of_promote_and_rollback_after_the_first_run(finished: Finished) -> None:
    tutorial = " ".join((tiny.ROOT / "docs" / "tutorial.md").read_text().split())
    promote, rollback = (finished.after_first[name] for name in ("promote", "rollback"))
    assert promote.exit_code == rollback.exit_code == 1
    said = "workload must have a challenger to promote, got none"
    assert said in promote.stderr and f'`promote` answers "{said}"' in tutorial
    assert "expected a champion before the present one" in rollback.stderr
    assert "`rollback` that there was no champion before, both with exit code 1" in tutorial


def test_a_command_is_taken_apart_as_a_shell_does(tmp_path: Path) -> None:
    words = [command.words for command in commands_of("docs/tutorial.md", tmp_path)]
    assert ("make", "run") in words and ("sudo", "deploy/install-debian-packages.sh") in words
    assert ("assay", "promote", "--workload", "redis", "--reason", "reviewed the report") in words


@pytest.mark.parametrize(("arguments", "message"), [
    (["run", "--telemetri", "x"], "telemetri"), (["run", "--seed", "many"], "integer"), (["record"], "destination")])
def test_a_command_that_would_fail_is_noticed(arguments: list[str], message: str) -> None:
    with pytest.raises(Exception) as caught:
        take_apart(arguments)
    assert message in f"{caught.value!r} {caught.value} {getattr(caught.value, 'message', '')}".lower()
