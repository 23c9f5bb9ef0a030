"""`assay history` with many and long names; names that the ledger does not know, in every command that takes one."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from models.configuration import load_configuration
from pipelines.command_line import app
from pipelines.history_lines import history_lines
from serving.keys import create_key_pair
from serving.ledger import Ledger
from serving.moves import Move
from tests.components.steps import IGNORED_WARNING
from tests.e2e import tiny

pytestmark = pytest.mark.filterwarnings(IGNORED_WARNING)

LONG = "a-workload-with-a-rather-long-name-of-the-spark-cluster-in-frankfurt"
WORKLOADS = 400  # with three moves each: 1,200 signatures
ROW = json.dumps({"psi_cpu_some": 0.1})


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def moves(workload: str, task: str = "performance", **changes: Any) -> list[Move]:
    common: dict[str, Any] = {
        "at": "2026-01-31T12:00:59+00:00", "task": task, "workload": workload, "model": f"assay.{task}.{workload}",
        "version": 1, "previous_version": None, "bundle_sha256": "a" * 64, "gates_passed": True,
        "reason": "no champion yet, so that the first version that passes its gates becomes champion at once",
        "actor": "somebody-with-a-long-name", **changes}
    return [Move(action=action, **common) for action in ("register", "challenger", "champion")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose ledger has many workloads, and one of another task."""
    folder = tmp_path_factory.mktemp("many")
    configuration = load_configuration(tiny.write_yaml(tiny.configuration(), folder / "mlflow.yaml"),
                                       {"ASSAY_HOME": str(folder / "home")})
    private, public = configuration.private_key_path, configuration.public_key_path
    private.parent.mkdir(parents=True)
    create_key_pair(private, public)
    ledger = Ledger(configuration.ledger_path, public, private)
    ledger.append([move for number in range(WORKLOADS) for move in moves(f"{LONG}-{number:04d}")])
    ledger.append(moves("hadoop", "sizing", actor="[red]root[/]"))
    return folder


@pytest.fixture(autouse=True)
def environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_HOME", str(folder / "home"))
    monkeypatch.setenv("ASSAY_CONFIG", str(folder / "mlflow.yaml"))
    monkeypatch.setenv("COLUMNS", "80")


def test_the_latest_moves_fit_80_columns_and_the_others_are_counted() -> None:
    done = call("history")
    lines = done.stdout.splitlines()
    assert done.exit_code == 0 and max(map(len, lines[:-1])) <= 80 and len(lines) < 50
    assert sum(line.split()[3:4] == ["champion"] for line in lines) == 7
    assert lines[-3] == "20 of 1,203 entries; the 1,183 before them: --rows 0"
    assert lines[-2].startswith("chain, signatures and end hold") and lines[-1].startswith("1202:")
    assert any(line.split()[0] == "1202" for line in lines if line.strip())
    text = done.stdout
    assert "2026-01-31 12:00" in text and "sizing / " in text and text.count("(somebody-with-a-long-name)") == 6


def test_markup_in_a_name_is_printed_as_it_is() -> None:
    assert "[red]root[/]" in call("history", "--task", "sizing").stdout


def test_without_a_terminal_nothing_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """For grep: the whole name in every line, the whole reason in one."""
    monkeypatch.delenv("COLUMNS")
    text = call("history", "--workload", f"{LONG}-0042").stdout
    assert text.count(f"{LONG}-0042") == 3 and text.count(f"{moves('x')[0].reason} (somebody") == 1


def test_all_of_them_are_shown_when_asked_for() -> None:
    done = call("history", "--task", "performance", "--rows", "0")
    assert done.stdout.splitlines()[-3] == "1,200 of 1,200 entries"
    assert len(json.loads(call("history", "--json").stdout)) == 1203


@pytest.mark.parametrize("command", [("history",), ("promote",), ("rollback",), ("predict", "--row", ROW)])
def test_an_unknown_workload_is_refused_with_the_nearest_name(command: tuple[str, ...]) -> None:
    done = call(*command, "--workload", f"{LONG}-042")
    assert done.exit_code == 2, done.output
    assert "that the ledger knows" in done.stderr and f"did you mean '{LONG}-0" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("command", [("history",), ("promote",), ("rollback",), ("predict", "--row", ROW)])
def test_an_unknown_task_is_refused_too(command: tuple[str, ...]) -> None:
    done = call(*command, "--workload", f"{LONG}-0042", "--task", "performence")
    assert done.exit_code == 2 and "did you mean 'performance'" in done.stderr


def test_where_no_name_is_near_not_all_of_them_are_listed() -> None:
    done = call("history", "--workload", "xyz")
    assert done.exit_code == 2 and "and 381 more" in done.stderr and len(done.stderr) < 2000


def test_a_workload_of_another_task_is_unknown_to_this_one() -> None:
    assert call("promote", "--workload", f"{LONG}-0042", "--task", "sizing").exit_code == 2


def test_only_what_replaces_a_champion_names_the_one_before() -> None:
    common = {"task": "performance", "workload": "redis", "reason": "", "actor": "ann", "version": 2,
              "at": "2026-01-31T12:00:59+00:00", "previous_version": 1}
    rows = [{**common, "sequence": number, "action": action}
            for number, action in enumerate(("register", "challenger", "approve"))]
    lines = history_lines(rows, 80)
    assert [line.split()[-1] for line in lines[1:3]] == ["2", "2"] and lines[3].endswith("2, was 1")
    assert lines[4].strip() == "no reason given (ann)"
