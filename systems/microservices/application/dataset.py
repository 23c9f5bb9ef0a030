"""Turns the segments of a campaign into its three tables: spans, metrics and anomalies.

A row of the spans is one call as its caller sees it, from sending to the whole answer: the network in front of a
service is a part of it, and databases and nginx, which have no SDK, look like every other service. The client's and the
server's span of a call are joined, so that the parent of a call is the call that its caller was answering. Segments
stand one after the other on one axis of time, with gaps in which nothing was recorded.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import pandas as pd
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status, TracesData

from feature_store.whole_files import whole_file
from recording.scaling.open_loop import ANSWERED, read_result
from systems.microservices.application.anomalies import Anomaly
from systems.microservices.application.calls import TIMEOUT_S
from systems.microservices.application.graph import FRONT, SERVICES
from systems.microservices.application.raw_segments import RawSegments, Segment
from systems.microservices.application.settings import ApplicationSettings
from systems.microservices.traces.spans import COLUMNS

# Between two segments, s: more than the last request of one may take.
GAP_S = 20.0
_CALLED = (Span.SPAN_KIND_CLIENT, Span.SPAN_KIND_PRODUCER)


@dataclass(frozen=True)
class Tables:
    """The data set's tables; columns as in data_card.py.

    Attributes:
        other_cores: processors that everything but the application used, median over the seconds.
    """

    spans: pd.DataFrame
    metrics: pd.DataFrame
    anomalies: pd.DataFrame
    other_cores: float

    def named(self) -> dict[str, pd.DataFrame]:
        """Table by name."""
        return {"spans": self.spans, "metrics": self.metrics, "anomalies": self.anomalies}


def make_tables(settings: ApplicationSettings, raw: RawSegments) -> Tables:
    """The tables of all segments that are finished."""
    spans, metrics, anomalies, others = [], [], [], []
    trace = span = 0
    for segment in raw.segments():
        offset_s = segment.number * (settings.segment_s + GAP_S)
        calls = segment_spans(segment, raw.folder(segment.number))
        used = pd.read_parquet(raw.folder(segment.number) / "used.parquet")
        metrics.append(_metrics(calls, used, offset_s))
        others.append(_other_cores(used))
        calls["trace"] += trace
        calls["span"] += span
        calls.loc[calls["parent"] >= 0, "parent"] += span
        calls["start_us"] += round(1e6 * offset_s)
        trace, span = int(calls["trace"].max()) + 1, span + len(calls)
        spans.append(calls)
        anomalies.append(_anomalies(segment, offset_s))
    names = pd.CategoricalDtype(list(SERVICES))
    whole = pd.concat(spans, ignore_index=True)
    whole = whole.astype({"service": names, "operation": "category", "duration_us": "int32"})
    return Tables(whole, pd.concat(metrics, ignore_index=True).astype({"service": names}),
                  pd.concat(anomalies, ignore_index=True).astype({"service": "category", "kind": "category"}),
                  float(pd.concat(others).median()))


def segment_spans(segment: Segment, folder: Path) -> pd.DataFrame:
    """The calls of one segment, numbered from 0; times from the segment's start."""
    table = pd.DataFrame(
        [*_requests(segment, folder), *_calls(segment, folder / "traces.otlp")], columns=list(COLUMNS))
    table = table.drop_duplicates("span")  # an export is sent again where its answer was lost
    # A call whose caller's span was never exported has no place in its trace, nor has one below it: none is kept.
    while not (known := table["parent"].isin(table["span"]) | (table["parent"] == "")).all():
        table = table[known]
    table = table.sort_values(["trace", "start_us"], kind="stable", ignore_index=True)
    numbers = pd.Series(np.arange(len(table)), index=table["span"])
    table["parent"] = table["parent"].map(numbers).fillna(-1).astype("int64")
    table["span"] = np.arange(len(table))
    return table


def _requests(segment: Segment, folder: Path) -> Iterator[tuple[object, ...]]:
    """nginx as the load generator sees it: the roots."""
    result, names = read_result(folder / "requests.npz"), np.load(folder / "names.npy")
    for index, name in enumerate(names):
        if not np.isnan(sent := result.sent[index]):
            answered = result.status[index] == ANSWERED
            end = result.done[index] if not np.isnan(result.done[index]) else result.due[index] + TIMEOUT_S
            duration_us = round(1e6 * max(0.0, end - sent))
            yield index, f"{index + 1:016x}", "", FRONT, str(name), round(1e6 * sent), duration_us, False, not answered


