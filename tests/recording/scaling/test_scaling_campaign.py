"""Whole scaling campaigns, tiny: the data set, resuming, a disturbed point, signals, and what is left behind."""

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from feature_store.errors import InputError, MissingToolError, SourceError
from recording import data_card, tools
from recording.data_card import keep_host
from recording.engine import ProgressEvent
from recording.scaling import campaign, dataset, plan
from recording.scaling.campaign import record_scaling
from recording.scaling.columns import EVENTS, POINTS, WINDOWS
from recording.scaling.meters import Sample
from recording.scaling.open_loop import Result
from recording.scaling.plan import Deployment
from recording.scaling.raw_trials import Event, RawTrials, TrialOutcome
from recording.scaling.servers.nginx import ScalableNginx
from recording.scaling.settings import ScalingSettings
from tests.recording.test_campaign import await_true, groups_left, open_scratch, processes_in

SMALL = ScalingSettings(
    servers=("nginx",), utilisations=(0.3, 0.6), point_s=2.0, warm_up_s=0.5, most_attempts=1, sweeps_only=True)
MISSING = [name for name in ("nginx", "taskset") if shutil.which(name, path=tools.SEARCH_PATH) is None]
needs_nginx = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")


@pytest.fixture
def one_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "_SHAPES", ((0.5, 1, 1),))
    monkeypatch.setattr(campaign, "_DEMAND_S", 1.5)


@pytest.fixture
def scratch() -> Iterator[Path]:
    with open_scratch() as folder:
        yield folder


@needs_nginx
def test_a_tiny_campaign_gives_a_data_set_and_leaves_nothing_behind(
    tmp_path: Path, scratch: Path, one_shape: None
) -> None:
    events: list[ProgressEvent] = []
    out = tmp_path / "out"
    summary = record_scaling(SMALL, out, events.append, scratch=scratch, command="assay record x")
    points = pd.read_parquet(out / "points.parquet")
    assert (tuple(points), len(points)) == (tuple(POINTS), summary.points) and summary.missing == 0
    assert (points["throughput_per_s"] > 5).all() and (points["errors"] == 0).all()
    assert (points["latency_p99_ms"] >= points["latency_p50_ms"]).all() and (points["latency_p50_ms"] > 0).all()
    heavy, light = points.set_index("planned_utilisation").loc[[0.6, 0.3]].to_dict("records")
    assert heavy["offered_per_s"] > light["offered_per_s"] and heavy["cpu_cores"] > light["cpu_cores"] > 0
    assert (points["utilisation"] < 1.2).all() and (points["memory_mib"] > 0.1).all()
    windows, starts = (pd.read_parquet(out / f"{name}.parquet") for name in ("windows", "events"))
    assert (tuple(windows), tuple(starts)) == (tuple(WINDOWS), tuple(EVENTS))
    assert set(windows["kind"]) == {"start", "point"} and (starts["took_s"] > 0).all() and len(starts) == 1
    card = json.loads((out / "card.json").read_text())
    assert card["rows"]["points"] == 2 and card["servers"]["nginx"]["demand_ms"] > 0.01
    assert str(tmp_path) not in json.dumps(card) and str(tmp_path) not in (out / "README.md").read_text()
    assert [event.kind for event in events][-3:] == ["trial", "cleanup", "done"]
    assert list(scratch.iterdir()) == [] and groups_left(os.getpid()) == [] and processes_in(scratch) == []

    # A trial that is missing is recorded, and only that one.
    shutil.rmtree(next((out / "raw").glob("*-02-point")))
    events.clear()
    again = record_scaling(SMALL, out, events.append, scratch=scratch, resume=True)
    assert sum(event.kind == "trial" for event in events) == 1 and again.points == 2
    kept = points["trial"].str.endswith("-01-point")
    pd.testing.assert_frame_equal(pd.read_parquet(out / "points.parquet")[kept], points[kept])
    with pytest.raises(InputError, match="settings it began with"):
        record_scaling(dataclasses.replace(SMALL, seed=3), out, events.append, scratch=scratch, resume=True)


@needs_nginx
def test_a_disturbed_point_is_recorded_again(tmp_path: Path, scratch: Path, one_shape: None) -> None:
    settings = dataclasses.replace(SMALL, utilisations=(0.3,), most_attempts=2, most_disturbance_cores=0.0)
    record_scaling(settings, tmp_path / "out", lambda event: None, scratch=scratch)
    assert pd.read_parquet(tmp_path / "out" / "points.parquet")["attempts"].tolist() == [2]


@needs_nginx
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_when_a_recording_is_ended(number: signal.Signals, tmp_path: Path, scratch: Path) -> None:
    root = Path(campaign.__file__).parents[2]
    code = (
        "import sys; from pathlib import Path; from recording.scaling.campaign import record_scaling;"
        "from recording.scaling.settings import ScalingSettings;"
        "record_scaling(ScalingSettings(servers=('nginx',)), Path(sys.argv[1]), print, scratch=Path(sys.argv[2]))")
    recorder = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "out"), str(scratch)], stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": str(root)})
    try:
        await_true(lambda: "nginx" in processes_in(scratch), 60)
    finally:
        with contextlib.suppress(ProcessLookupError):
            recorder.send_signal(number)
    recorder.wait(60)
    assert recorder.returncode == {signal.SIGTERM: 143, signal.SIGKILL: -9}[number]
    await_true(lambda: not (processes_in(scratch) or list(scratch.iterdir()) or groups_left(recorder.pid)), 30)


