"""One look at a champion that predicts: drift of its inputs, its errors where the truth arrived, its specification.

    training rows, new telemetry -> drift (models/monitoring/drift.py)
    residuals of new rows        -> error against the test rows of its evidence, coverage, the champion before
    new rows                     -> outside of the proved box, live pairs

What the model is fed with is what its bundle says: the task may have changed since. New are rows later than the last
that was read (at first: than all that it was trained and tested on) and not from the future; the newest KEPT of all
looks are kept in recent.parquet. A row that is no row (a value missing, beyond what it can be) is left out and
counted; a missing target is a truth that has not arrived. Drift counts rows with equal inputs once, in training too:
telemetry that repeats itself says nothing new, and whether its truth would be equal is not known everywhere.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from feature_store.errors import InputError
from feature_store.sources.files import has_synthetic_time
from feature_store.trained_rows import SEEN, TrainedRows
from models.export.row_errors import residuals
from models.monitoring.chances import WINDOWS, excess, level_of, mean_with_ends, share_at_least, windows
from models.monitoring.drift_finding import drift_finding
from models.monitoring.findings import (
    COVERED,
    ERROR_DOUBLED,
    ERROR_RISEN,
    MOST_BEYOND,
    OFTEN,
    Before,
    Finding,
    Looked,
)
from models.monitoring.live_pairs import specification_finding
from models.paired_cases import Cases
from models.paired_comparison import ComparisonRule, compare
from models.reporting.formatting import count, number, percent
from models.tasks.monitored_kind import Watched
from models.tasks.supervised.task import SupervisedTask

FloatArray = NDArray[np.float64]

RECENT = "recent.parquet"
KEPT = WINDOWS[-1]  # rows
AHEAD = timedelta(minutes=5)  # by which clocks may differ: a row from further ahead is not read yet
_CLAIMS = 4  # beside drift, which has a half of the level: two of the error, coverage, the box


def watch_rows(task: SupervisedTask, workload: str, watched: Watched) -> Looked:
    """See `MonitoredKind.watch`."""
    telemetry = watched.telemetry
    if telemetry is None or has_synthetic_time(telemetry):
        return Looked(0, False, notes=("telemetry without times does not say what is new",))
    new, notes = _new_rows(task, workload, telemetry, watched)
    if len(new) < WINDOWS[0]:
        return Looked(len(new), False, notes=notes)
    past = watched.past / RECENT
    known = [pd.read_parquet(past)] if watched.memory and past.is_file() else []
    recent = pd.concat([*known, new], ignore_index=True).iloc[-KEPT:].reset_index(drop=True)
    recent.to_parquet(watched.keep / RECENT)
    truth = recent[recent[task.target.name].notna()]
    errors, before = _errors(task, watched, truth)
    drift, missing = _drift(watched, recent, has_truth=bool(errors))
    found = (_specification(watched, recent), *errors, *drift, _outside(watched, recent))
    return Looked(len(new), True, found, before, (*notes, *missing),
                  {"read_to": new["window_start"].iloc[-1].isoformat()})


def _new_rows(task: SupervisedTask, workload: str, telemetry: pd.DataFrame,
              watched: Watched) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Rows that were not read before, in order of time, and what was left out."""
    target = task.target.name
    bounds = {one.name: (one.physical_minimum, one.physical_maximum) for one in watched.bundle.contract.inputs}
    if missing := [name for name in (*bounds, "window_start") if name not in telemetry]:
        raise InputError(f"telemetry must have the columns of the model, got none for {', '.join(missing)} (workload "
                         f"{workload})")
    others = [name for name in _asked_of_before(watched.before) if name in telemetry]
    rows = telemetry.reindex(columns=list(dict.fromkeys(["window_start", *bounds, target, *others])))
    try:
        rows = rows.astype(dict.fromkeys((*bounds, target), "float64")).sort_values("window_start", kind="stable")
    except (TypeError, ValueError) as error:
        raise InputError(f"telemetry must hold numbers, got another thing: {error} (workload {workload})") from error
    last = watched.memory.get("read_to") or watched.bundle.evidence["data"]["quality"]["data"]["last"]
    new = rows if last is None else rows[rows["window_start"] > pd.Timestamp(last)]
    present = new[new["window_start"] <= watched.now + AHEAD]
    whole = pd.Series(True, index=present.index)
    for name, (minimum, maximum) in {**bounds, target: (task.target.minimum, task.target.maximum)}.items():
        low = -math.inf if minimum is None else minimum
        high = math.inf if maximum is None else maximum
        possible = present[name].between(low, high) & np.isfinite(present[name])
        whole &= possible | (present[name].isna() if name == target else False)
    notes = ((len(new) - len(present), "from the future: not read yet; see to the clocks"),
             (int((~whole).sum()), "with a value that is missing or impossible: left out"))
    return (present[whole].drop_duplicates(ignore_index=True),
            tuple(f"{count(rows, 'row')} {said}" for rows, said in notes if rows))


