"""What speaks for it that a service is to blame for a window of time: one row a (window, service).

Of the paper (section 3.2.3, algorithm 3.2), over the requests whose root starts in the window:
    relative_importance     Pearson correlation of T_i, what critical paths spend in service i, with their length T_CP
    congestion_intensity    99th percentile of T_i over its median, over the paths that it is on
    share_on_critical_path  of the requests
The paper takes them for each critical path apart; here all requests of a window are taken together, of which a service
that a path has just moved to is seen, too. Beside the paper, against ordinary times of the same operations (over a
time that is mostly ordinary, of which few bad windows hardly move a median):
    slowdown                natural logarithm of the time that its spans took themselves over what they ordinarily take
    worst_median, worst_tail  the same of the median and of the 99th percentile of its operation that became worst
    transit                 the same of what calls to it take beyond its own spans: network and queues before it
    excess_share            its share of all the time that the window's requests took beyond the ordinary
    changed_calls           how far the calls that one of its operations makes have become more or fewer (logarithm)
    lead                    worst_median and changed_calls together, as a share of the window's largest
A call whose caller and callee both wrote a span is one: what it takes beyond the callee's is the callee's.

All are the more suspicious the larger, and none is below its value in NOTHING: less than ordinary is no suspicion. A
service that is on no critical path has NOTHING, whatever was measured of it. So a score that rises in every feature is
nowhere smaller than there, and a service off every critical path is never first.

Flow: critical_paths.py -> here -> culprits.py, and the benchmark. Symbols: n spans, m requests, S services.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from systems.microservices.traces.critical_paths import CriticalPaths, FloatArray
from systems.microservices.traces.spans import BoolArray, IntArray, Spans

FEATURES = ("relative_importance", "congestion_intensity", "share_on_critical_path", "slowdown", "worst_median",
            "worst_tail", "transit", "excess_share", "changed_calls", "lead")
NOTHING = dict.fromkeys(FEATURES, 0.0) | {"congestion_intensity": 1.0}
# Times that differ by less than this are the same: they are added to both sides of a ratio.
RESOLUTION_US = 50.0
RESOLUTION_CALLS = 0.1
LEAST_LEADER = 0.05  # what all services of a window are within is nobody's lead
LEAST_SPANS = 5  # of an operation, before it is held against its ordinary self
MOST = {"congestion_intensity": 100.0, "slowdown": 10.0, "worst_median": 10.0, "worst_tail": 10.0, "transit": 10.0,
        "changed_calls": 5.0, "relative_importance": 1.0, "share_on_critical_path": 1.0, "excess_share": 1.0,
        "lead": 1.0}


@dataclass(frozen=True)
class Ordinary:
    """What operations ordinarily take: mean, median and tail, us, and calls a span, by (service, operation)."""

    times: pd.DataFrame


def ordinary_times(spans: Spans, paths: CriticalPaths) -> Ordinary:
    """Of a time that is mostly ordinary: means are of spans below the 95th percentile."""
    rows = _of_spans(spans, paths)
    groups = rows.groupby(["service", "operation"], observed=True)
    kept = rows[rows["self_us"] <= groups["self_us"].transform("quantile", 0.95)]
    times = groups["self_us"].quantile(np.array([0.5, 0.99])).unstack().set_axis(["median", "tail"], axis=1)
    times["mean"] = kept.groupby(["service", "operation"], observed=True)["self_us"].mean()
    return Ordinary(times.assign(calls=groups["calls"].mean()))


def quiet(at_s: FloatArray, anomalies: pd.DataFrame, after_s: float = 0.0,
          length_s: "float | FloatArray" = 0.0) -> BoolArray:
    """Which spells of a recording, from `at_s` on, meet no anomaly, nor less than `after_s` after one."""
    begins, ends = anomalies["start_s"].to_numpy(), anomalies["end_s"].to_numpy() + after_s
    moments, until = (np.asarray(at)[:, None] for at in (at_s, at_s + length_s))
    return np.asarray(~(((moments >= begins) | (until > begins)) & (moments < ends)).any(axis=1))


def by_time(spans: Spans, window_us: int) -> IntArray:
    """(m,) number of each request's window, by the start of its root; windows begin with the first request."""
    starts = spans.start_us[spans.roots]
    return (starts - starts.min()) // window_us


