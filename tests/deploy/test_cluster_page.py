"""The ten commands of the page, as a shell runs them; of what they need a cluster for, how they call it."""

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from deploy.manifests import HERE, PAGE, manifests
from feature_store.written.model import parse_written
from models.configuration import load_configuration
from models.tasks.task import load_task
from pipelines.command_line import app
from pipelines.controller_command_line import make_parser
from pipelines.kfp_connection import CA_VARIABLE, ENDPOINT_VARIABLE, NAMESPACE_VARIABLE, TOKEN_VARIABLE
from pipelines.values_file import ValuesFile
from serving.keys import load_private_key
from tests.e2e.tiny import ROOT
from tests.pipelines.kfp_server import kfp_server

SHIM = """#!/bin/sh
printf '%s\\n' "$(basename "$0") $*" >> calls
"""


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what the commands read, after all ten."""
    folder = tmp_path_factory.mktemp("clone")
    shutil.copytree(ROOT / "deploy", folder / "deploy")
    shutil.copyfile(ROOT / "mlflow.yaml", folder / "mlflow.yaml")
    (folder / "bin").mkdir()
    for name in ("docker", "kubectl", "assay"):
        (folder / "bin" / name).write_text(SHIM)
        (folder / "bin" / name).chmod(0o755)
    lines = [line for line in PAGE.read_text().splitlines()[:40] if line.startswith("    ")]
    block = "\n".join(lines[:10])
    assert block.count("\n") == 9 and lines[9].startswith("    assay schedule create")
    subprocess.run(["bash", "-e", "-c", f"{block}\nwait"], cwd=folder, check=True, timeout=60,
                   env={**os.environ, "PATH": f"{folder / 'bin'}:/usr/bin:/bin"})
    return folder


def calls(folder: Path, program: str) -> list[str]:
    return [line for line in (folder / "calls").read_text().splitlines() if line.startswith(f"{program} ")]


def test_what_is_applied_is_there(followed: Path) -> None:
    applied = [call.split("-k ")[1] for call in calls(followed, "kubectl") if " apply -k " in call]
    ours = [place for place in applied if not place.startswith("github.com/kubeflow/pipelines/")]
    assert ours == ["deploy/kustomize/pipeline"] and len(applied) == 3
    assert (ROOT / ours[0] / "kustomization.yaml").is_file()
    assert (ROOT / calls(followed, "docker")[0].split()[3]).is_file()


def test_the_key_is_one_that_signs(followed: Path) -> None:
    load_private_key(followed / "assay.key")


def test_the_cluster_s_mlflow_yaml_keeps_the_gates_and_takes_the_key_out_of_the_shared_folder(
        followed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_HOME", "/var/lib/assay")
    made, ours = (load_configuration(path) for path in (followed / "cluster/mlflow.yaml", ROOT / "mlflow.yaml"))
    assert made.gates == ours.gates and made.promotion == ours.promotion
    assert (made.tracking_uri, made.artifact_root) == ("http://mlflow:5000", "mlflow-artifacts:/assay")
    assert str(made.private_key_path) == "/run/assay/assay.key"
    assert made.public_key_path.is_relative_to(made.home) and made.ledger_path.is_relative_to(made.home)


def told(words: list[str]) -> tuple[str, dict[str, Any]]:
    """A command of assay and its options; raises click's error where it would be refused."""
    command: Any = typer.main.get_command(app)
    name = ""
    while hasattr(command, "commands"):
        name, *words = words
        command = command.commands[name]
    return name, command.make_context(name, words).params


def test_every_command_of_assay_on_the_page_is_one() -> None:
    commands = [told(shlex.split(line)) for line in re.findall(r"^    (?:.*-- env USER=\S+ )?assay (.*)$",
                                                               PAGE.read_text(), re.MULTILINE)]
    assert [name for name, _ in commands] == ["create", "history", "promote", "init", "submit"]


