"""Faults of real `assay control` processes: two on one control group, SIGKILL, kill switches across restarts."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from models.control.training.trajectory_log import read_log
from pipelines.command_line import app
from serving.control.kill_switch import LEDGER_FILE, SIGNAL_FILE
from tests.components.steps import IGNORED_WARNING
from tests.e2e.tiny import ROOT
from tests.feature_store.prometheus_server import prometheus_with
from tests.pipelines.test_control_command import FILE, VALUES, needs_prometheus
from tests.serving.actuators.control_group.groups import MIB, PARENT, Tree, real_group
from tests.serving.control.policy_bundle import write_champion

pytestmark = needs_prometheus
# the command, looking at the ledger more often
PROGRAM = """
import serving.control.start
from pipelines.command_line import main
serving.control.start.POLL_S = 0.2
main()
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A server with the metrics of a service, and a controller's file."""
    folder = tmp_path_factory.mktemp("faults")
    samples = [(f'{name}{{app="shop"}}', time.time() - 5, value) for name, value in VALUES.items()]
    (folder / "server").mkdir()
    with prometheus_with(samples, folder / "server") as url:
        queries = {name: f'max({name}{{app="shop"}})' for name in VALUES}
        written = {**FILE, "prometheus": url, "signals": queries, "newest": "max(timestamp(rate_rps))",
                   "shield": {"hold": ["target_replicas"]},
                   "cgroup": {"group": "nginx", "parent": PARENT, "state": str(folder / "state")}}
        (folder / "controller.json").write_text(json.dumps(written))
        yield folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A state folder whose ledger has a champion."""
    write_champion(tmp_path / "home")
    return tmp_path / "home"


@contextlib.contextmanager
def controller(place: Path, home: Path, folder: Path, *options: str) -> "Iterator[subprocess.Popen[str]]":
    command = [sys.executable, "-c", PROGRAM, "control", "--workload", "nginx", "--controller",
               str(place / "controller.json"), "--folder", str(folder), "--every", "0.2", "--json", *options]
    process = subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT,
                               env={**os.environ, "ASSAY_HOME": str(home)})
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=60)


def step(process: "subprocess.Popen[str]") -> dict[str, Any]:
    assert process.stdout is not None and process.stderr is not None
    line = process.stdout.readline()
    assert line, process.stderr.read()
    record: dict[str, Any] = json.loads(line)
    return record


def step_where(process: "subprocess.Popen[str]", actor: str, reason: str = "") -> dict[str, Any]:
    """The first step of that actor, for a reason that begins so."""
    deadline = time.monotonic() + 60
    while True:
        record = step(process)
        if record["actor"] == actor and record["reason"].startswith(reason):
            return record
        assert time.monotonic() < deadline, record


def ended(process: "subprocess.Popen[str]") -> int:
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    return process.returncode


@pytest.fixture
def real() -> Iterator[Tree]:
    group = real_group()
    if isinstance(group, str):
        pytest.skip(group)
    group.set(cpu="100000 100000", memory=str(256 * MIB))
    yield group
    group.remove()


def test_of_two_processes_on_one_control_group_one_acts_and_the_other_takes_over(
    place: Path, home: Path, tmp_path: Path, real: Tree
) -> None:
    found = real.limits()
    acting = ("--actuator", "cgroup")
    with controller(place, home, tmp_path / "one", *acting) as one:
        step_where(one, "policy")
        changed = real.limits()
        assert changed != found
        with controller(place, home, tmp_path / "two", *acting) as two:
            waiting = [step(two) for _ in range(4)]
            assert {record["actor"] for record in waiting} == {"nobody"}
            assert all(f"(process {one.pid})" in record["reason"] and "has the lease" in record["reason"]
                       for record in waiting)
            one.kill()
            one.wait()
            first = step_where(two, "fallback")
            assert first["seen"]["cpu_limit_cores"] >= 1.0 and first["seen"]["memory_limit_mib"] >= 256.0
            assert first["failure"] == ""
            step_where(two, "policy")
            assert ended(two) == 0
    assert real.limits() == found
    for name in ("one", "two"):
        logged = read_log(tmp_path / name / "steps")
        keys = [(record.episode, record.step) for record in logged.steps]
        assert keys == sorted(set(keys)) and logged.lost == ()


def test_a_folder_has_one_controller(place: Path, home: Path, tmp_path: Path) -> None:
    with controller(place, home, tmp_path / "one") as one:
        step(one)
        with controller(place, home, tmp_path / "one") as two:
            out, _ = two.communicate(timeout=60)
            assert two.returncode == 2 and "folder must be of one controller alone" in out
        step(one)


def test_a_stop_by_signal_survives_a_kill_and_the_next_signal_lifts_it(place: Path, home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "controller"
    with controller(place, home, folder) as process:
        step_where(process, "policy")
        process.send_signal(signal.SIGUSR1)
        step_where(process, "nobody", "kill switch: SIGUSR1")
    assert (folder / SIGNAL_FILE).exists()
    with controller(place, home, folder) as process:
        assert step(process)["reason"] == "kill switch: SIGUSR1"
        process.send_signal(signal.SIGUSR1)
        step_where(process, "policy")
        assert ended(process) == 0


def test_a_signal_during_start_up_stops_instead_of_killing(place: Path, home: Path, tmp_path: Path) -> None:
    with controller(place, home, tmp_path / "controller") as process:
        status, deadline = Path(f"/proc/{process.pid}/status"), time.monotonic() + 60
        while not _holds(status.read_text()):
            assert process.poll() is None and time.monotonic() < deadline
        process.send_signal(signal.SIGUSR1)
        first = step(process)
        assert (first["number"], first["actor"], first["reason"]) == (0, "nobody", "kill switch: SIGUSR1")
        assert ended(process) == 0


def _holds(status: str) -> bool:
    """Whether the process blocks SIGUSR1, as it does while it starts."""
    masks = dict(line.split(":\t") for line in status.splitlines() if line.startswith("Sig"))
    return bool(int(masks["SigBlk"], 16) >> (signal.SIGUSR1 - 1) & 1)


@pytest.mark.filterwarnings(IGNORED_WARNING)
def test_an_operator_s_entry_of_the_ledger_stops_a_running_controller(place: Path, home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "controller"
    with controller(place, home, folder) as process:
        step_where(process, "policy")
        assert "no controller may act on autoscaling, nginx" in _assay(home, "stop-acting", "--reason", "tonight")
        reason = step_where(process, "nobody", "kill switch: stopped in the ledger by ")["reason"]
        assert reason.endswith(": tonight")
        history = _assay(home, "history")
        assert "stop_acting" in history and "tonight" in history
        home.rename(tmp_path / "away")
        for _ in range(5):
            assert step(process)["reason"] == reason
        (tmp_path / "away").rename(home)
    assert (folder / LEDGER_FILE).exists()
    with controller(place, home, folder) as process:
        assert step(process)["reason"] == reason
        assert "controllers may act" in _assay(home, "resume-acting", "--reason", "done")
        step_where(process, "policy")
        assert ended(process) == 0
    assert not (folder / LEDGER_FILE).exists()


def _assay(home: Path, command: str, *options: str) -> str:
    """What an operator's command says: another process than the controller's, which is what matters."""
    options = ("--task", "autoscaling", *options) if command != "history" else options
    done = CliRunner().invoke(app, [command, "--workload", "nginx", *options], env={"ASSAY_HOME": str(home)})
    assert done.exit_code == 0, done.output
    return " ".join(done.stdout.split())