def unfamiliar(spans: Spans, paths: CriticalPaths, ordinary: Ordinary) -> int:
    """Spans of requests of which no ordinary time is known: nothing is held against it."""
    rows = _of_spans(spans, paths)[spans.depth >= 0].astype({"service": str, "operation": str})
    spans_of = rows.groupby(["service", "operation"]).size()
    return int(spans_of[~spans_of.index.isin(ordinary.times.index)].sum())


def of_services(spans: Spans, paths: CriticalPaths, blamed: BoolArray) -> pd.DataFrame:
    """What all requests together say of each service that they visit, with no ordinary time to hold it against.

    Args:
        blamed: (m,) whose latency the importance is for, in the order of `spans.roots`.

    Returns:
        by service: relative_importance, 0 off the critical paths of these; visits, requests that came by; median_ms,
        tail_ms, median and 99th percentile of a request's time there, whether on its critical path or beside it.
    """
    rows = _of_spans(spans, paths).assign(window=0)[spans.depth >= 0]
    visits = rows.groupby(["trace", "service"], observed=True)["self_us"].sum().groupby("service", observed=True)
    times = visits.quantile(np.array([0.5, 0.99])).unstack().set_axis(["median_ms", "tail_ms"], axis=1) / 1000
    chosen = rows[np.isin(rows["trace"], spans.trace[spans.roots[blamed]])]
    importance = _of_algorithm(chosen, paths.own_us[chosen.index]).droplevel("window")["relative_importance"]
    found = times.assign(visits=visits.size(), relative_importance=importance.reindex(times.index).fillna(0.0))
    return found.set_axis(found.index.astype(str))


def suspects(spans: Spans, paths: CriticalPaths, ordinary: Ordinary, window: IntArray) -> pd.DataFrame:
    """FEATURES of every service that a window's requests visited.

    Args:
        window: (m,) number of each request's window, in the order of `spans.roots`; below 0: in none.

    Returns:
        window, service, requests and latency_ms (99th percentile) of the window, FEATURES; sorted by the first two.
    """
    number = np.full(int(spans.trace.max()) + 1, -1)
    number[spans.trace[spans.roots]] = window
    rows = _of_spans(spans, paths)
    rows["window"] = number[spans.trace]
    rows = rows[(spans.depth >= 0) & (rows["window"] >= 0)]
    found = _of_algorithm(rows, paths.own_us[rows.index]).join(_against_ordinary(rows, ordinary), how="outer")
    leader = found["worst_median"].clip(lower=0).add(found["changed_calls"], fill_value=0).fillna(0.0)
    found["lead"] = leader / leader.groupby("window").transform("max").clip(lower=LEAST_LEADER)
    found = found.fillna(NOTHING)[list(FEATURES)].clip(pd.Series(NOTHING), pd.Series(MOST), axis=1)
    found[found["share_on_critical_path"] == 0] = list(NOTHING.values())
    found = found.reset_index().astype({"service": str})
    latency = pd.Series(spans.duration_us[spans.roots] / 1000).groupby(window)
    found = found.assign(requests=found["window"].map(latency.size()),
                         latency_ms=found["window"].map(latency.quantile(0.99)))
    return found[["window", "service", "requests", "latency_ms", *FEATURES]]


def _of_spans(spans: Spans, paths: CriticalPaths) -> pd.DataFrame:
    """A row a span: whom its time is charged to, as names; whether it is a call seen from both sides; its calls."""
    call, callee = _two_sided(spans)
    service = spans.service.copy()
    service[call] = spans.service[callee]
    both = np.zeros(len(spans), bool)
    both[call] = True
    made = np.bincount(spans.parent[spans.parent >= 0], minlength=len(spans))
    return pd.DataFrame({
        "trace": spans.trace, "service": _named(service, spans.services),
        "operation": _named(spans.operation, spans.operations), "self_us": paths.self_us,
        "on_path": paths.on_path, "transit": both, "calls": np.where(both, 0, made)})


def _named(codes: IntArray, names: Sequence[str]) -> "pd.Categorical[str]":
    return pd.Categorical.from_codes(codes, pd.Index(names))


