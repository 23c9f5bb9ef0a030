"""The data card of a campaign on the application: how, where and with what it was recorded."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from feature_store.whole_files import write_file
from recording.data_card import LICENCE
from recording.scaling.live_deployment import GROUP_WEIGHT
from systems.microservices.application.dataset import GAP_S, Tables
from systems.microservices.application.graph import FRONT, SERVICES
from systems.microservices.application.raw_segments import Segment
from systems.microservices.application.settings import ApplicationSettings
from systems.microservices.traces.windows import quiet

# Column -> unit and meaning.
SPANS = {
    "trace": ("", "number of the request"),
    "span": ("", "number of the call"),
    "parent": ("", "number of the call that its caller was answering; -1: the request itself"),
    "service": ("", "service that was called"),
    "operation": ("", "what it was asked for; of nginx, the type of the request"),
    "start_us": ("us", "when the caller sent the call, from the recording's start"),
    "duration_us": ("us", "until the caller had the whole answer"),
    "background": ("", "whether the caller did not wait for it"),
    "error": ("", "whether it failed or was not answered in time"),
}
METRICS = {
    "time_s": ("s", "start of the second, from the recording's start"),
    "service": ("", "service"),
    "cpu_cores": ("cores", "processors that its control group used, what was injected into it included"),
    "cpu_throttled_share": ("share", "quota periods in which the quota ran out"),
    "memory_mib": ("MiB", "memory charged to the group at the end of the second, page cache included"),
    "read_mib_s": ("MiB/s", "read from the disk"),
    "written_mib_s": ("MiB/s", "written to the disk, past the page cache"),
    "cpu_limit_cores": ("cores", "the group's CPU quota"),
    "requests": ("count", "calls answered in that second"),
    "p50_ms": ("ms", "median of their durations; NaN where there were none"),
    "p99_ms": ("ms", "99th percentile of them"),
    "errors": ("count", "those of them that failed"),
}
ANOMALIES = {
    "start_s": ("s", "when it was injected, from the recording's start"),
    "end_s": ("s", "when it was taken away"),
    "service": ("", 'service that it was aimed at; "" for the whole application'),
    "kind": ("", "kind of anomaly"),
    "intensity": ("", "in (0, 1]; what it means depends on the kind"),
    "alone": ("", "whether no other anomaly was there at the same time"),
}
# What an anomaly leaves behind is not counted as a time without any, s.
_QUEUE_S = 3.0
_COLUMNS = {"spans": SPANS, "metrics": METRICS, "anomalies": ANOMALIES}


def write_card(settings: ApplicationSettings, segments: Sequence[Segment], tables: Tables,
               host: Mapping[str, Any], destination: Path, command: str) -> list[Path]:
    """Writes card.json and README.md, which name what was recorded on, by `host`, but neither host nor folders."""
    card = _card(settings, segments, tables, host, command)
    for name, text in (("card.json", json.dumps(card, indent=2) + "\n"), ("README.md", _text(card))):
        write_file(destination / name, text)
    return [destination / "card.json", destination / "README.md"]


def _card(settings: ApplicationSettings, segments: Sequence[Segment], tables: Tables, host: Mapping[str, Any],
          command: str) -> dict[str, Any]:
    anomalies, latencies = tables.anomalies, _latencies(tables)
    moments = [datetime.fromtimestamp(segment.start_unix_s, UTC) for segment in segments]
    return {
        "title": "Microservices: an application under anomalies",
        "licence": LICENCE,
        "recorded_utc": [moment.isoformat(timespec="seconds") for moment in (min(moments), max(moments))],
        "command": command,
        "settings": asdict(settings),
        **host,
        "segments": [segment.number for segment in segments],
        "rows": {name: len(table) for name, table in tables.named().items()},
        "requests": int((tables.spans["service"] == FRONT).sum()),
        "failed": int(((tables.spans["service"] == FRONT) & tables.spans["error"]).sum()),
        "used_cores": round(float(tables.metrics.groupby("time_s")["cpu_cores"].sum().median()), 3),
        "other_cores": round(tables.other_cores, 3),
        "without_anomaly_s": int(quiet(tables.metrics["time_s"].unique(), tables.anomalies, length_s=1.0).sum()),
        "alone": int(anomalies["alone"].sum()),
        "kinds": {kind: _felt(tables, kind, *latencies) for kind in anomalies["kind"].cat.categories},
        "services": {name: _of_service(tables, name) for name in SERVICES},
    }


def _latencies(tables: Tables) -> tuple[np.ndarray, np.ndarray]:
    """When requests were sent, s, and their latency over the mean of their type without any anomaly."""
    requests = tables.spans[tables.spans["service"] == FRONT]
    at_s = requests["start_us"].to_numpy() / 1e6
    usual = requests[quiet(at_s, tables.anomalies, _QUEUE_S)].groupby("operation", observed=True)["duration_us"].mean()
    return at_s, (requests["duration_us"] / requests["operation"].map(usual).astype(float)).to_numpy()


def _felt(tables: Tables, kind: str, at_s: np.ndarray, latencies: np.ndarray) -> dict[str, float]:
    """How often a kind was injected, and the mean of the latencies while it was alone."""
    found = tables.anomalies[tables.anomalies["kind"] == kind]
    times = found.loc[found["alone"], ["start_s", "end_s"]].to_numpy()
    means = [latencies[(at_s >= start_s) & (at_s < end_s)].mean() for start_s, end_s in times]
    quartiles = {f"latency_{share}%": round(float(np.percentile(means, share)), 2) for share in (25, 50, 75) if means}
    return {"count": len(found), "alone": len(means), **quartiles}


def _of_service(tables: Tables, name: str) -> dict[str, float]:
    metrics = tables.metrics[tables.metrics["service"] == name]
    return {"anomalies": int((tables.anomalies["service"] == name).sum()), "calls": int(metrics["requests"].sum()),
            "cpu_cores": round(float(metrics["cpu_cores"].median()), 4),
            "cpu_limit_cores": SERVICES[name].cpu_limit_cores, "p50_ms": round(float(metrics["p50_ms"].median()), 2)}


def _text(card: dict[str, Any]) -> str:
    host, rows = card["machine"], card["rows"]
    kinds = [f"| {kind} | {one['count']} | {one['alone']} | " + " | ".join(
        str(one.get(f"latency_{name}", "")) for name in ("25%", "50%", "75%")) + " |"
        for kind, one in card["kinds"].items()]
    services = [f"| {name} | {SERVICES[name].kernel or 'its own'} | " + " | ".join(map(str, one.values())) + " |"
                for name, one in card["services"].items()]
    return f"""# {card["title"]}

