"""ingest: a file, a file of the user's own shape, or a Prometheus server, all to one table."""

import json
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
import yaml

from components.ingest import run_ingest
from components.progress import PROGRESS_VARIABLE, read_events
from feature_store.digests import content_digest
from feature_store.errors import InputError, SourceError
from feature_store.sources import prometheus_api
from tests.e2e import tiny
from tests.feature_store.sources.recorded import metric_map, recorded_server

TASK = yaml.safe_dump(tiny.task())


@pytest.fixture(autouse=True)
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv(PROGRESS_VARIABLE, str(tmp_path / "events.jsonl"))
    monkeypatch.setattr(prometheus_api, "_FIRST_BACKOFF_S", 0.01)
    yield tmp_path / "events.jsonl"


def test_a_prometheus_server_gives_the_canonical_table(tmp_path: Path) -> None:
    with recorded_server() as (url, start_s):
        source = run_ingest(TASK, url, yaml.safe_dump(metric_map(start_s)), tmp_path / "out")
    frame = pd.read_parquet(tmp_path / "out" / "samples.parquet")
    assert source == json.loads((tmp_path / "out" / "source.json").read_text())
    assert source["workloads"] == frame["workload"].value_counts().to_dict()
    assert (source["rows"], source["telemetry"]) == (len(frame), url)
    assert source["data_version"] == content_digest(frame)


def test_the_same_answers_are_the_same_data_version(tmp_path: Path) -> None:
    """By which a scheduled run knows that a server had nothing new to say."""
    with recorded_server() as (url, start_s):
        versions = {run_ingest(TASK, url, yaml.safe_dump(metric_map(start_s)), tmp_path / name)["data_version"]
                    for name in ("a", "b")}
    assert len(versions) == 1


def test_a_users_own_file_is_mapped(tmp_path: Path) -> None:
    mapping = {"workload": {"constant": "redis"}, "time": {"column": "ts", "unit": "s", "window_s": 60},
               "columns": {"psi_io_some": {"column": "io", "unit": "percent"},
                           "latency_ms": {"column": "rt", "unit": "us"}}}
    path = tmp_path / "mine.csv"
    pd.DataFrame({"ts": [1767571200, 1767571260], "io": [25.0, 50.0], "rt": [1500, 2500]}).to_csv(path, index=False)
    source = run_ingest(TASK, str(path), yaml.safe_dump(mapping), tmp_path / "out")
    frame = pd.read_parquet(tmp_path / "out" / "samples.parquet")
    assert frame["psi_io_some"].tolist() == [0.25, 0.5] and frame["latency_ms"].tolist() == [1.5, 2.5]
    assert source["telemetry"] == "mine.csv" and source["workloads"] == {"redis": 2}


@pytest.mark.parametrize(
    ("telemetry", "mapping", "kind", "message"),
    [
        ("no.parquet", "", InputError, "telemetry must be an existing file"),
        ("empty.parquet", "", InputError, "got an empty file"),
        ("half.parquet", "", InputError, "must be a whole Parquet table"),
        ("http://127.0.0.1:1", "workloads: {redis: {latency_ms: x}}\nlast_s: 600", SourceError,
         "server must answer, got ConnectionError after 4 tries"),
        ("http://127.0.0.1:1", "", InputError, "metric map: the field 'workloads' is missing"),
        ("http://127.0.0.1:1", "[redis]", InputError, r"metric map: expected a mapping, got \['redis'\]"),
    ],
)
def test_what_cannot_be_read_leaves_nothing(
    tmp_path: Path, events: Path, telemetry: str, mapping: str, kind: type[Exception], message: str
) -> None:
    whole = tmp_path / "whole.parquet"
    tiny.telemetry(rows=50).to_parquet(whole)
    (tmp_path / "empty.parquet").touch()
    (tmp_path / "half.parquet").write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    source = telemetry if telemetry.startswith("http") else str(tmp_path / telemetry)
    with pytest.raises(kind, match=message):
        run_ingest(TASK, source, mapping, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    failed = read_events(events)[0][-1]
    assert (failed["event"], failed["step"], failed["exit_code"]) == ("failed", "ingest", 2)
