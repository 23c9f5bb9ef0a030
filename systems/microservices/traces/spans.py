"""Spans as one table, whatever they were written as, with each one's parent: the execution history graphs of requests
(section 3.2.1, definition 2.2).

Traces of production are never whole: a span comes twice, its parent never arrived, spans are each other's parents, a
trace has several roots. `link` takes out what cannot be placed, and counts it.

Flow: otlp.py and `read_spans` make a frame of COLUMNS; critical_paths.py works on `Spans`. Symbols: n spans, m traces.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from feature_store.errors import InputError

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
COLUMNS = ("trace", "span", "parent", "service", "operation", "start_us", "duration_us", "background", "error")
PEER = "callee"  # a further column, where known: whom the span is a call to, "" or null: it is none
NO_PARENT = -1
MOST_US = 2**52  # some 140 years: whole microseconds are exact as floats, and sums of a few as integers
# What is wrong with a span, in the order in which it is looked for.
UNUSABLE = "spans whose ids, service, start or duration are missing or cannot be, left out"
REPEATED = "spans with an id that an earlier one of their trace has, left out"
NEGATIVE = "spans that end before they start, left out"
ORPHAN = "spans whose parent is not in their trace, off every critical path"
LOOP = "spans that are in a loop of parents or below one, off every critical path"
ROOTLESS = "traces without a root: their longest span whose parent is missing stands for it"
SEVERAL_ROOTS = "traces with several roots: the longest is the request"


@dataclass(frozen=True)
class Spans:
    """n spans of m traces, linked.

    Attributes:
        trace: (n,) number of the trace, 0 <= trace < m.
        parent: (n,) row of the parent; -1: a root, or it cannot be placed.
        depth: (n,) 0 of the one root of a trace, its parent's plus 1 of what hangs below it; -1: not below it.
        service, operation: (n,) indices into `services` and `operations`.
        start_us, duration_us: (n,) whole microseconds.
        background: (n,) the trace itself says that the parent does not wait.
        error: (n,) it failed.
        services, operations: names.
        problems: how many of what was wrong, by what it is; none with 0.
    """

    trace: IntArray
    parent: IntArray
    depth: IntArray
    service: IntArray
    operation: IntArray
    start_us: IntArray
    duration_us: IntArray
    background: BoolArray
    error: BoolArray
    services: tuple[str, ...]
    operations: tuple[str, ...]
    problems: Mapping[str, int]

    def __len__(self) -> int:
        return len(self.trace)

    @property
    def roots(self) -> IntArray:
        """(m,) rows of the traces' roots, in the order of the traces."""
        rows = np.flatnonzero(self.depth == 0)
        return rows[np.argsort(self.trace[rows])]


def link(frame: pd.DataFrame) -> Spans:
    """Finds each span's parent, one root a trace, and what cannot be placed.

    Args:
        frame: COLUMNS, perhaps PEER; ids are numbers or texts, the parent of a root is -1, "" or null.

    Raises:
        InputError: a column is missing, or there is no span that can be placed.
    """
    require_columns(frame, COLUMNS, "table of spans")
    times = frame[["start_us", "duration_us"]].apply(pd.to_numeric, errors="coerce").astype(float)
    usable = frame[["trace", "span", "service"]].notna().all(axis=1) & (times.abs() <= MOST_US).all(axis=1)
    problems = {UNUSABLE: int((~usable).sum())}
    frame, times = frame[usable], times[usable]
    repeated = frame.duplicated(["trace", "span"])
    negative = ~repeated & (times["duration_us"] < 0)
    problems[REPEATED], problems[NEGATIVE] = int(repeated.sum()), int(negative.sum())
    frame, times = frame[~(repeated | negative)], times[~(repeated | negative)]
    if frame.empty:
        broken = ", ".join(f"{number:,} {what}" for what, number in problems.items() if number)
        raise InputError(f"traces must have spans, got none{broken and f': {broken}'}")
    trace = np.asarray(pd.factorize(frame["trace"])[0], np.int64)
    none = (frame["parent"].isin([NO_PARENT, ""]) | frame["parent"].isna()).to_numpy()
    parent, orphan = _parents(trace, frame["span"], frame["parent"], none)
    duration = times["duration_us"].to_numpy().astype(np.int64)
    root, problems[SEVERAL_ROOTS], problems[ROOTLESS] = _roots(trace, duration, none, orphan)
    depth = _depths(parent, root)
    problems[ORPHAN] = int((orphan & ~root).sum())
    problems[LOOP] = int(_in_loops(parent).sum())
    name = frame["service"].astype(str)
    if PEER in frame:  # a call without a span of the callee stands for the callee's own
        peer = _texts(frame[PEER])
        name = name.where(np.isin(np.arange(len(frame)), parent) | (peer == ""), peer)
    service, services = pd.factorize(name, sort=True)
    operation, operations = pd.factorize(_texts(frame["operation"]), sort=True)
    return Spans(trace, parent, depth, service.astype(np.int64), operation.astype(np.int64),
                 times["start_us"].to_numpy().astype(np.int64), duration, frame["background"].isin([True]).to_numpy(),
                 frame["error"].isin([True]).to_numpy(), tuple(services), tuple(operations),
                 {what: number for what, number in problems.items() if number})


