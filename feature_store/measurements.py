"""Measurements: what workloads took under configurations, from a user's file, by a mapping in YAML.

A row of the file is one run of a workload under a configuration. The mapping (read by measurement_mapping.py) says
which columns are the configuration, which metrics were taken during the run, what was measured, and which rows are
failed runs, which are counted and left out.

    workload  <configuration>  <metrics>  <target>  <cost>  <groups>

Raises and flags, rather than guesses: a value that is missing or that a logarithm does not take stops the load with its
row; workloads whose level lies far from all others' are flagged, for their units may differ.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from feature_store.errors import InputError, nearest
from feature_store.measurement_mapping import ColumnRule, FailureRule, MeasurementMapping

# A workload whose median of a column lies so many times above or below the median workload's is flagged.
FAR_LEVEL = 500.0


@dataclass(frozen=True)
class Measurements:
    """See the module docstring.

    frame: one row a run that did not fail, canonical column names. mapping: names, kinds and units of the columns.
    failed: failed runs by workload (workloads without any left out). only_failed: workloads of which nothing is left.
    flags: what a reader should look at, one sentence each.
    """

    frame: pd.DataFrame
    mapping: MeasurementMapping
    failed: Mapping[str, int] = field(default_factory=dict)
    only_failed: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()

    @property
    def workloads(self) -> tuple[str, ...]:
        """Names, sorted."""
        return tuple(sorted(self.frame["workload"].unique()))

    @property
    def target(self) -> str:
        """Name of the measured column."""
        return self.mapping.target.name


def load_measurements(path: Path, mapping: MeasurementMapping) -> Measurements:
    """Reads a CSV (also compressed) or Parquet file.

    Raises:
        InputError: the file cannot be read, a column is missing, a value is missing or not of its kind, or no run
            is left.
    """
    return measurements_of(_read(path), mapping, str(path))


def measurements_of(raw: pd.DataFrame, mapping: MeasurementMapping, where: str) -> Measurements:
    """The same of a table in memory; `where` goes into messages."""
    for name in mapping.source_columns():
        if name not in raw:
            raise InputError(f"column {name!r} must stand in the file, got none ({where}); "
                             + nearest(name, map(str, raw.columns)))
    if raw.empty:
        raise InputError(f"file must have rows, got none ({where})")
    workload = _text(raw, mapping.workload, where)
    bad = _failed(raw, mapping.failed, where)
    failed = {str(name): int(count) for name, count in bad.groupby(workload).sum().items() if count}
    kept, names = raw[~bad], workload[~bad]
    only_failed = tuple(sorted(set(workload) - set(names)))
    if kept.empty:
        raise InputError(f"file must have runs that did not fail, got none of {len(raw)} ({where})")
    columns: dict[str, pd.Series] = {"workload": names}
    for rule in (*mapping.configuration, *mapping.groups):
        columns[rule.name] = _column(kept, rule, columns, where)
    for rule in mapping.metrics:
        columns[rule.name] = _numbers(kept, rule, where, may_miss=True)
    positive = [mapping.target, *([mapping.cost] if mapping.cost else [])]
    for rule in positive:
        columns[rule.name] = _positive(_numbers(kept, rule, where, may_miss=False), where)
    frame = pd.DataFrame(columns).reset_index(drop=True)
    flags = tuple(sentence for rule in (*mapping.metrics, mapping.target) for sentence in _far_levels(frame, rule.name))
    return Measurements(frame, mapping, failed, only_failed, flags)


def _read(path: Path) -> pd.DataFrame:
    if not path.is_file():
        raise InputError(f"file of measurements must exist, got {path}")
    try:
        return pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)
    except (OSError, ValueError, EOFError) as error:  # pandas and pyarrow errors are ValueErrors
        raise InputError(f"file of measurements must be CSV or Parquet, got {error} ({path})") from error


def _failed(raw: pd.DataFrame, rules: tuple[FailureRule, ...], where: str) -> pd.Series:
    bad = pd.Series(False, index=raw.index)
    for rule in rules:
        values = raw[rule.column]
        if rule.is_not:
            bad |= ~values.astype(str).isin(rule.is_not)
        if rule.equals is not None:
            bad |= pd.to_numeric(values, errors="coerce") == rule.equals
        if rule.at_least is not None:
            bad |= pd.to_numeric(values, errors="coerce") >= rule.at_least
        if rule.missing:
            bad |= values.isna()
    return bad


def _column(raw: pd.DataFrame, rule: ColumnRule, made: Mapping[str, pd.Series], where: str) -> pd.Series:
    if rule.product:
        factors = [made[name] for name in rule.product]
        return pd.Series(np.prod([f.to_numpy(dtype=float) for f in factors], axis=0), index=raw.index) * rule.factor
    if rule.kind == "number":
        return _numbers(raw, rule, where, may_miss=False)
    values = _text(raw, rule, where)
    return made[rule.within].astype(str) + "/" + values if rule.within else values


def _first(raw: pd.DataFrame, rule: ColumnRule) -> pd.Series:
    """The first of the rule's columns that holds a value, row by row."""
    values = raw[list(rule.columns)].bfill(axis=1).iloc[:, 0] if len(rule.columns) > 1 else raw[rule.columns[0]]
    return values if rule.default is None else values.where(values.notna(), rule.default)


