"""`assay monitor --act` from the first champion on: it trains where the world changed, and goes back where it changed
back.
"""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from serving.ledger import Ledger
from tests.components.steps import IGNORED_WARNING
from tests.e2e import tiny
from tests.e2e.processes import Project, new_project

pytestmark = [pytest.mark.timeout(1200), pytest.mark.filterwarnings(IGNORED_WARNING)]

WORKLOAD = "nginx"


def telemetry(path: Path, days: int, seed: int, times: float = 1.0) -> Path:
    """So many days after the first champion's telemetry; the latency is as many times as long."""
    frame = tiny.telemetry((WORKLOAD,), seed=seed)
    frame["window_start"] += pd.Timedelta(days=days)
    frame.assign(latency_ms=frame["latency_ms"] * times).to_parquet(path, index=False)
    return path


def monitored(project: Project, path: Path, *options: str) -> tuple[int, dict[str, Any]]:
    done = project.call("monitor", "--task", "tiny.yaml", "--telemetry", path, "--json", *options)
    (one,) = json.loads(done.stdout)["champions"]
    return done.returncode, one


def test_what_changed_is_trained_for_and_what_changed_back_is_rolled_back(tmp_path: Path) -> None:
    project = new_project(tmp_path, (WORKLOAD,))
    done = project.call("run", "--task", "tiny.yaml", "--telemetry", "samples.parquet")
    assert done.returncode == 0, done.stdout + done.stderr
    ledger = Ledger(project.configuration.ledger_path, project.configuration.public_key_path)

    code, one = monitored(project, telemetry(tmp_path / "same.parquet", 1, 10))
    assert (code, one["decision"], one["rows"], one["notes"]) == (0, "fine", 300, [])
    assert {"specification", "error", "coverage", "drift"} <= {finding["what"] for finding in one["findings"]}

    slow = telemetry(tmp_path / "slow.parquet", 2, 20, times=3.0)
    code, one = monitored(project, slow, "--act")
    assert (one["version"], one["decision"]) == (1, "retrain") and one["done"].startswith("trained in run monitor-")
    assert code == 0 and f"({WORKLOAD}: challenger)" in one["done"]  # its box is a smaller one: a person decides
    promoted = project.call("promote", "--task", tiny.TASK_NAME, "--workload", WORKLOAD)
    assert promoted.returncode == 0, promoted.stdout + promoted.stderr
    assert ledger.champion_of(tiny.TASK_NAME, WORKLOAD) == 2

    code, one = monitored(project, slow)
    assert (code, one["version"], one["decision"], one["rows"]) == (0, 2, "no data", 0)

    again = telemetry(tmp_path / "again.parquet", 3, 30)
    code, one = monitored(project, again)
    assert (code, one["version"], one["decision"], one["done"]) == (1, 2, "roll back", "")
    later = telemetry(tmp_path / "later.parquet", 4, 40)
    code, one = monitored(project, later, "--act")
    assert (code, one["done"]) == (0, "rolled back: version 1 is champion again")
    assert ledger.champion_of(tiny.TASK_NAME, WORKLOAD) == 1
    last = ledger.history(tiny.TASK_NAME, WORKLOAD)[-1].move
    assert (last.action, last.actor) == ("rollback", "assay monitor") and "is better on these rows" in last.reason
    assert "rolled back" in (project.home / "monitor/tiny.html").read_text()
