"""Training telemetry straight from a production Prometheus: a URL and a metric map are all it needs.

The map (production_map.py) says how to ask for the machine's metrics, for which range of time, and where each
workload's latency and configuration come from. A window is kept only if every metric and the workload's latency have a
value: nothing is filled in. A workload whose latency or configuration has no series has no rows, which the data gate
tells of.
"""

from datetime import datetime

import pandas as pd

from feature_store.errors import SourceError
from feature_store.mapping import UNKNOWN_COMBINATION
from feature_store.schema import TARGET
from feature_store.sources.metric_map import MappedMetric, MetricMap
from feature_store.sources.production_map import ProductionMap, ProductionWorkload
from feature_store.sources.prometheus import NoSeriesError, PrometheusSource


def is_prometheus(telemetry: str) -> bool:
    """Whether a telemetry address is a server's and not a file's."""
    return telemetry.startswith(("http://", "https://"))


def read_production(url: str, production: ProductionMap, now: datetime | None = None) -> pd.DataFrame:
    """The canonical table (feature_store/schema.py) of all workloads of the map.

    Args:
        url: address of the Prometheus server.
        production: the metric map.
        now: end of the range where the map says last_s; the present where None.

    Raises:
        SourceError: the server is unusable, or it has no complete window. InputError: the range of time is empty.
    """
    window_s = production.window_s
    start, end = production.window_ends(now)
    source, metric_map = PrometheusSource(url), production.metric_map()
    metrics = source.read_metrics(metric_map, start, end, window_s)
    frames, silent = list[pd.DataFrame](), list[NoSeriesError]()
    for name, entry in production.workloads.items():
        try:
            frames.append(_workload(source, metric_map, name, entry, metrics, window_s, start, end))
        except NoSeriesError as error:
            silent.append(error)
    if not frames:
        raise silent[0]
    table = pd.concat(frames, ignore_index=True)
    if table.empty:
        raise SourceError(f"server must have a window with all metrics and a latency, got none from {start} to {end}")
    table.insert(1, "environment", production.environment)
    # nobody says which workloads ran together; a hole in the series is an outage, not a clock that jumped
    table.insert(2, "combination", UNKNOWN_COMBINATION)
    table.insert(4, "window_s", window_s)
    return table


def _workload(source: PrometheusSource, metric_map: MetricMap, name: str, entry: ProductionWorkload,
              metrics: pd.DataFrame, window_s: float, start: datetime, end: datetime) -> pd.DataFrame:
    wanted: dict[str, str | float] = {TARGET: entry.latency_ms, **entry.configuration}
    expressions = {key: MappedMetric(expression=value) for key, value in wanted.items() if isinstance(value, str)}
    own_map = metric_map.model_copy(update={"metrics": expressions})
    values = source.read_metrics(own_map, start, end, window_s, name)
    for key, value in wanted.items():
        if not isinstance(value, str):
            values[key] = value
    table = metrics.join(values, how="inner").dropna()
    table.insert(0, "workload", name)
    # Prometheus names a window by its end, the schema by its start
    table.insert(1, "window_start", pd.DatetimeIndex(table.index) - pd.Timedelta(seconds=window_s))
    return table.reset_index(drop=True)
