"""Whole campaigns, tiny: the data set, a crashed workload, signals, and what is left behind."""

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pandas as pd
import psutil
import pytest

from feature_store.errors import MissingToolError, SourceError
from feature_store.schema import METRICS
from recording import campaign, data_card, tools
from recording.campaign import record_campaign, required_tools
from recording.control_groups import find_hierarchy
from recording.dataset import COLUMNS, CampaignSummary
from recording.engine import ProgressEvent
from recording.loopback import accepts_connections, free_port
from recording.preparation import Prepare, prepare_state
from recording.processes import ACCOUNT, Guard
from recording.raw_folder import Outcome, RawFolder
from recording.settings import CampaignSettings
from recording.workloads.base import Place, RunCommand, StartCommand
from recording.workloads.catalogue import WORKLOADS
from recording.workloads.mysql import MySQL
from recording.workloads.redis import Redis
from recording.workloads.search import Search

SMALL = CampaignSettings(
    workloads=("redis", "nginx"),
    theta=2,
    combinations=1,
    seconds_per_combination=9.0,
    warm_up_s=1.0,
    interference=False,
    environment="test",
)
REDIS = dataclasses.replace(SMALL, workloads=("redis",), theta=1)
MISSING = [name for name in required_tools(SMALL) if shutil.which(name, path=tools.SEARCH_PATH) is None]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
needs_tools = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")


def groups_left(pid: int) -> list[Path]:
    hierarchy = find_hierarchy()
    parents = [parent for parent in (hierarchy.cpu, hierarchy.memory) if parent is not None]
    return [group for parent in parents for group in parent.glob(f"assay-{pid}-*")]


def processes_in(folder: Path) -> list[str]:
    """Names of the processes whose command line or working folder names `folder`, the reaper and servers among them.

    Read in one pass: a process may end between two questions put to it.
    """
    return [
        process.info["name"]
        for process in psutil.process_iter(["name", "cmdline", "cwd"])
        if process.pid != os.getpid()
        and any(str(folder) in word for word in [*(process.info["cmdline"] or []), process.info["cwd"] or ""])
    ]


def children_called(name: str) -> list[psutil.Process]:
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if process.name() == name:
                found.append(process)
    return found


@contextlib.contextmanager
def open_scratch() -> Iterator[Path]:
    """A folder that the servers' account may enter, as it may not enter pytest's."""
    with tempfile.TemporaryDirectory(prefix="assay-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def scratch() -> Iterator[Path]:
    with open_scratch() as folder:
        yield folder


def record(
    tmp_path: Path, settings: CampaignSettings = SMALL, scratch: Path | None = None, **options: object
) -> CampaignSummary:
    return record_campaign(
        settings, tmp_path / "out", lambda event: None, scratch=scratch, **options  # type: ignore[arg-type]
    )


@needs_tools
def test_a_tiny_campaign_gives_a_data_set_and_leaves_nothing_behind(tmp_path: Path, scratch: Path) -> None:
    events: list[ProgressEvent] = []
    summary = record_campaign(SMALL, tmp_path / "out", events.append, scratch=scratch, command="assay record x")
    samples = pd.read_parquet(tmp_path / "out" / "samples.parquet")
    assert tuple(samples) == COLUMNS
    assert len(samples) == summary.samples >= 4
    assert set(samples["workload"]) == {"redis", "nginx"}
    assert set(samples["environment"]) == {"test"}
    assert (samples["window_start"].diff().dropna() % pd.Timedelta(seconds=2) == pd.Timedelta(0)).all()
    assert samples[list(METRICS)].notna().all().all()
    assert samples[list(METRICS)].min().min() >= 0 and samples[list(METRICS)].max().max() <= 1
    assert (samples["latency_ms"] > 0).all()
    assert samples["cpu_quota_cores"].notna().all() and samples["batch_size"].isna().all()
    card = json.loads((tmp_path / "out" / "card.json").read_text())
    assert card["samples"] == summary.samples and card["command"] == "assay record x"
    assert set(card["recorder_core_share"]) == {"recorder", "prometheus", "node_exporter", "sum"}
    assert str(tmp_path) not in json.dumps(card)
    assert [event.kind for event in events][-3:] == ["combination", "cleanup", "done"]
    assert list(scratch.iterdir()) == [] and groups_left(os.getpid()) == [] and processes_in(scratch) == []

    # Everything is there: resuming starts nothing and writes the same samples.
    again = record(tmp_path, scratch=scratch, resume=True)
    assert again.samples == summary.samples
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "out" / "samples.parquet"), samples)


