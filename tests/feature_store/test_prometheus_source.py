"""The Prometheus source against a real server with known data, and against one that misbehaves."""

import shutil
import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler

import numpy as np
import pandas as pd
import pytest

from feature_store.errors import InputError, SourceError
from feature_store.schema import METRICS
from feature_store.sources import prometheus_api
from feature_store.sources.metric_map import MappedMetric, MetricMap, read_metric_map
from feature_store.sources.prometheus import POINTS_PER_QUERY, PrometheusSource
from feature_store.sources.prometheus_api import shown_address
from recording.loopback import free_port
from tests.feature_store.prometheus_server import faulty_server, prometheus_with, reply

needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="prometheus is not installed: deploy/install-debian-packages.sh",
)

# Rates come from counters printed with 17 digits: only the server's float arithmetic differs.
RATE_TOLERANCE = 1e-9
SECONDS = 120
GAP = range(60, 65)
# An hour ago, so that no block is compacted or deleted while a test reads it.
START = float(int(time.time()) - 3600)
SHARES = {
    "node_pressure_cpu_waiting_seconds_total": 0.5,
    "node_pressure_io_stalled_seconds_total": 0.1,
    "node_pressure_io_waiting_seconds_total": 0.25,
    "node_pressure_memory_waiting_seconds_total": 0.2,
    "node_pressure_memory_stalled_seconds_total": 0.05,
}
EXPECTED = {
    "psi_cpu_some": 0.5,
    "psi_io_full": 0.1,
    "psi_io_some": 0.25,
    "disk_io_time": 0.75,
    "cpu_time": 0.625,
    "psi_memory_some": 0.2,
    "psi_memory_full": 0.05,
}
OK = {"status": "success", "data": {"resultType": "matrix", "result": []}}
ONE = {"metric": {"a": "b"}, "values": [[START, "1"]]}


def at(second: float) -> datetime:
    return datetime.fromtimestamp(START + second, UTC)


def node_samples() -> Iterator[tuple[str, float, float]]:
    """Counters that grow at known rates, scraped each second, with a gap in all of them."""
    series = {f'{name}{{instance="one:9100"}}': share for name, share in SHARES.items()}
    for cpu, mode, share in [(0, "idle", 0.25), (0, "iowait", 0.25), (0, "user", 0.5),
                             (1, "idle", 0.25), (1, "iowait", 0.0), (1, "user", 0.75)]:
        series[f'node_cpu_seconds_total{{instance="one:9100",cpu="{cpu}",mode="{mode}"}}'] = share
    for disk, share in [("vda", 0.75), ("vdb", 0.5), ("zram0", 1.0), ("loop1", 1.0)]:
        series[f'node_disk_io_time_seconds_total{{instance="one:9100",device="{disk}"}}'] = share
    for name, share in series.items():
        for second in range(SECONDS):
            if second not in GAP:
                yield name, START + second, 100.0 + share * second


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with prometheus_with(node_samples(), tmp_path_factory.mktemp("prometheus")) as url:
        yield url


def one_metric(expression: str, scale: float = 1.0) -> MetricMap:
    return MetricMap(metrics={"m": MappedMetric(expression=expression, scale=scale)}, scrape_interval_s=1.0)


@needs_prometheus
def test_the_default_map_gives_every_metric_of_the_schema_as_a_share(node: str) -> None:
    frame = PrometheusSource(node).read_metrics(read_metric_map(), at(10), at(50), 2)
    assert list(frame) == list(EXPECTED) and set(frame) == set(METRICS)
    assert len(frame) == 21 and str(frame.index.tz) == "UTC"
    for name, share in EXPECTED.items():
        np.testing.assert_allclose(frame[name], share, atol=RATE_TOLERANCE)


@needs_prometheus
def test_a_gap_stays_a_gap(node: str) -> None:
    frame = PrometheusSource(node).read_metrics(read_metric_map(), at(50), at(80), 1)
    missing = frame.index[frame.isna().all(axis=1)]
    # A value needs two scrapes in the two seconds before it.
    assert [stamp.timestamp() - START for stamp in missing] == list(range(61, 66))
    assert frame.drop(index=missing).notna().all().all()


@needs_prometheus
def test_read_now_refuses_a_metric_without_a_value_now(node: str) -> None:
    source = PrometheusSource(node)
    assert source.read_now(one_metric("vector(3)", scale=2.0), 10) == {"m": 6.0}
    with pytest.raises(SourceError, match="metric psi_cpu_some must have exactly one series, got 0: none"):
        source.read_now(read_metric_map(), 10)
    with pytest.raises(SourceError, match="metric m must have a value now, got nan"):
        source.read_now(one_metric("vector(NaN)"), 10)


@needs_prometheus
def test_an_ambiguous_metric_is_refused(node: str) -> None:
    with pytest.raises(SourceError, match="metric m must have exactly one series, got 4"):
        PrometheusSource(node).read_metrics(one_metric("node_disk_io_time_seconds_total"), at(0), at(9), 1)


