"""Names that come with a pipeline's arguments lead no step out of its own folder."""

import json
from pathlib import Path

import pytest
import yaml

from components.gate import run_gate
from components.register import _register_one
from components.report import run_report
from feature_store.errors import InputError
from models.configuration import load_configuration
from serving.outcomes import Registration
from tests.components.steps import project
from tests.e2e import tiny
from tests.serving.conftest import write_bundle


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    folder = tmp_path / "precious"
    folder.mkdir()
    (folder / "thesis.txt").write_text("years of work")
    return folder


def untouched(precious: Path) -> bool:
    return {path.name: path.read_text() for path in precious.iterdir()} == {"thesis.txt": "years of work"}


@pytest.mark.parametrize("name", ["../precious", "../../precious", "..", ""])
def test_gate_copies_no_bundle_out_of_its_folder(tmp_path: Path, precious: Path, name: str) -> None:
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    (bundle / "failed.json").write_text(json.dumps({"step": "verify", "message": "no"}))
    with project(tmp_path / "project"), pytest.raises(InputError, match="path: expected one below"):
        run_gate(yaml.safe_dump(tiny.task()), [name], tmp_path, [bundle], tmp_path / "out" / "gated")
    assert untouched(precious)


@pytest.mark.parametrize("name", ["../../precious", "/etc", "..", ""])
def test_report_keeps_no_pages_out_of_the_state_folder(tmp_path: Path, precious: Path, name: str) -> None:
    with project(tmp_path / "project"), pytest.raises(InputError, match="path: expected one below"):
        run_report(yaml.safe_dump(tiny.task()), name, tmp_path, tmp_path, tmp_path, [], tmp_path / "page")
    assert untouched(precious)


def test_register_keeps_no_bundle_out_of_the_state_folder(tmp_path: Path, precious: Path) -> None:
    """Also where a registry has let the contract's name through."""
    folder = write_bundle(tmp_path / "bundle", workload="../../../precious")
    (folder / "evidence.json").write_text(json.dumps({"metrics": {}, "reproduce": {"command": "assay run"}}))
    configuration = load_configuration(Path("mlflow.yaml").resolve(), {"ASSAY_HOME": str(tmp_path / "home")})

    class Careless:
        def register(self, *arguments: object, **options: object) -> Registration:
            return Registration("m", 1, "r", True, "champion", "", "0" * 64)

    entry = _register_one(Careless(), configuration.home, "../../../precious", folder, None, None, False)
    assert "bundle" not in entry
    assert "no copy of version 1" in entry["message"] and "path: expected one below" in entry["message"]
    assert untouched(precious)