def _calls(segment: Segment, traces: Path) -> Iterator[tuple[object, ...]]:
    start_ns = round(1e9 * segment.start_unix_s)
    for service, span, asked in _joined(segment, traces):
        duration_us = (span.end_time_unix_nano - span.start_time_unix_nano) // 1000
        yield (int(span.trace_id[8:].hex(), 16) - 1, span.span_id.hex(), asked, service, span.name,
               (span.start_time_unix_nano - start_ns) // 1000, duration_us,
               span.kind == Span.SPAN_KIND_PRODUCER, span.status.code == Status.STATUS_CODE_ERROR)


def _joined(segment: Segment, traces: Path) -> Iterator[tuple[str, Span, str]]:
    """Service that was called, its span, and the span (hexadecimal) that stands for its caller."""
    found = [
        (next(one.value.string_value for one in resource.resource.attributes if one.key == "service.name"), span)
        for resource in TracesData.FromString(traces.read_bytes()).resource_spans
        for scope in resource.scope_spans for span in scope.spans if span.trace_id[:8].hex() == segment.traces]
    called = {span.span_id for _, span in found if span.kind in _CALLED}
    stands_for = {span.span_id: span.parent_span_id if span.parent_span_id in called else span.span_id
                  for _, span in found if span.kind == Span.SPAN_KIND_SERVER}
    for service, span in found:
        if span.kind in _CALLED:
            peer = next(one.value.string_value for one in span.attributes if one.key == "peer.service")
            yield peer, span, stands_for.get(span.parent_span_id, span.parent_span_id).hex()
        elif stands_for[span.span_id] == span.span_id:  # its caller has no SDK
            yield service, span, span.parent_span_id.hex()


def _metrics(calls: pd.DataFrame, used: pd.DataFrame, offset_s: float) -> pd.DataFrame:
    """One row for each second and service; a call counts in the second in which it was answered."""
    ended = (calls["start_us"] + calls["duration_us"]) // 1_000_000
    by_second = calls.assign(time_s=ended, latency_ms=calls["duration_us"] / 1000).groupby(["time_s", "service"])
    seen = pd.DataFrame({
        "requests": by_second.size(), "p50_ms": by_second["latency_ms"].median(),
        "p99_ms": by_second["latency_ms"].quantile(0.99), "errors": by_second["error"].sum()})
    rows = []
    for service, counters in used.groupby("service", sort=False):
        grown = counters.drop(columns=["service"]).diff().iloc[1:]
        seconds = grown["at_s"]
        rows.append(pd.DataFrame({
            "time_s": counters["at_s"].iloc[:-1].round().astype("int64"), "service": service,
            "cpu_cores": (grown["cpu_s"] / seconds).to_numpy(),
            "cpu_throttled_share": (grown["throttled"] / grown["periods"].clip(lower=1)).to_numpy(),
            "memory_mib": counters["memory_mib"].iloc[1:].to_numpy(),
            "read_mib_s": (grown["read_mib"] / seconds).to_numpy(),
            "written_mib_s": (grown["written_mib"] / seconds).to_numpy(),
            "cpu_limit_cores": SERVICES[str(service)].cpu_limit_cores}))
    table = pd.concat(rows).merge(seen, how="left", on=["time_s", "service"])
    table[["requests", "errors"]] = table[["requests", "errors"]].fillna(0).astype("int32")
    decimals = {"float64": "float32"}
    table = table.astype({name: decimals.get(str(kind), str(kind)) for name, kind in table.dtypes.items()})
    table["time_s"] += round(offset_s)
    return table.sort_values(["time_s", "service"], ignore_index=True)


def _other_cores(used: pd.DataFrame) -> pd.Series:
    """Processors that everything but the application used, in each second."""
    samples = used.groupby("at_s").agg({"machine_cpu_s": "first", "cpu_s": "sum"}).diff().iloc[1:]
    seconds = np.diff(used["at_s"].unique())
    return (samples["machine_cpu_s"] - samples["cpu_s"]) / seconds


def _anomalies(segment: Segment, offset_s: float) -> pd.DataFrame:
    table = pd.DataFrame(segment.anomalies, columns=[field.name for field in fields(Anomaly)])
    table[["start_s", "end_s"]] += offset_s
    return table.astype({"intensity": "float32"})


def write_tables(tables: Tables, destination: Path) -> Sequence[Path]:
    """Writes each table to a Parquet file of its name."""
    destination.mkdir(parents=True, exist_ok=True)
    files = []
    for name, table in tables.named().items():
        files.append(destination / f"{name}.parquet")
        with whole_file(files[-1]) as new:
            table.to_parquet(new, compression="zstd", compression_level=12, index=False)
    return files
