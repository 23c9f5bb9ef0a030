"""The specification audit of a table of measurements: within each workload, over its configurations.

Pairs are of one workload; every configuration column is equal in both but the audited one and those that follow it
(a product moves with its factors). Columns are raw, targets logarithms: a violation of 0.1 is a run time 10 % off.
All workloads together make the overall share, whose interval takes workloads for the independent units: what holds for
a workload that was not measured. specification_audit.py says what is reported and what the verdicts mean.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from feature_store.errors import InputError, nearest
from feature_store.measurement_mapping import MeasurementMapping
from models.adaptation.encoding import Table
from models.audit.pairs import IntArray, exact_pairs, groups_of_equal, levels
from models.audit.specification_audit import (
    AuditedRows,
    AuditSettings,
    PropertyAudit,
    free_columns,
    judge,
)
from models.verification.language.properties import Direction, FloatArray


@dataclass(frozen=True)
class TableAudit:
    """One configuration column. In worst pairs, rows are those of Table.configurations, targets are no logarithms."""

    overall: PropertyAudit
    workloads: Mapping[str, PropertyAudit]

    @property
    def exceptions(self) -> tuple[str, ...]:
        """Workloads that contradict, the smallest share first."""
        contradicting = [name for name, audit in self.workloads.items() if audit.verdict == "contradicted"]
        return tuple(sorted(contradicting, key=lambda name: self.workloads[name].obeys))

    @property
    def decided(self) -> int:
        """Of how many workloads there are pairs enough for a verdict."""
        return sum(one.pairs >= one.minimum_pairs for one in self.workloads.values())

    def to_json(self) -> dict[str, Any]:
        """Strict JSON: None for NaN."""
        return {"overall": self.overall.to_json(), "exceptions": list(self.exceptions),
                "workloads": {name: audit.to_json() for name, audit in self.workloads.items()}}


def products_of(mapping: MeasurementMapping) -> dict[str, tuple[str, ...]]:
    """The configuration columns that a mapping makes as products, with their factors."""
    return {rule.name: rule.product for rule in mapping.configuration if rule.product}


def audit_table(table: Table, directions: Mapping[str, Direction], *,
                products: Mapping[str, Sequence[str]] | None = None, noise: float | None = None,
                settings: AuditSettings = AuditSettings()) -> dict[str, TableAudit]:
    """The audit of each column of `directions`, by its name.

    Args:
        table: see models/adaptation/encoding.py; configurations may have further columns, such as derived ones.
        directions: how the target is to move with a configuration column that is a number.
        products: columns that are products of others, see `products_of`.
        noise: standard deviation of the log target of repeated runs; by default the table's own.

    Raises:
        InputError: a column is unknown or not a number.
    """
    configurations = table.configurations
    names = tuple(map(str, configurations.columns))
    for name in directions:
        if name not in names:
            raise InputError(f"audited column: expected one of the configuration, got {name!r}; {nearest(name, names)}")
        if not pd.api.types.is_numeric_dtype(configurations[name]):
            raise InputError(f"audited column must hold numbers, got {configurations[name].dtype} ({name})")
    workload, at = (index.astype(np.int64) for index in np.nonzero(~np.isnan(table.pool.y)))
    y = table.pool.y[workload, at]
    rows = AuditedRows(y, np.exp(y), table.pool.runs[workload, at].astype(np.float64), workload,
                       float(np.sqrt(table.pool.noise)) if noise is None else noise)
    codes = {name: _codes(configurations[name], settings.tolerance)[at] for name in names}
    audits = {}
    for name, direction in directions.items():
        free = free_columns(name, names, products or {})
        same = groups_of_equal([workload, *(codes[other] for other in names if other not in free)], len(y))
        column = configurations[name].to_numpy(dtype=np.float64)[at]
        pairs = exact_pairs(same, column, codes[name], settings.maximum_pairs, settings.seed)
        audits[name] = _judge(name, direction, pairs, column, rows, table.workloads, at, settings)
    return audits


def _judge(name: str, direction: Direction, pairs: IntArray, column: FloatArray, rows: AuditedRows,
           workloads: Sequence[str], at: IntArray, settings: AuditSettings) -> TableAudit:
    def named(audit: PropertyAudit) -> PropertyAudit:
        return replace(audit, worst=tuple(
            replace(pair, low=int(at[pair.low]), high=int(at[pair.high]), workload=workloads[rows.group[pair.low]])
            for pair in audit.worst))

    single = replace(rows, group=np.arange(len(column)))
    of = rows.group[pairs[:, 0]]
    return TableAudit(
        named(judge(name, direction, "exact", pairs, column, rows, settings)),
        {workload: named(judge(name, direction, "exact", pairs[of == i], column, single, settings))
         for i, workload in enumerate(workloads)})


def _codes(column: pd.Series, tolerance: float) -> IntArray:
    if pd.api.types.is_numeric_dtype(column):
        return levels(column.to_numpy(dtype=np.float64), tolerance)
    return pd.factorize(column.astype(str))[0].astype(np.int64)