def _text(raw: pd.DataFrame, rule: ColumnRule, where: str) -> pd.Series:
    values = _first(raw, rule)
    _complete(values, rule, where)
    # 2.0 and 2 are the same category, whatever a missing value made of the column's type
    text = values.map(lambda value: str(int(value)) if isinstance(value, float) and value.is_integer() else str(value))
    if rule.pattern is not None:
        text = text.str.extract(rule.pattern, expand=False)
        _complete(text, rule, where, f"match {rule.pattern!r}")
    return text


def _numbers(raw: pd.DataFrame, rule: ColumnRule, where: str, may_miss: bool) -> pd.Series:
    values = _first(raw, rule)
    if rule.values:
        known = values.astype(str).map(rule.values)
        unknown = known.isna()
        if unknown.any():
            first = values[unknown].iloc[0]
            raise InputError(f"value of {rule.name!r} must be one that the mapping gives a number, got {first!r} "
                             f"({where}, row {_row(unknown)}); " + nearest(str(first), rule.values))
        values = known
    numbers = pd.to_numeric(values, errors="coerce")
    odd = numbers.isna() & values.notna()
    if odd.any():
        raise InputError(f"column {rule.columns[0]!r} must hold numbers, got {values[odd].iloc[0]!r} "
                         f"({where}, row {_row(odd)})")
    if not may_miss:
        _complete(numbers, rule, where)
    infinite = np.isinf(numbers.to_numpy(dtype=float))
    if infinite.any():
        raise InputError(f"column {rule.columns[0]!r} must hold finite numbers, got {numbers[infinite].iloc[0]} "
                         f"({where}, row {_row(pd.Series(infinite, index=numbers.index))})")
    return numbers.astype(float) * rule.factor


def _complete(values: pd.Series, rule: ColumnRule, where: str, must: str = "hold a value") -> None:
    empty = values.isna()
    if empty.any():
        raise InputError(f"column {' or '.join(rule.columns)!r} must {must} in every run that did not fail, got none "
                         f"in {int(empty.sum())} of {len(values)} ({where}, row {_row(empty)} first)")


def _positive(values: pd.Series, where: str) -> pd.Series:
    bad = ~(values > 0)
    if bad.any():
        raise InputError(f"column {values.name!r} must hold numbers above 0 (predictions are ratios), got "
                         f"{values[bad].iloc[0]} ({where}, row {_row(bad)}); name failed runs in the mapping")
    return values


def _row(bad: pd.Series) -> int:
    """The first row of the file (0: the first below the header) that is marked."""
    return int(bad.index[int(bad.to_numpy().argmax())])


def _far_levels(frame: pd.DataFrame, column: str) -> list[str]:
    level = frame.groupby("workload")[column].median()
    level = level[level > 0]
    if len(level) < 3:
        return []
    middle = float(level.median())
    return [f"workload {name}: the median {column} is {value / middle:.3g} times that of the median workload; "
            "look whether its units are the others'" for name, value in level.items()
            if not 1 / FAR_LEVEL < value / middle < FAR_LEVEL]