def test_what_the_page_trains_is_what_the_manifest_s_controller_acts_as() -> None:
    page = PAGE.read_text()
    (begun,) = [told(shlex.split(line))[1] for line in re.findall(r"^    assay (init .*)$", page, re.MULTILINE)]
    made = {one.content["kind"]: one.content for one in manifests(HERE / "kustomize/controller")}
    program, *words = made["Deployment"]["spec"]["template"]["spec"]["containers"][0]["command"]
    acting = make_parser().parse_args(words)
    assert program == "assay"
    assert (acting.task, acting.workload) == (load_task("autoscaling").name, begun["deployment"])
    assert made["RoleBinding"]["metadata"]["namespace"] == begun["namespace"]
    assert f"sed 's/NAMESPACE/{begun['namespace']}/g; s/DEPLOYMENT/{begun['deployment']}/g'" in page


def test_the_page_s_secrets_fit_the_values_and_name_what_its_table_names() -> None:
    page = PAGE.read_text()
    (example,) = re.findall(r"\n\n((?: {4}secrets:\n)(?: {5,}.*\n)+)\n", page)
    values = parse_written(ValuesFile, (HERE / "values.yaml").read_text() + dedent(example), "values", "the page")
    (entry,) = values.secrets
    table = set(re.findall(r"`((?:MLFLOW|AWS|PG)[A-Z_]+)`", page))
    assert set(entry.variables) == set(entry.variables.values()) <= table
    assert f"create secret generic {entry.secret} " in page


def test_the_page_names_every_variable_that_is_read_for_the_connection() -> None:
    for name in (ENDPOINT_VARIABLE, TOKEN_VARIABLE, NAMESPACE_VARIABLE, CA_VARIABLE):
        assert f"| `{name}` |" in PAGE.read_text()


def test_its_command_for_another_namespace_leaves_none_of_the_first(tmp_path: Path) -> None:
    (command,) = re.findall(r"^    (sed -i 's/namespace: kubeflow.*)$", PAGE.read_text(), re.MULTILINE)
    shutil.copytree(HERE / "kustomize", tmp_path / "deploy/kustomize")
    subprocess.run(["bash", "-e", "-c", command], cwd=tmp_path, check=True, timeout=60)
    texts = [path.read_text() for path in (tmp_path / "deploy").rglob("*.yaml")]
    assert not [text for text in texts if "kubeflow" in text]
    assert sum("namespace: team" in text for text in texts) == 6


@pytest.mark.parametrize("submit", [False, True], ids=["the schedule", "or one run, with the same options but --cron"])
def test_what_is_sent_has_the_values(submit: bool, followed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import kfp

    monkeypatch.chdir(followed)
    monkeypatch.setattr(kfp.Client, "_LOCAL_KFP_CONTEXT", str(followed / "context.json"))
    monkeypatch.setenv("ASSAY_HOME", str(followed / "home"))
    monkeypatch.setenv("ASSAY_CONFIG", str(followed / "mlflow.yaml"))
    (followed / "map.yaml").write_text("workloads: {redis: {latency_ms: 'avg(redis_latency_ms)'}}\n")
    (call,) = calls(followed, "assay")
    before, _, after = call.partition("--cron 0 2 * * * ")
    with kfp_server() as server:
        last = after.replace("http://127.0.0.1:8888", server.url).split()
        arguments = [*before.split()[1:], "--cron", "0 2 * * *", *last]
        if submit:
            arguments = ["submit", *before.split()[3:], *last]
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 0, done.output
        (made,) = (server.state.runs if submit else server.state.recurring_runs).values()
    assert made["service_account"] == "assay-steps"
    sent = json.dumps(made["pipeline_spec"])
    assert sent.count("assay-signing-key") == 2 and '"activeDeadlineSeconds": "7200"' in sent
    assert "registry.example/assay:0.1.0" in sent
    assert ('"enableCache": true' in sent) is submit
