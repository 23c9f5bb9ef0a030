"""Incidents whose culprit is known: recordings of ours, and the faults that Nezha's authors injected.

Nezha's folder is a checkout of IntelligentDDS/Nezha (rca_data, construct_data): 101 faults in two applications. Of an
incident there are the requests that begin from the injection on, to the end of the second minute after it; ordinary
are those that ended before an injection in the minute of the injection, and the fault-free minutes of construct_data.
A fault neither of whose two next minutes has its traces is left out and counted.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from feature_store.errors import InputError
from systems.microservices.traces.critical_paths import critical_paths
from systems.microservices.traces.culprits import ANOMALIES, US_PER_S
from systems.microservices.traces.otlp import TABLE
from systems.microservices.traces.spans import link, read_table
from systems.microservices.traces.windows import ordinary_times, quiet, suspects

GUARD_US = US_PER_S  # between what is ordinary and an injection
LEAST_REQUESTS = 20  # of an incident
APPLICATIONS = {"2022": "online-boutique", "2023": "train-ticket"}
METRICS = "metrics.parquet"
# What Nezha's tables of a pod have beside its names and times: load and resources, and latencies of its proxies.
NO_METRICS = ("Time", "TimeStamp", "PodName")


@dataclass(frozen=True)
class Incident:
    """One injected fault.

    Attributes:
        application, number: which one it is.
        recording: day or host on which the application was recorded.
        culprit, kind: of the fault.
        start_us: when it began.
        spans: of its requests.
        ordinary: of requests of an ordinary time, the same for many incidents.
        metrics: time (s), then a column for each "service_metric"; ordinary ones before it, and its own.
        table: windows.suspects of it.
    """

    application: str
    number: int
    recording: str
    culprit: str
    kind: str
    start_us: int
    spans: pd.DataFrame
    ordinary: pd.DataFrame
    metrics: pd.DataFrame
    table: pd.DataFrame


def of_nezha(folder: Path) -> tuple[list[Incident], int]:
    """Incidents in the order of their times, and how many were left out for want of traces."""
    lists = sorted(folder.glob("rca_data/*/*-fault_list.json"))
    if not lists:
        raise InputError(f"--nezha: expected a checkout with rca_data/*/*-fault_list.json, got none ({folder})")
    found, left_out = list[Incident](), 0
    for path in lists:
        faults = [fault for hour in json.loads(path.read_text()).values() for fault in hour]
        metrics = _nezha_metrics(path.parent / "metric")
        fault_free = (folder / "construct_data" / path.parent.name).glob("trace/*_trace.csv")
        inside, before = [], [_nezha_spans(one) for one in fault_free]
        for fault in faults:
            at = pd.Timestamp(fault["inject_time"])
            files = [path.parent / "trace" / f"{(at + pd.Timedelta(minutes=minute)):%H_%M}_trace.csv"
                     for minute in range(3)]
            if not any(one.is_file() for one in files[1:]):
                left_out += 1
                continue
            spans = pd.concat([_nezha_spans(one) for one in files if one.is_file()], ignore_index=True)
            start = round(at.timestamp() * US_PER_S)
            begins, ends = _extent(spans)
            inside.append((fault, start, spans[begins >= start]))
            before.append(spans[ends < start - GUARD_US])
        found += _incidents(path.parent.name, len(found), inside, pd.concat(before, ignore_index=True), metrics)
    return found, left_out


def _incidents(day: str, first: int, inside: list[tuple[dict[str, str], int, pd.DataFrame]],
               ordinary: pd.DataFrame, metrics: pd.DataFrame) -> list[Incident]:
    linked = link(ordinary)
    usual = ordinary_times(linked, critical_paths(linked))
    after = metrics["time"].to_numpy()[:, None] - np.array([start for _, start, _ in inside]) / US_PER_S
    calm = metrics[((after < -60) | (after > 300)).all(1)]
    return [Incident(APPLICATIONS[day[:4]], first + place, day, _service(fault["inject_pod"]), fault["inject_type"],
                     start, spans, ordinary, _around(calm, metrics, start), _table(spans, usual))
            for place, (fault, start, spans) in enumerate(inside)]


def _table(spans: pd.DataFrame, usual: object) -> pd.DataFrame:
    linked = link(spans)
    return suspects(linked, critical_paths(linked), usual, np.zeros(len(linked.roots), np.int64))


def _nezha_spans(path: Path) -> pd.DataFrame:
    raw = pd.read_csv(path)
    start = raw["StartTimeUnixNano"] // 1000
    return pd.DataFrame({
        "trace": raw["TraceID"], "span": raw["SpanID"], "parent": raw["ParentID"].replace("root", ""),
        "service": raw["PodName"].map(_service), "operation": raw["OperationName"], "start_us": start,
        "duration_us": raw["EndTimeUnixNano"] // 1000 - start, "background": False, "error": False})


def _service(pod: str) -> str:
    return pod.rsplit("-", 2)[0]


def _extent(spans: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """First start and last end, us, of each span's trace."""
    ends = spans["start_us"] + spans["duration_us"]
    return spans.groupby("trace")["start_us"].transform("min"), ends.groupby(spans["trace"]).transform("max")


