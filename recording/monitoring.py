"""The campaign's own Prometheus server and node exporter, on loopback, in a temporary folder."""

import time
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd

from feature_store.errors import SourceError
from feature_store.sources.metric_map import MetricMap
from feature_store.sources.prometheus import PrometheusSource
from recording.loopback import free_port
from recording.processes import Guard, Running
from recording.settings import SCRAPE_INTERVAL_S
from recording.tools import SEARCH_PATH

_COLLECTORS = ("pressure", "cpu", "diskstats", "meminfo", "netdev", "loadavg")
_START_TIMEOUT_S = 30.0
# A value is asked for this long after the scrape that ends its window, so that a scrape which comes a
# little late still counts for its own second.
_SCRAPE_TOLERANCE_S = 0.25

_CONFIGURATION = """
global: {{scrape_interval: {interval}s, scrape_timeout: {interval}s}}
scrape_configs:
- job_name: node
  static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


class Monitoring:
    """Starts both servers and reads the metrics of a campaign from them."""

    def __init__(self, guard: Guard, metric_map: MetricMap) -> None:
        self._map = metric_map
        folder = guard.folder / "monitoring"
        folder.mkdir()
        exporter_port, port = free_port(), free_port()
        configuration = folder / "prometheus.yml"
        configuration.write_text(_CONFIGURATION.format(interval=SCRAPE_INTERVAL_S, port=exporter_port))
        # One thread is enough for one target, and more would disturb what is measured.
        environment = {"GOMAXPROCS": "1", "PATH": SEARCH_PATH}
        self.exporter = guard.start(
            "node exporter",
            [
                *("prometheus-node-exporter", f"--web.listen-address=127.0.0.1:{exporter_port}"),
                *("--web.disable-exporter-metrics", "--collector.disable-defaults"),
                *(f"--collector.{name}" for name in _COLLECTORS),
            ],
            output=folder / "exporter.log",
            environment=environment,
        )
        self.server = guard.start(
            "prometheus",
            [
                *("prometheus", f"--config.file={configuration}", f"--storage.tsdb.path={folder / 'data'}"),
                *(f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"),
            ],
            output=folder / "prometheus.log",
            environment=environment,
        )
        url = f"http://127.0.0.1:{port}"
        self._source = PrometheusSource(url, timeout_s=10, retries=3)
        self.anchor_s = self._await_scrape(url, folder)

    @property
    def processes(self) -> tuple[Running, Running]:
        """Both servers."""
        return self.exporter, self.server

    def read(self, start_s: float, end_s: float) -> pd.DataFrame:
        """Metrics for each second that ends in start_s..end_s (Unix s), on the grid of the scrapes.

        Returns:
            UTC index: the times of the scrapes that end the seconds; NaN where there is no value.
        """
        first_s = self.anchor_s + SCRAPE_INTERVAL_S * round((start_s - self.anchor_s) / SCRAPE_INTERVAL_S)
        begin = datetime.fromtimestamp(first_s + _SCRAPE_TOLERANCE_S, UTC)
        end = datetime.fromtimestamp(end_s + _SCRAPE_TOLERANCE_S, UTC)
        frame = self._source.read_metrics(self._map, begin, end, SCRAPE_INTERVAL_S)
        tolerance = pd.Timedelta(milliseconds=round(1000 * _SCRAPE_TOLERANCE_S))
        return frame.set_index(pd.DatetimeIndex(frame.index) - tolerance)

    def _await_scrape(self, url: str, folder: Path) -> float:
        """Time (Unix s) of a scrape, once there have been enough for a rate."""
        deadline = time.monotonic() + _START_TIMEOUT_S
        source = PrometheusSource(url, timeout_s=2, retries=0)  # it is still starting: ask often
        while time.monotonic() < deadline and all(one.is_alive() for one in self.processes):
            try:
                stamps = source.instant("timestamp(node_load1)")["value"]
                counts = source.instant("count_over_time(node_load1[30s])")["value"]
                if len(stamps) and len(counts) and counts.iloc[0] >= 3:
                    return float(stamps.iloc[0])
            except SourceError:
                pass  # not up yet
            time.sleep(0.3)
        logs = " ".join((folder / f"{name}.log").read_text()[-300:] for name in ("exporter", "prometheus"))
        raise SourceError(
            f"Prometheus must start, got no scrape in {_START_TIMEOUT_S:g} s (recorder): {logs}"
        )