@needs_tools
def test_a_crashed_workload_ends_its_combination_only(tmp_path: Path, scratch: Path) -> None:
    settings = dataclasses.replace(REDIS, combinations=2, seconds_per_combination=15.0)
    crashed: list[str] = []

    def crash() -> None:
        while not crashed:
            if children_called("redis-benchmark"):
                time.sleep(4.5)
                (server,) = children_called("redis-server")
                server.kill()
                crashed.append("redis-server")
            time.sleep(0.1)

    thread = threading.Thread(target=crash)
    thread.start()
    summary = record(tmp_path, settings, scratch)
    thread.join()
    (problem,) = summary.problems.items()
    assert problem[0] == "test-0"
    assert "ended by itself" in problem[1]
    samples = pd.read_parquet(tmp_path / "out" / "samples.parquet").groupby("combination").size()
    assert samples["test-1"] >= 2 and samples.get("test-0", 0) < samples["test-1"]
    assert list(scratch.iterdir()) == [] and groups_left(os.getpid()) == [] and processes_in(scratch) == []


@needs_tools
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_when_a_recording_is_ended(number: signal.Signals, tmp_path: Path, scratch: Path) -> None:
    recorder = subprocess.Popen(
        [sys.executable, "-c", "from pipelines.command_line import main; main()", "record", str(tmp_path / "out"),
         *REDIS.options(), "--seconds-per-combination=60"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(scratch)},
    )
    await_true(lambda: "redis-benchmark" in processes_in(scratch), 180)
    recorder.send_signal(number)
    recorder.wait(60)
    assert recorder.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -9}[number]
    await_true(lambda: not (processes_in(scratch) or list(scratch.iterdir()) or groups_left(recorder.pid)), 30)


def await_true(condition: Callable[[], bool], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "condition did not come true"
        time.sleep(0.1)


@needs_tools
def test_a_server_that_does_not_start_is_reported(
    tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Redis, "server", lambda *_: ["redis-server", "--no-such-option", "1"])
    with pytest.raises(SourceError, match=r"got none.*redis ended by itself with status 1: (.|\n)*no-such-option"):
        record(tmp_path, REDIS, scratch)
    assert list(scratch.iterdir()) == []


@needs_root
@pytest.mark.parametrize("name", ["mysql", "redis", "search"])
def test_no_user_of_this_machine_becomes_root_through_a_server(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    workload = WORKLOADS[name]
    if any(shutil.which(tool, path=tools.SEARCH_PATH) is None for tool in workload.tools):
        pytest.skip(f"needs {' and '.join(workload.tools)}")
    small: dict[str, Prepare] = {
        "mysql": partial(MySQL().make_tables, tables=1, rows=10),
        "search": lambda place, run, start: Search().make_index(place, run, 10)}
    with open_scratch() as scratch, Guard(scratch) as guard:
        monkeypatch.setenv("TMPDIR", str(scratch))  # root's, where its account cannot write
        home = prepare_state(guard, name, small.get(name, workload.prepare), workload.is_ready)
        place = Place(home, guard.folder / "run", free_port())
        place.run.mkdir()
        server = guard.start(name, workload.server({"memory_mb": 64.0, "table_rows": 10.0}, place),
                             output=guard.folder / "out", environment=tools.ENVIRONMENT)
        await_true(lambda: workload.is_ready(place), 30)
        assert psutil.Process(server.session).uids() == (ACCOUNT, ACCOUNT, ACCOUNT)
        assert accepts_connections(place.port) == (name != "mysql")  # which has no password


def test_a_server_that_does_not_answer_while_it_is_prepared_is_named(scratch: Path) -> None:
    def prepare(place: Place, run: RunCommand, start: StartCommand) -> None:
        start(["/bin/sh", "-c", "echo why"])

    with Guard(scratch) as guard, pytest.raises(SourceError, match=r"no answer from the server \(redis\): why$"):
        prepare_state(guard, "redis", prepare, lambda place: False)


def test_a_campaign_that_does_not_say_what_it_began_on_is_not_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(campaign, "require_tools", lambda names: None)
    monkeypatch.setattr(data_card, "tool_versions", lambda names: {})
    settings = dataclasses.replace(REDIS, combinations=2)
    raw = RawFolder(tmp_path / "out" / "raw", settings, resume=False)
    raw.write(Outcome("test-0", {}, 1.0, 2.0, 0.5, "", {}), pd.DataFrame(index=pd.DatetimeIndex([], tz="UTC")), {})
    with pytest.raises(SourceError, match=r"must say what it was recorded on, got no host.json"):
        record(tmp_path, settings, resume=True)


def test_a_missing_tool_is_found_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "SEARCH_PATH", "/nowhere")
    with pytest.raises(MissingToolError, match="apt-get install prometheus"):
        record(tmp_path)
    assert not (tmp_path / "out").exists()
