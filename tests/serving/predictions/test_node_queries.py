"""An extender's numbers from Prometheus: a real server that scrapes real endpoints, and one that misbehaves."""

import json
import math
import subprocess
import threading
import time
from contextlib import contextmanager

import pytest
import requests
from prometheus_client import CollectorRegistry, Gauge, start_http_server

from feature_store.errors import InputError
from feature_store.written.model import parse_written
from recording.loopback import free_port
from serving.bundle import check_bundle
from serving.predictions.champions import Served
from serving.predictions.extender import rank
from serving.predictions.extender_file import ExtenderFile, PrometheusFields
from serving.predictions.node_queries import Answer, Measured, NodeQueries
from serving.session import Predictor
from tests.feature_store.prometheus_server import await_ready, faulty_server, reply
from tests.serving.control.test_prometheus_reader import needs_prometheus
from tests.serving.predictions.running import running, signed_bundle
from tests.serving.predictions.test_extender import FEATURES, WORKLOAD, arguments, node

QUERY = "psi_cpu"


def vector(*samples):
    """An instant query's answer: (labels, value)."""
    return reply({"status": "success", "data": {"resultType": "vector", "result": [
        {"metric": labels, "value": [1000.0, str(value)]} for labels, value in samples]}})


class Clock:
    now_s = 50.0

    def __call__(self):
        return self.now_s


@contextmanager
def asked_of(*script, **changed):
    """Queries of a server that answers by `script`, a clock that a test sets, and the lines that were told."""
    clock, told = Clock(), []
    with faulty_server(*script) as (url, _):
        file = PrometheusFields(address=url, queries={QUERY: "psi"}, **changed)
        yield NodeQueries(file, told.append, clock), clock, told


@pytest.mark.parametrize("label", ["a", "10.0.0.7", "10.0.0.7:9100", "[fd00::7]:9100", "fd00::7"])
def test_a_node_is_known_by_name_or_address_with_a_port_or_without(label):
    with asked_of(vector(({"instance": label}, 0.25))) as (queries, _, told):
        queries.look()
        assert queries().number(QUERY, ["a", "10.0.0.7", "fd00::7"]) == 0.25
        with pytest.raises(InputError, match="node_query psi_cpu must give a number for the node, got none"):
            queries().number(QUERY, ["b", "10.0.0.70"])
    assert told == []


def test_a_number_is_missing_once_it_is_too_old():
    with asked_of(vector(({"instance": "a"}, 0.25)), reply("busy", 503)) as (queries, clock, _):
        queries.look()
        clock.now_s += 60.0
        queries.look()
        assert queries().number(QUERY, ["a"]) == 0.25
        clock.now_s += 5.0
        with pytest.raises(InputError, match="must give a number at most 60 s old, got one of 65 s"):
            queries().number(QUERY, ["a"])


@pytest.mark.parametrize(("newest_s", "age_s"), [(10.0, 10.0), (-10.0, 0.0), (math.nan, math.inf)])
def test_ages_count_from_the_newest_sample_by_the_server_s_clock(newest_s, age_s):
    samples = vector(({"instance": "a"}, 0.25), ({"instance": "b"}, 0.5))
    # of several series the oldest counts; b has none, so nobody knows its age
    ages = vector(({"instance": "a", "cpu": "0"}, -20.0), ({"instance": "a", "cpu": "1"}, newest_s))
    with asked_of(ages, samples, newest="timestamp(x)") as (queries, clock, _):
        queries.look()
        assert queries().answers[QUERY].age_s(["a"], clock.now_s + 1.0) == age_s + 1.0
        with pytest.raises(InputError, match="got one of inf s"):
            queries().number(QUERY, ["b"])


def test_two_series_for_a_node_are_no_number_and_leave_the_others_alone():
    samples = [({"instance": "a:1"}, 0.1), ({"instance": "a:2"}, 0.2), ({"instance": "b:1"}, 0.3)]
    with asked_of(vector(*samples)) as (queries, _, _):
        queries.look()
        assert queries().number(QUERY, ["b"]) == 0.3
        with pytest.raises(InputError, match="must give one series for the node, got 2; aggregate them"):
            queries().number(QUERY, ["a"])


