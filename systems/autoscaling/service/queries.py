"""With which PromQL a service's signals can be measured: looked for on a Prometheus server, and tried there.

Load, latency and errors come from one histogram where there is one, else from counters; CPU, memory, limits and
replicas from the first exporter that knows them (exporters.py). Every query was answered by the server before it is
handed on.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from string import Template

from feature_store.errors import SourceError, nearest
from feature_store.sources.prometheus_api import PrometheusApi, Series
from systems.autoscaling.observer import AutoscalingObserver
from systems.autoscaling.service.exporters import (
    CHANGING,
    CHECKS,
    CLASSES,
    CONTAINER,
    COUNTED,
    COUNTERS,
    DEPLOYMENT,
    HISTOGRAMS,
    MISSING,
    NAMESPACES,
    NOT_LOAD,
    OWN,
    PATHS,
    RESOURCES,
    SHARES,
    SIDECARS,
    TIMERS,
    VALUES,
    Metric,
)

_WINDOW = "5m"  # of a query that is tried


@dataclass(frozen=True)
class Query:
    """How to ask for one signal.

    Attributes:
        promql: gives one series; `{window}` stands where a range goes, such as 30s.
        scale: factor from its value to the signal's unit.
        found: where it was found, such as "histogram http_request_duration_seconds, label job".
        read: selector of series that are scraped together with what it reads; "" where others' queries are all it has.
    """

    promql: str
    scale: float = 1.0
    found: str = ""
    read: str = ""


@dataclass(frozen=True)
class Found:
    """What a server can tell of a service.

    Attributes:
        queries: signal -> its query; also `mean_latency_ms` where the sum of latencies is known.
        newest: PromQL of the Unix time, s, of the load's newest sample; "" where there is no load.
        missing: signal -> what to export so that it can be measured, in a phrase.
    """

    queries: Mapping[str, Query]
    newest: str
    missing: Mapping[str, str]


def find_queries(api: PrometheusApi, service: str, target: Mapping[str, Mapping[str, str]]) -> Found:
    """Asks the server with which PromQL the signals of a service can be measured; each query was tried there.

    Args:
        api: client of the server.
        service: its name, as labels of its series have it.
        target: what a controller is to act on, as in the controller file: `kubernetes` with namespace, deployment and
            container, or `cgroup` with group; may be empty.

    Raises:
        SourceError: the server does not answer, or knows nothing by this name; then the nearest name is told.
    """
    search = _Search(api, service, target)
    timers = search.matches(TIMERS, HISTOGRAMS, "_count")
    counters = search.matches(COUNTED, COUNTERS)
    metrics = {metric: about for _, metric, about, _, _ in RESOURCES}
    resources = {one.metric: one for one in search.matches("|".join(metrics), metrics)}
    if not (timers or counters or resources):
        raise search.unknown()
    newest = _find_load(search, timers, counters)
    for signal, metric, _, template, scale in RESOURCES:
        if one := resources.get(metric):
            search.keep(signal, Template(template).substitute(x=one.series(), of=one.selector), scale,
                        f"{metric}, {one.label}", one.series() if "{window}" in template else "", one.series())
    for share, (used, *over) in SHARES.items():
        _find_share(search, share, used, over)
    wanted = (*AutoscalingObserver.measured, "cpu_limit_cores", "memory_limit_mib", "replicas", "ready_replicas")
    missing = {name: search.why.get(name) or MISSING[name] for name in wanted if name not in search.queries}
    return Found(search.queries, newest, missing)


@dataclass(frozen=True)
class _Match:
    """Series of a metric that belong to the service. place: the lower, the better known, and the surer its name."""

    metric: str
    selector: str
    label: str
    about: Metric
    place: int

    def series(self, suffix: str = "", more: str = "") -> str:
        """Their selector in PromQL; more: matchers beside."""
        return f"{self.metric}{suffix}{{{self.selector}{more}}}"


@dataclass
class _Search:
    """What was found so far.

    known: names that labels have. looked: those labels. spaces: namespaces. why: signal -> what it lacks.
    """

    api: PrometheusApi
    service: str
    target: Mapping[str, Mapping[str, str]]
    queries: dict[str, Query] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)
    looked: set[str] = field(default_factory=set)
    spaces: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        cluster = self.target.get("kubernetes", {})
        self.namespace, self.deployment = cluster.get("namespace", ""), cluster.get("deployment", "")

    def unknown(self) -> SourceError:
        """That nothing goes by the service's name; with the nearest name."""
        got, hint = repr(self.service), nearest(self.service, self.known)
        if self.namespace:
            got += f" in namespace {self.namespace!r}"
            if self.known & {self.service, self.deployment}:
                hint = f"other namespaces have it, {nearest(self.namespace, self.spaces)}"
        return SourceError(f"service: expected one that the server knows, got {got}; {hint} (labels "
                           f"{', '.join(sorted(self.looked)) or 'of nothing'} were looked through, {self.api.address})")

    def ask(self, promql: str) -> list[Series]:
        return self.api.series("query", {"query": promql})

    def number(self, promql: str) -> float:
        """The value of a query, 0 where it gives nothing or NaN."""
        found = self.ask(promql)
        value = float(found[0].values[-1]) if found else 0.0
        return 0.0 if math.isnan(value) else value

    def keep(self, signal: str, promql: str, scale: float, found: str, rates: str = "", read: str = "") -> None:
        """Keeps the first query of a signal that gives one series, or none yet where the series `rates` are there."""
        if signal in self.queries:
            return
        try:
            came = self.ask(promql.replace("{window}", _WINDOW))
        except SourceError:
            self.ask("vector(1)")  # raises where it is not this query but the server that fails
            return
        if len(came) == 1 or (not came and rates and self.number(f"count({rates})")):
            self.queries[signal] = Query(promql, scale, found, read)

    def matches(self, names: str, table: Mapping[str, Metric], suffix: str = "") -> list[_Match]:
        """Metrics that have series of the service: those of the table in its order, then others."""
        labels = sorted({*OWN, *NAMESPACES, *(label for one in table.values() for label in (
            *one.labels, *dict(one.only)))} | {"container", "exported_container"})
        rows: dict[str, list[Mapping[str, str]]] = {}
        for one in self.ask(f"count by (__name__, {', '.join(labels)}) ({{__name__=~{_text(names)}}})"):
            rows.setdefault(one.labels.get("__name__", "").removesuffix(suffix), []).append(one.labels)
        found, places = [], {name: place for place, name in enumerate(table)}
        for metric, its in rows.items():
            if metric not in table and NOT_LOAD.search(metric):
                continue
            about = table.get(metric, Metric(1000.0 if metric.endswith("_seconds") else 1.0))
            fixed = [label for label in about.labels if label not in (*CHANGING, "id")]
            self.looked |= {label for label in fixed if any(label in row for row in its)}
            self.known |= {row[label] for row in its for label in fixed if label in row}
            self.spaces |= {_namespace(about, row)[1] for row in its} - {""}
            for order, name in enumerate(filter(None, (self.service, self.deployment))):
                if chosen := self._choose(metric, about, its, name):
                    place = places.get(metric, len(table)) + order * (len(table) + 1)
                    found.append(_Match(metric, *chosen, about, place))
                    break
        return sorted(found, key=lambda one: (one.place, one.metric))

    def _choose(self, metric: str, about: Metric, rows: Iterable[Mapping[str, str]],
                name: str) -> tuple[str, str] | None:
        """Label matchers of the series that belong to `name`, and which label it was, in words."""
        if about is CONTAINER or about is DEPLOYMENT:  # what is acted on, whatever it serves
            name = self.deployment or self.target.get("cgroup", {}).get("group", "").rsplit("/", 1)[-1] or name
        own = [row for row in rows if all(row.get(label) == value for label, value in about.only)
               and (not self.namespace or _namespace(about, row)[1] in ("", self.namespace))]
        for label in about.labels:
            pattern = Template(VALUES.get(label, "$name")).substitute(
                name=_quoted(name), space=_quoted(self.namespace) or "[a-z0-9]+")
            if fit := [row for row in own if re.fullmatch(pattern, row.get(label, ""))]:
                return self._selector(metric, about, label, pattern, fit)
        return None

    def _selector(self, metric: str, about: Metric, label: str, pattern: str,
                  fit: list[Mapping[str, str]]) -> tuple[str, str] | None:
        matchers = [f"{name}={_text(value)}" for name, value in about.only]
        spaces = sorted({_namespace(about, row) for row in fit} - {("", "")})
        if self.namespace and spaces:
            matchers.append(f"{spaces[0][0]}={_text(self.namespace)}")
        values = sorted({row[label] for row in fit})
        if label in CHANGING:
            matchers.append(f"{label}=~{_text(pattern)}")
        elif len(values) == 1:
            matchers.append(f"{label}={_text(values[0])}")
        else:
            matchers.append(f"{label}=~{_text('|'.join(map(_quoted, values)))}")
        if about is CONTAINER and label in CHANGING:
            # cAdvisor also has series of whole pods, and those of sidecars
            key = "exported_container" if label == "exported_pod" else "container"
            container = self._container(metric, {row.get(key, "") for row in fit}.difference(SIDECARS))
            if not container:
                return None
            matchers.append(f"{key}={_text(container)}")
        together = "" if self.namespace or len(spaces) < 2 else (
            f", namespaces {', '.join(value for _, value in spaces)} together")
        return ",".join(matchers), f"label {label}{together}"

    def _container(self, metric: str, there: set[str]) -> str:
        """Which of the pods' containers is the service; "" where nobody can tell."""
        asked = self.target.get("kubernetes", {}).get("container", self.service)
        if asked in there:
            return asked
        if len(there) == 1 and "kubernetes" not in self.target:
            return next(iter(there))
        why = f"its pods have no container {asked!r}: name one of {', '.join(sorted(there)) or 'none'}"
        self.why |= dict.fromkeys((signal for signal, its, *_ in RESOURCES if its == metric), why)
        return ""