{rows["anomalies"]} anomalies ({card["alone"]} of them alone) of {len(card["kinds"])} kinds in an application of
{len(card["services"])} services: {card["requests"]} requests ({card["failed"]} failed), {rows["spans"]} spans,
{rows["metrics"]} rows of metrics. {card["without_anomaly_s"]:g} s without any anomaly.
Recorded {card["recorded_utc"][0]} to {card["recorded_utc"][1]} in {len(card["segments"])} segments of
{card["settings"]["segment_s"]:g} s. Licence: {card["licence"]}.

    {card["command"]}

Machine: {"virtual machine" if host["virtual"] else "machine"}, {host["cpus"]} CPUs ({host["cpu_model"]}),
{host["memory_gib"]} GiB, Linux {host["kernel"]}.
The application used {card["used_cores"]:g} of its processors (median), recorder, load
generator and what else ran there {card["other_cores"]:g}.

Versions: {", ".join(f"{name} {text}" for name, text in card["versions"].items())}.

| kind | anomalies | alone | mean latency of requests while alone, as a multiple: 25 % | median | 75 % |
|---|---|---|---|---|---|
{_lines(kinds)}

| service | own work | anomalies | calls | CPU, cores (median) | CPU limit, cores | median of a call, ms |
|---|---|---|---|---|---|---|
{_lines(services)}

{_lines([_table(name, columns) for name, columns in _COLUMNS.items()])}
## What to know

- A row of the spans is a call as its caller saw it: the network in front of the service is a part of it. nginx was seen
  by the load generator; Redis and MariaDB by their clients; the entry behind nginx by itself, and no network was slowed
  there.
- Metrics were read from the control groups' files each second; requests, latencies and errors are those of the spans.
- Requests are an open loop: Poisson arrivals that do not wait for answers. Every trace was kept.
- Segments stand on one axis of time with gaps of {GAP_S:g} s or more in which nothing was recorded.
- Stressors ran inside of the service's control group, within its CPU quota; while one stood still by its duty cycle the
  anomaly was still on. What an anomaly left behind (a queue) can last beyond its end.
- Services that only work in the background had no anomalies of their own.
- Client, application and recorder shared one machine with other work. The services' control groups had {GROUP_WEIGHT}
  times the weight of other processes, and load generator and relays a higher priority.
- How each kind is injected: docs/reference/microservices-application.md.
"""


def _table(name: str, columns: dict[str, tuple[str, str]]) -> str:
    rows = [f"| {column} | {unit} | {meaning} |" for column, (unit, meaning) in columns.items()]
    return f"## Columns of {name}.parquet\n\n| column | unit | meaning |\n|---|---|---|\n{_lines(rows)}\n"


def _lines(lines: Sequence[str]) -> str:
    return "\n".join(lines)
