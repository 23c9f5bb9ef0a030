"""A production Prometheus on record: what a real server answered, and a small API server that answers it again.

`python -m tests.feature_store.sources.recorded` records answers.json anew, from a real Prometheus server (Debian
package prometheus) that holds SERIES. The small server knows exactly the questions that were asked then.
"""

import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit
from urllib.request import ProxyHandler, build_opener

from tests.feature_store.prometheus_server import faulty_server, prometheus_with, reply

ANSWERS = Path(__file__).with_name("answers.json")
SCRAPE_S, WINDOW_S, SECONDS = 5, 30, 600
# nginx stopped being scraped for two minutes
GAP = range(200, 320)

# Growth per second of every counter.
NODE = {
    "node_pressure_cpu_waiting_seconds_total": 0.5, "node_pressure_io_stalled_seconds_total": 0.1,
    "node_pressure_io_waiting_seconds_total": 0.25, "node_pressure_memory_waiting_seconds_total": 0.2,
    "node_pressure_memory_stalled_seconds_total": 0.05}
APPLICATIONS = {
    'redis_seconds_sum_total{instance="app"}': 0.9, 'redis_seconds_count_total{instance="app"}': 300.0,  # 3 ms
    'nginx_seconds_sum_total{instance="app"}': 0.5, 'nginx_seconds_count_total{instance="app"}': 100.0}  # 5 ms
SERIES = {
    **{f'{name}{{instance="one:9100"}}': rate for name, rate in NODE.items()},
    'node_cpu_seconds_total{instance="one:9100",cpu="0",mode="idle"}': 0.4,
    'node_cpu_seconds_total{instance="one:9100",cpu="0",mode="user"}': 0.6,
    'node_disk_io_time_seconds_total{instance="one:9100",device="vda"}': 0.75,
    'redis_clients_total{instance="a"}': 0.0, 'redis_clients_total{instance="b"}': 0.0, **APPLICATIONS}
# Value of the first scrape; the counters of clients do not grow.
FIRST = {'redis_clients_total{instance="a"}': 7.0, 'redis_clients_total{instance="b"}': 9.0}


def latency(application: str) -> str:
    return (f"1000 * rate({application}_seconds_sum_total[{{window}}]) / "
            f"rate({application}_seconds_count_total[{{window}}])")


def metric_map(start_s: float) -> dict[str, Any]:
    """The map of the recording, as parsed YAML; the machine's metrics are the default ones."""
    return {
        "scrape_interval_s": SCRAPE_S, "window_s": WINDOW_S, "environment": "prod-eu",
        # a window later than the first scrape: Prometheus extrapolates the rate of a counter that has just begun
        "start": datetime.fromtimestamp(start_s + WINDOW_S, UTC).isoformat(),
        "end": datetime.fromtimestamp(start_s + SECONDS - SCRAPE_S, UTC).isoformat(),
        "workloads": {
            "redis": {"latency_ms": latency("redis"),
                      "configuration": {"cpu_quota_cores": 2, "connections": "sum(redis_clients_total)"}},
            "nginx": {"latency_ms": latency("nginx"), "configuration": {"cpu_quota_cores": 0.5, "connections": 64}}}}


def samples(start_s: float) -> Iterator[tuple[str, float, float]]:
    for series, rate in SERIES.items():
        for second in range(0, SECONDS, SCRAPE_S):
            if not (series.startswith("nginx") and second in GAP):
                yield series, start_s + second, FIRST.get(series, 100.0) + rate * second


def question(path: str) -> str:
    """What a request asks for, however its address is written."""
    parts = urlsplit(path)
    return " ".join([parts.path, *(f"{key}={value}" for key, value in sorted(parse_qsl(parts.query)))])


@contextmanager
def recorded_server() -> Iterator[tuple[str, float]]:
    """Address of a server that answers as recorded, and the time at which the recording begins."""
    record = json.loads(ANSWERS.read_text())

    def respond(handler: BaseHTTPRequestHandler) -> None:
        body = record["answers"].get(question(handler.path))
        if body is None:
            body = {"status": "error", "errorType": "bad_data", "error": f"not on record: {handler.path}"}
        reply(body, 200 if body["status"] == "success" else 400)(handler)

    with faulty_server(respond) as (url, _):
        yield url, record["start_s"]


def record_answers() -> None:
    """Asks a real server through a proxy that writes down what passes."""
    from feature_store.sources.production import read_production
    from feature_store.sources.production_map import ProductionMap
    from feature_store.written.model import check_written

    answers: dict[str, Any] = {}
    start_s = float(int(time.time()) // WINDOW_S * WINDOW_S - 3600)
    opener = build_opener(ProxyHandler({}))
    with tempfile.TemporaryDirectory() as folder, prometheus_with(samples(start_s), Path(folder)) as real:
        def pass_on(handler: BaseHTTPRequestHandler) -> None:
            with opener.open(real + handler.path) as answer:
                answers[question(handler.path)] = json.load(answer)
            reply(answers[question(handler.path)])(handler)

        with faulty_server(pass_on) as (url, _):
            read_production(url, check_written(ProductionMap, metric_map(start_s), "metric map", "test"))
    lines = [f"{json.dumps(asked)}: {json.dumps(answer)}" for asked, answer in sorted(answers.items())]
    ANSWERS.write_text(f'{{"start_s": {start_s}, "answers": {{\n' + ",\n".join(lines) + "\n}}\n")


if __name__ == "__main__":
    record_answers()