def _find_load(search: _Search, timers: list[_Match], counters: list[_Match]) -> str:
    """Rate, latency and errors; returns the query of the newest sample, "" where there is no load."""
    suffix, kind = ("_count", "histogram") if timers else ("", "counter")
    buckets = {one.metric: search.number(f"count({one.series('_bucket')})") for one in timers}
    requests = {one.metric: search.number(f"sum(rate({one.series(suffix)}[{_WINDOW}]))") for one in timers or counters}
    ranked = sorted(timers or counters,
                    key=lambda one: (not buckets.get(one.metric), one.place, -requests[one.metric]))
    if not ranked:
        return ""
    source = ranked[0]
    beside = _without_checks(search, source, suffix)
    count, where = source.series(suffix, beside), f"{kind} {source.metric}, {source.label}"
    search.keep("rate_rps", f"sum(rate({count}[{{window}}]))", 1.0, where, count, count)
    if timers:
        bucket, total = source.series("_bucket", beside), source.series("_sum", beside)
        if buckets[source.metric]:
            search.keep("p99_ms", f"histogram_quantile(0.99, sum by (le) (rate({bucket}[{{window}}])))",
                        source.about.scale, where, bucket, count)
        search.keep("mean_latency_ms", f"sum(rate({total}[{{window}}])) / sum(rate({count}[{{window}}]))",
                    source.about.scale, where, total, count)
        search.why["p99_ms"] = f"{source.metric} has no buckets: export it as a histogram, which has percentiles"
    elif source.metric.startswith("haproxy_"):
        search.why["p99_ms"] = ("HAProxy's exporter has no percentiles: a histogram is needed, such as "
                                "http_request_duration_seconds exported by the service itself")
    else:
        search.why["p99_ms"] = f"{source.metric} only counts requests: a histogram of the time they take is needed"
    # A histogram without classes often has a counter with them beside it
    for one, ending in ((source, suffix), *((other, "") for other in counters)):
        _find_served(search, one, ending)
    return f"max(timestamp({count}))"


