"""Training telemetry from a production Prometheus: the table it becomes, and how map and server can fail."""

import copy
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from typing import Any

import numpy as np
import pandas as pd
import pytest

from feature_store.errors import InputError, SourceError
from feature_store.schema import IDENTITY, METRICS
from feature_store.sources import prometheus_api
from feature_store.sources.production import is_prometheus, read_production
from feature_store.sources.production_map import ProductionMap
from feature_store.written.model import check_written
from recording.loopback import free_port
from tests.feature_store.prometheus_server import faulty_server, reply
from tests.feature_store.sources.recorded import ANSWERS, GAP, SCRAPE_S, SECONDS, WINDOW_S, metric_map, recorded_server

# Rates come from counters printed with 17 digits: only the server's float arithmetic differs.
RATE_TOLERANCE = 1e-9
NOWHERE = "http://127.0.0.1:1"
EXPECTED = {"psi_cpu_some": 0.5, "psi_io_full": 0.1, "psi_io_some": 0.25, "disk_io_time": 0.75, "cpu_time": 0.6,
            "psi_memory_some": 0.2, "psi_memory_full": 0.05}


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, float]]:
    with recorded_server() as running:
        yield running


@pytest.fixture(scope="module")
def table(server: tuple[str, float]) -> pd.DataFrame:
    url, start_s = server
    return read_production(url, checked(metric_map(start_s)))


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus_api, "_FIRST_BACKOFF_S", 0.01)


def changed(**changes: Any) -> dict[str, Any]:
    return {**copy.deepcopy(metric_map(0.0)), **changes}


def without_range(**changes: Any) -> dict[str, Any]:
    return {name: value for name, value in changed(**changes).items() if name not in ("start", "end")}


def checked(content: Any) -> ProductionMap:
    return check_written(ProductionMap, content, "metric map", "test")


def redis(**entry: Any) -> dict[str, Any]:
    return changed(workloads={"redis": entry})


def test_the_table_has_the_canonical_columns(table: pd.DataFrame) -> None:
    assert list(table)[: len(IDENTITY)] == list(IDENTITY)
    assert set(table) == {*IDENTITY, *METRICS, "cpu_quota_cores", "connections", "latency_ms"}
    assert str(table["window_start"].dt.tz) == "UTC"
    assert set(table["environment"]) == {"prod-eu"} and set(table["window_s"]) == {float(WINDOW_S)}


def test_every_window_has_the_rates_of_its_counters(table: pd.DataFrame) -> None:
    for name, share in EXPECTED.items():
        np.testing.assert_allclose(table[name], share, atol=RATE_TOLERANCE)
    for workload, latency_ms in (("redis", 3.0), ("nginx", 5.0)):
        found = table.loc[table["workload"] == workload, "latency_ms"]
        np.testing.assert_allclose(found, latency_ms, rtol=RATE_TOLERANCE)


def test_configuration_is_asked_for_or_stands_for_itself(table: pd.DataFrame) -> None:
    rows = dict(iter(table.groupby("workload")))
    assert set(rows["redis"]["connections"]) == {16.0} and set(rows["redis"]["cpu_quota_cores"]) == {2.0}
    assert set(rows["nginx"]["connections"]) == {64.0} and set(rows["nginx"]["cpu_quota_cores"]) == {0.5}


def test_a_window_is_named_by_its_start(server: tuple[str, float], table: pd.DataFrame) -> None:
    start_s = server[1] + WINDOW_S
    starts = table.loc[table["workload"] == "redis", "window_start"].map(pd.Timestamp.timestamp).tolist()
    last = server[1] + SECONDS - SCRAPE_S
    assert starts == list(np.arange(start_s, last - WINDOW_S + 1, WINDOW_S))


def test_an_outage_leaves_no_rows_and_nothing_is_filled_in(server: tuple[str, float], table: pd.DataFrame) -> None:
    """A rate needs two scrapes within the window and one scrape interval before it."""
    starts = table.loc[table["workload"] == "nginx", "window_start"].map(pd.Timestamp.timestamp) - server[1]
    scrapes = [second for second in range(0, SECONDS, SCRAPE_S) if second not in GAP]
    expected = [start for start in range(WINDOW_S, SECONDS - WINDOW_S - SCRAPE_S + 1, WINDOW_S)
                if sum(start - SCRAPE_S < second <= start + WINDOW_S for second in scrapes) >= 2]
    assert starts.tolist() == expected
    assert len(expected) < len(table[table["workload"] == "redis"])


