"""`assay promote --pending` and `assay audit-registry`, as a schedule and a person call them."""

import json
import os
from pathlib import Path

import mlflow
import pytest
from typer.testing import CliRunner, Result

from models.configuration import Configuration, load_configuration
from pipelines.command_line import app
from pipelines.commands import registry_commands
from serving.registry import Registry
from tests.components.steps import IGNORED_WARNING
from tests.serving.conftest import ROOT, accept, write_bundle

pytestmark = pytest.mark.filterwarnings(IGNORED_WARNING)

MODELS = [f"assay.performance.{workload}" for workload in ("mysql", "nginx", "redis")]


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


@pytest.fixture(scope="module")
def configuration(tmp_path_factory: pytest.TempPathFactory) -> Configuration:
    """With approval: manual."""
    folder = tmp_path_factory.mktemp("reviews")
    text = (ROOT / "mlflow.yaml").read_text().replace("approval: auto", "approval: manual")
    (folder / "mlflow.yaml").write_text(text)
    return load_configuration(folder / "mlflow.yaml", {"ASSAY_HOME": str(folder / "home")})


@pytest.fixture(scope="module")
def client(configuration: Configuration, tmp_path_factory: pytest.TempPathFactory) -> mlflow.MlflowClient:
    """Three versions wait."""
    registry = Registry(configuration, checker=accept)
    for workload in ("mysql", "nginx", "redis"):
        registry.register(write_bundle(tmp_path_factory.mktemp("bundles") / workload, workload=workload))
    return mlflow.MlflowClient(configuration.tracking_uri, configuration.tracking_uri)


@pytest.fixture(autouse=True)
def environment(configuration: Configuration, client: mlflow.MlflowClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_HOME", str(configuration.home))
    monkeypatch.setenv("ASSAY_CONFIG", str(configuration.home.parent / "mlflow.yaml"))


def test_reviews_are_carried_out_and_what_waits_is_said(client: mlflow.MlflowClient) -> None:
    done = call("promote", "--pending")
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [f"waits for a review: {model} version 1" for model in MODELS]

    for model, word in zip(MODELS, ("aprove", "approve", "reject"), strict=True):
        client.set_model_version_tag(model, "1", "assay.review", word)
    client.set_model_version_tag(MODELS[1], "1", "assay.review.by", "ann")
    done = call("promote", "--pending", "--workload", "nginx")
    assert (done.exit_code, done.stdout) == (0, f"approved by ann: {MODELS[1]} version 1: champion now\n")
    done = call("promote", "--pending")
    assert done.exit_code == 1, "one was refused"
    assert done.stdout.splitlines() == [
        f"refused: {MODELS[0]} version 1: assay.review must be approve or reject, got 'aprove'; "
        "did you mean 'approve'?",
        f"rejected: {MODELS[2]} version 1: taken out", f"waits for a review: {MODELS[0]} version 1"]
    assert json.loads(call("promote", "--pending", "--json").stdout) == {
        "reviews": [], "waiting": [{"model": MODELS[0], "version": 1}]}


@pytest.mark.parametrize("arguments", [("--version", "1"), ("--reason", "x"), ("--override-gates",)])
def test_pending_takes_what_the_tags_say(arguments: tuple[str, ...]) -> None:
    done = call("promote", "--pending", *arguments)
    assert done.exit_code == 2 and "--pending must stand without" in done.stderr


def test_promote_asks_for_a_workload() -> None:
    done = call("promote")
    assert done.exit_code == 2 and "--workload must be given, or --pending" in done.stderr


def test_a_workload_that_the_ledger_does_not_know_has_nothing_pending() -> None:
    done = call("promote", "--pending", "--workload", "reddis")
    assert done.exit_code == 2 and "did you mean 'redis'?" in done.stderr


def test_the_registry_is_audited_and_healed(client: mlflow.MlflowClient) -> None:
    right = "the registry is as the ledger and the bundles say\n"
    assert (call("audit-registry").stdout, call("audit-registry").exit_code) == (right, 0)
    client.set_model_version_tag(MODELS[0], "1", "gates", "9 of 9")
    said = (f"{MODELS[0]} version 1: tag gates must be '8 of 8' as the bundle says, got '9 of 9'; "
            "assay audit-registry --heal sets it right")
    done = call("audit-registry")
    assert (done.exit_code, done.stdout.splitlines()) == (1, [said, "1 wrong"])
    assert json.loads(call("audit-registry", "--json").stdout) == {"healed": [], "wrong": [{
        "model": MODELS[0], "version": 1, "what": "tag gates", "expected": "'8 of 8' as the bundle says",
        "found": "'9 of 9'", "remedy": "assay audit-registry --heal sets it right"}]}
    done = call("audit-registry", "--heal")
    assert (done.exit_code, done.stdout) == (0, f"set right: {said}\n{right}")
    assert call("audit-registry", "--heal").stdout == right


def test_without_a_state_folder_nothing_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_HOME", str(tmp_path / "none"))
    assert call("audit-registry").exit_code == 0 and not (tmp_path / "none").exists()


def test_who_has_no_name_is_known_by_the_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a pod whose uid stands in no /etc/passwd."""
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)

    def unknown(_: int) -> None:
        raise KeyError("getpwuid(): uid not found: 4242")

    monkeypatch.setattr("pwd.getpwuid", unknown)
    assert registry_commands._person() == f"user {os.getuid()}"
