"""A real Prometheus whose past was written by promtool: hours of a service, there in a second."""

import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pandas as pd

from feature_store.errors import SourceError
from feature_store.sources.prometheus_api import PrometheusApi
from recording.loopback import ADDRESS, free_port
from recording.processes import Guard
from recording.tools import SEARCH_PATH

BUCKETS_S = (0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0)
STEP_S = 15.0


def counters(history: pd.DataFrame) -> dict[str, np.ndarray]:
    """Series of a client library, at the end of each window: name with labels -> (T,) values.

    The time of a request is taken to be exponential beyond half of the mean, with the window's 99th percentile.
    """
    seconds = history.attrs["window_s"]
    requests = history["rate_rps"].to_numpy() * seconds
    p99_s = history["p99_ms"].to_numpy() / 1000.0
    found = {}
    for bound in (*BUCKETS_S, np.inf):
        share = 1.0 - np.exp(-np.log(100.0) * bound / p99_s)
        label = "+Inf" if np.isinf(bound) else f"{bound:g}"
        name = f'http_request_duration_seconds_bucket{{job="web",code="200",le="{label}"}}'
        found[name] = np.cumsum(requests * share)
    found['http_request_duration_seconds_count{job="web",code="200"}'] = np.cumsum(requests)
    found['http_request_duration_seconds_sum{job="web",code="200"}'] = np.cumsum(
        requests * history["mean_latency_ms"].to_numpy() / 1000.0)
    found['process_cpu_seconds_total{job="web"}'] = np.cumsum(history["cpu_used_cores"].to_numpy() * seconds)
    found['process_resident_memory_bytes{job="web"}'] = history["memory_used_mib"].to_numpy() * 2**20
    found['up{job="web",instance="a"}'] = np.ones(len(history))
    return found


def prometheus_with(guard: Guard, series: Mapping[str, np.ndarray], step_s: float = STEP_S,
                    late_s: Mapping[str, float] = MappingProxyType({})) -> str:
    """Address of a server on loopback that knows these series, of which the last values are of now.

    Args:
        series: name with labels -> values, `step_s` apart; NaN: no sample.
        late_s: of a series: how long before now its last value is.
    """
    folder = guard.folder / "recorded"
    folder.mkdir()
    end = int(time.time())
    lines = []
    families: dict[str, list[str]] = {}
    for name in series:
        families.setdefault(name.partition("{")[0], []).append(name)
    for names in families.values():
        for name in names:
            values = series[name]
            times = end - late_s.get(name, 0.0) - step_s * np.arange(len(values) - 1, -1, -1)
            lines += [f"{name} {value:.6f} {at:.3f}" for at, value in zip(times, values, strict=True)
                      if np.isfinite(value)]
    (folder / "series.txt").write_text("\n".join([*lines, "# EOF", ""]))
    subprocess.run(["promtool", "tsdb", "create-blocks-from", "openmetrics", str(folder / "series.txt"),
                    str(folder / "data")], check=True, capture_output=True, env={"PATH": SEARCH_PATH})
    port = free_port()
    (folder / "prometheus.yml").write_text("{}")
    guard.start("prometheus", ["prometheus", f"--config.file={folder / 'prometheus.yml'}",
                               f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={ADDRESS}:{port}",
                               "--log.level=warn"],
                output=folder / "prometheus.log", environment={"GOMAXPROCS": "1", "PATH": SEARCH_PATH})
    api = PrometheusApi(f"http://{ADDRESS}:{port}", timeout_s=5.0, retries=0)
    for _ in range(100):
        with suppress(SourceError):
            if api.series("query", {"query": "up"}):
                return f"http://{ADDRESS}:{port}"
        time.sleep(0.1)
    raise SourceError(f"Prometheus must answer, got {(folder / 'prometheus.log').read_text()[-300:]}")


def write_history(history: pd.DataFrame, path: Path) -> Path:
    """The same windows as a user's file."""
    history.to_csv(path, index=False)
    return path