def test_the_table_passes_the_data_gate(table: pd.DataFrame) -> None:
    """An outage of hours is not a clock that jumped: nobody said which workloads ran together."""
    from feature_store.rules import check_table, rules_for
    from feature_store.schema import CONFIGURATION, TARGETS, TelemetrySchema

    shifted = table.copy()
    shifted.loc[shifted.index >= 10, "window_start"] += pd.Timedelta(hours=30)
    features = {**METRICS, "connections": CONFIGURATION["connections"]}
    rows = check_table(shifted[shifted["workload"] == "redis"])
    rules = rules_for(TelemetrySchema("redis", features, dict(TARGETS), ("environment", "window_start")), rows)
    gaps = [rule for rule in rules if rule.kind == "time_gap"]
    assert all(not (rows[rule.derived].dropna() > rule.maximum).any() for rule in gaps if rule.maximum is not None)


@pytest.mark.parametrize("late_s", [0.0, 17.123, 29.999])
@pytest.mark.parametrize("last_s", [300, 310.5])
def test_last_s_counts_back_from_now_in_windows_that_are_the_same_for_every_run(late_s: float, last_s: float) -> None:
    asked: list[str] = []
    end = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
    now = end + timedelta(seconds=late_s)
    content = without_range(last_s=last_s)

    def respond(handler: BaseHTTPRequestHandler) -> None:
        asked.append(handler.path)
        reply({"status": "success", "data": {"resultType": "matrix", "result": []}})(handler)

    with faulty_server(respond) as (url, _), pytest.raises(SourceError, match="exactly one series, got 0"):
        read_production(url, checked(content), now)
    first = end - timedelta(seconds=300 - WINDOW_S)
    assert f"start={first.timestamp():.3f}&end={end.timestamp():.3f}&step=30.000" in asked[0]


def test_the_scrape_interval_reaches_the_questions_without_a_metric_of_its_own() -> None:
    """It widens the range of a rate; with the default one a 30 s window would be measured over 31 s."""
    assert f"[{WINDOW_S + SCRAPE_S}s]" in ANSWERS.read_text()
    assert f"[{WINDOW_S + 1}s]" not in ANSWERS.read_text()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], r"metric map: expected a mapping, got \[\]"),
        ({}, "metric map: the field 'workloads' is missing"),
        (changed(workloads={}), r"workloads: expected a mapping that is not empty, got \{\}"),
        (changed(workloads=["redis"]), r"workloads: expected a mapping that is not empty, got \['redis'\]"),
        (changed(workloads={"../x": {"latency_ms": "y"}}), "workloads.../x: expected letters, digits"),
        (changed(windw_s=30), "windw_s: unknown field; did you mean 'window_s'"),
        (changed(window_s="30s"), "window_s: expected a number above 0, got '30s'"),
        (changed(window_s=0), "window_s: expected a number above 0, got 0"),
        (changed(window_s=True), "window_s: expected a number above 0, got true"),
        (changed(last_s=-1), "last_s: expected a number above 0, got -1"),
        (changed(last_s=60), "metric map: expected either `last_s` or `start` and `end`, got start, end, last_s"),
        (without_range(last_s=1e300), "window_s and last_s must be spans that a calendar has, got 30 and 1e\\+300 s"),
        (without_range(last_s=60, window_s=1e-9), "window_s and last_s must be spans that a calendar has, got 1e-09"),
        (changed(window_s=1e300), "window_s and last_s must be spans that a calendar has, got 1e\\+300 s"),
        (changed(start="yesterday"), "start: expected an ISO time, got 'yesterday'; write 2026-11-01T00:00:00Z"),
        (changed(start="2026-11-01T00:00:00"), "start: expected a time zone, got '2026-11-01T00:00:00'; write"),
        (changed(start=3), "start: expected an ISO time with a zone, got 3"),
        (changed(end="1970-01-01T00:00:00Z"), "end must be at least window_s after start, got .* to 1970-01-01 00:00"),
        (changed(start="2026-01-05T12:00:00Z", end="2026-01-05T12:00:29Z"),
         r"end must .* got 2026-01-05 12:00:00\+00:00 to 2026-01-05 12:00:29\+00:00 and 30 s"),
        (without_range(last_s=29), "metric map: expected `last_s` of at least `window_s`, 30 s, got 29 s"),
        (changed(scrape_interval_s="often"), "scrape_interval_s: expected a number above 0, got 'often'"),
        (redis(), "workloads.redis: the field 'latency_ms' is missing"),
        (redis(latency_ms=5), "workloads.redis.latency_ms: expected a text that is not empty, got 5"),
        (redis(latency_ms=None), "workloads.redis.latency_ms: expected a text that is not empty, got nothing"),
        (redis(latency_ms="x", latncy=3), "workloads.redis.latncy: unknown field; did you mean 'latency_ms'"),
        (redis(latency_ms="x", configuration=[1]), r"workloads.redis.configuration: expected a mapping, got \[1\]"),
        (redis(latency_ms="x", configuration={"conections": 1}),
         "workloads.redis.configuration.conections: expected a property of the schema, .*did you mean 'connections'"),
        *((redis(latency_ms="x", configuration={"connections": value}),
           f"workloads.redis.configuration.connections: expected a text that is not empty or a number, got {told}")
          for value, told in ((None, "nothing"), (float("nan"), "nan"), (True, "true"), ("", "''"))),
    ],
)
@pytest.mark.usefixtures("no_waiting")
def test_an_unusable_map_is_refused_and_named(server: tuple[str, float], content: Any, message: str) -> None:
    url, start_s = server
    if isinstance(content, dict):  # the range on record, so that only the fault is left
        range_s = {key: metric_map(start_s)[key] for key in ("start", "end")}
        content = {**content, **{key: value for key, value in range_s.items() if content.get(key) == changed()[key]}}
    with pytest.raises(InputError, match=f"^{message}"):
        read_production(url, checked(content))


