"""Every command: help with an example, exit code 2 for bad usage, one JSON document or one line for an error."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from pipelines.command_line import app
from tests.components.steps import IGNORED_WARNING
from tests.e2e import tiny

COMMANDS = ("run", "record", "compile", "submit", "schedule create", "schedule list", "schedule delete", "check",
            "predict", "promote", "rollback", "retire", "history", "adopt", "ui", "validate", "verify", "recommend",
            "audit", "control", "serve", "release", "demo", "stop-acting", "resume-acting", "init", "shadow-report",
            "monitor", "audit-registry", "culprit", "keys rotate", "keys revoke", "keys show",
            "clean")
ROW = json.dumps({"psi_cpu_some": 0.1, "psi_io_some": 0.1, "connections": 1})


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder with a task, telemetry and an empty state folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASSAY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ASSAY_CONFIG", str(tiny.write_yaml(tiny.configuration(), tmp_path / "mlflow.yaml")))
    monkeypatch.delenv("ASSAY_KFP_ENDPOINT", raising=False)
    tiny.write_yaml(tiny.task(), tmp_path / "tiny.yaml")
    tiny.telemetry(rows=5).to_parquet(tmp_path / "samples.parquet", index=False)
    return tmp_path


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def test_the_list_is_complete() -> None:
    names = {command.name for command in app.registered_commands}
    names |= {f"{group.name} {command.name or command.callback.__name__}"  # type: ignore[union-attr]
              for group in app.registered_groups for command in group.typer_instance.registered_commands}  # type: ignore[union-attr]
    assert names == set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(command: str) -> None:
    done = call(*command.split(), "--help")
    assert done.exit_code == 0
    text = " ".join(done.stdout.split())
    assert f"Example: assay {command.split()[0]}" in text


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unknown_option_is_bad_usage(command: str) -> None:
    done = call(*command.split(), "--no-such-option")
    assert done.exit_code == 2 and "no-such-option" in done.output


@pytest.mark.parametrize("arguments", [(), ("schedule",), ("fly",), ("run", "extra"), ("promote",), ("rollback",),
                                       ("retire", "-w", "redis"), ("retire", "--version", "1"),
                                       ("check",), ("record",), ("schedule", "create"), ("schedule", "delete"),
                                       ("run", "--seed", "-1"), ("run", "--seed", "x")])
def test_missing_or_superfluous_words_are_bad_usage(arguments: tuple[str, ...]) -> None:
    assert call(*arguments).exit_code == 2


@pytest.mark.parametrize(("arguments", "name"), [
    (("shadow-report", "-w", "redis", "--task", "autoscaling", "--folder", ""), "--folder"),
    (("shadow-report", "-w", "redis", "--task", "autoscaling", "--output="), "--output"),
    (("control", "-w", "redis", "--controller", ""), "--controller"), (("serve", "--folder="), "--folder"),
    (("serve", "--bundle", "b", "--bundle="), "--bundle"), (("serve", "--host", ""), "--host"),
    (("history", "--config", ""), "--config"),
    (("check", ""), "bundle"), (("run", "--telemetry", ""), "--telemetry"), (("run", "--task="), "--task"),
    (("keys", "show", "--config", ""), "--config"), (("schedule", "list", "--endpoint", ""), "--endpoint")])
def test_an_empty_value_is_refused_by_its_name(arguments: tuple[str, ...], name: str) -> None:
    done = call(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {name} must have a value, got an empty one; give one")
    assert len(done.stderr.splitlines()) == 1


def test_with_json_an_empty_value_is_a_document_too() -> None:
    done = call("history", "--config", "", "--json")
    assert done.exit_code == 2 and json.loads(done.stdout)["error"].startswith("--config must have a value")


@pytest.mark.filterwarnings(IGNORED_WARNING)
def test_an_option_that_is_empty_where_it_is_not_given_may_be_given_so() -> None:
    assert "must have a value" not in call("stop-acting", "-w", "redis", "--reason", "").output


def test_the_version_is_printed() -> None:
    done = call("--version")
    assert done.exit_code == 0 and done.stdout.startswith("assay ")


TINY = ("--task", "tiny.yaml", "--telemetry", "samples.parquet")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "--task", "performence"), "performence"),
        (("run", *TINY, "--workload", "rediss"), "did you mean 'redis'?"),
        (("run", *TINY, "--method", "magic"), "training.method: expected plain"),
        (("run", "--task", "tiny.yaml", "--telemetry", "no.parquet"), "telemetry must be an existing file"),
        (("run", *TINY, "--mapping", "no.yaml"), "mapping must be an existing file"),
        (("run", *TINY, "--name", "../escape"), "run name must be letters, digits, - and _"),
        (("run", *TINY, "--config", "no.yaml"), "configuration must be an existing file"),
        (("compile", "train.json"), "output: expected a name that ends in .yaml"),
        (("submit", *TINY), "endpoint"),
        (("schedule", "create", "--cron", "0 2 * *", *TINY), "cron"),
        (("schedule", "create", "--cron", "0 2 * * *", "--name", "two words", "--local", *TINY), "schedule name:"),
        (("schedule", "list"), "endpoint"),
        (("schedule", "delete", "nightly"), "endpoint"),
        (("check", "nowhere"), "bundle must be a folder"),
        (("predict", "--row", ROW), "either --workload or --bundle must be given"),
        (("predict", "--workload", "redis", "--bundle", ".", "--row", ROW), "either --workload or --bundle"),
        (("predict", "--workload", "redis"), "either --row or --at now must be given"),
        (("predict", "--bundle", "nowhere", "--row", ROW), "nowhere"),
        (("predict", "--workload", "redis", "--row", "[" * 100_000), "row must be a JSON object"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(project: Path, arguments: tuple[str, ...], message: str) -> None:
    done = call(*arguments)
    assert done.exit_code == 2, done.output
    assert done.stderr.startswith("error: ") and message in done.stderr
    assert "Traceback" not in done.output
    assert not (project / "home").exists() or not list((project / "home").rglob("*.jsonl"))


@pytest.mark.parametrize("arguments", [("run", *TINY, "--workload", "rediss"), ("compile", "x.json"),
                                       ("check", "nowhere"), ("submit", *TINY), ("schedule", "list")])
def test_with_json_an_error_is_a_document(arguments: tuple[str, ...]) -> None:
    done = call(*arguments, "--json")
    document = json.loads(done.stdout)
    assert done.exit_code == document["exit_code"] == 2
    assert " must " in document["error"] or "expected " in document["error"]


def test_a_task_that_has_no_gates_is_refused_before_training(project: Path) -> None:
    configuration: dict[str, Any] = tiny.configuration()
    configuration["gates"] = {"other": configuration["gates"]["tiny"]}
    tiny.write_yaml(configuration, project / "mlflow.yaml")
    done = call("run", *TINY)
    assert done.exit_code == 2 and "task must have gates in mlflow.yaml, got 'tiny'" in done.stderr


def test_a_run_name_is_used_once(project: Path) -> None:
    (project / "home" / "runs" / "mine").mkdir(parents=True)
    done = call("run", *TINY, "--name", "mine")
    assert done.exit_code == 2 and "run name must be new, got 'mine'" in done.stderr


def test_an_empty_ledger_has_an_empty_history() -> None:
    assert "no entries yet" in call("history").stdout
    assert json.loads(call("history", "--json").stdout) == []


def test_the_configuration_may_be_given_by_option_variable_or_folder(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert call("history", "--config", "mlflow.yaml").exit_code == 0
    monkeypatch.delenv("ASSAY_CONFIG")
    assert call("history").exit_code == 0
    (project / "mlflow.yaml").write_text("trackng: {}\n")
    done = call("history")
    assert done.exit_code == 2 and "did you mean 'tracking'" in done.stderr


def test_compile_writes_what_a_cluster_runs(project: Path) -> None:
    from pipelines.package import read_package

    assert call("compile", "build/out.yaml").stdout == "wrote build/out.yaml\n"
    assert read_package(project / "build" / "out.yaml").name == "train"
    assert json.loads(call("compile", "out.yaml", "--json").stdout) == {"package": "out.yaml"}


@pytest.mark.filterwarnings(IGNORED_WARNING)
def test_without_a_registry_there_is_nothing_to_predict_with_and_nothing_to_move() -> None:
    """Exit code 1: the request is fine, the answer is no."""
    for command in (("predict", "--workload", "redis", "--row", ROW), ("promote", "--workload", "redis"),
                    ("rollback", "--workload", "redis")):
        done = call(*command)
        assert done.exit_code == 1, (command, done.stderr)
        assert done.stderr.startswith("error: ") and "redis" in done.stderr
