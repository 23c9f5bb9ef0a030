"""A twin's settings fitted to the recorded windows of a service; what the windows do not tell stays open.

Each window is taken as a point of the law in twin/recorded_law.py: so much load on so many replicas of such a limit,
for as long as the window lasts. What is open is varied when a policy is trained, so that it has to do well whatever the
truth is; so nothing is filled in here.

A tuned value says nothing of how sure it is. So half of the windows are fitted and the other half tell how far the law
is off, in blocks of time: `error_p99` is the median of |ln(predicted / measured)| there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from systems.autoscaling.simulator.simulator import TIMEOUT_S
from systems.autoscaling.twin.recorded_law import LawParameters, Points, fit, predict_p99_ms, told_by
from systems.autoscaling.twin.twin import SETTINGS

Array = NDArray[np.float64]

_FREE = ("cpu_ms", "cv2", "fixed_ms", "burst_periods")  # of the law
_ASSUMED = {"arrival_cv2": 1.0, "stolen_share": 0.0}
LEAST_WINDOWS = 30  # with all that the law needs
WORKERS = (1.0, 2.0, 4.0, 8.0, 16.0)  # requests a replica may work on at once, as they are drawn in applications.py
_CLEARLY = 1.05  # times the loss of the best number of workers: another number is refused by the windows
_BLOCKS = 10  # of time; every second one is fitted
_LOAD_VARIES = 1.3  # ratio of the 95th to the 5th percentile of what each core has to do, for the law to be told
_MEMORY_GROWS = 0.05  # share of the memory at rest by which busy windows must exceed quiet ones, to tell a request's


@dataclass(frozen=True)
class Fitted:
    """What the windows told.

    Attributes:
        settings: name -> value, as a task file has them (twin.py).
        told: setting -> by what, one phrase.
        open: setting -> why it is not told, one phrase.
        windows: with all that the law needs.
        error_p99: median of |ln(predicted / measured)| of the 99th percentile in windows that were not fitted; None:
            the law was not fitted.
    """

    settings: Mapping[str, float]
    told: Mapping[str, str]
    open: Mapping[str, str]
    windows: int = 0
    error_p99: float | None = None


def fit_service(history: pd.DataFrame, start_ups_s: list[float] | None = None) -> Fitted:
    """Settings of a service.

    Args:
        history: see history.py.
        start_ups_s: how long replicas took to serve; None: nobody could see it.
    """
    settings: dict[str, float] = {}
    told: dict[str, str] = {}
    unknown: dict[str, str] = {}
    error, points = None, points_of(history)
    costs = _complete(history, _COSTS)
    if len(costs) >= LEAST_WINDOWS:
        settings["cpu_ms"] = _significant(1000.0 * float(costs["cpu_used_cores"].sum() / costs["rate_rps"].sum()))
        told["cpu_ms"] = f"CPU used over requests, {len(costs)} windows"
    else:
        unknown["cpu_ms"] = _lacks(history, _COSTS)
    if points is None:
        unknown |= dict.fromkeys(("cv2", "fixed_ms", "workers"), _lacks(history, _NEEDED))
    else:
        try:
            error = _law(points, settings, told, unknown)
        except ValueError:  # of SciPy: numbers that no law makes
            unknown |= dict.fromkeys(("cv2", "fixed_ms", "workers"), "the windows are like no queue")
    _memory(history, settings, told, unknown)
    if start_ups_s:
        settings["startup_s"] = _significant(min(float(np.median(start_ups_s)), 89.0))
        told["startup_s"] = f"median of {len(start_ups_s)} times that replicas came"
    else:
        unknown["startup_s"] = ("no replica came in this time" if start_ups_s is not None else
                                "replicas not measured, or not often enough")
    for one in SETTINGS:  # what a twin does not take is no setting of one
        if one.name in settings and not one.low <= settings[one.name] <= one.high:
            unknown[one.name] = (f"{settings.pop(one.name):g} is what the windows say, and a twin takes {one.low:g} to "
                                 f"{one.high:g} {one.unit}: see whether units are right")
            del told[one.name]
    return Fitted(settings, told, unknown, 0 if points is None else len(points), error)


_COSTS = ("rate_rps", "cpu_used_cores")
_NEEDED = ("rate_rps", "p99_ms", "cpu_used_cores", "cpu_limit_cores", "ready_replicas")


def _complete(history: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """The rows in which all of them are above 0; none where one is not measured at all."""
    if any(name not in history for name in names):
        return history.iloc[:0]
    return history[(history[list(names)] > 0).all(axis=1)]


def _lacks(history: pd.DataFrame, names: Sequence[str]) -> str:
    gone = [name for name in names if name not in history or not history[name].notna().any()]
    return f"{', '.join(gone)} not measured" if gone else f"fewer than {LEAST_WINDOWS} windows with all of it"


def points_of(history: pd.DataFrame) -> Points | None:
    """The windows with all that the law needs, in order of time; None: fewer than LEAST_WINDOWS."""
    rows = _complete(history, _NEEDED)
    if len(rows) < LEAST_WINDOWS:
        return None
    rate, p99, used, quota, ready = (np.array(rows[name], dtype=float) for name in _NEEDED)
    return Points(rate=rate, quota=quota, workers=np.maximum(np.ceil(quota), 1.0), instances=ready,
                  load=used / (quota * ready), cpu_ms=1000.0 * used / rate, p99_ms=p99, begin_s=0.0,
                  seconds=float(history.attrs["window_s"]), timeout_s=TIMEOUT_S)


def _law(points: Points, settings: dict[str, float], told: dict[str, str], unknown: dict[str, str]) -> float | None:
    """Adds what the 99th percentile tells; the error on the windows that were not fitted."""
    block = np.arange(len(points)) * _BLOCKS // len(points)
    fitted, held_out = points.take(np.flatnonzero(block % 2 == 0)), points.take(np.flatnonzero(block % 2 == 1))
    low, high = np.quantile(points.load, (0.05, 0.95))
    if high < _LOAD_VARIES * low:
        why = f"the load of a core hardly varied ({low:.2g} to {high:.2g} of its limit)"
        unknown |= dict.fromkeys(("cv2", "fixed_ms", "workers"), why)
        return None
    busiest = float((points.cpu_ms * points.rate / points.instances).max() / 1000.0)
    found: dict[float, tuple[float, LawParameters, Points]] = {}
    for workers in (one for one in WORKERS if one >= min(0.95 * busiest, WORKERS[-1])):
        taken = _with_workers(fitted, workers)
        law = fit(taken, _FREE, own_cpu=True)
        found[workers] = _loss(law, taken), law, _with_workers(held_out, workers)
    best = min(found, key=lambda workers: found[workers][0])
    _, law, others = found[best]
    for name in told_by(_with_workers(fitted, best), _FREE[1:]):
        settings[name] = _significant(getattr(law, name))
        told[name] = f"fitted to p99, {len(fitted)} windows"
    # The law knows neither bursts of arrivals nor neighbours: what they do to p99 is in what was fitted
    settings |= _ASSUMED
    told |= dict.fromkeys(_ASSUMED, "assumed: what bursts and neighbours do is part of the fitted numbers above")
    alike = [workers for workers, (loss, _, _) in found.items() if loss <= _CLEARLY * found[best][0]]
    if alike == [best]:
        settings["workers"] = best
        told["workers"] = "fits p99 best, and clearly"
    else:
        unknown["workers"] = f"{', '.join(f'{one:g}' for one in alike)} would give the same p99 under these limits"
    return float(np.median(log_errors_of(law, others)))


def _with_workers(points: Points, workers: float) -> Points:
    return replace(points, workers=np.full(len(points), workers))


def _loss(law: LawParameters, points: Points) -> float:
    return float(np.mean(np.square(log_errors_of(law, points))))


def log_errors_of(law: LawParameters, points: Points) -> Array:
    """|ln(predicted / measured)| of the 99th percentile with each window's own CPU time a request."""
    return np.asarray(np.abs(np.log(predict_p99_ms(law, points, own_cpu=True) / points.p99_ms)))


