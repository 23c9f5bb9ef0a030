"""`assay submit` and `assay schedule` as typed by a user, over HTTP to tests/pipelines/kfp_server.py."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from feature_store.digests import content_digest
from pipelines.command_line import app
from pipelines.kfp_connection import CA_VARIABLE, ENDPOINT_VARIABLE, NAMESPACE_VARIABLE, TOKEN_VARIABLE
from pipelines.request import code_version
from recording.loopback import free_port
from tests.e2e import tiny
from tests.pipelines.kfp_server import KfpServer, kfp_server

TINY = ("--task", "tiny.yaml", "--telemetry", "samples.parquet")


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    import kfp

    monkeypatch.chdir(tmp_path)
    # kfp reads ~/.config/kfp/context.json, whose place it fixes at import: a user's own must not matter
    monkeypatch.setattr(kfp.Client, "_LOCAL_KFP_CONTEXT", str(tmp_path / "context.json"))
    monkeypatch.setenv("ASSAY_HOME", str(tmp_path / "home"))
    tiny.write_yaml(tiny.task(), tmp_path / "tiny.yaml")
    tiny.telemetry(rows=5).to_parquet(tmp_path / "samples.parquet", index=False)
    return tmp_path


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[KfpServer]:
    with kfp_server() as running:
        monkeypatch.setenv("ASSAY_KFP_ENDPOINT", running.url)
        yield running


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def schedule(*more: str) -> Result:
    return call("schedule", "create", "--cron", "0 2 * * *", *TINY, *more)


def only(objects: dict[str, Any]) -> dict[str, Any]:
    ((_, one),) = objects.items()
    return dict(one)


def test_submit_sends_the_whole_request(server: KfpServer, project: Path) -> None:
    done = call("submit", *TINY, "--workload", "redis", "--seed", "3", "--name", "by-hand", "--json")
    assert done.exit_code == 0, done.output
    run = only(server.state.runs)
    assert json.loads(done.stdout)["run_id"] == run["run_id"] and run["display_name"] == "by-hand"
    parameters = run["runtime_config"]["parameters"]
    assert parameters["workloads"] == ["redis"] and parameters["seed"] == 3
    assert yaml.safe_load(parameters["task_yaml"]) == tiny.task()
    assert parameters["data_version"] == content_digest(project / "samples.parquet")
    assert parameters["code_version"] == code_version()
    assert parameters["telemetry"] == str(project / "samples.parquet")
    assert run["pipeline_spec"]["pipelineInfo"]["name"] == "train"


def test_submit_prints_where_to_look(server: KfpServer) -> None:
    done = call("submit", *TINY, "--name", "by-hand")
    assert done.exit_code == 0 and f"{server.url}/#/runs/details/" in done.stdout


def test_a_schedule_is_created_listed_replaced_and_deleted(server: KfpServer) -> None:
    done = schedule("--json")
    assert done.exit_code == 0, done.output
    (made,) = json.loads(done.stdout)
    assert (made["name"], made["cron"], made["kfp_cron"]) == ("train-tiny", "0 2 * * *", "0 0 2 * * *")
    assert len(made["next_runs"]) == 3
    stored = only(server.state.recurring_runs)
    assert stored["max_concurrency"] == "1" and stored["no_catchup"] is True
    assert stored["trigger"]["cron_schedule"]["cron"] == "0 0 2 * * *"
    parameters = stored["runtime_config"]["parameters"]
    assert parameters["scheduled"] is True and parameters["data_version"].startswith("schedule-train-tiny-")

    assert schedule().exit_code == 0
    assert len(server.state.recurring_runs) == 1
    listed = call("schedule", "list")
    assert "train-tiny" in listed.stdout and "0 2 * * *" in listed.stdout

    gone = call("schedule", "delete", "train-tiny")
    assert gone.exit_code == 0 and "deleted train-tiny" in gone.stdout
    assert server.state.recurring_runs == {} and json.loads(call("schedule", "list", "--json").stdout) == []


def test_a_schedule_has_the_workloads_method_and_parallelism_that_it_was_told(server: KfpServer) -> None:
    done = schedule("--workload", "redis", "--method", "plain", "--parallelism", "3")
    assert done.exit_code == 0, done.output
    stored = only(server.state.recurring_runs)
    parameters = stored["runtime_config"]["parameters"]
    assert parameters["workloads"] == ["redis"]
    assert yaml.safe_load(parameters["task_yaml"])["training"] == tiny.task()["training"] | {"method": "plain"}
    assert '"parallelismLimit": 3' in json.dumps(stored["pipeline_spec"])


def test_a_schedule_of_policies_has_the_budget_that_it_was_told(server: KfpServer) -> None:
    done = call("schedule", "create", "--cron", "0 2 * * *", "--task", "autoscaling", "--budget", "4")
    assert done.exit_code == 0, done.output
    parameters = only(server.state.recurring_runs)["runtime_config"]["parameters"]
    assert yaml.safe_load(parameters["task_yaml"])["training"]["budget"] == 4.0


@pytest.mark.parametrize("command", [("submit",), ("schedule", "create"), ("schedule", "list")])
def test_help_names_what_is_read_of_the_environment(command: tuple[str, ...]) -> None:
    done = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "200"})
    for variable in (ENDPOINT_VARIABLE, TOKEN_VARIABLE, NAMESPACE_VARIABLE, CA_VARIABLE):
        assert f"${variable}" in done.stdout


def test_no_task_of_a_schedule_is_answered_from_the_cache(server: KfpServer) -> None:
    """A retraining on new telemetry behind the same path must not be swallowed."""
    assert schedule().exit_code == 0
    text = json.dumps(only(server.state.recurring_runs)["pipeline_spec"])
    assert "cachingOptions" in text and '"enableCache": true' not in text


def test_deleting_what_is_not_there_names_the_nearest(server: KfpServer) -> None:
    schedule()
    done = call("schedule", "delete", "train-tniy")
    assert done.exit_code == 2 and "did you mean 'train-tiny'?" in done.stderr
    assert len(server.state.recurring_runs) == 1


@pytest.mark.parametrize("arguments", [("submit", *TINY), ("schedule", "list"), ("schedule", "delete", "x"),
                                       ("schedule", "create", "--cron", "0 2 * * *", *TINY)])
def test_a_cluster_that_is_down_is_an_error_that_names_it(arguments: tuple[str, ...]) -> None:
    endpoint = f"http://127.0.0.1:{free_port()}"
    done = call(*arguments, "--endpoint", endpoint)
    assert done.exit_code == 2 and endpoint in done.stderr and "Traceback" not in done.output


def test_a_cluster_that_fails_half_way_loses_no_schedule(server: KfpServer) -> None:
    assert schedule().exit_code == 0
    before = dict(server.state.recurring_runs)
    server.state.fail_with, server.state.fault_on = 500, "POST /apis/v2beta1/recurringruns"
    done = schedule()
    assert done.exit_code == 2 and done.stderr.startswith("error: ")
    assert server.state.recurring_runs == before


def test_a_bad_cron_reaches_no_cluster(server: KfpServer) -> None:
    done = call("schedule", "create", "--cron", "61 2 * * *", *TINY)
    assert done.exit_code == 2 and "61" in done.stderr
    assert server.state.requests == []
