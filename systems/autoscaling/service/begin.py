"""`assay init` for autoscaling: looks at what is recorded of a service, and writes the files to go on with."""

import math
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta

import numpy as np
import pandas as pd

from feature_store.errors import InputError
from feature_store.sources.prometheus_api import PrometheusApi
from models.control.contract.own_service import MINIMUM_ROWS, Service
from systems.autoscaling.service.exporters import SHARES
from systems.autoscaling.service.files import (
    PRESENT,
    SLO,
    UNMEASURED,
    controller_text,
    load_text,
    proposed_limits,
    proposed_objective_ms,
    task_text,
)
from systems.autoscaling.service.fit import Fitted, fit_service
from systems.autoscaling.service.history import LOAD, now, read_file, read_history, rises, start_ups
from systems.autoscaling.service.queries import Query, find_queries

_TIMEOUT_S = 30.0
_FAR_OFF = math.log(2.0)  # an error of p99: twice, or half
_OFTEN_S = 30.0  # windows in which one can see how long replicas take to come
_USUAL_S = (1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0)  # intervals of scraping
_ALIKE = 0.95  # share of what is measured that an interval may be: no scrape is in time to the millisecond
_WHOLE = 0.9  # share of the windows that are there where nothing is said of the others
_NEEDED = ("p99_ms", "cpu_used_cores", "memory_used_mib")  # beside the load: without them no policy can act


def begin(service: Service, tell: Callable[[str], None]) -> Mapping[str, str]:
    """See `OwnServiceSystem.begin`."""
    if service.csv is not None:
        return _from_file(service, tell)
    api = PrometheusApi(service.prometheus, _TIMEOUT_S, retries=2)
    found = find_queries(api, service.label or service.name, service.target)
    if LOAD not in found.queries:
        raise InputError(f"service must have a metric of its requests, got none: {found.missing.get(LOAD, '')} "
                         f"({service.name})")
    for name, query in found.queries.items():
        tell(f"found    {name}: {query.found}")
    scrape_s = _scrape_s(api, (query for query in found.queries.values() if "{window}" in query.promql))
    end = now()
    start = end - timedelta(seconds=service.last_s)
    history = read_history(service.prometheus, found.queries, start, end, service.window_s, scrape_s)
    came: list[float] | None = None
    if {"replicas", "ready_replicas"} <= set(found.queries):
        asked_for, ready = found.queries["replicas"], found.queries["ready_replicas"]
        came = start_ups(service.prometheus, asked_for, ready, history["window_start"].iloc[0].to_pydatetime(), end,
                         _scrape_s(api, (asked_for, ready)))
    for name, value in _set_now(service).items():  # what Prometheus does not know
        history[name] = history[name].fillna(value) if name in history else value
    history.attrs["window_s"] = service.window_s
    told = {*history.columns, *UNMEASURED, *(name for name, (of, *_) in SHARES.items() if of in found.queries)}
    for name in sorted({*found.missing} - told):
        tell(f"missing  {name}: looked for {found.missing[name]}")
    asked = int(service.last_s / service.window_s)
    if len(history) < _WHOLE * asked:
        tell(f"warning  {asked - len(history)} of {asked} windows hold no measurement: the service or its server was "
             "not there, or did not answer (one that is overloaded may answer no scrape)")
    fitted = fit_service(history, came)
    objective_ms, limits = _understood(service, history, fitted, tell)
    if lacks := [name for name in _NEEDED if name not in found.queries]:
        tell(f"warning  no policy can act without {', '.join(lacks)}: export them, and run this again")
    if lacks := [name for name in PRESENT if name not in history]:
        tell(f"warning  nobody knows {', '.join(lacks)}, which say what is set: write them under `watch` in "
             "controller.yaml (a number where it never changes), or name the target (--deployment, --cgroup)")
    return {"task.yaml": task_text(service, fitted, objective_ms, service.objective is None, limits,
                                   f"{_span(history)} of {api.address}"),
            "load.yaml": load_text(service, found.queries[LOAD], scrape_s),
            "controller.yaml": controller_text(service, found.queries, found.newest, scrape_s, history,
                                               objective_ms)}