def _memory(history: pd.DataFrame, settings: dict[str, float], told: dict[str, str], unknown: dict[str, str]) -> None:
    """Memory at rest, and of a request in work: requests in work are rate times mean latency (Little)."""
    if "memory_used_mib" not in history or not (history["memory_used_mib"] > 0).any():
        unknown |= dict.fromkeys(("memory_mib", "request_mib"), "memory_used_mib not measured")
        return
    rows = history[history["memory_used_mib"] > 0]
    at_rest = float(rows["memory_used_mib"].median())
    unknown["request_mib"] = "mean_latency_ms or ready_replicas not measured"
    if {"mean_latency_ms", "ready_replicas"} <= set(history):
        rows = rows.dropna(subset=["mean_latency_ms", "ready_replicas"])
        rows = rows[(rows["ready_replicas"] > 0) & np.isfinite(rows["mean_latency_ms"])]
        if len(rows) >= LEAST_WINDOWS:
            from systems.autoscaling.twin.recorded_applications import memory_line

            in_flight = rows["rate_rps"] * rows["mean_latency_ms"] / 1000.0
            rest, a_request = memory_line(pd.DataFrame({
                "in_flight": in_flight, "instances": rows["ready_replicas"],
                "memory_mib": rows["memory_used_mib"] * rows["ready_replicas"]}))
            quiet, busy = np.quantile(in_flight / rows["ready_replicas"], (0.05, 0.95))
            if rest > 0 and a_request * (busy - quiet) > _MEMORY_GROWS * rest:
                at_rest = rest
                settings["request_mib"] = _significant(a_request)
                told["request_mib"] = f"memory over requests in work, {len(rows)} windows"
                del unknown["request_mib"]
            else:
                unknown["request_mib"] = "memory hardly grows with the requests in work"
    settings["memory_mib"] = _significant(at_rest)
    told["memory_mib"] = "memory of a replica" + (" at rest" if "request_mib" in settings else ", median")


def _significant(value: float) -> float:
    """In three digits: no window tells more."""
    return float(f"{value:.3g}")