def _drift(watched: Watched, recent: pd.DataFrame, has_truth: bool) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    training = watched.training
    if training is None:
        return (), ("drift was not looked at: the rows that the model was trained on are nowhere to be found",)
    units = {one.name: one.unit for one in watched.bundle.contract.inputs}
    if missing := [name for name in units if name not in training]:
        raise InputError(f"rows of training must have the columns of the model, got none for {', '.join(missing)}")
    if "window_start" in training:  # else they are in the order of the telemetry
        training = training.sort_values("window_start", kind="stable")
    before, now = (rows.drop_duplicates(list(units)) for rows in (training, recent))
    if len(now) < WINDOWS[0]:
        return (), (f"drift was not looked at: the newest {count(len(recent), 'row')} have {len(now)} different "
                    f"inputs, and {WINDOWS[0]} are needed; does the feed stand still?",)
    finding, notes = drift_finding(before, now, units, level_of(watched.look, watched.champions, 2), has_truth)
    return (finding,), notes


def _errors(task: SupervisedTask, watched: Watched, truth: pd.DataFrame) -> tuple[tuple[Finding, ...], Before | None]:
    """Error and coverage, and how the champion before does on the same rows; () where there is too little truth."""
    evidence, sizes = watched.bundle.evidence, windows(len(truth))
    if not sizes or "cases" not in evidence:
        return (), None
    tested = np.array(Cases.from_json(evidence["cases"]).values)
    squares = _squares(task, watched.bundle, truth)
    level = level_of(watched.look, watched.champions, 2 * _CLAIMS * len(sizes))
    above = {factor: {size: excess(squares[-size:], tested, factor, level) for size in sizes}
             for factor in (ERROR_RISEN, ERROR_DOUBLED)}
    what, factor = next(((name, factor) for name, factor in (("error doubled", ERROR_DOUBLED), ("error", ERROR_RISEN))
                         if max(above[factor].values()) > 0), ("error", ERROR_RISEN))
    size = max(sizes, key=lambda size: above[factor][size])
    now, was = (float(np.sqrt(values.mean())) for values in (squares[-size:], tested))
    found_so = above[factor][size] > 0
    error = Finding(what, found_so,
                    f"root mean squared error {number(now, task.target.unit)} over the newest {count(size, 'row')}, "
                    f"{number(was, task.target.unit)} in the test", {"rows": size, "now": now, "test": was},
                    suspect=not found_so and now**2 > ERROR_RISEN * was**2)
    found = (error, _coverage(squares, tested, sizes, level))
    return found, _before(task, watched, truth.iloc[-size:], squares[-size:], level)


def _squares(task: SupervisedTask, bundle: Any, rows: pd.DataFrame) -> FloatArray:
    """(m,) squared errors, in the target's unit squared."""
    return residuals(bundle.model, bundle.contract.model.input, bundle.contract.input_names, rows,
                     task.target.name) ** 2


