"""Drops the bad rows of each workload where its mapping lets a few be dropped (bad_rows.py), before the data gate.

Flow: `validate` calls drop_bad_rows with what `ingest` read of one; the data gate judges what is left by the same rules
(rules.py), and everything after it sees that alone. A dropped row is absent: nothing is filled in, moved or renumbered,
so that the other rows are what they would be in a file without it, and on the side of the split on which they were.

What a row breaks beside other rows is judged in the order of the file: of two rows of one window the first stays, and a
row that goes back behind an earlier one goes. Behind a hole no row is bad: it is counted and left open (`time_gap`).
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from feature_store.bad_rows import MOST_ADVISED_PERCENT, ROW_RULES, BadRows
from feature_store.messages import ADVICE, Failure, Judged, file_value
from feature_store.origin import RECORD, ROW, Origin, row_number
from feature_store.rules import WINDOW, Rule, check_table, rules_for, workload_rows
from feature_store.schema import TelemetrySchema

LISTED = 20  # bad rows of a workload that are listed
SERVER_WINDOW = "window"  # what the rows of a server's windows are called, as files have rows and records
BESIDE_OTHERS = ("unique_windows", "time_order", "time_overlap", "time_gap")  # rules that are judged beside other rows

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class BadRow:
    """A row: its number in the source, the first rule that it breaks, its column in the file and what stands there."""

    row: int
    rule: str
    column: str
    value: str


@dataclass(frozen=True)
class BadRowsFound:
    """What was bad in a workload's rows.

    Attributes:
        rows: that the workload had.
        allowed: how many of them may be bad; at_most: the share that its user allows.
        by_rule: how many are bad, each by the first rule that it breaks.
        first: the first LISTED of them; unit: what their numbers count, "row", "record" or "window".
    """

    rows: int
    allowed: int
    at_most: float
    by_rule: Mapping[str, int]
    first: tuple[BadRow, ...]
    unit: str

    @property
    def count(self) -> int:
        """Of bad rows, and of holes."""
        return sum(self.by_rule.values())

    @property
    def too_many(self) -> bool:
        """Whether none was dropped, and the workload stops."""
        return self.count > self.allowed

    @property
    def dropped(self) -> int:
        """How many rows go; a hole is none."""
        return 0 if self.too_many else self.count - self.by_rule.get("time_gap", 0)

    def sentence(self) -> str:
        """`6 of 1,600 rows are dropped (4 range, 2 not_null; up to 16 may be)`; "" where nothing is bad."""
        if not self.count or self.too_many:
            return ""
        return f"{self.dropped:,} of {self.rows:,} rows are dropped ({self._rules()}; up to {self.allowed:,} may be)"

    def _rules(self) -> str:
        return ", ".join(f"{count:,} {rule}" for rule, count in self.by_rule.items())

    def failure(self, workload: str) -> Failure:
        """The message where there are too many."""
        first, enough = self.first[0], math.ceil(100 * self.count / self.rows)
        most = max(self.by_rule, key=lambda rule: self.by_rule[rule])
        mend = ADVICE[most] if most in BESIDE_OTHERS else "fix the source"
        advice = f", or set bad_rows: {{at_most: {enough} %}} in the mapping" if enough <= MOST_ADVISED_PERCENT else ""
        message = (f"bad rows must be at most {self.allowed:,} of {self.rows:,} (at_most: {100 * self.at_most:g} %), "
                   f"got {self.count:,}: {self._rules()} (workload {workload}, first at {self.unit} {first.row}, "
                   f"column {first.column!r}: {first.value}); {mend}{advice}")
        return Failure("", "bad_rows", self.count, first.row, message)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, for the evidence and the report."""
        return {**asdict(self), "count": self.count, "dropped": self.dropped}


def drop_bad_rows(frame: pd.DataFrame, schema: TelemetrySchema,
                  origin: Origin) -> tuple[pd.DataFrame, BadRowsFound | None]:
    """The table without the bad rows of the schema's workload; and what was bad.

    Args:
        frame: telemetry as recorded, of this and maybe other workloads.
        origin: of the table; without `bad_rows` the table comes back as it is, and nothing is looked for.
    """
    if origin.bad_rows is None:
        return frame, None
    mine = workload_rows(frame, schema.workload)
    marked, found = _bad_of(frame[mine], schema, origin, origin.bad_rows)
    if found.too_many or not marked.any():
        return frame, found
    dropped = np.zeros(len(frame), dtype=bool)
    dropped[np.flatnonzero(mine)[marked]] = True
    return frame[~dropped], found