@pytest.mark.parametrize("other", ["10.0.0.7:9100", "[fd00::7]:9100"])
def test_series_under_several_names_of_a_node_are_no_number_either(other):
    with asked_of(vector(({"instance": "a"}, 0.0), ({"instance": other}, 0.5))) as (queries, _, _):
        queries.look()
        with pytest.raises(InputError, match="must give one series for the node, got 2; aggregate them"):
            queries().number(QUERY, ["a", "10.0.0.7", "fd00::7"])
        assert queries().number(QUERY, ["a", "a"]) == 0.0, "the address of the type Hostname is often the name"


def test_of_newest_samples_under_several_names_of_a_node_the_oldest_counts():
    answer = Answer({"10.0.0.7": (0.5,)}, 0.0, {"a": 3.0, "10.0.0.7": 1.0})
    assert [answer.age_s(names, 10.0) for names in (["10.0.0.7"], ["a", "10.0.0.7"], ["b"])] == [11.0, 13.0, math.inf]


def test_a_query_that_fails_is_told_once_and_so_is_its_return():
    good = vector(({"instance": "a"}, 0.25))
    with asked_of(reply("busy", 503), reply("busy", 503), vector(({"node": "a"}, 1)), good, good) as (queries, _, told):
        for _ in range(5):
            queries.look()
    assert len(told) == 2 and "node_query psi_cpu: server must answer, got HTTP 503" in told[0]
    assert told[1] == "node_query psi_cpu: is answered again"


def test_a_query_without_the_label_says_so():
    with asked_of(vector(({"node": "a", "job": "x"}, 1))) as (queries, _, told):
        queries.look()
    assert "with the label instance that names the node, got 1 with node, job" in told[0]


def test_without_an_answer_to_newest_nothing_is_taken_for_fresh():
    with asked_of(reply("busy", 503), vector(({"instance": "a"}, 1)), newest="timestamp(x)") as (queries, _, told):
        queries.look()
        assert queries().answers[QUERY].values == {} and told[0].startswith("newest: ")


def test_a_look_changes_nothing_for_who_ranks_meanwhile():
    with asked_of(vector(({"instance": "a"}, 1)), vector(({"instance": "a"}, 2))) as (queries, _, _):
        queries.look()
        before = queries()
        queries.look()
        assert (before.number(QUERY, ["a"]), queries().number(QUERY, ["a"])) == (1.0, 2.0)


def test_a_node_whose_status_is_no_status_is_known_by_its_name(tmp_path, keys):
    bundle = check_bundle(signed_bundle(tmp_path / "bundle", keys[0]), keys[1])
    models = {"performance.redis": Served(Predictor(bundle))}
    file = parse_written(ExtenderFile, json.dumps(extender_file({"address": "http://x", "queries": {QUERY: "x"}})),
                         "extender file", "extender.yaml")
    measured = Measured({QUERY: Answer({"a": (0.1,), "10.0.0.7": (0.2,)}, 0.0)}, 0.0, 60.0)
    for status in (None, [], {"addresses": None}, {"addresses": [3, {}, {"address": 3}]}):
        nodes = [{**node(name, cpu=""), "status": status} for name in ("a", "b")]
        named, unknown = rank(file, arguments(*nodes), models, measured).verdicts
        assert named.value is not None and "must give a number for the node, got none" in unknown.reason


@pytest.mark.parametrize(("prometheus", "message"), [
    ({"queries": {"psi_cpy": "x"}}, r"redis\.features\.psi_cpu_some\.node_query: .* did you mean 'psi_cpy'"),
    ({"queries": {}}, "prometheus.queries: expected"),
    ({"queries": {QUERY: "x"}, "every_s": 60}, "expected every_s below at_most_age_s, got 60 and 60")])
def test_an_unusable_file_is_refused(prometheus, message):
    written = extender_file({"address": "http://localhost", **prometheus})
    with pytest.raises(InputError, match=message):
        parse_written(ExtenderFile, json.dumps(written), "extender file", "extender.yaml")


def test_a_query_without_a_prometheus_is_refused():
    written = extender_file({})
    del written["prometheus"]
    with pytest.raises(InputError, match=r"node_query: expected a query of prometheus\.queries, got 'psi_cpu'"):
        parse_written(ExtenderFile, json.dumps(written), "extender file", "extender.yaml")


def extender_file(prometheus):
    features = {**FEATURES, "psi_cpu_some": {"node_query": QUERY}}
    return {"pod_label": "app", "prometheus": prometheus, "workloads": {"redis": {**WORKLOAD, "features": features}}}


