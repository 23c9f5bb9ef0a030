"""Measurements: what workloads took under configurations, from a user's file, by a mapping in YAML.

A row of the file is one run of a workload under a configuration. The mapping (read by measurement_mapping.py) says
which columns are the configuration, which metrics were taken during the run, what was measured, and which rows are
failed runs, which are counted and left out.

    workload  <configuration>  <metrics>  <target>  <cost>  <groups>

Raises and flags, rather than guesses: a value that is missing or that a logarithm does not take stops the load with its
row, unless the mapping lets a few such runs be dropped (`bad_rows`, measurement_dropping.py); workloads whose level
lies far from all others' are flagged, for their units may differ, and so are metrics below 0, for they count as 0
(encoding.py).
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from feature_store.dropping import BadRowsFound
from feature_store.errors import InputError, nearest
from feature_store.measurement_dropping import BadRunsError, without_bad_runs
from feature_store.measurement_mapping import ColumnRule, FailureRule, MeasurementMapping
from feature_store.measurement_mapping_file import label
from feature_store.origin import RECORD, ROW, UNREADABLE, numbered, row_text
from feature_store.sources.files import FIRST_ROW, header_names, numbers_or_nan, with_label_texts

# A workload whose median of a column lies so many times above or below the median workload's is flagged: nearer to a
# thousandfold (ms for s) than to none. Those of scout and CloudBandit lie between 0.125 and 10.6 times.
FAR_LEVEL = 1000**0.5


@dataclass(frozen=True)
class Measurements:
    """What each workload took under each configuration.

    Attributes:
        frame: one row a run that did not fail, canonical column names.
        mapping: names, kinds and units of the columns.
        failed: number of failed runs by workload; workloads without any are left out.
        only_failed: workloads of which no run is left.
        flags: what a reader should look at, one sentence each.
        bad_rows: what was bad, by workload; {} where the mapping lets nothing be dropped.
    """

    frame: pd.DataFrame
    mapping: MeasurementMapping
    failed: Mapping[str, int] = field(default_factory=dict)
    only_failed: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    bad_rows: Mapping[str, BadRowsFound] = field(default_factory=dict)

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
    return measurements_of(_read(path, mapping.label_columns()), mapping, str(path))


def measurements_of(raw: pd.DataFrame, mapping: MeasurementMapping, where: str) -> Measurements:
    """The same of a table in memory; `where` goes into messages."""
    for name in mapping.source_columns():
        if name not in raw:
            raise InputError(f"expected a column {name!r}, got none ({where}); "
                             + nearest(name, map(str, raw.columns)))
    if raw.empty:
        raise InputError(f"file must have rows, got none ({where})")
    raw = _plain(raw[list(mapping.source_columns())], where)
    workload = _text(raw, mapping.workload, where)
    bad = _failed(raw, mapping.failed)
    failed = {str(name): int(count) for name, count in bad.groupby(workload).sum().items() if count}
    kept, names = raw[~bad], workload[~bad]
    only_failed = tuple(sorted(set(workload) - set(names)))
    if kept.empty:
        raise InputError(f"file must have runs that did not fail, got none of {len(raw)} ({where})")
    frame, found = without_bad_runs(kept, names, mapping.bad_rows, where,
                                    lambda runs: _canonical(runs, names[runs.index], mapping, where))
    flags = [sentence for rule in (*mapping.metrics, mapping.target) for sentence in _far_levels(frame, rule.name)]
    for rule in mapping.metrics:
        below = int((frame[rule.name] < 0).sum())
        flags += [f"metric {rule.name} is below 0 in {below} of {len(frame)} runs, which count as 0"] if below else []
    flags += [f"workload {name}: {one.sentence()}" for name, one in found.items() if one.count]
    return Measurements(frame, mapping, failed, only_failed, tuple(flags), found)


def _canonical(kept: pd.DataFrame, names: pd.Series, mapping: MeasurementMapping, where: str) -> pd.DataFrame:
    """The table of runs that did not fail. Raises BadRunsError: at the first column that some of them spoil."""
    columns: dict[str, pd.Series] = {"workload": names}
    for rule in (*mapping.configuration, *mapping.groups):
        columns[rule.name] = _column(kept, rule, columns, where)
    for rule in mapping.metrics:
        columns[rule.name] = _numbers(kept, rule, where, may_miss=True)
    positive = [mapping.target, *([mapping.cost] if mapping.cost else [])]
    for rule in positive:
        columns[rule.name] = _positive(_numbers(kept, rule, where, may_miss=False), rule, where)
    return pd.DataFrame(columns).reset_index(drop=True)


def _read(path: Path, labels: Sequence[str]) -> pd.DataFrame:
    """labels: columns that are texts, whatever they look like."""
    if not path.is_file():
        raise InputError(f"file of measurements: expected one that exists, got {path}")
    try:
        if path.suffix == ".parquet":
            # whole numbers of a column with blanks stay what they are: as floats, long labels would be one
            table = pd.read_parquet(path, engine="pyarrow", to_pandas_kwargs={"integer_object_nulls": True})
            return numbered(table, 1, RECORD)
        with warnings.catch_warnings():
            # rows longer than the header would push their columns aside
            warnings.simplefilter("error", pd.errors.ParserWarning)
            table = pd.read_csv(path, index_col=False, low_memory=False, dtype=dict.fromkeys(labels, str))
            table = with_label_texts(table, labels)
            return numbered(table.set_axis(header_names(pd.read_csv(path, **FIRST_ROW)), axis=1), 2, ROW)
    except (*UNREADABLE, pd.errors.ParserWarning) as error:
        raise InputError(f"file of measurements must be CSV or Parquet, got {error} ({path})") from error


def _plain(raw: pd.DataFrame, where: str) -> pd.DataFrame:
    """Rows by their numbers in a file, else counted from 0, and no categorical columns, which take no other value."""
    twice = raw.columns[raw.columns.duplicated()]
    if len(twice):
        raise InputError(f"columns must have distinct names, got {str(twice[0])!r} twice ({where})")
    categorical = [name for name in raw if isinstance(raw[name].dtype, pd.CategoricalDtype)]
    rows = raw if raw.index.name in (ROW, RECORD) else raw.reset_index(drop=True)
    return rows.astype(dict.fromkeys(categorical, object))


def _failed(raw: pd.DataFrame, rules: tuple[FailureRule, ...]) -> pd.Series:
    bad = pd.Series(False, index=raw.index)
    for rule in rules:
        values = raw[rule.column]
        missing = values.isna().to_numpy()
        if rule.is_not:
            bad |= missing | ~values.map(label).isin(rule.is_not).to_numpy(dtype=bool)
        if rule.equals is not None:
            bad |= numbers_or_nan(values) == rule.equals
        if rule.at_least is not None:
            bad |= numbers_or_nan(values) >= rule.at_least
        if rule.missing:
            bad |= missing
    return bad


def _column(raw: pd.DataFrame, rule: ColumnRule, made: Mapping[str, pd.Series], where: str) -> pd.Series:
    if rule.product:
        with np.errstate(over="ignore"):
            product = np.prod([made[name].to_numpy(dtype=float) for name in rule.product], axis=0)
        return _finite(pd.Series(product, index=raw.index) * rule.factor, rule, where)
    if rule.kind == "number":
        return _numbers(raw, rule, where, may_miss=False)
    values = _text(raw, rule, where)
    return made[rule.within].astype(str) + "/" + values if rule.within else values


def _first(raw: pd.DataFrame, rule: ColumnRule) -> pd.Series:
    """The first of the rule's columns that holds a value, row by row."""
    values = raw[rule.columns[0]]
    for name in rule.columns[1:]:
        if values.isna().any():
            # as objects: a column's type neither takes any value nor must change those that stand there
            values = values.astype(object).where(values.notna(), raw[name].astype(object))
    return values