def _nezha_metrics(folder: Path) -> pd.DataFrame:
    """A row a minute: the day's tables of pods side by side. Their Time counts: one day's TimeStamp is hours off."""
    columns = {}
    for path in sorted(folder.glob("*-*_metric.csv")):
        raw = pd.read_csv(path)
        minute = pd.to_datetime(raw["Time"].str[:16], utc=True)
        for name in raw.columns.difference(NO_METRICS):
            columns[f"{_service(path.name.removesuffix('_metric.csv'))}_{name}"] = pd.to_numeric(
                raw[name], errors="coerce").groupby(minute).last()
    frame = pd.DataFrame(columns).ffill().fillna(0.0)
    since = pd.to_datetime(frame.index) - pd.Timestamp(0, tz="UTC")
    return frame.assign(time=since // pd.Timedelta(seconds=1)).reset_index(drop=True)


def _around(calm: pd.DataFrame, metrics: pd.DataFrame, start_us: int) -> pd.DataFrame:
    """The day's ordinary minutes, put before the fault, and three minutes from the fault on."""
    start = start_us / US_PER_S
    at = metrics[(metrics["time"] >= start) & (metrics["time"] < start + 180)]
    before = calm.assign(time=start - 60.0 * np.arange(len(calm), 0, -1))
    return pd.concat([before, at], ignore_index=True)


def of_recording(folder: Path, first: int = 0) -> tuple[list[Incident], int]:
    """Anomalies of a recording that were alone and aimed at one service, and how many had too few requests.

    Args:
        first: number of its first anomaly; numbers of an application's recordings must differ.
    """
    spans, anomalies = read_table(folder / TABLE), read_table(folder / ANOMALIES)
    begins, ends = _extent(spans)
    guard_s, took_s = GUARD_US / US_PER_S, (ends - begins).to_numpy() / US_PER_S
    ordinary = spans[quiet(begins.to_numpy() / US_PER_S, anomalies, guard_s, took_s + guard_s)]
    linked = link(ordinary)
    usual = ordinary_times(linked, critical_paths(linked))
    metrics = _recorded_metrics(folder / METRICS)
    found, left_out = list[Incident](), 0
    for number, anomaly in enumerate(anomalies.itertuples(), first):
        if not anomaly.alone or not anomaly.service:
            continue
        start, end = (round(at * US_PER_S) for at in (anomaly.start_s, anomaly.end_s))
        inside = spans[(begins >= start) & (begins < end)]
        if inside["trace"].nunique() < LEAST_REQUESTS:
            left_out += 1
            continue
        before = (metrics["time"] < start / US_PER_S - 1) & (metrics["time"] > start / US_PER_S - 600) & quiet(
            metrics["time"].to_numpy(), anomalies, 1.0)
        at = (metrics["time"] >= start / US_PER_S) & (metrics["time"] < end / US_PER_S)
        found.append(Incident("shop", number, folder.resolve().name, str(anomaly.service), str(anomaly.kind), start,
                              inside, ordinary, metrics[before | at], _table(inside, usual)))
    return found, left_out


def _recorded_metrics(path: Path) -> pd.DataFrame:
    raw = read_table(path)
    wide = raw.astype({"service": str}).pivot_table(index="time_s", columns="service", observed=True)
    wide.columns = [f"{service}_{name}" for name, service in wide.columns]
    return wide.ffill().fillna(0.0).reset_index(names="time")


def rows_of(incidents: list[Incident]) -> pd.DataFrame:
    """Their tables one below the other, with incident, application, recording, culprit, kind and to_blame."""
    def tables() -> Iterator[pd.DataFrame]:
        for incident in incidents:
            yield incident.table.assign(
                incident=incident.number, application=incident.application, recording=incident.recording,
                culprit=incident.culprit, kind=incident.kind,
                to_blame=(incident.table["service"] == incident.culprit).astype(float))

    return pd.concat(tables(), ignore_index=True)
