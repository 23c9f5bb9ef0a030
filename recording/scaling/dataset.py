"""Turns the raw data of a scaling campaign into the data set: points, windows and events, card.json and README.md."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from feature_store.errors import SourceError
from feature_store.whole_files import whole_file, write_file
from recording.data_card import read_host
from recording.scaling.columns import EVENTS, POINTS, WINDOWS
from recording.scaling.data_card import scaling_card, scaling_card_text
from recording.scaling.measures import measure, settled_after
from recording.scaling.plan import Deployment, Trial
from recording.scaling.raw_trials import Event, RawTrials, TrialOutcome
from recording.scaling.settings import ScalingSettings

# Before and after a resize its latency is looked at for this long, s.
_BEFORE_S, _AFTER_S = 5.0, 3.0


@dataclass(frozen=True)
class ScalingSummary:
    """What a campaign gave.

    Attributes:
        points: rows of points.parquet.
        windows: rows of windows.parquet.
        events: rows of events.parquet.
        missing: trials that were planned and have no data.
        files: the files of the data set.
    """

    points: int
    windows: int
    events: int
    missing: int
    files: tuple[Path, ...]


@dataclass(frozen=True)
class Tables:
    """The data set's tables; columns as in recording/scaling/columns.py."""

    points: pd.DataFrame
    windows: pd.DataFrame
    events: pd.DataFrame


def make_tables(settings: ScalingSettings, trials: list[Trial], raw: RawTrials) -> Tables:
    """The tables of the trials that are finished."""
    points, windows, events = [], [], []
    for trial in trials:
        if not raw.has(trial.identifier):
            continue
        outcome = raw.outcome(trial.identifier)
        rows = _windows(settings, trial, outcome, raw)
        windows += rows
        if trial.kind == "point":
            points.append(_point(settings, trial, outcome, raw))
        events += [_event(trial, outcome, event, rows) for event in outcome.events]
    return Tables(
        pd.DataFrame(points, columns=list(POINTS)), pd.DataFrame(windows, columns=list(WINDOWS)),
        pd.DataFrame(events, columns=list(EVENTS)))


def write_scaling_dataset(
    settings: ScalingSettings,
    plan: list[tuple[Deployment, list[Trial]]],
    raw: RawTrials,
    destination: Path,
    command: str,
) -> ScalingSummary:
    """Writes the data set of everything that is finished.

    Raises:
        SourceError: where no point gave data, or `raw` does not say what was recorded on.
    """
    trials = [trial for _, ones in plan for trial in ones]
    tables = make_tables(settings, trials, raw)
    if tables.points.empty:
        raise SourceError(f"scaling campaign: expected points, got none ({raw.path})")
    host = read_host(raw.path)
    destination.mkdir(parents=True, exist_ok=True)
    files = []
    for name, table in vars(tables).items():
        files.append(destination / f"{name}.parquet")
        with whole_file(files[-1]) as new:
            table.to_parquet(new, compression="zstd", index=False)
    missing = sum(not raw.has(trial.identifier) for trial in trials)
    demands = {server: demand for server in settings.servers if (demand := raw.demand_s(server)) is not None}
    card = scaling_card(settings, vars(tables), demands, missing, host, command)
    for name, text in (("card.json", json.dumps(card, indent=2) + "\n"), ("README.md", scaling_card_text(card))):
        write_file(destination / name, text)
        files.append(destination / name)
    return ScalingSummary(len(tables.points), len(tables.windows), len(tables.events), missing, tuple(files))


def _deployment(trial: Trial, outcome: TrialOutcome) -> dict[str, Any]:
    one = trial.deployment
    return {
        "server": one.server, "trial": trial.identifier, "kind": trial.kind, "instances": one.instances,
        "workers": one.workers, "quota_cores": outcome.quota_cores}


def _state(trial: Trial, outcome: TrialOutcome, begin_s: float) -> dict[str, Any]:
    """The deployment as it was resized by `begin_s`: a resize counts from the moment at which it was done."""
    state = _deployment(trial, outcome)
    columns = {"quota": "quota_cores", "workers": "workers", "instance": "instances"}
    for event in sorted(outcome.events, key=lambda event: event.at_s):
        if event.what in columns and event.at_s + event.took_s <= begin_s + 0.5:
            state[columns[event.what]] = event.value
    return state


def _cores(state: Mapping[str, Any]) -> float:
    workers = float(state["workers"])
    quota = workers if math.isnan(state["quota_cores"]) else min(state["quota_cores"], workers)
    return float(state["instances"]) * quota


def _point(settings: ScalingSettings, trial: Trial, outcome: TrialOutcome, raw: RawTrials) -> dict[str, Any]:
    state = _deployment(trial, outcome)
    begin_s = trial.warm_up_s
    measured = measure(
        raw.result(trial.identifier), raw.samples(trial.identifier), outcome.start_s, begin_s, trial.seconds,
        cores=_cores(state), timeout_s=settings.timeout_s)
    return {
        **state, "started": datetime.fromtimestamp(outcome.started_unix_s + begin_s, UTC),
        "seconds": trial.seconds - begin_s, "planned_utilisation": trial.load[0][0], "attempts": outcome.attempts,
        **measured}


def _windows(
    settings: ScalingSettings, trial: Trial, outcome: TrialOutcome, raw: RawTrials
) -> list[dict[str, Any]]:
    result, samples = raw.result(trial.identifier), raw.samples(trial.identifier)
    rows = []
    for begin_s in np.arange(trial.warm_up_s, trial.seconds - trial.window_s / 2, trial.window_s):
        state = _state(trial, outcome, float(begin_s))
        measured = measure(
            result, samples, outcome.start_s, begin_s, begin_s + trial.window_s, cores=_cores(state),
            timeout_s=settings.timeout_s)
        rows.append({**state, "at_s": float(begin_s), "seconds": trial.window_s, **measured})
    return rows


def _event(trial: Trial, outcome: TrialOutcome, event: Event, rows: list[dict[str, Any]]) -> dict[str, Any]:
    ends = np.array([row["at_s"] + row["seconds"] for row in rows])
    p99, mean = (np.array([row[name] for row in rows]) for name in ("latency_p99_ms", "latency_mean_ms"))
    followed_by = [other.at_s for other in outcome.events if other.at_s > event.at_s]
    until = min([*followed_by, trial.seconds])
    before = (ends <= event.at_s + 0.1) & (ends > event.at_s - _BEFORE_S)
    # A window that the resize falls into shows its cost.
    after = (ends > event.at_s + 0.1) & (ends <= until + 0.1)
    soon = after & (ends <= event.at_s + _AFTER_S + trial.window_s)
    return {
        **_deployment(trial, outcome), "event": event.what, "value": event.value, "at_s": event.at_s,
        "took_s": event.took_s,
        "p99_before_ms": float(np.nanmedian(p99[before])) if np.isfinite(p99[before]).any() else math.nan,
        "p99_after_ms": float(np.nanmax(p99[soon])) if np.isfinite(p99[soon]).any() else math.nan,
        "settled_s": settled_after(ends[after] - event.at_s, mean[after]) if after.any() else math.nan,
        "disturbance_cores": float(np.mean([row["disturbance_cores"] for row in rows])),
    }
