"""The metric map of a control task: how to ask a Prometheus server for the load of each workload.

    window_s: 60
    last_s: 604800            # how far to go back from now; or start and end, ISO times with a zone
    workloads:
      shop: {rate_rps: 'sum(rate(http_requests_total{app="shop"}[{window}]))'}
"""

from datetime import UTC, datetime, timedelta

import pandas as pd
from pydantic import Field, model_validator

from feature_store.errors import InputError, SourceError, nearest
from feature_store.mapping import UNKNOWN_COMBINATION
from feature_store.sources.metric_map import MappedMetric, MetricMap, PromQL
from feature_store.sources.production_map import Moment
from feature_store.sources.prometheus import PrometheusSource
from feature_store.written.fields import ColumnName, PositiveNumber, Text, WorkloadName
from feature_store.written.model import Written


class LoadMap(Written):
    """A metric map of a control task."""

    window_s: PositiveNumber = Field(default=60.0, json_schema_extra={"unit": "s"}, description="Length of a window")
    start: Moment | None = Field(default=None, description="Start of the first window, an ISO time with a zone")
    end: Moment | None = Field(default=None, description="End of the last window, an ISO time with a zone")
    last_s: PositiveNumber | None = Field(
        default=None, json_schema_extra={"unit": "s"}, description="In place of both: how far to go back from now")
    environment: Text = Field(default="production", description="Which cluster the rows are of")
    scrape_interval_s: PositiveNumber = Field(
        default=15.0, json_schema_extra={"unit": "s"}, description="How often the server scrapes its targets")
    workloads: dict[WorkloadName, dict[ColumnName, PromQL]] = Field(
        min_length=1, description="PromQL of each column of the load, by workload")

    @model_validator(mode="after")
    def _has_one_range(self) -> "LoadMap":
        given = [name for name in ("start", "end", "last_s") if getattr(self, name) is not None]
        if given not in (["start", "end"], ["last_s"]):
            raise ValueError(f"expected either `last_s` or `start` and `end`, got {', '.join(given) or 'none of them'}")
        return self


def read_server(url: str, written: LoadMap, columns: tuple[str, ...], now: datetime | None = None) -> pd.DataFrame:
    """The load of all workloads of the map; a window without a value is left out.

    Args:
        url: address of the Prometheus server.
        written: the map.
        columns: of the load, each of which the map must ask for.
        now: end of the range where the map says last_s; the present where None.

    Raises:
        InputError: the map asks for other columns, or the range of time is empty.
        SourceError: the server is unusable, or it has no complete window.
    """
    window = timedelta(seconds=written.window_s)
    end = written.end or now or datetime.now(UTC)
    start = (written.start or end - timedelta(seconds=written.last_s or 0.0)) + window
    source, frames = PrometheusSource(url), []
    for name, expressions in written.workloads.items():
        for wrong in set(columns) ^ set(expressions):
            raise InputError(f"workloads.{name}: expected {', '.join(columns)}, got {', '.join(expressions)}; "
                             f"{nearest(wrong, columns)} (--mapping)")
        metrics = {column: MappedMetric(expression=text) for column, text in expressions.items()}
        asked = MetricMap(metrics=metrics, scrape_interval_s=written.scrape_interval_s)
        values = source.read_metrics(asked, start, end, written.window_s).dropna()
        # Prometheus names a window by its end, the schema by its start
        values.insert(0, "window_start", pd.DatetimeIndex(values.index) - pd.Timedelta(window))
        frames.append(values.assign(workload=name).reset_index(drop=True))
    table = pd.concat(frames, ignore_index=True)
    if table.empty:
        raise SourceError(f"server must have a window of load, got none from {start} to {end}")
    return table.assign(environment=written.environment, combination=UNKNOWN_COMBINATION, window_s=written.window_s)
