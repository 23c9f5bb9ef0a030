"""Measurements as arrays: configurations encoded, targets and metrics in logarithms, one cell a configuration.

A number that is positive everywhere and spans a factor of two or more is taken in logarithms (cores, nodes, memory:
what doubles counts, not what is added). Numbers are standardised over the distinct configurations; a category becomes
one column a value, and a value that was not there has zeros.

Symbols as in learner.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from feature_store.errors import InputError, nearest
from feature_store.measurements import Measurements
from models.adaptation.learner import FloatArray, Pool

SPAN = 2.0


@dataclass(frozen=True)
class NumberCode:
    """(value - mean) / scale of a number, or of its logarithm."""

    name: str
    logarithm: bool
    mean: float
    scale: float


@dataclass(frozen=True)
class CategoryCode:
    """One column a value."""

    name: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class Encoder:
    """How configurations become numbers; plain values, so that it can be stored with a model."""

    codes: tuple[NumberCode | CategoryCode, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The configuration's columns."""
        return tuple(code.name for code in self.codes)

    def encode(self, configurations: pd.DataFrame) -> FloatArray:
        """(C, columns). Raises InputError: a column is missing, or a logarithm of no positive number."""
        parts = []
        for code in self.codes:
            if code.name not in configurations:
                raise InputError(f"configuration must have the column {code.name!r}, got "
                                 f"{', '.join(map(str, configurations.columns))}")
            if isinstance(code, CategoryCode):
                values = configurations[code.name].astype(str).to_numpy()
                parts.append((values[:, None] == np.array(code.values)[None]).astype(np.float64))
                continue
            numbers = _numbers(configurations, code.name)
            if code.logarithm and not (numbers > 0).all():
                raise InputError(f"{code.name} must be above 0, got {numbers.min():g}")
            numbers = np.log(numbers) if code.logarithm else numbers
            parts.append(((numbers - code.mean) / code.scale)[:, None])
        return np.concatenate(parts, axis=1)

    def distance(self, configurations: pd.DataFrame) -> FloatArray:
        """(columns of the configuration, C, C): squared differences of numbers in units of their mean; 0 or 1 of
        categories."""
        distances = []
        for code in self.codes:
            if isinstance(code, CategoryCode):
                labels = configurations[code.name].astype(str).to_numpy()
                distances.append((labels[:, None] != labels[None]).astype(np.float64))
                continue
            x = Encoder((code,)).encode(configurations)[:, 0]
            distances.append((x[:, None] - x[None]) ** 2 / 2)  # standardised values differ by 2 in the mean of squares
        return np.stack(distances)


def fit_encoder(configurations: pd.DataFrame, kinds: Mapping[str, str]) -> Encoder:
    """An encoder of the distinct configurations; kinds: name -> number or category."""
    codes: list[NumberCode | CategoryCode] = []
    for name, kind in kinds.items():
        column = configurations[name]
        if kind == "category":
            codes.append(CategoryCode(name, tuple(sorted(set(column.astype(str))))))
            continue
        numbers = _numbers(configurations, name)
        logarithm = bool(numbers.min() > 0 and numbers.max() / SPAN >= numbers.min())
        numbers = np.log(numbers) if logarithm else numbers
        if numbers.min() == numbers.max():  # the mean of equal numbers may differ from them by rounding
            codes.append(NumberCode(name, logarithm, float(numbers[0]), 1.0))
            continue
        codes.append(NumberCode(name, logarithm, float(numbers.mean()), float(numbers.std())))
    return Encoder(tuple(codes))


def _numbers(configurations: pd.DataFrame, name: str) -> FloatArray:
    """A column, all finite."""
    numbers = pd.to_numeric(configurations[name], errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    bad = ~np.isfinite(numbers)
    if bad.any():
        raise InputError(f"{name} must hold finite numbers, got {configurations[name].to_numpy()[bad][0]!r}")
    return np.asarray(numbers)


@dataclass(frozen=True)
class Table:
    """All workloads of a file of measurements. configurations: (C rows) the distinct ones, in the order of `pool.x`."""

    workloads: tuple[str, ...]
    configurations: pd.DataFrame
    encoder: Encoder
    pool: Pool
    cost: FloatArray | None = None  # (W, C): mean cost of a run, NaN where not measured

    def rows(self, names: Sequence[str]) -> np.ndarray:
        """Indices of workloads. Raises InputError: one is not in the table."""
        for name in names:
            if name not in self.workloads:
                raise InputError(f"workload must be in the table, got {name!r}; {nearest(name, self.workloads)}")
        return np.array([self.workloads.index(name) for name in names], dtype=np.int64)


def table_of(measurements: Measurements) -> Table:
    """Measurements as one array, a cell a configuration."""
    frame, mapping = measurements.frame, measurements.mapping
    names = [rule.name for rule in mapping.configuration]
    at = frame[names].groupby(names, sort=True).ngroup().to_numpy()
    configurations = frame[names].iloc[np.unique(at, return_index=True)[1]].reset_index(drop=True)
    workloads = measurements.workloads
    row = frame["workload"].map({name: i for i, name in enumerate(workloads)}).to_numpy()
    shape = (len(workloads), len(configurations))
    target = np.log(frame[measurements.target].to_numpy(dtype=np.float64))
    y, runs = _cell_means(target, row, at, shape)
    spread = target - y[row, at]
    repeated = runs[row, at] > 1
    degrees = int((runs[runs > 1] - 1).sum())
    noise = float((spread[repeated] ** 2).sum() / degrees) if degrees else float("nan")
    logs = [_log_metric(frame[rule.name].to_numpy(dtype=np.float64)) for rule in mapping.metrics]
    cells = [_cell_means(log, row, at, shape)[0] for log in logs]
    metrics = np.stack(cells, axis=-1) if cells else np.empty((*shape, 0))
    encoder = fit_encoder(configurations, {rule.name: rule.kind for rule in mapping.configuration})
    cost = None
    if mapping.cost is not None:
        cost = _cell_means(frame["cost"].to_numpy(dtype=np.float64), row, at, shape)[0]
    pool = Pool(encoder.encode(configurations), encoder.distance(configurations), y, runs, metrics, noise)
    return Table(workloads, configurations, encoder, pool, cost)


def _log_metric(values: FloatArray) -> FloatArray:
    """Logarithm above 0, in units of the metric's median; counters may be 0."""
    positive = values[values > 0]
    scale = float(np.median(positive)) if len(positive) else 1.0
    return np.asarray(np.log1p(np.clip(values, 0, None) / scale))


def _cell_means(values: FloatArray, row: np.ndarray, at: np.ndarray,
                shape: tuple[int, int]) -> tuple[FloatArray, np.ndarray]:
    """Mean of the values that are there, and their number, by workload and configuration."""
    is_known = ~np.isnan(values)
    total, count = np.zeros(shape), np.zeros(shape, dtype=np.int64)
    np.add.at(total, (row[is_known], at[is_known]), values[is_known])
    np.add.at(count, (row[is_known], at[is_known]), 1)
    with np.errstate(invalid="ignore"):
        return np.where(count > 0, total / count, np.nan), count
