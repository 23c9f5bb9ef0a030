"""The rules that telemetry must obey, derived from the schema: what expectations.py asks Great Expectations.

Flow: expectations.py turns each rule into one expectation and each broken rule into one message. Rules on
time are rules on columns that check_table derives, in the order in which the rows were recorded:

    step_s      seconds since the previous row of the same environment; negative: clock or file went back
    overlap_s   seconds that a window reaches into the next one of the same environment
    gap_s       seconds since the previous row, where both belong to one known combination
    year        year of window_start: a wrong unit of time lands in 1970 or far ahead
    zoned       1 where window_start carries a time zone, else 0
    repeats_earlier  1 where all numbers are those of an earlier row, whatever times the two bear, else 0: only the
                others count

Source: vPALs, section "Data processing pipeline", data cleaning; traps of the defaults: an empty frame, an
all-NaN column and an empty suite pass, so row count and not-null are always asked for.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from feature_store.errors import InputError
from feature_store.mapping import UNKNOWN_COMBINATION
from feature_store.schema import Column, TelemetrySchema
from feature_store.sources.files import has_synthetic_time

LABELS = ("workload", "environment", "combination")
WINDOW = ("workload", "environment", "window_start")
LARGEST = float(np.finfo(np.float64).max)  # what is beyond it is infinite
YEARS = (2000.0, 2199.0)  # no machine reported pressure before (Linux 4.20, 2018)
OVERLAP_TOLERANCE_S = 0.01  # window starts are rounded to milliseconds, on both sides
# A run of one combination lasts minutes to hours and has a row every window; a longer hole inside of one is a
# clock set forward, since the windows that cleaning drops come at its ends. Unknown combinations are exempt.
GAP_S, GAP_WINDOWS = 3600.0, 100.0


@dataclass(frozen=True)
class Rule:
    """One thing that must hold.

    Attributes:
        kind: row_count, column_present, numeric, zoned_time, not_null, finite, range, unique_windows, variation,
            repeated_rows, time_order, time_overlap, time_gap or time_plausible.
        column: what it is about; "" for the table.
        statement: the rule in words.
        derived: the column of the check table that is asked.
        minimum, maximum: bounds of the values; None: no bound.
        fatal: whether breaking it stops the workload; otherwise it is a warning.
    """

    kind: str
    column: str
    statement: str
    derived: str = ""
    minimum: float | None = None
    maximum: float | None = None
    fatal: bool = True


def workload_rows(frame: pd.DataFrame, workload: str) -> pd.Series:
    """[rows]: which are judged with a workload; one without a workload may be any one's, and is judged with each."""
    if "workload" not in frame:
        return pd.Series(True, index=frame.index)
    return (frame["workload"] == workload) | frame["workload"].isna()


def rules_for(schema: TelemetrySchema, table: pd.DataFrame) -> tuple[Rule, ...]:
    """All rules for one workload's rows.

    A column that is missing or of the wrong type gets the one rule that says so; for the others not_null asks
    for presence too, and each further expectation costs 7 ms.

    Args:
        schema: the workload's columns.
        table: its rows, with the columns of check_table.

    Raises:
        InputError: the schema has no target, so that nothing would be checked.
    """
    if not schema.target:
        raise InputError(f"schema must have a target, got none (workload {schema.workload}); an empty suite passes all "
                         "data")
    copies = int(table["repeats_earlier"].sum()) if "repeats_earlier" in table else 0
    rules = [Rule("row_count", "", f"at least {schema.minimum_rows} rows that differ",
                  minimum=schema.minimum_rows + copies)]
    if "repeats_earlier" in table:
        rules.append(Rule("repeated_rows", "", "no row repeats the numbers of another", derived="repeats_earlier",
                          maximum=0.0, fatal=False))
    others = (*LABELS, "window_start", *schema.numeric)
    for name in (*LABELS, *(key for key in schema.split_by if key not in others)):
        rules.append(_given(name) if name in table else _present(name))
    for name, column in schema.numeric.items():
        rules += _numeric_rules(name, column, table, target=name in schema.target)
    rules += _time_rules(table)
    if set(WINDOW) <= set(table.columns):
        rules.append(Rule("unique_windows", "window_start", "one row for each window"))
    return tuple(rules)


