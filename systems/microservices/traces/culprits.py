"""Who is to blame: the services of each window, ranked by a simple score or by a checked bundle of the task `culprit`.

The simple score is worst_median + changed_calls: by which factor an operation of the service has become slower, and by
which one the calls that it makes have changed, as logarithms. Services that are on no critical path stand behind all
others, whatever they score; that a model's scores say the same is what is proved of it (docs/reference/culprit.md).

Flow: `assay culprit` (pipelines/commands/culprit_command.py) calls `read_suspects` and `ranked`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from feature_store.errors import InputError, RefusedError
from systems.microservices.traces.critical_paths import FloatArray, critical_paths
from systems.microservices.traces.otlp import read_spans
from systems.microservices.traces.spans import Spans, read_table
from systems.microservices.traces.windows import FEATURES, Ordinary, by_time, ordinary_times, suspects, unfamiliar

if TYPE_CHECKING:
    from serving.session import Predictor

TASK = WORKLOAD = "culprit"
TARGET = "to_blame"
ANOMALIES = "anomalies.parquet"
LEAST_COVERED = 0.5  # share of a window that an anomaly must last in to be its label
UNFAMILIAR = "spans of operations that --ordinary does not have, held against nothing"
SHORTEST_S, LONGEST_S = 0.001, 1e9  # a window
US_PER_S = 1_000_000
FIRST_WINDOW = pd.Timestamp("2000-01-01", tz="UTC")  # stands for the first request's time: the earliest that is taken


@dataclass(frozen=True)
class Suspects:
    """What `read_suspects` found.

    Attributes:
        table: of windows.suspects, with start_s of each window, s since the first request.
        spans, requests: how many were read.
        problems: of what could not be placed or compared, how many; moved: spans moved for their clocks.
        first_us: when the first request began, as the traces count.
    """

    table: pd.DataFrame
    spans: int
    requests: int
    problems: Mapping[str, int]
    moved: int
    first_us: int


def read_suspects(traces: str, window_s: float, ordinary: str | None = None) -> Suspects:
    """Features of all windows of a file, folder or address of traces.

    Args:
        ordinary: traces of an ordinary time; None: the same ones, of which most must be ordinary.

    Raises:
        InputError: nothing to read, no root, no operation with an ordinary time, or no window of that length.
        SourceError: an address does not answer.
    """
    if not SHORTEST_S <= window_s <= LONGEST_S:
        raise InputError(f"window must be {SHORTEST_S} to {LONGEST_S:g} s, got {window_s:g}")
    spans = read_spans(traces)
    if not len(spans.roots):
        raise InputError(f"traces must have requests, got spans without any root ({traces})")
    paths = critical_paths(spans)
    usual = ordinary_times(spans, paths) if ordinary is None else _ordinary(read_spans(ordinary))
    unknown = 0 if ordinary is None else unfamiliar(spans, paths, usual)
    if unknown == (spans.depth >= 0).sum():
        raise InputError(f"ordinary traces must have operations that the traces have, got none ({ordinary})")
    table = suspects(spans, paths, usual, by_time(spans, round(window_s * US_PER_S)))
    problems = {**spans.problems, **({UNFAMILIAR: unknown} if unknown else {})}
    return Suspects(table.assign(start_s=table["window"] * window_s), len(spans), len(spans.roots), problems,
                    paths.moved, int(spans.start_us[spans.roots].min()))


def _ordinary(spans: Spans) -> Ordinary:
    return ordinary_times(spans, critical_paths(spans))


def simple_scores(table: pd.DataFrame) -> FloatArray:
    """The score that needs no model; 0: nothing out of the ordinary."""
    return (table["worst_median"] + table["changed_calls"]).to_numpy(np.float64)


def bundle_scores(table: pd.DataFrame, predictor: "Predictor") -> FloatArray:
    """What a checked bundle says. Raises RefusedError where it is not about these features."""
    contract = predictor.contract
    if contract.input_names != FEATURES or contract.task != TASK:
        raise RefusedError(f"bundle must be of the task {TASK}, with {', '.join(FEATURES)}, got one of {contract.task} "
                           f"with {', '.join(contract.input_names)}")
    return np.asarray(predictor.predict(table[list(FEATURES)].to_numpy(np.float64)).values)


def ranked(table: pd.DataFrame, scores: FloatArray) -> pd.DataFrame:
    """The table with score and rank (from 1) in its window: on a critical path before off all, then by score."""
    off = table["share_on_critical_path"] == 0
    found = table.assign(score=scores, off=off).sort_values(["window", "off", "score", "service"],
                                                           ascending=[True, True, False, True], kind="stable")
    return found.assign(rank=found.groupby("window").cumcount() + 1).drop(columns="off")


def labelled(suspected: Suspects, recording: Path, window_s: float) -> pd.DataFrame:
    """Rows of the task's telemetry (docs/reference/culprit.md) of a recording: who was to blame is its anomalies.

    Windows that an anomaly covers for less than LEAST_COVERED, but not for nothing, are left out.

    Raises:
        InputError: the anomalies are no table, or lack a column.
    """
    anomalies = read_table(recording / ANOMALIES, ("start_s", "end_s", "service"))
    table = suspected.table
    begins = suspected.first_us / US_PER_S + table["start_s"].to_numpy()[:, None]
    starts, ends = anomalies["start_s"].to_numpy(), anomalies["end_s"].to_numpy()
    covered = np.clip(np.minimum(begins + window_s, ends) - np.maximum(begins, starts), 0, None) / window_s
    aimed = table["service"].to_numpy()[:, None] == anomalies["service"].astype(str).to_numpy()
    blame = ((covered >= LEAST_COVERED) & aimed).any(1)
    clear = ((covered == 0) | (covered >= LEAST_COVERED)).all(1)
    return telemetry(table.assign(**{TARGET: blame.astype(float)})[clear], recording.name, window_s)


def telemetry(table: pd.DataFrame, environment: str, window_s: float) -> pd.DataFrame:
    """Labelled rows in the schema of telemetry (feature_store/schema.py).

    A window's number stands for its time, which one environment has once: each service is an environment of its own.
    """
    start = FIRST_WINDOW + pd.to_timedelta(table["window"] * window_s, unit="s")
    columns = ["workload", "environment", "combination", "window_start", "window_s", *FEATURES, TARGET]
    found = table.assign(workload=WORKLOAD, environment=environment + "/" + table["service"], combination=environment,
                         window_start=start, window_s=window_s)
    return found[[name for name in columns if name in found]]