@pytest.mark.usefixtures("no_waiting")
def test_a_server_that_is_down() -> None:
    with pytest.raises(SourceError, match="server must answer, got ConnectionError after 4 tries"):
        read_production(f"http://127.0.0.1:{free_port()}", checked(changed()))


@pytest.mark.usefixtures("no_waiting")
def test_a_server_that_is_too_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    from feature_store.sources import production

    def slow(handler: BaseHTTPRequestHandler) -> None:
        time.sleep(1.0)

    impatient = production.PrometheusSource
    monkeypatch.setattr(production, "PrometheusSource", lambda url: impatient(url, timeout_s=0.1, retries=1))
    with faulty_server(slow) as (url, _), pytest.raises(SourceError, match=r"got none within 0\.1 s after 2 tries"):
        read_production(url, checked(changed()))


@pytest.mark.usefixtures("no_waiting")
def test_a_server_that_fails_for_a_moment_is_asked_again(server: tuple[str, float], table: pd.DataFrame) -> None:
    record = json.loads(ANSWERS.read_text())
    failed: set[str] = set()

    def flaky(handler: BaseHTTPRequestHandler) -> None:
        from tests.feature_store.sources.recorded import question

        asked = question(handler.path)
        if asked not in failed:
            failed.add(asked)
            reply("busy", 503)(handler)
        else:
            reply(record["answers"][asked])(handler)

    with faulty_server(flaky) as (url, _):
        pd.testing.assert_frame_equal(read_production(url, checked(metric_map(record["start_s"]))), table)


@pytest.mark.parametrize("part", [{"warnings": ["store gateway unreachable"]}, {"isPartial": True}])
def test_partial_data_is_refused(part: dict[str, Any]) -> None:
    answer = {"status": "success", "data": {"resultType": "matrix", "result": []}, **part}
    with faulty_server(reply(answer)) as (url, _), pytest.raises(SourceError, match="answer must be complete"):
        read_production(url, checked(changed()))


def test_a_workload_without_a_single_whole_window(server: tuple[str, float]) -> None:
    """All metrics are there, the latency never at the same time: an error, not an empty table."""
    record = json.loads(ANSWERS.read_text())
    start_s = record["start_s"]
    content = metric_map(start_s)
    del content["workloads"]["nginx"]

    def late(handler: BaseHTTPRequestHandler) -> None:
        from tests.feature_store.sources.recorded import question

        asked = question(handler.path)
        answer = copy.deepcopy(record["answers"][asked])
        if "redis_seconds" in asked:
            answer["data"]["result"][0]["values"] = [[start_s + 2 * WINDOW_S, "NaN"]]
        reply(answer)(handler)

    with faulty_server(late) as (url, _), pytest.raises(SourceError, match="a window with all metrics and a latency"):
        read_production(url, checked(content))


@pytest.mark.parametrize(("silent", "series"), [("redis", 0), ("redis_clients", 0), ("seconds", 0), ("redis", 2)])
def test_a_workload_without_a_series_costs_itself_alone_and_is_named(server: tuple[str, float], table: pd.DataFrame,
                                                                     silent: str, series: int) -> None:
    from tests.feature_store.sources.recorded import question

    record = json.loads(ANSWERS.read_text())

    def respond(handler: BaseHTTPRequestHandler) -> None:
        answer = copy.deepcopy(record["answers"][question(handler.path)])
        if silent in question(handler.path) and "node" not in question(handler.path):
            answer["data"]["result"] *= series
        reply(answer)(handler)

    with faulty_server(respond) as (url, _):
        if silent == "seconds" or series:
            with pytest.raises(SourceError, match=f"latency_ms of workload redis must .* one series, got {series}"):
                read_production(url, checked(metric_map(record["start_s"])))
            return
        found = read_production(url, checked(metric_map(record["start_s"])))
    nginx = table[table["workload"] == "nginx"].dropna(axis=1).reset_index(drop=True)
    pd.testing.assert_frame_equal(found, nginx, check_like=True)


@pytest.mark.parametrize(("telemetry", "expected"), [
    ("http://127.0.0.1:9090", True), ("https://prometheus.example/prefix", True), ("data/base/samples.parquet", False),
    ("http.parquet", False)])
def test_an_address_is_told_from_a_file(telemetry: str, expected: bool) -> None:
    assert is_prometheus(telemetry) is expected
