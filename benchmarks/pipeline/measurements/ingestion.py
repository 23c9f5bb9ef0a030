"""Reading a million samples from a real Prometheus server on loopback, beside plain requests, json and pandas."""

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from typing import Any

import pandas as pd
import requests

from benchmarks.harness.isolation import Context
from benchmarks.harness.quantity import below, quantity
from benchmarks.pipeline.measurements.prometheus_server import (
    METRIC,
    STEP_S,
    Recorded,
    prometheus_server,
    server_version,
)
from benchmarks.pipeline.sizes import Sizes
from feature_store.sources.metric_map import MappedMetric, MetricMap
from feature_store.sources.prometheus import PrometheusSource

GOAL_SECONDS = 15.0
# Prometheus refuses more points a series in one query.
MOST_POINTS = 11_000
Read = Callable[[str, Recorded], int]


def measure(sizes: Sizes, context: Context) -> dict[str, Any]:
    """Every way reads the same samples in turn, and must return all of them."""
    samples = sizes.ingestion_series * sizes.ingestion_points
    ways: dict[str, tuple[str, Read, str]] = {
        "assay": (f"{samples:,} samples from Prometheus, one query for all series", _assay, ""),
        "assay_map": (f"{samples:,} samples from Prometheus, a metric map of {sizes.ingestion_series} metrics",
                      _assay_map, ""),
        "plain": ("requests, json and pandas, one query after another", _plain, "assay")}
    if find_spec("prometheus_api_client"):
        ways["client"] = ("prometheus-api-client", _client, "assay")
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    folder = context.work / "prometheus"
    folder.mkdir()
    context.say("making the server's storage")
    with prometheus_server(folder, sizes.ingestion_series, sizes.ingestion_points) as (url, recorded):
        for number in range(sizes.ingestion_repeats):
            for name, (_, read, _) in ways.items():
                clock = time.perf_counter()
                frame = read(url, recorded)
                seconds[name].append(time.perf_counter() - clock)
                if frame != samples:
                    raise ValueError(f"{name} must return {samples} samples, got {frame}")
            context.say(f"round {number + 1} of {sizes.ingestion_repeats}")
    return {"quantities": {name: quantity(label, "s", seconds[name], None if beside else below(GOAL_SECONDS), beside)
                           for name, (label, _, beside) in ways.items()},
            "details": {"what": f"{sizes.ingestion_series} series of {sizes.ingestion_points:,} points, every "
                                f"{STEP_S:g} s, into a data frame; the ways in turn, the first one on a cold server",
                        "prometheus": server_version(),
                        "not_installed": [] if "client" in ways else ["prometheus-api-client"]}}


def _times(recorded: Recorded) -> tuple[datetime, datetime]:
    start = datetime.fromtimestamp(recorded.start_s, UTC)
    return start, start + timedelta(seconds=STEP_S * (recorded.points - 1))


def _assay(url: str, recorded: Recorded) -> int:
    return len(PrometheusSource(url).query_range(METRIC, *_times(recorded), STEP_S))


def _assay_map(url: str, recorded: Recorded) -> int:
    """As a pipeline ingests: one column a metric."""
    metrics = {name: MappedMetric(expression=f'{METRIC}{{series="{name}"}}', unit="1") for name in recorded.series}
    metric_map = MetricMap(metrics=metrics, scrape_interval_s=STEP_S)
    frame = PrometheusSource(url).read_metrics(metric_map, *_times(recorded), STEP_S)
    return int(frame.notna().to_numpy().sum())


def _plain(url: str, recorded: Recorded) -> int:
    """What one writes by hand: a query a chunk, a list of rows, a frame with typed columns."""
    rows = []
    for first in range(0, recorded.points, MOST_POINTS):
        last = min(first + MOST_POINTS, recorded.points) - 1
        answer = requests.get(f"{url}/api/v1/query_range", timeout=60, params={
            "query": METRIC, "start": str(recorded.start_s + first * STEP_S),
            "end": str(recorded.start_s + last * STEP_S), "step": str(STEP_S)})
        answer.raise_for_status()
        for series in json.loads(answer.text)["data"]["result"]:
            label = series["metric"]["series"]
            rows += [(stamp, float(value), label) for stamp, value in series["values"]]
    frame = pd.DataFrame(rows, columns=["timestamp", "value", "series"])
    frame["timestamp"] = pd.to_datetime(frame["timestamp"], unit="s", utc=True)
    return len(frame.astype({"series": "category"}))


def _client(url: str, recorded: Recorded) -> int:
    from prometheus_api_client import MetricRangeDataFrame, PrometheusConnect

    start, end = _times(recorded)
    answer = PrometheusConnect(url).custom_query_range(METRIC, start, end, str(STEP_S))
    return len(MetricRangeDataFrame(answer))