def _find_served(search: _Search, one: _Match, suffix: str) -> None:
    """The share of requests that were served, by the first label that tells the class of a response."""
    if "served_share" in search.queries:
        return
    beside = _without_checks(search, one, suffix)
    every = one.series(suffix, beside)
    seen = search.ask(f"count by ({', '.join(dict.fromkeys(label for label, _, _ in CLASSES))}) ({every})")
    for label, known, failed in CLASSES:
        if any(re.fullmatch(known, series.labels.get(label, "")) for series in seen):
            lost = one.series(suffix, f"{beside},{label}=~{_text(failed)}")
            search.keep("served_share", f"1 - (sum(rate({lost}[{{window}}])) or vector(0)) / "
                        f"sum(rate({every}[{{window}}]))", 1.0, f"{one.metric}, label {label}", every, every)
            return


def _without_checks(search: _Search, one: _Match, suffix: str) -> str:
    """Matchers that leave out health checks, where a label tells them and something is left."""
    beside = ""
    for label in PATHS:
        checks = search.ask(f"count by ({label}) ({one.series(suffix, f',{label}=~{_text(CHECKS)}')})")
        paths = "|".join(sorted(_quoted(series.labels.get(label, "")) for series in checks))
        without = f"{beside},{label}!~{_text(paths)}"
        if checks and search.number(f"count({one.series(suffix, without)})"):
            beside = without
    return beside


def _find_share(search: _Search, share: str, used: str, over: list[str]) -> None:
    """What is used over what is set, where both were found."""
    if lacks := [name for name in (used, *over) if name not in search.queries]:
        search.why[share] = f"{', '.join(lacks)} would have to be known for it"
        return
    above, below = search.queries[used], [search.queries[name] for name in over]
    divisor = " * ".join(f"({one.promql})" for one in below)
    search.keep(share, f"{above.promql} / {divisor if len(below) == 1 else f'({divisor})'}",
                above.scale / math.prod(one.scale for one in below), f"{used} over {' * '.join(over)}",
                "vector(1)")  # its parts were tried: nothing yet is no fault


def _namespace(about: Metric, row: Mapping[str, str]) -> tuple[str, str]:
    """The label that tells the namespace, and its value; both "" where none does."""
    return next(((label, row[label]) for label in about.namespaces if row.get(label)), ("", ""))


def _quoted(value: str) -> str:
    """A regular expression, of RE2 as of Python, for this value."""
    return re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", value)


def _text(value: str) -> str:
    """A PromQL string: its escapes are Go's, which has all of JSON's. No brace in it opens a placeholder."""
    return re.sub(r"\{(?=[a-z])", r"\\x7b", json.dumps(value, ensure_ascii=False))