def _texts(column: pd.Series) -> pd.Series:
    """Of names, "" of null: what is null has no place among them."""
    return column.astype(object).where(column.notna(), "").astype(str)


def _parents(trace: IntArray, span: pd.Series, parent: pd.Series, none: BoolArray) -> tuple[IntArray, BoolArray]:
    """Row of each span's parent, -1 where there is none; and whether one is named that the trace does not have."""
    codes = pd.factorize(pd.concat([span, parent], ignore_index=True))[0].astype(np.int64)
    own, named = trace * len(codes) + codes[:len(span)], trace * len(codes) + codes[len(span):]
    order = np.argsort(own, kind="stable")
    place = np.minimum(np.searchsorted(own, named, sorter=order), len(own) - 1)
    rows = order[place]
    found = (own[rows] == named) & ~none
    return np.where(found, rows, NO_PARENT), ~found & ~none


def _roots(trace: IntArray, duration: IntArray, none: BoolArray, orphan: BoolArray) -> tuple[BoolArray, int, int]:
    """The one root of each trace that has a candidate; traces with several; traces whose root is missing."""
    candidates = np.flatnonzero(none | orphan)
    # a real root before what stands for one, the longest first
    order = candidates[np.lexsort((-duration[candidates], orphan[candidates], trace[candidates]))]
    first = np.r_[True, np.diff(trace[order]) > 0] if len(order) else np.zeros(0, bool)
    root = np.zeros(len(trace), bool)
    root[order[first]] = True
    several = int((np.bincount(trace[none], minlength=1) > 1).sum())
    return root, several, int((root & orphan).sum())


def _depths(parent: IntArray, root: BoolArray) -> IntArray:
    """Steps below the trace's root; -1 for what does not hang below it. One pass over what is left for each level."""
    depth = np.where(root, 0, -1)
    left = np.flatnonzero(~root & (parent >= 0))
    level = 0
    while len(left):
        level += 1
        below = depth[parent[left]] == level - 1
        if not below.any():
            break
        depth[left[below]] = level
        left = left[~below]
    return depth


def _in_loops(parent: IntArray) -> BoolArray:
    """Spans from which no root, and no missing parent, can be reached: pointers are followed 2, 4, 8, ... steps."""
    above = np.where(parent >= 0, parent, np.arange(len(parent)))
    for _ in range(max(len(parent) - 1, 1).bit_length()):
        above = above[above]
    return parent[above] >= 0


def read_table(path: Path, columns: Sequence[str] = ()) -> pd.DataFrame:
    """A Parquet table of a recording. Raises InputError where it is none, or lacks one of the columns."""
    try:
        # else whole numbers beside a null become floats, in which an id of 64 bits is another one
        table = pd.read_parquet(path, engine="pyarrow", to_pandas_kwargs={"integer_object_nulls": True})
    except (OSError, ValueError) as error:
        raise InputError(f"table must be Parquet, got {error} ({path})") from error
    require_columns(table, columns, str(path))
    return table


def require_columns(table: pd.DataFrame, columns: Sequence[str], what: str) -> None:
    """Raises InputError where one is missing."""
    missing = [name for name in columns if name not in table]
    if missing:
        raise InputError(f"{what} must have {', '.join(columns)}; {', '.join(missing)} missing")
