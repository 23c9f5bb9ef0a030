"""`assay init` where there is no mlflow.yaml. With a service: tests/systems/autoscaling/service/test_init.py."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from feature_store.errors import InputError
from pipelines import console
from pipelines.command_line import app
from pipelines.commands.init_command import _write
from tests.e2e.tiny import ROOT

SHIPPED = (ROOT / "mlflow.yaml").read_text()


@pytest.fixture(autouse=True)
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder; the code is not that of a clone, as in a wheel."""
    packages = tmp_path / "packages"
    packages.mkdir()
    (packages / "mlflow.yaml").write_text(SHIPPED)
    monkeypatch.setattr(console, "SHIPPED_CONFIGURATION", packages / "mlflow.yaml")
    monkeypatch.delenv("ASSAY_CONFIG", raising=False)
    monkeypatch.delenv("ASSAY_HOME", raising=False)
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    return here


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def test_it_writes_the_file_that_every_other_command_asks_for(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = call("history")
    assert refused.exit_code == 2
    assert refused.stderr.count("\n") == 1 and "`assay init` writes one, --config or $ASSAY_CONFIG" in refused.stderr
    assert json.loads(call("init", "--json").stdout) == {"files": {"mlflow.yaml": "mlflow.yaml"}, "next": ["assay run"]}
    assert (empty / "mlflow.yaml").read_text() == SHIPPED
    monkeypatch.delenv("ASSAY_CONFIG", raising=False)
    assert call("history").exit_code == 0


def test_it_replaces_none_unless_it_is_asked_to(empty: Path) -> None:
    (empty / "mlflow.yaml").write_text("mine")
    refused = call("init")
    assert refused.exit_code == 2 and "--overwrite replaces them" in refused.stderr
    assert (empty / "mlflow.yaml").read_text() == "mine"
    assert call("init", "--overwrite").exit_code == 0
    assert (empty / "mlflow.yaml").read_text() == SHIPPED


def test_none_of_its_files_is_there_where_one_cannot_be_written(empty: Path) -> None:
    with pytest.raises(InputError, match="folder must be one that can be written"):
        _write({empty / "service" / "task.yaml": "mine", empty / "service" / ("x" * 300): "mine"}, overwrite=False)
    assert not list((empty / "service").iterdir())


def test_a_clone_s_own_is_used_from_any_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "SHIPPED_CONFIGURATION", ROOT / "mlflow.yaml")
    assert console.found_configuration() == ROOT / "mlflow.yaml"


def test_a_service_s_name_needs_a_source() -> None:
    refused = call("init", "--deployment", "web")
    assert refused.exit_code == 2 and "expected --prometheus or --csv, which" in refused.stderr
    assert "of --deployment, got none" in refused.stderr
