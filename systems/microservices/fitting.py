"""One application of the simulator fitted to a recording of a real one: spans, and what its services used.

Of the quiet seconds, in which no anomaly is: core seconds of a request by service (cores used over requests answered),
how they vary (cores used in a second beside what its requests use on average: a span's own time varies by all else that
the machine does), waits (what the median of a span's own time is above that), and how arrivals vary; of all traces:
types of requests and their shares, and each type's graph: what follows each other in a caller's span is sequential,
what mostly overlaps parallel. Not fitted, for no recording of one load says it: `memory_share`.

Flow: data/microservices -> traces/ (spans, critical paths) -> here -> `Applications` of one.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from feature_store.errors import InputError
from systems.microservices.applications import PATHS, Applications, stacked
from systems.microservices.graphs import Calls, Graph, Stage, paths_of, visits_of
from systems.microservices.traces.critical_paths import critical_paths
from systems.microservices.traces.otlp import read_spans
from systems.microservices.traces.spans import Spans, read_table
from systems.microservices.traces.windows import quiet

MEMORY_SHARE = 0.35  # of the work, the mean of drawn applications
LEAST_SHARE = 0.02  # of the traces, of a type that counts
LEAST_WORK_S = 1e-5
SETTLES_S = 2  # after an anomaly


@dataclass(frozen=True)
class Fitted:
    """application: (1, ...); services: (S,) names, the entry first; types: (R,) operations of the entry."""

    application: Applications
    services: tuple[str, ...]
    types: tuple[str, ...]


def fitted(folder: Path) -> Fitted:
    """Fits spans.parquet, metrics.parquet and anomalies.parquet of a folder.

    Raises:
        InputError: a file or a column is missing, or no second is quiet.
    """
    metrics = read_table(folder / "metrics.parquet", ("time_s", "service", "cpu_cores", "requests"))
    anomalies = read_table(folder / "anomalies.parquet", ("start_s", "end_s"))
    spans = read_spans(str(folder))
    calls = requests_of(spans)
    roots = calls[calls["caller"] < 0]
    entry = roots["service"].mode()[0]
    names = (entry, *sorted(set(calls["service"]) - {entry}))
    shares = roots.loc[roots["service"] == entry, "operation"].value_counts(normalize=True)
    shares = shares[shares >= LEAST_SHARE]
    seconds = metrics[quiet(metrics["time_s"].to_numpy(), anomalies, SETTLES_S, length_s=1.0)]
    used = seconds.groupby("service", observed=True)[["cpu_cores", "requests"]].sum().reindex(names).fillna(0.0)
    own = calls[quiet(calls["start_us"].to_numpy() / 1e6, anomalies, SETTLES_S)].groupby("service")["self_us"]
    if seconds.empty or not len(own):
        raise InputError(f"recording: expected seconds without an anomaly, got none ({folder})")
    work = (used["cpu_cores"] / used["requests"].clip(lower=1.0)).clip(lower=LEAST_WORK_S).to_numpy()
    waits = (1e-6 * own.median().reindex(names).fillna(0.0).to_numpy() - work).clip(min=0.0)
    named = seconds["service"].astype(str)
    apart = seconds["cpu_cores"] - seconds["requests"] * named.map(dict(zip(names, work, strict=True)))
    service_cv2 = (apart.pow(2).groupby(named).sum().reindex(names) / used["requests"] / work**2).fillna(1.0).to_numpy()
    counts = seconds.groupby("service", observed=True)["requests"]
    arrival_cv2 = (counts.var() / counts.mean()).reindex(names).fillna(1.0).to_numpy()
    graphs = [_graph(calls[calls["type"] == name], names) for name in shares.index]
    parts = (work, np.full(len(names), MEMORY_SHARE), waits, arrival_cv2.clip(0.5, 4.0), service_cv2.clip(0.1, 4.0),
             np.stack([visits_of(graph, len(names)) for graph in graphs]),
             np.stack([paths_of(graph, len(names), work + waits, PATHS) for graph in graphs]),
             (shares / shares.sum()).to_numpy())
    return Fitted(stacked(*(part[None] for part in parts)), names, tuple(map(str, shares.index)))


def requests_of(spans: Spans) -> pd.DataFrame:
    """A row a request at a service: its caller's row, -1 of a root; spans within a service are part of its own."""
    paths, service = critical_paths(spans), spans.service
    caller, inner = spans.parent.copy(), np.zeros(len(spans), dtype=bool)
    rows = np.flatnonzero(caller >= 0)
    inner[rows] = service[rows] == service[caller[rows]]
    for _ in range(int(spans.depth.max(initial=0))):
        within = np.flatnonzero((caller >= 0) & inner[caller])
        caller[within] = caller[caller[within]]
    root = np.full(int(spans.trace.max()) + 1, -1)
    root[spans.trace[spans.roots]] = spans.roots
    self_us = paths.self_us.copy()
    np.add.at(self_us, caller[inner], paths.self_us[inner])
    found = pd.DataFrame({
        "service": np.asarray(spans.services)[service], "operation": np.asarray(spans.operations)[spans.operation],
        "type": np.asarray(spans.operations)[spans.operation[root[spans.trace]]], "caller": caller,
        "start_us": spans.start_us, "end_us": spans.start_us + spans.duration_us, "self_us": self_us,
        "background": paths.background})
    return found[(spans.depth >= 0) & ~inner]


def _graph(calls: pd.DataFrame, names: tuple[str, ...]) -> Graph:
    """Of the calls of one type; what follows each other on average is of two stages."""
    number = {name: place for place, name in enumerate(names)}
    made = calls[calls["caller"].isin(calls.index)]
    by = calls.loc[made["caller"]]
    made = made.assign(by=by["service"].to_numpy(), begins=made["start_us"] - by["start_us"].to_numpy(),
                       ends=made["end_us"] - by["start_us"].to_numpy())
    visits = calls["service"].value_counts()
    groups = made.groupby(["by", "service"])
    each = groups[["begins", "ends", "background"]].mean().assign(times=groups.size()).reset_index()
    found = {}
    for name, of in each.sort_values("begins").groupby("by"):
        stages: list[dict[int, float]] = []
        background: list[Stage] = []
        until = -np.inf
        columns = (of[column].tolist() for column in ("service", "times", "begins", "ends", "background"))
        for callee, times, begins, ends, aside in zip(*columns, strict=True):
            stage = {number[callee]: times / visits[name]}
            if aside > 0.5:
                background.append(stage)
            elif begins < until:
                stages[-1] |= stage
                until = max(until, ends)
            else:
                stages.append(stage)
                until = ends
        found[number[str(name)]] = Calls(tuple(stages), tuple(background))
    return found