def _bad_of(rows: pd.DataFrame, schema: TelemetrySchema, origin: Origin, policy: BadRows) -> tuple[Mask, BadRowsFound]:
    """[rows]: which go; and what was found, holes too."""
    left = np.arange(len(rows))
    by_rule: Counter[str] = Counter()
    listed: list[BadRow] = []
    for kinds in _stages(policy):
        while True:
            here = rows.iloc[left]
            judged = Judged(check_table(here, schema), here, schema, origin)
            bad = np.zeros(len(left), dtype=bool)
            for kind, column, breaks in _broken(kinds, judged):
                new = np.flatnonzero(breaks & ~bad)
                by_rule[kind] += len(new)
                bad[new] = True
                listed += [_bad_row(kind, column, int(position), judged) for position in new[:LISTED]]
            if kinds == ("time_gap",) or not bad.any():
                break
            left = left[~bad]
    gone = np.ones(len(rows), dtype=bool)
    gone[left] = False
    listed.sort(key=lambda one: one.row)
    unit = str(rows.index.name) if rows.index.name in (RECORD, SERVER_WINDOW) else ROW
    return gone, BadRowsFound(len(rows), policy.allowed(len(rows)), policy.at_most,
                              {kind: count for kind, count in by_rule.items() if count}, tuple(listed[:LISTED]), unit)


def _stages(policy: BadRows) -> Iterator[tuple[str, ...]]:
    """Rules that are applied together: first those that a row breaks by itself."""
    if by_itself := tuple(rule for rule in policy.rules if rule not in BESIDE_OTHERS):
        yield by_itself
    for rule in policy.rules:
        if rule in BESIDE_OTHERS:
            yield (rule,)


def _broken(kinds: tuple[str, ...], judged: Judged) -> Iterator[tuple[str, str, Mask]]:
    """(rule, column, [rows] that break it) in the order of ROW_RULES."""
    table, schema, origin = judged.table, judged.schema, judged.origin
    if "numeric" in kinds and origin.cells:
        for column in (name for name in ("window_start", *schema.numeric) if name in table):
            name = origin.source(schema.workload, column).column
            yield "numeric", column, np.array([(row, name) in origin.cells for row in judged.rows.index], dtype=bool)
    rules = [rule for rule in rules_for(schema, table) if rule.kind in kinds and rule.kind != "numeric"]
    for rule in sorted(rules, key=lambda one: ROW_RULES.index(one.kind)):
        yield rule.kind, rule.column, breaks_rule(rule, table)


def breaks_rule(rule: Rule, table: pd.DataFrame) -> Mask:
    """[rows] of a check table (rules.py) that are to go by a rule of ROW_RULES; by time_gap those behind a hole."""
    match rule.kind:
        case "not_null":
            return table[rule.column].isna().to_numpy()
        case "unique_windows":
            return (table.duplicated(list(WINDOW)) & table["window_start"].notna()).to_numpy()
        case "time_order":  # behind any earlier row: those that follow one that went back may be behind it as well
            latest = table["window_start"].groupby(table["environment"]).cummax()
            return (table["window_start"] < latest).to_numpy()
        case "time_overlap":
            return _begins_too_early(table, rule.maximum or 0.0)
    values = table[rule.derived or rule.column].to_numpy(dtype=np.float64, na_value=np.nan)
    bad = np.zeros(len(values), dtype=bool)
    if rule.minimum is not None:
        bad |= values < rule.minimum
    if rule.maximum is not None:
        bad |= values > rule.maximum
    return bad


def _begins_too_early(table: pd.DataFrame, tolerance_s: float) -> Mask:
    """[rows]: before the last one ends that is not bad itself: a stray row costs itself, and not the next one."""
    bad = np.zeros(len(table), dtype=bool)
    if not (table["overlap_s"] > tolerance_s).any():
        return bad
    start_s = (table["window_start"] - table["window_start"].min()).dt.total_seconds()
    last: dict[int, tuple[float, float]] = {}
    environments = pd.factorize(table["environment"])[0].tolist()  # -1: none
    for row, (environment, start, length) in enumerate(zip(environments, start_s, table["window_s"], strict=True)):
        before, lasts = last.get(environment, (math.nan, math.nan))
        step_s = round(start - before, 6)  # of times since the first, whose difference may be off by nanoseconds
        bad[row] = environment >= 0 and step_s > 0 and lasts - step_s > tolerance_s
        if not bad[row]:
            last[environment] = start, length
    return bad


def _bad_row(kind: str, column: str, position: int, judged: Judged) -> BadRow:
    index, source = judged.rows.index, judged.origin.source(judged.schema.workload, column)
    if kind == "time_gap":
        value = f"a hole of {judged.table['gap_s'].iloc[position]:,.0f} s before it"
    else:
        value = file_value(column, position, judged)
    if judged.rows.index.name == SERVER_WINDOW:  # its number leads nowhere, its time does
        value += f" at {judged.rows['window_start'].iloc[position]}"
    if judged.origin.files:
        value += f" ({judged.origin.row_text(index, position)})"
    return BadRow(row_number(index, position), kind, source.column, value)