@contextmanager
def exporter(address, port, value):
    """A node exporter's endpoint, shortened; the value can be set."""
    registry = CollectorRegistry()
    gauge = Gauge("node_psi_cpu", "share", registry=registry)
    gauge.set(value)
    server, thread = start_http_server(port, address, registry)
    try:
        yield gauge
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def scraping(folder, port, targets):
    """A Prometheus server that scrapes the targets."""
    (folder / "prometheus.yml").write_text(json.dumps({
        "global": {"scrape_interval": "200ms", "scrape_timeout": "200ms"},
        "scrape_configs": [{"job_name": "node", "static_configs": [{"targets": targets}]}]}))
    with (folder / "log").open("ab") as log:
        server = subprocess.Popen(["prometheus", f"--config.file={folder / 'prometheus.yml'}", "--log.level=warn",
                                   f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{port}"],
                                  stdout=log, stderr=log)
    try:
        await_ready(f"http://127.0.0.1:{port}")
        yield
    finally:
        server.kill()
        server.wait()


@needs_prometheus
def test_nodes_are_ranked_by_what_a_real_prometheus_scrapes_of_them(tmp_path, keys):
    bundle, port, ports = signed_bundle(tmp_path / "bundle", keys[0]), free_port(), (free_port(), free_port())
    (tmp_path / "extender.yaml").write_text(json.dumps(extender_file({
        "address": f"http://127.0.0.1:{port}", "every_s": 0.2, "at_most_age_s": 2.0,
        "newest": "timestamp(node_psi_cpu)", "queries": {QUERY: "max_over_time(node_psi_cpu[400ms])"}})))
    addresses = {"a": "127.0.0.2", "b": "127.0.0.3"}
    body = json.dumps(arguments(*({**node(name, cpu=""), "status": {"addresses": [
        {"type": "InternalIP", "address": address}]}} for name, address in addresses.items())))

    def scores():
        """None: there is no prediction for the node."""
        found = requests.post(f"{service.url}/scheduler/prioritize", body, timeout=20).json()
        return {one["Host"]: None if "Reason" in one else one["Score"] for one in found}

    def server():
        return scraping(tmp_path, port, [f"{addresses['a']}:{ports[0]}", f"{addresses['b']}:{ports[1]}"])

    with (running("--bundle", bundle, "--public-key", keys[1], "--extender", tmp_path / "extender.yaml") as service,
          exporter(addresses["a"], ports[0], 0.1) as psi_cpu_of_a):
        assert scores() == {"a": None, "b": None}, "it starts without Prometheus"
        with server():
            with exporter(addresses["b"], ports[1], 0.3):
                service.wait_for(lambda: None not in scores().values())
                assert scores()["a"] > scores()["b"]
                psi_cpu_of_a.set(0.6)
                service.wait_for(lambda: scores()["a"] < scores()["b"])
            service.wait_for(lambda: scores()["b"] is None)
            assert scores()["a"] is not None
        assert scores()["a"] is not None, "its last number is still fresh"
        service.wait_for(lambda: scores()["a"] is None)
        metrics = requests.get(f"{service.url}/metrics", timeout=20).text.splitlines()
        (age,) = (line for line in metrics if line.startswith('assay_serve_node_query_age_seconds{query="psi_cpu"}'))
        assert 1.0 < float(age.split()[1]) < 20.0
        with server():
            service.wait_for(lambda: scores()["a"] is not None)
        told = [line for line in service.lines if line.startswith("newest: ")]
    assert ["again" in line for line in told] == [False, True, False, True]


def test_a_prometheus_that_hangs_delays_neither_the_start_for_long_nor_a_request(monkeypatch):
    monkeypatch.setattr("serving.predictions.node_queries._TIMEOUT_S", 0.3)
    stopped = threading.Event()
    with faulty_server(lambda handler: time.sleep(1.0)) as (url, _):
        file = PrometheusFields(address=url, queries={str(number): "x" for number in range(8)})
        began = time.monotonic()
        queries = NodeQueries(file, lambda line: None)
        thread = queries.follow(stopped)
        assert time.monotonic() - began < 0.9  # one after the other they take 2.4 s
        began = time.monotonic()
        with pytest.raises(InputError, match="got none"):
            queries().number("0", ["a"])
        assert time.monotonic() - began < 0.1
        stopped.set()
        thread.join(5.0)
        assert not thread.is_alive()