@needs_nginx
def test_a_server_that_does_not_start_is_reported(
    tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ScalableNginx, "command", lambda *_: ["nginx", "-t", "-c", "/no/such/file"])
    with pytest.raises(SourceError, match="server must keep running, but it ended with status 1"):
        record_scaling(SMALL, tmp_path / "out", lambda event: None, scratch=scratch)
    assert list(scratch.iterdir()) == []


def test_a_missing_tool_is_found_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "SEARCH_PATH", "/nowhere")
    with pytest.raises(MissingToolError, match="apt-get install nginx-light"):
        record_scaling(SMALL, tmp_path / "out", lambda event: None)
    assert not (tmp_path / "out").exists()


def test_a_trial_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    raw = RawTrials(tmp_path / "raw", SMALL, resume=False)
    outcome = TrialOutcome("nginx-0.5x1x1-03-quota", 1.7e9, 12.5, 0.001, 0.5, 2, (Event("quota", 0.3, 8.0, 0.01),))
    times = np.array([0.0, 1.0])
    result = Result(times, times, times, np.array([0.5, np.nan]), np.array([0, 1], dtype=np.uint8))
    samples = [Sample(12.5, 0.1, 0.0, 0.0, 3.0, 0.0, 4, 1, 2.5), Sample(13.0, 0.2, 0.1, 0.1, 3.5, 0.1, 9, 1, 2.5)]
    raw.write(outcome, result, samples)
    raw.write_demand("nginx", 0.00125)
    again = RawTrials(tmp_path / "raw", SMALL, resume=True)
    assert again.has(outcome.identifier) and again.outcome(outcome.identifier) == outcome
    assert again.samples(outcome.identifier) == samples and again.demand_s("nginx") == 0.00125
    for name, values in vars(again.result(outcome.identifier)).items():
        np.testing.assert_array_equal(values, getattr(result, name))
    assert again.demand_s("redis") is None and not again.has("nginx-0.5x1x1-04-instance")


def test_what_a_stopped_campaign_has_is_written_without_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tools, "SEARCH_PATH", "/nowhere")  # nothing could be started
    monkeypatch.setattr(dataset, "scaling_card", lambda *arguments: {"missing": arguments[3]})
    monkeypatch.setattr(dataset, "scaling_card_text", lambda card: "")
    raw = RawTrials(tmp_path / "out" / "raw", SMALL, resume=False)
    keep_host(raw.path, [], begun=False)
    due = np.arange(0.0, 2.5, 0.01)
    result = Result(due, due, due, due + 0.01, np.zeros(len(due), dtype=np.uint8))
    samples = [Sample(0.5 * at, 0.1 * at, 0.0, 0.0, 0.1 * at, 0.0, 0, 0, 2.0) for at in range(6)]
    raw.write(TrialOutcome("nginx-0.25x1x1-01-point", 1.7e9, 0.0, 0.001, 0.25, 1, ()), result, samples)
    summary = record_scaling(SMALL, tmp_path / "out", lambda event: None, write_only=True)
    assert summary.points == 1 and summary.missing == 17
    (point,) = pd.read_parquet(tmp_path / "out" / "points.parquet").to_dict("records")
    assert point["offered_per_s"] == pytest.approx(100.0) and point["latency_p50_ms"] == pytest.approx(10.0)
    assert point["cpu_cores"] == pytest.approx(0.2) and point["utilisation"] == pytest.approx(0.8)
    assert json.loads((tmp_path / "out" / "card.json").read_text()) == {"missing": 17}
    empty = tmp_path / "empty"
    with pytest.raises(InputError, match="must hold a campaign"):
        record_scaling(SMALL, empty, lambda event: None, write_only=True)
    RawTrials(empty / "raw", SMALL, resume=False)
    with pytest.raises(SourceError, match="expected points, got none"):
        record_scaling(SMALL, empty, lambda event: None, write_only=True)


def test_a_demand_that_was_measured_elsewhere_is_not_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(campaign, "require_tools", lambda names: None)
    monkeypatch.setattr(data_card, "tool_versions", lambda names: {})
    raw = RawTrials(tmp_path / "out" / "raw", SMALL, resume=False)
    keep_host(raw.path, [], begun=False)
    raw.write_demand("nginx", 0.001)
    monkeypatch.setattr(data_card, "cpu_model", lambda: "another")
    with pytest.raises(InputError, match="must have the machine and the versions it began with, got cpu_model another"):
        record_scaling(SMALL, tmp_path / "out", lambda event: None, resume=True)


def test_a_raw_folder_in_use_is_not_overwritten(tmp_path: Path) -> None:
    RawTrials(tmp_path / "raw", SMALL, resume=False)
    with pytest.raises(InputError, match="pass --resume"):
        RawTrials(tmp_path / "raw", SMALL, resume=False)


def test_a_deployment_has_a_name_that_tells_its_shape() -> None:
    assert Deployment("nginx", 0.25, 1, 2).identifier == "nginx-0.25x1x2"
