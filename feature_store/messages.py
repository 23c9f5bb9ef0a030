"""What is wrong with the data, in words: one message for each broken rule.

Flow: expectations.py hands over a broken rule with Great Expectations' result; the command line and the
report print the message. It names column, rule, count and first offending row, as they are in the user's file
(origin.py), and says what to do next.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from feature_store.bad_rows import DROP_THEM, MOST_ADVISED_PERCENT
from feature_store.errors import nearest
from feature_store.origin import Origin, row_number
from feature_store.rules import Rule, bounds_text
from feature_store.schema import TelemetrySchema

RULE_TEXT = {
    "not_null": "have a value in every row",
    "finite": "be finite",
    "unique_windows": "be unique for each workload and environment",
    "time_order": "not go back from row to row",
    "time_overlap": "be at least one window length after the one before",
    "zoned_time": "carry a time zone",
}
ADVICE = {
    "not_null": "an outage or a metric that stopped: fix the source",
    "finite": "a division by zero in the source: fix it there",
    "unique_windows": "remove the repeated rows, or tell their environments apart",
    "time_order": "sort the file by time; where it was recorded in this order, the clock was set back",
    "time_overlap": "windows that overlap leak from training to test rows: aggregate anew",
    "time_gap": "where the clock was set forward, drop the run; otherwise give the rows behind the hole "
                "another combination",
    "time_plausible": "the unit of time looks wrong: set time: {unit: s, ms, us or ns} in the mapping",
    "zoned_time": "convert the times to UTC",
    "repeated_rows": "each counts once; find out what wrote the copies",
    "variation": "nothing can be learned from it: measure it over a wider range, or leave it out of the task",
}
DROPPABLE = ("not_null", "finite", "range", "unique_windows")  # where a few rows may well be bad, and not the table


@dataclass(frozen=True)
class Failure:
    """A broken rule. `count` rows break it, `first_row` is the first (None where the table as such does)."""

    column: str
    rule: str
    count: int
    first_row: int | None
    message: str


@dataclass(frozen=True)
class Judged:
    """What was judged: the workload's rows with the derived columns (`table`, rules.check_table) and with the
    index of the source (`rows`), the schema, the table's origin, and which workloads have rows (for a hint).
    """

    table: pd.DataFrame
    rows: pd.DataFrame
    schema: TelemetrySchema
    origin: Origin = field(default_factory=Origin)
    workloads: Sequence[str] = ()

    def column_text(self, column: str) -> str:
        """The column as a message names it."""
        return self.origin.column_text(self.schema.workload, column)


def file_value(column: str, position: int, judged: Judged) -> str:
    """What stands in the file in a column of the table, in the file's own unit."""
    source = judged.origin.source(judged.schema.workload, column)
    text = judged.origin.cells.get((row_number(judged.rows.index, position), source.column))
    value = judged.table[column].iloc[position]
    if text is not None or pd.isna(value):
        return "none" if text is None else repr(text)
    is_number = pd.api.types.is_numeric_dtype(judged.table[column].dtype)
    return f"{float(value) / source.factor:g}" if is_number else str(value)


def describe(rule: Rule, result: Mapping[str, Any], judged: Judged) -> Failure:
    """The message for a broken rule.

    Args:
        rule: what must hold.
        result: what Great Expectations says about it, as a dict; row numbers in it count the rows from 0.
        judged: the data.
    """
    rows, schema = judged.rows, judged.schema
    error = _exception(result.get("exception_info") or {})
    if error:
        message = f"{rule.statement}: must be checked, got {error} (workload {schema.workload})"
        return Failure(rule.column, rule.kind, len(rows), None, message)
    details = result["result"]
    if rule.kind in ("row_count", "column_present", "numeric", "variation"):
        return _of_table(rule, judged)
    positions = [int(position) for position in details.get("partial_unexpected_index_list") or []]
    count = int(details.get("unexpected_count", 0))
    first = min(positions, default=None)
    label = None if first is None else row_number(rows.index, first)
    where = f"workload {schema.workload}: {count} of {len(rows)} rows"
    if first is not None:
        where += f", first at {judged.origin.row_text(rows.index, first)}{_window(rows, first)}"
    if rule.kind == "repeated_rows":
        message = (f"rows must differ in more than their times, got {count} that repeat the numbers of an earlier one "
                   f"({where}); {ADVICE[rule.kind]}")
        return Failure("", rule.kind, count, label, message)
    text = RULE_TEXT.get(rule.kind) or _bounds_text(rule, schema)
    message = f"{judged.column_text(rule.column)} must {text}, got {_value(rule, first, judged)} ({where})"
    return Failure(rule.column, rule.kind, count, label, f"{message}; {_advice(rule, count, judged)}")