def _from_file(service: Service, tell: Callable[[str], None]) -> Mapping[str, str]:
    """From a file there is a task and a load, and no controller: nobody said where to measure."""
    assert service.csv is not None
    if service.target:
        raise InputError("target must be left out with --csv, from which no controller file is made, got "
                         f"{', '.join(service.target)}")
    history = read_file(service.csv)
    tell(f"found    {', '.join(map(str, history.columns[1:]))}: columns of {service.csv}")
    came = None
    if {"replicas", "ready_replicas"} <= set(history) and history.attrs["window_s"] <= _OFTEN_S:
        came = rises(history["replicas"].to_numpy(), history["ready_replicas"].to_numpy(), history.attrs["window_s"])
    fitted = fit_service(history, came)
    objective_ms, limits = _understood(service, history, fitted, tell)
    load = pd.DataFrame({"workload": service.name, "window_start": history["window_start"].dt.strftime(
        "%Y-%m-%dT%H:%M:%S.%f+00:00"), "window_s": history.attrs["window_s"], LOAD: history[LOAD]})
    return {"task.yaml": task_text(service, fitted, objective_ms, service.objective is None, limits,
                                   f"{_span(history)} of {service.csv.name!a}"),
            "load.csv": load.to_csv(index=False)}


def _understood(service: Service, history: pd.DataFrame, fitted: Fitted,
                tell: Callable[[str], None]) -> tuple[float, dict[str, list[float]]]:
    """Objective, ms, and limits; tells what was fitted."""
    tell(f"recorded {len(history)} windows of {history.attrs['window_s']:g} s: {_span(history)}, "
         f"{history[LOAD].mean():.3g} requests a second on average, {history[LOAD].max():.3g} at most")
    for name, value in fitted.settings.items():
        tell(f"fitted   {name} {value:g}: {fitted.told[name]}")
    for name, why in fitted.open.items():
        tell(f"open     {name}: {why}")
    if fitted.error_p99 is not None:
        tell(f"check    p99 of windows that were not fitted is {100 * math.expm1(fitted.error_p99):.0f} % off at the "
             "median")
        if fitted.error_p99 > _FAR_OFF:
            tell("warning  that is far off: do not trust what is fitted to p99 before you know why (wrong units, a "
                 "limit elsewhere, requests of another kind)")
    if history[LOAD].nunique() < 2:
        tell("warning  the load never changes: `assay run` may refuse it")
    if len(history) < MINIMUM_ROWS:
        tell(f"warning  `assay run` wants {MINIMUM_ROWS} windows at least: record more"
             + ("" if service.csv else ", or take shorter ones (--window)"))
    objective_ms = proposed_objective_ms(history) if service.objective is None else service.objective
    if objective_ms is None:
        raise InputError("objective must be given where no latency is recorded (--objective, in ms), got none")
    if not SLO.low <= objective_ms <= SLO.high:
        raise InputError(f"objective must be {SLO.low:g} to {SLO.high:g} ms, got {objective_ms:g}")
    return objective_ms, proposed_limits(history, service.target)


def _span(history: pd.DataFrame) -> str:
    hours = len(history) * history.attrs["window_s"] / 3600.0
    return f"{hours / 24.0:.3g} days" if hours >= 48.0 else f"{hours:.3g} hours"


def _set_now(service: Service) -> Mapping[str, float]:
    """What the target itself says is set, where it can be asked without a cluster."""
    if "cgroup" not in service.target:
        return {}
    from serving.actuators.actuators import ACTUATORS
    from serving.control.file_part import FilePart

    kind = ACTUATORS["cgroup"]
    part = FilePart(dict(service.target["cgroup"]), "cgroup", "--cgroup")
    return kind.make(kind.read(part), None, ()).present()


def _scrape_s(api: PrometheusApi, queries: Iterable[Query]) -> float:
    """How often the slowest series that they read is scraped, s; 15 where nobody can tell.

    By the median distance of a series' samples in the last five minutes, or since it is there: each target has its own
    phase, so samples of several together would come more often than any of them.
    """
    found = (series.times_s for read in {query.read for query in queries} - {""}
             for series in api.series("query", {"query": f"{read}[5m]"}))
    slowest = max((float(np.median(np.diff(times_s))) for times_s in found if len(times_s) > 1), default=15.0)
    return next((one for one in _USUAL_S if one >= _ALIKE * slowest), float(math.ceil(slowest)))