def _coverage(squares: FloatArray, tested: FloatArray, sizes: Sequence[int], level: float) -> Finding:
    """Of the interval that covers 90 % of the test errors (split conformal).

    A few test rows leave open how many errors like theirs are beyond it: by as much as they do, in the ratio of the two
    shares, the limit may be too low. Independent distances add up as in models/monitoring/chances.py.
    """
    limit = np.quantile(tested, COVERED)
    _, _, most = mean_with_ends((tested > limit).astype(np.float64), level)
    unsure = MOST_BEYOND / (1.0 - COVERED) * max(most - (1.0 - COVERED), 0.0)
    beyond = squares > limit

    def at_least(size: int) -> float:
        found = float(beyond[-size:].mean())
        return found - float(np.hypot(found - share_at_least(beyond[-size:], level), unsure))

    size = max(sizes, key=at_least)
    share, found = 1.0 - float(beyond[-size:].mean()), at_least(size) > MOST_BEYOND
    return Finding("coverage", found,
                   f"the interval of {percent(COVERED)} of the test errors covers {percent(share)} of the newest "
                   f"{count(size, 'row')}", {"rows": size, "covered": share, "expected": COVERED},
                   suspect=not found and 1.0 - share > MOST_BEYOND)


def _before(task: SupervisedTask, watched: Watched, rows: pd.DataFrame, squares: FloatArray,
            level: float) -> Before | None:
    """On the rows that it was not trained on: after a rollback that may be most of them."""
    if watched.before is None:
        return None
    try:
        unseen = ~_seen_by(watched.before, rows)
        if (left := int(unseen.sum())) < WINDOWS[0]:
            raise InputError(f"it was trained on {len(rows) - left} of {count(len(rows), 'row')}, and {WINDOWS[0]} "
                             "others are needed")
        earlier = _squares(task, watched.before, rows[unseen])
        found = compare(earlier, squares[unseen], "smaller", ComparisonRule(confidence=1.0 - level))
    except (InputError, KeyError) as error:  # it has other inputs, say
        return Before(False, f"the champion before cannot be asked about these rows: {error}")
    verdict = "is better on" if found.wins else "is not better, by more than luck, on"
    return Before(found.wins, f"the champion before {verdict} these rows: "
                  f"{found.sentence('squared error', f'{task.target.unit}²')}")


def _seen_by(bundle: Any, rows: pd.DataFrame) -> NDArray[np.bool_]:
    """Which rows a model was trained on, or others of their windows. Raises InputError: that is not known."""
    seen = TrainedRows.from_json(bundle.evidence.get(SEEN))
    found = replace(seen, split_by=()).among(rows)  # by their numbers
    last = bundle.evidence["data"]["quality"]["data"]["last"]
    if last is None:
        return seen.among(rows)
    past = (rows["window_start"] <= pd.Timestamp(last)).to_numpy()
    return found | (past & seen.among(rows)) if past.any() else found


def _asked_of_before(bundle: Any) -> tuple[str, ...]:
    """Columns that the champion before is asked by; () where there is none."""
    if bundle is None:
        return ()
    try:
        seen = TrainedRows.from_json(bundle.evidence.get(SEEN))
    except InputError:
        return ()
    return (*bundle.contract.input_names, *seen.columns, *seen.split_by)


def _outside(watched: Watched, recent: pd.DataFrame) -> Finding:
    inputs = watched.bundle.contract.inputs
    x = recent[[one.name for one in inputs]].to_numpy(dtype=np.float64)
    low, high = np.array([[one.minimum, one.maximum] for one in inputs]).T
    beyond = (x < low) | (x > high)
    outside, sizes = beyond.any(axis=1), windows(len(x))
    level = level_of(watched.look, watched.champions, 2 * _CLAIMS * len(sizes))
    lower, size = max((share_at_least(outside[-size:], level), size) for size in sizes)
    share, most = float(outside[-size:].mean()), inputs[int(beyond[-size:].sum(axis=0).argmax())].name
    named = f", most often by {most}" if share else ""
    return Finding("outside", lower > OFTEN, f"{percent(share)} of the newest {count(size, 'row')} lie outside of the "
                   f"proved box{named}", {"rows": size, "share": share}, suspect=lower <= OFTEN < share)


def _specification(watched: Watched, recent: pd.DataFrame) -> Finding:
    bundle = watched.bundle
    return specification_finding(bundle.model, bundle.promise.specification,
                                 recent[list(bundle.contract.input_names)].to_numpy(dtype=np.float64), "model")
