"""What is written beside the load of a control task: how to ask a Prometheus server for it, and what bad rows become.

    window_s: 60
    last_s: 604800            # how far to go back from now; or start and end, ISO times with a zone
    workloads:
      shop: {rate_rps: 'sum(rate(http_requests_total{app="shop"}[{window}]))'}
    bad_rows: {drop: true, at_most: 1 %}    # optional (feature_store/bad_rows.py)

A file of load is mapped by `bad_rows` alone. A workload of which the server has no series has no rows, which the data
gate tells of.
"""

from datetime import datetime

import pandas as pd
from pydantic import Field

from feature_store.bad_rows import BadRows, BadRowsFields
from feature_store.dropping import SERVER_WINDOW
from feature_store.errors import InputError, SourceError, nearest
from feature_store.mapping import UNKNOWN_COMBINATION
from feature_store.origin import numbered
from feature_store.sources.metric_map import MappedMetric, MetricMap, PromQL
from feature_store.sources.production_map import AskedWindows
from feature_store.sources.prometheus import NoSeriesError, PrometheusSource
from feature_store.written.fields import ColumnName, PositiveNumber, Text, WorkloadName
from feature_store.written.model import Written

ONE_RUN = "load"  # combination of a load whose holes are counted: one run from its first row to its last


class LoadFile(Written):
    """What may be said of a file of load, whose columns have the environment's names."""

    bad_rows: BadRowsFields = Field(description="Lets a few bad rows be dropped; without it one stops its workload")


class LoadMap(AskedWindows):
    """A metric map of a control task."""

    environment: Text = Field(default="production", description="Which cluster the rows are of")
    scrape_interval_s: PositiveNumber = Field(
        default=15.0, json_schema_extra={"unit": "s"}, description="How often the server scrapes its targets")
    workloads: dict[WorkloadName, dict[ColumnName, PromQL]] = Field(
        min_length=1, description="PromQL of each column of the load, by workload")
    bad_rows: BadRowsFields | None = Field(
        default=None, description="Lets a few bad windows be dropped, those without a value among them; without it "
                                  "these are left out uncounted, and any other stops its workload")


def read_server(url: str, written: LoadMap, columns: tuple[str, ...], now: datetime | None = None) -> pd.DataFrame:
    """The load of all workloads of the map.

    A window without a value is left out. Where the map lets windows without one be dropped (`not_null`), those between
    the first value and the last stay as rows, so that they are counted; rows are then numbered from the first value on.

    Args:
        url: address of the Prometheus server.
        written: the map.
        columns: of the load, each of which the map must ask for.
        now: end of the range where the map says last_s; the present where None.

    Raises:
        InputError: the map asks for other columns, or the range of time is empty.
        SourceError: the server is unusable, or it has no complete window.
    """
    start, end = written.window_ends(now)
    source, frames, silent = PrometheusSource(url), list[pd.DataFrame](), list[NoSeriesError]()
    policy = None if written.bad_rows is None else written.bad_rows.policy()
    for name, expressions in written.workloads.items():
        for wrong in set(columns) ^ set(expressions):
            raise InputError(f"workloads.{name}: expected {', '.join(columns)}, got {', '.join(expressions)}; "
                             f"{nearest(wrong, columns)} (--mapping)")
        metrics = {column: MappedMetric(expression=text) for column, text in expressions.items()}
        asked = MetricMap(metrics=metrics, scrape_interval_s=written.scrape_interval_s)
        try:
            values = source.read_metrics(asked, start, end, written.window_s, name)
        except NoSeriesError as error:
            silent.append(error)
            continue
        values = values.dropna() if policy is None or "not_null" not in policy.rules else _from_first_to_last(values)
        # Prometheus names a window by its end, the schema by its start
        values.insert(0, "window_start", pd.DatetimeIndex(values.index) - pd.Timedelta(seconds=written.window_s))
        frames.append(numbered(values.assign(workload=name), 1, SERVER_WINDOW))
    if not frames:
        raise silent[0]
    table = pd.concat(frames, ignore_index=policy is None)
    if table.empty:
        raise SourceError(f"server must have a window of load, got none from {start} to {end}")
    return table.assign(environment=written.environment, combination=combination_of(policy), window_s=written.window_s)


def combination_of(policy: BadRows | None) -> str:
    """The combination of a load's rows: `time_gap` looks at holes within a known one alone."""
    return ONE_RUN if policy is not None and "time_gap" in policy.rules else UNKNOWN_COMBINATION


def _from_first_to_last(values: pd.DataFrame) -> pd.DataFrame:
    """Windows between the first value and the last: a service that did not run yet has no gap."""
    some = values.notna().any(axis=1)
    return values[some.cummax() & some[::-1].cummax()]