@needs_prometheus
def test_labels_become_columns(node: str) -> None:
    frame = PrometheusSource(node).query_range("node_cpu_seconds_total", at(0), at(1), 1)
    assert set(frame) == {"timestamp", "value", "__name__", "cpu", "instance", "mode"}
    assert len(frame) == 12
    assert frame.set_index(["cpu", "mode", "timestamp"])["value"].loc["1", "user", pd.Timestamp(at(1))] == 100.75


@needs_prometheus
def test_a_long_range_is_asked_for_in_chunks_and_joined_without_loss(node: str) -> None:
    count = 2 * POINTS_PER_QUERY + 5
    frame = PrometheusSource(node).query_range("time()", at(-count + 1), at(0), 1)
    np.testing.assert_array_equal(frame["value"], START - count + 1 + np.arange(count))
    np.testing.assert_array_equal(frame["timestamp"].astype("int64") / 1000, frame["value"])


@needs_prometheus
def test_times_of_other_zones_mean_the_same_instant(node: str) -> None:
    zone = timezone(timedelta(hours=5, minutes=30))
    frame = PrometheusSource(node).query_range("time()", at(0).astimezone(zone), at(2).astimezone(zone), 1)
    assert frame["value"].tolist() == [START, START + 1, START + 2]
    assert str(frame["timestamp"].dt.tz) == "UTC"


@needs_prometheus
def test_an_instant_query_takes_a_time(node: str) -> None:
    source = PrometheusSource(node)
    assert source.instant("time()", at(3))["value"].tolist() == [START + 3]
    assert source.instant("time()")["value"][0] == pytest.approx(time.time(), abs=60)


@needs_prometheus
def test_an_unparsable_expression_is_the_servers_message(node: str) -> None:
    with pytest.raises(SourceError, match=r"must be HTTP 200, got 400: .*parse error"):
        PrometheusSource(node).instant("rate(")


@needs_prometheus
def test_a_million_samples_come_in_less_than_15_seconds(tmp_path) -> None:
    count, series = 10_000, 100
    begin = START - count
    samples = (
        (f'load_total{{number="{number}"}}', begin + second, float(number * second))
        for number in range(series)
        for second in range(count)
    )
    with prometheus_with(samples, tmp_path) as url:
        started = time.monotonic()
        frame = PrometheusSource(url).query_range("load_total", at(-count), at(-1), 1)
        elapsed_s = time.monotonic() - started
    assert len(frame) == count * series
    assert frame.groupby("number", observed=True)["value"].max()["99"] == 99.0 * (count - 1)
    assert elapsed_s < 15


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus_api, "_FIRST_BACKOFF_S", 0.01)


@pytest.mark.parametrize("moment", ["start", "end"])
def test_a_time_without_zone_is_refused(moment: str) -> None:
    times = {"start": at(0), "end": at(1), moment: datetime(2026, 1, 1)}
    with pytest.raises(InputError, match=f"{moment} must have a time zone"):
        PrometheusSource("http://127.0.0.1:1").query_range("up", times["start"], times["end"], 1)


@pytest.mark.parametrize(
    ("end", "step_s", "message"),
    [(-1.0, 1.0, "end must not be before start"), (1.0, 0.0, "step_s must be"), (1.0, 0.0005, "step_s must be"),
     (1.0, float("nan"), "step_s must be")],
)
def test_unusable_ranges_are_refused(end: float, step_s: float, message: str) -> None:
    with pytest.raises(InputError, match=message):
        PrometheusSource("http://127.0.0.1:1").query_range("up", at(0), at(end), step_s)


@pytest.mark.parametrize("url", ["localhost:9090", "ftp://host", "http://", "http://host:port", ""])
def test_unusable_addresses_are_refused(url: str) -> None:
    with pytest.raises(InputError, match="URL must be"):
        PrometheusSource(url)


@pytest.mark.usefixtures("no_waiting")
def test_a_server_that_is_down_is_a_source_error() -> None:
    with pytest.raises(SourceError, match="server must answer, got ConnectionError after 3 tries"):
        PrometheusSource(f"http://127.0.0.1:{free_port()}", retries=2).instant("up")


@pytest.mark.usefixtures("no_waiting")
def test_a_server_that_accepts_and_says_nothing_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(SourceError, match=r"got none within 0.2 s after 2 tries"):
            PrometheusSource(url, timeout_s=0.2, retries=1).instant("up")


def test_a_server_that_answers_drop_by_drop_is_given_up() -> None:
    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        for _ in range(30):
            handler.wfile.write(b"{")
            handler.wfile.flush()
            time.sleep(0.05)

    with faulty_server(drip) as (url, _):
        started = time.monotonic()
        with pytest.raises(SourceError, match=r"got none within 0\.3 s after 1 try"):
            PrometheusSource(url, timeout_s=0.3, retries=0).instant("up")
        assert time.monotonic() - started < 1.0


@pytest.mark.usefixtures("no_waiting")
@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_passing_failure_is_retried(status: int) -> None:
    ok = {"status": "success", "data": {"resultType": "matrix", "result": [ONE]}}
    with faulty_server(reply("busy", status), reply("busy", status), reply(ok)) as (url, asked):
        frame = PrometheusSource(url).query_range("up", at(0), at(0), 1)
    assert len(asked) == 3
    assert frame[["value", "a"]].to_numpy().tolist() == [[1.0, "b"]]


