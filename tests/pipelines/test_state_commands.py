"""The commands about ledger and state folder: retire, history's end, adopt, predict's least head."""

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from models.configuration import Configuration
from pipelines.command_line import app
from serving.ledger_heads import head_file
from serving.registry import Registry
from tests.serving.conftest import accept, write_bundle

pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated")

ROW = json.dumps({"psi_cpu_some": 0.2, "psi_io_full": 0.5, "connections": 8.0})


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


@pytest.fixture
def state(empty_state: Configuration, tmp_path: Path) -> Configuration:
    """A champion and a challenger."""
    registry = Registry(empty_state, checker=accept)
    registry.register(write_bundle(tmp_path / "first"))
    champion = {"version": 1, "metrics": {"test_mse": 1.0}}
    registry.register(write_bundle(tmp_path / "second", slope=9.0, champion=champion), champion=champion)
    return empty_state


def test_a_pinned_head_a_cut_ledger_and_a_retired_champion(state: Configuration) -> None:
    shown = call("history")
    assert shown.exit_code == 0
    head = shown.stdout.splitlines()[-1]
    assert head.startswith("4:")
    predicted = call("predict", "--workload", "redis", "--row", ROW, "--least-head", head, "--json")
    assert predicted.exit_code == 0, predicted.output
    assert call("predict", "--bundle", ".", "--row", ROW, "--least-head", head).exit_code == 2

    whole = state.ledger_path.read_bytes()
    state.ledger_path.write_bytes(whole[:-1])
    for command in (("history",), ("predict", "--workload", "redis", "--row", ROW), ("rollback", "-w", "redis"),
                    ("promote", "-w", "redis"), ("retire", "-w", "redis", "--version", "1")):
        done = call(*command)
        assert (done.exit_code, done.stderr.count("\n")) == (1, 1), command
        assert "its last line was cut off" in done.stderr
    state.ledger_path.write_bytes(whole)

    done = call("retire", "-w", "redis", "--version", "1", "--reason", "gone")
    assert "retired: assay.performance.redis version 1; there is no champion now" in done.stdout
    assert json.loads(call("promote", "-w", "redis", "--json").stdout)["version"] == 2
    found = json.loads(call("retire", "-w", "redis", "--version", "2", "--json").stdout)
    assert found == {"model": "assay.performance.redis", "version": 2, "champion": None, "drifts": []}
    assert [row["action"] for row in json.loads(call("history", "--json").stdout)][-3:] == [
        "retire", "approve", "retire"]


def test_a_copy_is_adopted(state: Configuration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(state.home, tmp_path / "copy")
    monkeypatch.setenv("ASSAY_HOME", str(tmp_path / "copy"))
    for command in (["run"], ["history"], ["predict", "--workload", "redis", "--row", ROW]):
        refused = call(*command)
        assert (refused.exit_code, refused.stderr.count("\n")) == (1, 1), refused.output
        assert f"{state.home}, got {tmp_path}/copy" in refused.stderr
    done = call("adopt")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith(f"adopted: {tmp_path}/copy; ")
    assert call("history").exit_code == 0
    assert call("adopt").exit_code == 2
    assert head_file(tmp_path / "copy" / "ledger" / "promotions.jsonl").exists()