def _numeric_rules(name: str, column: Column, table: pd.DataFrame, target: bool) -> Iterator[Rule]:
    if name not in table:
        yield _present(name)
        return
    if not pd.api.types.is_numeric_dtype(table[name].dtype):
        yield Rule("numeric", name, f"{name} holds numbers")
        return
    yield _given(name)
    if column.minimum is None or column.maximum is None:
        yield Rule("finite", name, f"{name} is finite", minimum=-LARGEST, maximum=LARGEST)
    if column.minimum is not None or column.maximum is not None:
        yield Rule("range", name, f"{name} is {bounds_text(column.minimum, column.maximum)} {column.unit}",
                   minimum=column.minimum, maximum=column.maximum)
    if table[name].count() > 1:
        yield Rule("variation", name, f"{name} takes at least two values", minimum=2, fatal=target)


def _time_rules(table: pd.DataFrame) -> Iterator[Rule]:
    if "window_start" not in table:
        yield _present("window_start")
        return
    yield _given("window_start")
    if not isinstance(table["window_start"].dtype, pd.DatetimeTZDtype):
        yield Rule("zoned_time", "window_start", "window_start holds timestamps with a zone", derived="zoned",
                   minimum=1.0)
    if "step_s" not in table:
        return
    limit = gap_limit_s(table)
    yield Rule("time_order", "window_start", "rows are in the order of time", derived="step_s", minimum=0.0)
    yield Rule("time_overlap", "window_start", "a window ends before the next one starts",
               derived="overlap_s", maximum=OVERLAP_TOLERANCE_S)
    yield Rule("time_gap", "window_start", f"no hole over {limit:.0f} s in a combination's run",
               derived="gap_s", maximum=limit)
    yield Rule("time_plausible", "window_start", f"the year is {bounds_text(*YEARS)}",
               derived="year", minimum=YEARS[0], maximum=YEARS[1])


def _given(name: str) -> Rule:
    return Rule("not_null", name, f"{name} is given in every row")


def _present(name: str) -> Rule:
    return Rule("column_present", name, f"column {name} is present")


def check_table(frame: pd.DataFrame, schema: TelemetrySchema | None = None) -> pd.DataFrame:
    """The rows, renumbered from 0, with the derived columns of time where time is measured.

    schema: says whether rows can be copies of others; None: not asked.
    """
    table = frame.reset_index(drop=True)
    numbers = {} if schema is None or schema.repeats_count else schema.numeric
    if numbers and set(numbers) <= set(table.columns):
        table = table.assign(repeats_earlier=table.duplicated(list(numbers)).astype("float64"))
    if "window_start" not in table:
        return table
    start = table["window_start"]
    zoned = isinstance(start.dtype, pd.DatetimeTZDtype)
    table = table.assign(zoned=float(zoned))
    if not zoned or "environment" not in table or has_synthetic_time(table):
        return table
    environment = table["environment"]
    step_s = start.groupby(environment).diff().dt.total_seconds()
    forward_s = step_s.where(step_s > 0.0)
    nothing = pd.Series(np.nan, index=table.index)
    length_s = table.get("window_s", nothing)
    combination = table.get("combination", nothing)  # NaN equals nothing
    run_on = (combination == combination.groupby(environment).shift()) & (combination != UNKNOWN_COMBINATION)
    return table.assign(step_s=step_s, overlap_s=length_s.groupby(environment).shift() - forward_s,
                        gap_s=forward_s.where(run_on), year=start.dt.year.astype("float64"))


def gap_limit_s(table: pd.DataFrame) -> float:
    """The longest hole (s) that a combination's run may have: GAP_WINDOWS usual steps, at least GAP_S."""
    usual_s = float(table["gap_s"].median()) if table["gap_s"].notna().any() else 0.0
    return max(GAP_S, GAP_WINDOWS * usual_s)


def bounds_text(minimum: float | None, maximum: float | None) -> str:
    """Bounds in words: `between 0 and 1`, `at least 0` or `at most 1`."""
    if minimum is None:
        return f"at most {maximum:g}"
    return f"at least {minimum:g}" if maximum is None else f"between {minimum:g} and {maximum:g}"