def _with_default(values: pd.Series, rule: ColumnRule) -> pd.Series:
    if rule.default is None or not values.isna().any():
        return values
    return values.astype(object).where(values.notna(), rule.default)


def _text(raw: pd.DataFrame, rule: ColumnRule, where: str) -> pd.Series:
    values = _first(raw, rule)
    if rule.default is None:
        _complete(values, rule, where)
    text = values.map(label, na_action="ignore").astype("str")
    if rule.pattern is not None:
        extracted = text.str.extract(rule.pattern, expand=False)
        _complete(extracted[text.notna()], rule, where, f"match {rule.pattern!r}")
        text = extracted
    return _with_default(text, rule).astype("str")


def _numbers(raw: pd.DataFrame, rule: ColumnRule, where: str, may_miss: bool) -> pd.Series:
    values = _first(raw, rule)
    if rule.values:
        known = values.map(label, na_action="ignore").map(rule.values)
        unknown = known.isna() & values.notna()
        if unknown.any():
            first = label(values[unknown].iloc[0])
            raise BadRunsError("numeric", rule, unknown,
                               f"value of {rule.name!r} must be one that the mapping gives a number, got {first!r} "
                               f"({where}, {_row(unknown)}); " + nearest(first, rule.values))
        values = known
    numbers = numbers_or_nan(values)
    odd = numbers.isna() & values.notna()
    if odd.any():
        raise BadRunsError("numeric", rule, odd, f"column {' or '.join(rule.columns)!r} must hold numbers, got "
                                                 f"{str(values[odd].iloc[0])!r} ({where}, {_row(odd)})")
    numbers = _with_default(numbers, rule).astype(float)
    if not may_miss:
        _complete(numbers, rule, where)
    return _finite(numbers * rule.factor, rule, where)


