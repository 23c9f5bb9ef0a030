"""A tiny campaign on the real application: its tables, going on with it, and what is left behind."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from feature_store.errors import InputError, SourceError
from recording import data_card, tools
from recording.control_groups import find_hierarchy
from recording.engine import ProgressEvent
from systems.microservices.application import campaign
from systems.microservices.application.campaign import ApplicationSettings, record
from systems.microservices.application.data_card import ANOMALIES, METRICS, SPANS
from systems.microservices.application.graph import FRONT, SERVICES
from systems.microservices.application.raw_segments import RawSegments, Segment, write_segment
from systems.microservices.application.running import TOOLS
from tests.recording.test_campaign import await_true, groups_left, processes_in

# Three anomalies at once fit into it: a stressor, a disk that is limited, a network that is slow.
SMALL = ApplicationSettings(segments=1, segment_s=24.0, requests_per_s=10.0, seed=4)
MISSING = [name for name in TOOLS if shutil.which(name, path=tools.SEARCH_PATH) is None]
needs_tools = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A short path: a server's socket may have no more than 107 characters."""
    with tempfile.TemporaryDirectory(prefix="assay-") as folder:
        Path(folder).chmod(0o755)  # servers run under an account of their own
        yield Path(folder)


def anything_left(scratch: Path, recorder: int) -> bool:
    groups = [*groups_left(recorder), *Path("/sys/fs/cgroup").glob(f"*/assay-{recorder}-*")]
    return bool(groups or processes_in(scratch) or list(scratch.iterdir()))


@needs_tools
def test_a_tiny_campaign_gives_its_tables_and_leaves_nothing_behind(tmp_path: Path, scratch: Path) -> None:
    events: list[ProgressEvent] = []
    out = tmp_path / "out"
    summary = record(SMALL, out, events.append, scratch=scratch, command="assay record x")
    assert not anything_left(scratch, os.getpid()) and summary.missing == 0
    spans, metrics, anomalies = (
        pd.read_parquet(out / f"{name}.parquet") for name in ("spans", "metrics", "anomalies"))
    assert (tuple(spans), tuple(metrics), tuple(anomalies)) == (tuple(SPANS), tuple(METRICS), tuple(ANOMALIES))
    roots = spans[spans["parent"] == -1]
    assert set(roots["service"]) == {FRONT} and len(roots) > 100
    failed = spans[spans["error"]]  # a slow machine's Redis may answer nobody while something else uses up its quota
    assert (failed["start_us"] + failed["duration_us"] > 1e6 * anomalies["start_s"].min()).all()
    assert set(spans["service"].cat.categories) == set(SERVICES) == set(metrics["service"])
    parents = spans.set_index("span")["trace"].reindex(spans.loc[spans["parent"] >= 0, "parent"])
    assert np.array_equal(parents, spans.loc[spans["parent"] >= 0, "trace"])
    assert len(anomalies) and (anomalies["end_s"] > anomalies["start_s"]).all()
    if find_hierarchy().cpu is not None:
        assert metrics.groupby("service", observed=True)["cpu_cores"].mean().min() > 0
    again = record(SMALL, out, events.append, resume=True, command="assay record x")
    assert again.spans == summary.spans and events[-1].kind == "done"
    with pytest.raises(InputError, match="must have the settings it began with"):
        record(ApplicationSettings(seed=9), out, events.append, resume=True, command="assay record x")


@needs_tools
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_when_a_recording_is_ended(number: signal.Signals, tmp_path: Path, scratch: Path) -> None:
    """In the middle of an anomaly: no control group goes as long as a stressor is in it."""
    code = (
        "import sys; from pathlib import Path;"
        "from systems.microservices.application.campaign import ApplicationSettings, record;"
        f"record({SMALL!r}, Path(sys.argv[1]), print, scratch=Path(sys.argv[2]), command='')")
    recorder = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "out"), str(scratch)], stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": str(Path(campaign.__file__).parents[3])})
    try:
        await_true(lambda: any(name.startswith("stress-ng") for name in processes_in(scratch)), 90)
    finally:
        with contextlib.suppress(ProcessLookupError):
            recorder.send_signal(number)
    recorder.wait(60)
    assert recorder.returncode == {signal.SIGTERM: 143, signal.SIGKILL: -9}[number]
    await_true(lambda: not anything_left(scratch, recorder.pid), 30)


def test_nothing_recorded_is_nothing_to_write(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must hold a campaign"):
        record(SMALL, tmp_path, lambda _: None, write_only=True, command="assay record x")
    RawSegments(tmp_path / "raw", SMALL, resume=False)
    with pytest.raises(SourceError, match="expected finished segments, got none"):
        record(SMALL, tmp_path, lambda _: None, write_only=True, command="assay record x")


def test_a_campaign_that_does_not_say_what_it_began_on_is_not_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(campaign, "require_tools", lambda names: None)
    monkeypatch.setattr(campaign, "_require_exporter", lambda: None)
    monkeypatch.setattr(data_card, "tool_versions", lambda names: {})
    monkeypatch.setattr(data_card, "version", lambda name: "1")
    raw = RawSegments(tmp_path / "raw", SMALL, resume=False)
    with raw.new(0) as new:
        write_segment(Segment(0, 1.0, (), "0" * 16), new)
    more = ApplicationSettings(segments=2, segment_s=24.0, requests_per_s=10.0, seed=4)
    with pytest.raises(SourceError, match=r"must say what it was recorded on, got no host.json"):
        record(more, tmp_path, lambda _: None, resume=True, command="assay record x")


@pytest.mark.parametrize(("name", "value"), [
    ("segments", 0), ("segment_s", 5.0), ("requests_per_s", 0.0), ("seed", -1)])
def test_settings_that_make_no_sense_are_refused(name: str, value: float) -> None:
    with pytest.raises(InputError, match=f"{name} must"):
        ApplicationSettings(**{name: value})
