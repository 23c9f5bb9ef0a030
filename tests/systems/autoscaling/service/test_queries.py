"""Which PromQL a service can be measured with: asked of a real Prometheus that scrapes exporters of our own."""

import json
import math
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from feature_store.errors import SourceError
from feature_store.sources.prometheus_api import PrometheusApi, Series
from recording.loopback import ADDRESS, free_port
from recording.processes import Guard
from recording.tools import SEARCH_PATH
from systems.autoscaling.observer import AutoscalingObserver
from systems.autoscaling.service.queries import Found, find_queries
from tests.feature_store.prometheus_server import await_ready

RATES = 0.1  # relative: a scrape is some milliseconds late, and a window has a few of them
SECONDS = 8  # of growth before anything is asked; no window is longer
KUBERNETES = {"kubernetes": {"namespace": "shop", "deployment": "web", "container": "web"}}
ODD = 'w"e.b|{x}\\ö'
ODD_POD = 'p.(d"[{window}'
MIB = 2**20


def label(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def histogram(name: str, labels: str, rate: float, age: float, unit_s: float = 1.0, buckets: bool = True) -> str:
    """Requests take up to 0.1 s, spread evenly there: the 99th percentile is 99 ms and the mean 50 ms."""
    count = rate * age
    bounds = {0.05: 0.5, 0.1: 1.0, 1.0: 1.0}
    text = "".join(f'{name}_bucket{{{labels},le="{bound / unit_s:g}"}} {share * count}\n'
                   for bound, share in bounds.items()) + f'{name}_bucket{{{labels},le="+Inf"}} {count}\n'
    return (text if buckets else "") + f"{name}_count{{{labels}}} {count}\n{name}_sum{{{labels}}} " \
        f"{0.05 / unit_s * count}\n"


def ingress(age: float) -> str:
    name = "nginx_ingress_controller_request_duration_seconds"
    return (histogram(name, 'namespace="shop",service="web",ingress="all",status="200"', 90.0, age)
            + histogram(name, 'namespace="shop",service="web",ingress="all",status="503"', 10.0, age)
            + histogram(name, 'namespace="shop",service="web-admin",ingress="all",status="200"', 1000.0, age)
            + histogram(name, 'namespace="test",service="web",ingress="all",status="200"', 1000.0, age)
            + histogram("nginx_ingress_controller_response_duration_seconds", 'namespace="shop",service="web"', 1.0,
                        age))


def cluster(age: float) -> str:
    text = ""
    for pod, cores, mib in (("web-7d4b9c5f6-abcde", 0.5, 100.0), ("web-7d4b9c5f6-fghij", 0.3, 200.0),
                            ("web-admin-5f6c7d8b9-abcde", 9.0, 900.0), ("web-admin-0", 9.0, 900.0)):
        for container in ("web", "sidecar", "POD", ""):
            its = f'namespace="shop",pod="{pod}",container="{container}"'
            text += (f"container_cpu_usage_seconds_total{{{its}}} {cores * age}\n"
                     f"container_memory_working_set_bytes{{{its}}} {mib * MIB}\n")
        exported = f'exported_namespace="shop",namespace="monitoring",pod="state-0",exported_pod="{pod}"'
        text += (f'kube_pod_container_resource_limits{{{exported},exported_container="web",resource="cpu"}} 0.8\n'
                 f'kube_pod_container_resource_limits{{{exported},exported_container="web",resource="memory"}} '
                 f"{256 * MIB}\n")
    for deployment, replicas, ready in (("web", 3, 2), ("web-admin", 9, 9)):
        its = f'namespace="shop",deployment="{deployment}"'
        text += (f"kube_deployment_spec_replicas{{{its}}} {replicas}\n"
                 f"kube_deployment_status_replicas_ready{{{its}}} {ready}\n")
    return text


def library(age: float) -> str:
    """Of a client library; Prometheus adds the job. The checks of its health are no load."""
    return (histogram("http_request_duration_seconds", 'code="200",path="/buy"', 20.0, age)
            + histogram("http_request_duration_seconds", 'code="200",path="/healthz"', 500.0, age)
            + histogram("rpc_client_request_duration_seconds", 'code="200"', 500.0, age)
            + f"process_cpu_seconds_total {0.25 * age}\nprocess_resident_memory_bytes {64 * MIB}\n")


def telemetry(age: float) -> str:
    name = "http_server_request_duration_seconds"
    return (histogram(name, 'job="shop/cart",http_response_status_code="200"', 5.0, age)
            + histogram(name, 'job="shop/cart",http_response_status_code="404"', 3.0, age)
            + histogram("http_server_duration_milliseconds", 'job="shop/cart"', 50.0, age, 0.001))


def haproxy(age: float) -> str:
    text = ""
    for proxy, rate in (("edge", 40.0), ("edge-admin", 400.0)):
        text += f'haproxy_backend_http_requests_total{{proxy="{proxy}"}} {rate * age}\n'
        for code, share in (("2xx", 0.75), ("4xx", 0.05), ("5xx", 0.2), ("other", 0.0)):
            text += f'haproxy_backend_http_responses_total{{proxy="{proxy}",code="{code}"}} {share * rate * age}\n'
    return text + f'haproxy_backend_http_requests_total{{proxy="library"}} {1000.0 * age}\n'


def others(age: float) -> str:
    """A mesh, a name that nobody can have wanted, a service without a class, one without buckets, gRPC, and a host."""
    mesh = 'destination_workload="mesh",destination_workload_namespace="shop"'
    grown = f"{30.0 * age}"
    return (histogram("istio_request_duration_milliseconds", f'reporter="destination",{mesh},response_code="200"', 7.0,
                      age, 0.001)
            + histogram("istio_request_duration_milliseconds", f'reporter="source",{mesh},response_code="200"', 7.0,
                        age, 0.001)
            + histogram("http_request_duration_seconds", f'app={label(ODD)},code="200"', 11.0, age)
            + histogram("http_request_duration_seconds", 'app="weXb",code="200"', 999.0, age)
            + histogram("shop_handling_time_seconds", 'app="plain"', 2.0, age)
            + histogram("shop_answer_latency_ms", 'app="plain"', 3.0, age, 0.001)
            + histogram("http_server_requests_seconds", 'application="spring",status="200"', 6.0, age, buckets=False)
            + histogram("grpc_server_handling_seconds", 'app="calls"', 30.0, age)
            + f'grpc_server_handled_total{{app="calls",grpc_code="OK"}} {grown}\n'
            + f'grpc_server_handled_total{{app="calls",grpc_code="Unavailable"}} {grown}\n'
            + f'grpc_server_handled_total{{app="calls",grpc_code="NotFound"}} {grown}\n'
            + histogram("traefik_service_request_duration_seconds", 'service="proxied@docker",code="200"', 4.0, age)
            + histogram("http_request_duration_seconds", 'app="idle",code="200"', 0.0, age)
            + histogram("http_request_duration_seconds", f'pod={label(ODD_POD + "-7d4b9c5f6-abcde")},code="2xx"', 13.0,
                        age)
            + histogram("http_request_duration_seconds", 'pod="pXd-7d4b9c5f6-abcde",code="2xx"', 999.0, age)
            + histogram("response_latency_ms", 'direction="inbound",deployment="linked",status_code="200"', 8.0, age,
                        0.001)
            + histogram("response_latency_ms", 'direction="outbound",deployment="linked",status_code="500"', 8.0, age,
                        0.001)
            + histogram("envoy_cluster_upstream_rq_time", 'envoy_cluster_name="shop/fleet/80/da39a3"', 10.0, age, 0.001)
            + "".join(f'envoy_cluster_upstream_rq_xx{{envoy_cluster_name="shop/fleet/80/da39a3",'
                      f'envoy_response_code_class="{one}"}} {rate * age}\n' for one, rate in ((2, 7.5), (5, 2.5)))
            + f'http_requests_total{{app="counted",status="success"}} {grown}\n'
            + f'http_requests_total{{app="counted",status="error"}} {grown}\n'
            + f'promhttp_metric_handler_requests_total{{app="counted",code="200"}} {grown}\n'
            + f'container_cpu_usage_seconds_total{{id="/services/grouped"}} {0.4 * age}\n'
            + 'container_spec_cpu_quota{id="/services/grouped"} 150000\n'
            + 'container_spec_cpu_period{id="/services/grouped"} 100000\n'
            + 'container_spec_memory_limit_bytes{id="/services/grouped"} 0\n')


EXPORTERS: dict[str, Callable[[float], str]] = {
    "ingress": ingress, "cluster": cluster, "library": library, "library-admin": library, "otel": telemetry,
    "haproxy": haproxy, "others": others}


@pytest.fixture(scope="module")
def api() -> Iterator[PrometheusApi]:
    if shutil.which("prometheus", path=SEARCH_PATH) is None:
        pytest.skip("prometheus is not installed: apt-get install prometheus")
    start = time.monotonic()

    class Exporter(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = EXPORTERS[self.path[1:]](time.monotonic() - start).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    exporter = ThreadingHTTPServer((ADDRESS, 0), Exporter)
    thread = threading.Thread(target=exporter.serve_forever, args=(0.02,))
    thread.start()
    try:
        with Guard() as guard:
            url = prometheus(guard, exporter.server_address[1])
            api = PrometheusApi(url, timeout_s=10.0, retries=0)
            deadline = time.monotonic() + 30.0
            while len(api.series("query", {"query": f"count_over_time(up[60s]) > {SECONDS}"})) <= len(EXPORTERS):
                assert time.monotonic() < deadline, "Prometheus scrapes nothing"
                time.sleep(0.2)
            yield api
    finally:
        exporter.shutdown()
        thread.join()
        exporter.server_close()


def prometheus(guard: Guard, port: int) -> str:
    """Address of a server that scrapes the exporters each second; two replicas of the library."""
    own, folder = free_port(), guard.folder
    (folder / "prometheus.yml").write_text(json.dumps({
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "scrape_configs": [{"job_name": name, "metrics_path": f"/{name}", "honor_labels": True, "static_configs": [
            {"targets": [f"{host}:{port}" for host in (ADDRESS, "localhost")[:1 + (name == "library")]]}]}
            for name in EXPORTERS]}))
    guard.start("prometheus", ["prometheus", f"--config.file={folder / 'prometheus.yml'}",
                               f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={ADDRESS}:{own}",
                               "--log.level=warn"],
                output=folder / "prometheus.log", environment={"GOMAXPROCS": "1", "PATH": SEARCH_PATH})
    await_ready(f"http://{ADDRESS}:{own}")
    return f"http://{ADDRESS}:{own}"


def values(api: PrometheusApi, found: Found) -> dict[str, float]:
    """What each query gives now, in the signal's unit."""
    told = {}
    for name, query in found.queries.items():
        series = api.series("query", {"query": query.promql.replace("{window}", f"{SECONDS - 2}s")})
        assert len(series) == 1, f"{name}: {query.promql}"
        told[name] = float(series[0].values[-1]) * query.scale
    return told


def age_s(api: PrometheusApi, found: Found) -> float:
    (series,) = api.series("query", {"query": f"time() - {found.newest}"})
    return float(series.values[-1])


def test_a_deployment_behind_an_ingress_is_measured_by_what_is_its_own(api: PrometheusApi) -> None:
    found = find_queries(api, "web", KUBERNETES)
    assert values(api, found) == pytest.approx({
        "rate_rps": 100.0, "p99_ms": 99.0, "mean_latency_ms": 50.0, "served_share": 0.9, "cpu_used_cores": 0.8,
        "memory_used_mib": 150.0, "cpu_limit_cores": 0.8, "memory_limit_mib": 256.0, "replicas": 3.0,
        "ready_replicas": 2.0, "cpu_utilization": 0.5, "memory_utilization": 150.0 / 256.0}, rel=RATES)
    assert found.queries["rate_rps"].scale == 1.0
    assert found.queries["p99_ms"].found == \
        "histogram nginx_ingress_controller_request_duration_seconds, label service"
    assert set(found.missing) == {"io_utilization", "network_utilization"} and "fixed at 0" in \
        found.missing["io_utilization"]
    assert 0.0 <= age_s(api, found) < 3.0


def test_a_client_library_tells_of_all_its_processes_but_no_limits(api: PrometheusApi) -> None:
    found = find_queries(api, "library", {})
    told = values(api, found)
    assert told == pytest.approx({
        "rate_rps": 40.0, "p99_ms": 99.0, "mean_latency_ms": 50.0, "served_share": 1.0, "cpu_used_cores": 0.5,
        "memory_used_mib": 64.0, "replicas": 2.0, "ready_replicas": 2.0}, rel=RATES)
    assert told["served_share"] == 1.0, "no errors are no missing value"
    assert {"cpu_limit_cores", "memory_limit_mib", "cpu_utilization", "memory_utilization"} <= set(found.missing)
    assert "kube_pod_container_resource_limits" in found.missing["cpu_limit_cores"]
    assert 'path!~"/healthz"' in found.queries["rate_rps"].promql
    assert {*found.queries, *found.missing} >= set(AutoscalingObserver.measured)


def test_opentelemetry_names_a_service_behind_its_namespace(api: PrometheusApi) -> None:
    found = find_queries(api, "cart", {})
    told = values(api, found)
    assert told["rate_rps"] == pytest.approx(8.0, rel=RATES) and told["p99_ms"] == pytest.approx(99.0, rel=RATES)
    assert told["served_share"] == 1.0, "404 is served"
    assert 'job="shop/cart"' in found.queries["rate_rps"].promql


def test_haproxy_alone_gives_rate_and_errors_and_says_what_it_lacks(api: PrometheusApi) -> None:
    found = find_queries(api, "edge", {})
    assert values(api, found) == pytest.approx({"rate_rps": 40.0, "served_share": 0.8}, rel=RATES)
    assert "HAProxy" in found.missing["p99_ms"] and "histogram" in found.missing["p99_ms"]
    assert age_s(api, found) < 3.0


@pytest.mark.parametrize(("service", "rate", "served"), [
    ("mesh", 7.0, 1.0), ("calls", 30.0, 2 / 3), ("proxied", 4.0, 1.0), (ODD, 11.0, 1.0),
    (ODD_POD, 13.0, 1.0), ("linked", 8.0, 1.0), ("fleet", 10.0, 0.75)])
def test_other_exporters_and_odd_names_are_told_apart(api: PrometheusApi, service: str, rate: float,
                                                      served: float) -> None:
    told = values(api, find_queries(api, service, {}))
    assert told["rate_rps"] == pytest.approx(rate, rel=RATES) and told["p99_ms"] == pytest.approx(99.0, rel=RATES)
    assert told["served_share"] == pytest.approx(served, rel=0.01)


def test_without_a_class_of_responses_or_buckets_it_is_said(api: PrometheusApi) -> None:
    plain = find_queries(api, "plain", {})
    assert "shop_answer_latency_ms" in plain.queries["rate_rps"].promql, "the one with more requests"
    assert values(api, plain)["p99_ms"] == pytest.approx(99.0, rel=RATES)
    assert "code or status" in plain.missing["served_share"]
    spring = find_queries(api, "spring", {})
    assert values(api, spring) == pytest.approx({"rate_rps": 6.0, "mean_latency_ms": 50.0, "served_share": 1.0},
                                                rel=RATES)
    assert "http_server_requests_seconds has no buckets" in spring.missing["p99_ms"]
    counted = find_queries(api, "counted", {})
    assert values(api, counted) == pytest.approx({"rate_rps": 60.0, "served_share": 0.5}, rel=RATES)
    assert "only counts requests" in counted.missing["p99_ms"]


def test_a_service_without_traffic_is_found(api: PrometheusApi) -> None:
    told = values(api, find_queries(api, "idle", {}))
    assert told["rate_rps"] == 0.0 and math.isnan(told["p99_ms"]) and math.isnan(told["served_share"])


def test_without_a_target_pods_are_known_by_their_names_and_namespaces_are_said(api: PrometheusApi) -> None:
    found = find_queries(api, "web", {})
    told = values(api, found)
    assert told["cpu_used_cores"] == pytest.approx(0.8, rel=RATES) and told["replicas"] == 3.0
    assert told["rate_rps"] == pytest.approx(1100.0, rel=RATES)
    assert found.queries["rate_rps"].found.endswith("label service, namespaces shop, test together")


def test_what_is_acted_on_may_have_another_name_than_what_is_served(api: PrometheusApi) -> None:
    told = values(api, find_queries(api, "library", KUBERNETES))
    assert told["rate_rps"] == pytest.approx(40.0, rel=RATES) and told["replicas"] == 3.0
    assert told["cpu_used_cores"] == pytest.approx(0.8, rel=RATES)


def test_a_control_group_has_a_quota_and_an_unlimited_one_no_limit(api: PrometheusApi) -> None:
    found = find_queries(api, "front", {"cgroup": {"group": "grouped", "parent": "services"}})
    assert values(api, found) == pytest.approx({"cpu_used_cores": 0.4, "cpu_limit_cores": 1.5}, rel=RATES)
    assert "memory_limit_mib" in found.missing and found.newest == ""
    assert "http_request_duration_seconds" in found.missing["rate_rps"]


def test_a_container_of_another_name_is_said(api: PrometheusApi) -> None:
    wrong = {"kubernetes": {**KUBERNETES["kubernetes"], "container": "app"}}
    found = find_queries(api, "web", wrong)
    assert "rate_rps" in found.queries and "replicas" in found.queries
    assert "no container 'app': name one of sidecar, web" in found.missing["cpu_used_cores"]


def test_an_unknown_service_is_told_with_the_nearest_name(api: PrometheusApi) -> None:
    with pytest.raises(SourceError, match=r"^service: expected one that the server knows, got 'wbe'; did you mean "
                                          r"'web'\? \(labels .*job.*service"):
        find_queries(api, "wbe", {})
    with pytest.raises(SourceError, match="'web' in namespace 'shoop'; other namespaces have it, did you mean 'shop'"):
        find_queries(api, "web", {"kubernetes": {**KUBERNETES["kubernetes"], "namespace": "shoop"}})
    with pytest.raises(SourceError, match="did you mean 'web"):
        find_queries(api, "we.*", {})
    with pytest.raises(SourceError, match="server must answer"):
        find_queries(PrometheusApi("http://127.0.0.1:1", 1.0, 0), "web", {})


class Refusing(PrometheusApi):
    """Refuses queries with a text in them."""

    refused = ""

    def series(self, endpoint: str, parameters: Mapping[str, str]) -> list[Series]:
        if self.refused in parameters["query"]:
            raise SourceError("refused")
        return super().series(endpoint, parameters)


def test_a_query_that_the_server_refuses_is_left_out_but_a_server_that_goes_away_is_told(api: PrometheusApi) -> None:
    refusing = Refusing(api.address, 10.0, 0)
    refusing.refused = "histogram_quantile"
    found = find_queries(refusing, "web", KUBERNETES)
    assert "p99_ms" in found.missing and "rate_rps" in found.queries
    refusing.refused = "("
    with pytest.raises(SourceError, match="refused"):
        find_queries(refusing, "web", KUBERNETES)
