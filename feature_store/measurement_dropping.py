"""Drops the bad runs of a file of measurements where its mapping lets a few be dropped (bad_rows.py).

Flow: measurements.py makes the canonical table by `without_bad_runs`. The checks that stop the load without a policy
are the ones that find the bad runs with one: the table is made anew without them until no column is spoilt. A run
counts once, by the first column that it spoils, in the order of the mapping.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from feature_store.bad_rows import BadRows
from feature_store.dropping import LISTED, BadRow, BadRowsFound
from feature_store.errors import InputError
from feature_store.measurement_mapping import ColumnRule
from feature_store.origin import RECORD, ROW, row_number

KNOWN = "measurements.json"  # beside ingested measurements: what a reader should know of the file


class BadRunsError(InputError):
    """Some runs spoil a column.

    Attributes:
        broken: of RUN_RULES, which they break.
        column: which they spoil.
        runs: index of the runs.
    """

    def __init__(self, broken: str, column: ColumnRule, bad: pd.Series, message: str) -> None:
        super().__init__(message)
        self.broken, self.column, self.runs = broken, column, bad.index[bad.to_numpy(dtype=bool)]


def without_bad_runs(runs: pd.DataFrame, names: pd.Series, policy: BadRows | None, where: str,
                     make: Callable[[pd.DataFrame], pd.DataFrame]) -> tuple[pd.DataFrame, dict[str, BadRowsFound]]:
    """What `make` makes of the runs that are not bad; and what was bad, by workload, {} without a policy.

    Args:
        runs: of the file that did not fail, by their numbers in it.
        names: workload of each run.
        policy: what may be dropped.
        where: the file, for messages.
        make: makes the canonical table. Raises BadRunsError: some runs spoil a column.

    Raises:
        InputError: a run breaks a rule that the policy does not name, or too many of a workload's runs are bad.
    """
    if policy is None:
        return make(runs), {}
    by_rule, listed, left = defaultdict[str, Counter[str]](Counter), defaultdict[str, list[BadRow]](list), runs
    while True:
        try:
            made = None if left.empty else make(left)
            break
        except BadRunsError as error:
            if error.broken not in policy.rules:
                raise
            positions = runs.index.get_indexer(error.runs)
            for position, name in zip(positions, names[error.runs], strict=True):
                by_rule[name][error.broken] += 1
                listed[name].append(_bad_row(runs, int(position), error))
            left = left.drop(error.runs)
    unit = RECORD if runs.index.name == RECORD else ROW
    sizes = {str(name): int(count) for name, count in names.value_counts().sort_index().items()}
    found = {name: BadRowsFound(count, policy.allowed(count), policy.at_most, dict(by_rule[name]),
                                tuple(sorted(listed[name], key=lambda one: one.row)[:LISTED]), unit)
             for name, count in sizes.items()}
    for name, one in found.items():
        if one.too_many:
            raise InputError(f"{where}: {one.failure(name).message}")
    if made is None:
        raise InputError(f"{where}: expected a run that is not bad, got none")
    return made, found


def bad_runs_in(folder: Path) -> dict[str, BadRowsFound]:
    """What was bad in ingested measurements, by workload; {} where nothing could be dropped, or they are telemetry."""
    path = folder / KNOWN
    content = json.loads(path.read_text())["bad_rows"] if path.is_file() else {}
    return {name: BadRowsFound(one["rows"], one["allowed"], one["at_most"], one["by_rule"],
                               tuple(BadRow(**row) for row in one["first"]), one["unit"])
            for name, one in content.items()}


def _bad_row(runs: pd.DataFrame, position: int, error: BadRunsError) -> BadRow:
    column = error.column
    values = runs[list(column.columns)].iloc[position].dropna()
    value = str(values.iloc[0]) if len(values) else "infinite" if column.product else "none"
    return BadRow(row_number(runs.index, position), error.broken, " or ".join(column.columns or (column.name,)), value)
