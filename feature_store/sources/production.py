"""Training telemetry straight from a production Prometheus: a URL and a metric map are all it needs.

The metric map (metric_map.py) names the machine's metrics; three further keys make it a training set:

    window_s: 60                # length of a window, seconds
    start: 2026-11-01T00:00Z    # ISO times with a zone; or instead of both: last_s: 86400
    end: 2026-11-08T00:00Z
    environment: prod-eu
    workloads:
      redis:
        latency_ms: 1000 * rate(redis_seconds_sum[{window}]) / rate(redis_seconds_count[{window}])
        configuration: {cpu_quota_cores: 2, connections: sum(redis_connected_clients)}

Expressions are PromQL with {window} and {instance} as in the map; a number stands for itself. A window
is kept only if every metric and the workload's latency have a value: nothing is filled in.
"""

import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pandas as pd

from feature_store.errors import InputError, SourceError, nearest
from feature_store.mapping import UNKNOWN_COMBINATION
from feature_store.schema import CONFIGURATION, TARGET
from feature_store.sources.metric_map import DEFAULT_PATH, MetricMap, parse_metric_map
from feature_store.sources.prometheus import PrometheusSource
from feature_store.strict_yaml import read_yaml

_KEYS = ("window_s", "start", "end", "last_s", "environment", "workloads")
_WORKLOAD_KEYS = (TARGET, "configuration")


def is_prometheus(telemetry: str) -> bool:
    """Whether a telemetry address is a server's and not a file's."""
    return telemetry.startswith(("http://", "https://"))


def read_production(url: str, content: Mapping[str, Any], now: datetime | None = None) -> pd.DataFrame:
    """The canonical table (feature_store/schema.py) of all workloads of the map.

    Args:
        url: address of the Prometheus server.
        content: the parsed metric map; its machine metrics default to the node exporter's.
        now: end of the range where the map says last_s; the present where None.

    Raises:
        InputError: the map is unusable. SourceError: the server is, or it has no complete window.
    """
    where = "metric map"
    if not isinstance(content, Mapping):
        raise InputError(f"metric map must be a mapping, got {type(content).__name__} ({where})")
    own = {key: value for key, value in content.items() if key in _KEYS}
    rest = {key: value for key, value in content.items() if key not in _KEYS}
    # what the map leaves out is the node exporter's
    defaults = read_yaml(DEFAULT_PATH, "metric map")
    metric_map = parse_metric_map({**defaults, **rest}, where=where)
    workloads = own.get("workloads")
    if not isinstance(workloads, Mapping) or not workloads:
        raise InputError(f"metric map must name the workloads and their latency, got {workloads!r} ({where})")
    window_s = _positive(own.get("window_s", 60), f"window_s ({where})")
    start, end = _range(own, window_s, now or datetime.now(UTC))
    source = PrometheusSource(url)
    metrics = source.read_metrics(metric_map, start, end, window_s)
    frames = [_workload(source, metric_map, str(name), entry, metrics, window_s, start, end)
              for name, entry in workloads.items()]
    table = pd.concat(frames, ignore_index=True)
    if table.empty:
        raise SourceError(f"server must have a window with all metrics and a latency, got none from {start} to {end}")
    table.insert(1, "environment", str(own.get("environment", "production")))
    # nobody says which workloads ran together; a hole in the series is an outage, not a clock that jumped
    table.insert(2, "combination", UNKNOWN_COMBINATION)
    table.insert(4, "window_s", window_s)
    return table


def _range(own: Mapping[str, Any], window_s: float, now: datetime) -> tuple[datetime, datetime]:
    """First and last window end of the range."""
    if "last_s" in own:
        return now - timedelta(seconds=_positive(own["last_s"], "last_s (metric map)") - window_s), now
    times = []
    for key in ("start", "end"):
        value = own.get(key)
        try:
            time = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
        except ValueError as error:
            raise InputError(f"{key} must be an ISO time, got {value!r} (metric map)") from error
        if time.tzinfo is None:
            raise InputError(f"{key} must carry a time zone, got {value!r} (metric map); write 2026-11-01T00:00:00Z")
        times.append(time)
    return times[0] + timedelta(seconds=window_s), times[1]


def _workload(source: PrometheusSource, metric_map: MetricMap, name: str, entry: Mapping[str, Any],
              metrics: pd.DataFrame, window_s: float, start: datetime, end: datetime) -> pd.DataFrame:
    if not isinstance(entry, Mapping) or TARGET not in entry:
        raise InputError(f"workload must give an expression for {TARGET}, got {entry!r} (metric map: {name})")
    for key in entry:
        if key not in _WORKLOAD_KEYS:
            raise InputError(f"key must be known, got {key!r} (metric map: {name}); "
                             + nearest(str(key), _WORKLOAD_KEYS))
    configuration = entry.get("configuration") or {}
    if not isinstance(configuration, Mapping):
        raise InputError(f"configuration must be a mapping, got {configuration!r} (metric map: {name})")
    for key in configuration:
        if key not in CONFIGURATION:
            raise InputError(f"configuration must be in the schema, got {key!r} (metric map: {name}); "
                             + nearest(str(key), CONFIGURATION))
    wanted = {TARGET: entry[TARGET], **configuration}
    for key, value in wanted.items():
        if not isinstance(value, str) and not _is_number(value):
            raise InputError(f"{key} must be an expression or a number, got {value!r} (metric map: {name})")
    if not isinstance(wanted[TARGET], str):
        raise InputError(f"{TARGET} must be an expression, got {wanted[TARGET]!r} (metric map: {name})")
    expressions = {key: {"expression": value, "unit": "", "scale": 1} for key, value in wanted.items()
                   if isinstance(value, str)}
    own_map = parse_metric_map({"metrics": expressions, "scrape_interval_s": metric_map.scrape_interval_s,
                                "instance": metric_map.instance}, where=f"metric map: {name}")
    values = source.read_metrics(own_map, start, end, window_s)
    for key, value in wanted.items():
        if not isinstance(value, str):
            values[key] = float(value)
    table = metrics.join(values, how="inner").dropna()
    table.insert(0, "workload", name)
    # Prometheus names a window by its end, the schema by its start
    table.insert(1, "window_start", pd.DatetimeIndex(table.index) - pd.Timedelta(seconds=window_s))
    return table.reset_index(drop=True)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _positive(value: Any, what: str) -> float:
    if not _is_number(value) or value <= 0:
        raise InputError(f"{what} must be a positive number of seconds, got {value!r}")
    return float(value)