def _finite(numbers: pd.Series, rule: ColumnRule, where: str) -> pd.Series:
    infinite = pd.Series(np.isinf(numbers.to_numpy()), index=numbers.index)
    if infinite.any():
        raise BadRunsError("finite", rule, infinite,
                           f"column {' or '.join(rule.columns or (rule.name,))!r} must hold finite numbers, got "
                           f"{numbers[infinite].iloc[0]} ({where}, {_row(infinite)})")
    return numbers


def _complete(values: pd.Series, rule: ColumnRule, where: str, must: str = "hold a value") -> None:
    empty = values.isna()
    if empty.any():
        runs = "run" if rule.name == "workload" else "run that did not fail"
        raise BadRunsError("not_null", rule, empty,
                           f"column {' or '.join(rule.columns)!r} must {must} in every {runs}, got none "
                           f"in {int(empty.sum())} of {len(values)} ({where}, {_row(empty)} first)")


def _positive(values: pd.Series, rule: ColumnRule, where: str) -> pd.Series:
    bad = ~(values > 0)
    if bad.any():
        raise BadRunsError("range", rule, bad,
                           f"column {' or '.join(rule.columns)!r} must hold numbers above 0 (predictions are ratios), "
                           f"got {values[bad].iloc[0]} ({where}, {_row(bad)}); name failed runs in the mapping")
    return values


def _row(bad: pd.Series) -> str:
    """The first row that is marked, as a message names it."""
    return row_text(bad.index, int(bad.to_numpy().argmax()))


def _far_levels(frame: pd.DataFrame, column: str) -> list[str]:
    level = frame.groupby("workload")[column].median()
    level = level[level > 0]
    if len(level) < 3:
        return []
    middle = float(level.median())
    ratios = (level / middle).sort_values(key=lambda ratio: -np.abs(np.log(ratio)), kind="stable")
    return [f"workload {name}: the median {column} is {ratio:.3g} times that of the median workload; "
            "look whether its units are the others'" for name, ratio in ratios.items()
            if not 1 / FAR_LEVEL < ratio < FAR_LEVEL]