@pytest.mark.usefixtures("no_waiting")
def test_a_lasting_failure_is_a_source_error_with_the_servers_words() -> None:
    with faulty_server(reply({"status": "error", "error": "query timed out"}, 503)) as (url, asked):
        with pytest.raises(SourceError, match="HTTP 503: query timed out after 4 tries"):
            PrometheusSource(url).instant("up")
    assert len(asked) == 4


def test_a_refusal_is_not_retried() -> None:
    with faulty_server(reply({"status": "error", "error": "no such tenant"}, 403)) as (url, asked):
        with pytest.raises(SourceError, match="must be HTTP 200, got 403: no such tenant"):
            PrometheusSource(url).instant("up")
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ('{"status":"succ', "answer must be JSON"),
        ("<html>sign in</html>", "answer must be JSON"),
        ({"status": "error", "error": "bad"}, "must have status success, got bad"),
        ([1, 2], "must have status success"),
        ({**OK, "warnings": ["store gateway unreachable"]}, "must be complete, got warnings"),
        ({**OK, "isPartial": True}, "must be complete, got a partial one"),
        ({"status": "success"}, "must have a result"),
        ({"status": "success", "data": {"resultType": "streams", "result": []}}, "must be a matrix"),
        ({"status": "success", "data": {"resultType": "matrix", "result": [{"metric": {}}]}}, "must be lists"),
        (
            {"status": "success", "data": {"resultType": "matrix", "result": [{**ONE, "values": [[1, "x"]]}]}},
            "must be lists",
        ),
    ],
)
def test_an_answer_that_is_not_whole_is_refused(answer: object, message: str) -> None:
    with faulty_server(reply(answer)) as (url, _), pytest.raises(SourceError, match=message):
        PrometheusSource(url).query_range("up", at(0), at(1), 1)


def test_a_value_outside_the_range_is_refused() -> None:
    answer = {"status": "success", "data": {"resultType": "matrix", "result": [ONE]}}
    with faulty_server(reply(answer)) as (url, _), pytest.raises(SourceError, match="only have values in the"):
        PrometheusSource(url).read_metrics(one_metric("up"), at(5), at(9), 1)


def test_nothing_found_is_an_empty_frame() -> None:
    with faulty_server(reply(OK)) as (url, _):
        frame = PrometheusSource(url).query_range("up", at(0), at(1), 1)
    assert frame.empty and list(frame) == ["timestamp", "value"]


def test_messages_do_not_show_the_password() -> None:
    with faulty_server(reply("no", 401)) as (url, _), pytest.raises(SourceError) as caught:
        PrometheusSource(url.replace("//", "//me:secret@")).instant("up")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(("url", "shown"), [
    ("http://me:s3cret@host:9090/team@prod/", "http://host:9090/team@prod/"),
    ("https://me:s3cret@[::1]:9090", "https://[::1]:9090"), ("http://host:9090/team@prod", "http://host:9090/team@prod"),
    ("http://host/team@prod:1", "http://host/team@prod:1"), ("http://host?key=s3cret", "http://host")])
def test_an_address_is_shown_as_it_is_but_for_its_secrets(url: str, shown: str) -> None:
    assert shown_address(url) == shown


@pytest.mark.parametrize("url", ["http://me:s3/cret@host", "me:s3cret@host", "ftp://me:s3cret@host",
                                 "http://me:s3cret@host:99999", "http://me:s3cret@:9090", "http://me:/cret@host",
                                 "http://admin:2024/secret@prom:9090", "http://admin:2024/secret@prom.example/team",
                                 "http://ann@mail.example:2024/secret@prom:9090", "ftp://host?key=s3cret"])
def test_what_is_no_address_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(InputError, match="URL must be http") as refused:
        PrometheusSource(url)
    assert "cret" not in str(refused.value)


@pytest.mark.parametrize("value", ["1_000", "\u0661\u0662", " 1", "infinity", "1\n", "0x10"])
def test_a_number_that_prometheus_does_not_write_is_none(value):
    """Python's float takes all but the last."""
    data = {"resultType": "vector", "result": [{"metric": {}, "value": [1.0, value]}]}
    with pytest.raises(SourceError, match="series must be lists of"):
        prometheus_api._parse_series(data, "a server")


@pytest.mark.parametrize("value", ["1", "-1.5", "1e-09", "+Inf", "-Inf", "NaN", "1.7976931348623157e+308"])
def test_numbers_as_prometheus_writes_them_are_read(value):
    data = {"resultType": "vector", "result": [{"metric": {}, "value": [1.0, value]}]}
    assert str(prometheus_api._parse_series(data, "a server")[0].values[0]) == str(float(value))


@pytest.mark.parametrize("time_s", ["1.0", "1_0", True, None])
def test_a_time_is_a_number(time_s):
    data = {"resultType": "vector", "result": [{"metric": {}, "value": [time_s, "1"]}]}
    with pytest.raises(SourceError, match="series must be lists of"):
        prometheus_api._parse_series(data, "a server")
