"""Measurements from a real Prometheus server, and from one that misbehaves."""

import math
import shutil
import threading
import time

import pytest

from feature_store.errors import InputError, SourceError
from serving.control.controller_file import Query
from serving.control.prometheus_reader import PrometheusReader
from tests.feature_store.prometheus_server import faulty_server, prometheus_with, reply

needs_prometheus = pytest.mark.skipif(shutil.which("promtool") is None,
                                      reason="needs the Debian package prometheus (make debian)")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    now = time.time()
    samples = [(f'load_total{{instance="{name}"}}', now - ago, value) for name, rate in (("a", 3.0), ("b", 5.0))
               for ago, value in ((60.0, 0.0), (30.0, 30.0 * rate), (6.0, 54.0 * rate))]
    with prometheus_with(samples, tmp_path_factory.mktemp("prometheus")) as url:
        yield url


@needs_prometheus
def test_values_come_with_their_age_by_the_server_s_clock(server):
    newest = "max(timestamp(load_total))"
    queries = {"load": Query('sum(load_total{instance=~".+"})', 10.0, newest, 30.0),
               "missing": Query("sum(nothing_total)", 1.0, newest), "untimed": Query("max(load_total)"),
               "never": Query("max(load_total)", 1.0, "max(timestamp(nothing_total))")}
    reader = PrometheusReader(server, queries, {"fixed": 0.5})
    found = reader.read()
    reader.close()
    assert found.values["load"] == 4320.0
    assert math.isnan(found.values["missing"])
    assert (found.values["fixed"], found.values["untimed"]) == (0.5, 270.0)
    assert 5.0 <= found.ages_s["load"] < 120.0
    assert found.ages_s["never"] == math.inf
    assert "untimed" not in found.ages_s
    assert reader.fresh_s["load"] == 30.0


@needs_prometheus
@pytest.mark.parametrize(("query", "message"), [("load_total", "query must give one number, got 2 series"),
                                                ("sum(", "answer must be HTTP 200, got 400")])
def test_a_query_that_gives_no_single_number_is_said(server, query, message):
    with pytest.raises(SourceError, match=message):
        PrometheusReader(server, {"x": Query(query)}).read()


def test_a_server_that_is_gone_is_said_at_once_and_not_asked_again():
    with faulty_server(reply("busy", 503)) as (url, asked):
        with pytest.raises(SourceError, match="HTTP 503"):
            PrometheusReader(url, {"x": Query("a")}).read()
        assert len(asked) == 1


def test_a_server_that_hangs_is_waited_for_no_longer_than_said():
    with faulty_server(lambda handler: time.sleep(3.0)) as (url, _):
        began = time.monotonic()
        with pytest.raises(SourceError, match=r"none within 0\.2 s"):
            PrometheusReader(url, {"x": Query("a"), "y": Query("b")}, timeout_s=0.2).read()
        assert time.monotonic() - began < 2.5


def _trickles(handler):
    """A status line, a byte each 50 ms: each wait is short, and it never ends."""
    for byte in b"HTTP/1.1 200 " + b"O" * 60:
        handler.wfile.write(bytes([byte]))
        handler.wfile.flush()
        time.sleep(0.05)


def test_a_server_that_answers_byte_by_byte_is_waited_for_no_longer_than_said():
    with faulty_server(_trickles) as (url, _):
        reader = PrometheusReader(url, {"x": Query("a"), "y": Query("b")}, timeout_s=0.3)
        for hanging in ("", "; 2 queries of earlier steps still wait"):
            began = time.monotonic()
            with pytest.raises(SourceError, match=rf"none within 0\.3 s to 2 of 2 queries{hanging} \("):
                reader.read()
            assert time.monotonic() - began < 1.5
        reader.close()


def test_twenty_queries_are_asked_side_by_side():
    """None is answered before ten wait."""
    ten = threading.Barrier(10, timeout=20.0)

    def together(handler):
        ten.wait()
        reply('{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"2"]}]}}')(handler)

    with faulty_server(together) as (url, asked):
        reader = PrometheusReader(url, {f"x{number}": Query(f"a{number}") for number in range(20)}, timeout_s=30.0)
        assert set(reader.read().values.values()) == {2.0}
        assert len(asked) == 20
        reader.close()


def test_an_address_that_is_none_is_refused():
    with pytest.raises(InputError, match="URL must be"):
        PrometheusReader("prometheus", {})