def _two_sided(spans: Spans) -> tuple[IntArray, IntArray]:
    """Rows of calls that their callers wrote down, inside of a span of their own, and of the spans of the callees.

    Such a span has one child, of another service, and a parent of its own.
    """
    child = np.flatnonzero(spans.depth > 1)
    call = spans.parent[child]
    only = np.bincount(spans.parent[spans.parent >= 0], minlength=len(spans))[call] == 1
    own = spans.service[spans.parent[call]] == spans.service[call]
    found: BoolArray = only & own & (spans.service[call] != spans.service[child])
    return call[found], child[found]


def _of_algorithm(rows: pd.DataFrame, own_us: FloatArray) -> pd.DataFrame:
    """Algorithm 3.2 by (window, service)."""
    on = rows.assign(own=own_us)[rows["on_path"]]
    times = on.groupby(["window", "trace", "service"], observed=True)["own"].sum().reset_index()
    length = times.groupby("trace")["own"].transform("sum")
    requests = times.groupby("window")["trace"].nunique()
    per_request = length / times.groupby("trace")["own"].transform("size")  # sums to each request's length once
    mean = per_request.groupby(times["window"]).sum() / requests
    apart = length - times["window"].map(mean)
    spread = (apart**2 / times.groupby("trace")["own"].transform("size")).groupby(times["window"]).sum()
    groups = times.assign(with_length=times["own"] * apart, squared=times["own"]**2).groupby(
        ["window", "service"], observed=True)
    sums = groups[["own", "squared", "with_length"]].sum()
    windows = sums.index.get_level_values("window")
    m = requests.reindex(windows).to_numpy()
    # what lies off the path is 0: it counts as a request, and adds nothing to the sums
    variance = np.maximum(sums["squared"] - sums["own"]**2 / m, 0)
    scale = np.sqrt(variance * spread.reindex(windows).to_numpy())
    quantiles = groups["own"].quantile(np.array([0.5, 0.99])).unstack()
    return pd.DataFrame({
        "relative_importance": (sums["with_length"] / scale.where(scale > 0)).fillna(0.0),
        "congestion_intensity": quantiles[0.99] / quantiles[0.5].clip(lower=1),
        "share_on_critical_path": groups.size() / m})


def _against_ordinary(rows: pd.DataFrame, ordinary: Ordinary) -> pd.DataFrame:
    """The other features by (window, service)."""
    by = ["window", "service", "operation"]
    groups = rows.groupby(by, observed=True)
    each = groups["self_us"].quantile(np.array([0.5, 0.99])).unstack().set_axis(["now", "now_tail"], axis=1)
    each["count"], each["sum"] = groups.size(), groups["self_us"].sum()
    each["now_calls"], each["transit"] = groups["calls"].mean(), groups["transit"].first()
    each = each.reset_index().astype({"service": str, "operation": str})
    known = ordinary.times.reset_index().astype({"service": str, "operation": str})
    each = each.merge(known, on=["service", "operation"], how="inner")
    each["expected"] = each["count"] * each["mean"]
    each["excess"] = (each["sum"] - each["expected"]).clip(lower=0)
    often = each["count"] >= LEAST_SPANS
    each["worst_median"] = _logarithm(each["now"], each["median"], RESOLUTION_US).where(often)
    each["worst_tail"] = _logarithm(each["now_tail"], each["tail"], RESOLUTION_US).where(often)
    each["changed_calls"] = _logarithm(each["now_calls"], each["calls"], RESOLUTION_CALLS).abs().where(often)
    groups = each.groupby(["window", "service"])
    found = groups[["worst_median", "worst_tail", "changed_calls"]].max()
    for name, part in (("slowdown", each[~each["transit"]]), ("transit", each[each["transit"]])):
        sums = part.groupby(["window", "service"])[["sum", "expected", "count"]].sum()
        found[name] = _logarithm(sums["sum"], sums["expected"], RESOLUTION_US * sums["count"])
    excess = groups["excess"].sum()
    return found.assign(excess_share=excess / excess.groupby("window").transform("sum").clip(lower=1.0))


def _logarithm(now: pd.Series, ordinary: pd.Series, resolution: "float | pd.Series") -> pd.Series:
    return pd.Series(np.log((now + resolution) / (ordinary + resolution)))