def _of_table(rule: Rule, judged: Judged) -> Failure:
    """The message for a rule that the table as such breaks, not single rows."""
    rows, where = judged.rows, f"workload {judged.schema.workload}"
    if rule.kind == "row_count":
        copies = int(judged.table["repeats_earlier"].sum()) if "repeats_earlier" in judged.table else 0
        counted = f"{len(rows)}" if not copies else f"{len(rows) - copies} and {copies} copies of them"
        message = f"rows must number at least {judged.schema.minimum_rows}, got {counted} ({where}); record more"
        if rows.empty and judged.workloads:
            message += f"; the table holds {', '.join(judged.workloads)}"
        return Failure("", rule.kind, len(rows), None, message)
    if rule.kind == "column_present":
        message = (f"column {rule.column!r} must be present, got none ({where}); "
                   + nearest(rule.column, map(str, rows.columns)))
        return Failure(rule.column, rule.kind, len(rows), None, message)
    values = rows[rule.column]
    if rule.kind == "numeric":
        got = f"{values.dtype} such as {values.iloc[0]!r}" if len(rows) else str(values.dtype)
        message = f"{judged.column_text(rule.column)} must hold numbers, got {got} ({where}); convert it"
    else:
        got = f"{values.dropna().iloc[0]:g} alone"
        message = (f"{judged.column_text(rule.column)} must take at least two values, got {got} ({where}: "
                   f"{len(rows)} rows); " + ADVICE["variation"])
    return Failure(rule.column, rule.kind, len(rows), row_number(rows.index, 0) if len(rows) else None, message)


def _bounds_text(rule: Rule, schema: TelemetrySchema) -> str:
    if rule.kind == "range":
        return f"be {bounds_text(rule.minimum, rule.maximum)} {schema.numeric[rule.column].unit}"
    if rule.kind == "time_gap":
        return f"have no hole over {rule.maximum:.0f} s inside of a combination's run"
    return f"have a year {bounds_text(rule.minimum, rule.maximum)}"


def _value(rule: Rule, first: int | None, judged: Judged) -> str:
    """The first offending value in words."""
    table = judged.table
    if first is None:
        return "none" if rule.kind == "not_null" else "another"
    if rule.kind == "not_null":
        return file_value(rule.column, first, judged)
    if rule.kind == "zoned_time":
        return str(table[rule.column].dtype)
    if rule.kind in ("unique_windows", "time_plausible"):
        return str(table[rule.column].iloc[first])
    value = table[rule.derived or rule.column].iloc[first]
    match rule.kind:
        case "time_order":
            return f"a step of {value:g} s"
        case "time_overlap":
            return f"an overlap of {value:g} s"
        case "time_gap":
            return f"{value:g} s"
    written = file_value(rule.column, first, judged)
    return f"{value:g}" if f"{value:g}" == written else f"{value:g} ({written} in the file)"


def _advice(rule: Rule, count: int, judged: Judged) -> str:
    rows = judged.rows
    if rule.kind == "not_null" and count == len(rows):
        return "the whole column is empty: check the metric's name or the mapping"
    advice = _range_advice(rule.column, judged) if rule.kind == "range" else ADVICE[rule.kind]
    few = rule.kind in DROPPABLE and 100 * count <= MOST_ADVISED_PERCENT * len(rows)
    return f"{advice}; or {DROP_THEM}" if few else advice


def _range_advice(name: str, judged: Judged) -> str:
    column = judged.schema.numeric[name]
    converted = judged.origin.source(judged.schema.workload, name).factor != 1.0
    if column.unit == "share" and not converted and 1.0 < judged.rows[name].max() <= 100.0:
        return "it looks like percent: divide by 100, or set unit: percent in the mapping"
    return f"check the unit of the source: the schema's is {column.unit}"


def _window(rows: pd.DataFrame, position: int) -> str:
    start = rows["window_start"].iloc[position] if "window_start" in rows else pd.NaT
    return "" if pd.isna(start) else f", window {start}"


def _exception(info: Mapping[str, Any]) -> str | None:
    """The message of an exception inside of Great Expectations, whichever of its two forms it comes in."""
    for entry in (info, *info.values()):
        if isinstance(entry, Mapping) and entry.get("raised_exception"):
            return str(entry.get("exception_message"))
    return None
