"""Pearson correlation of the metrics with the latency, per workload: which metrics are worth learning from.

Flow: the report shows the table, as a heat map; nothing downstream depends on it.

    pooled     [workloads, metrics]   over all rows of a workload
    averaged   [workloads, metrics]   mean over the runs of the correlation within a run, NaN if none has one

Source: vPALs, section "Performance Correlation Analysis", table 3 and figure 2. The paper averages "over the
runs"; a run here is one combination in one environment. Correlation within a run is weak where a run holds its load
steady, however strongly the metric separates runs: the pooled table shows that part.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from feature_store.errors import InputError, nearest

FEWEST_ROWS = 3  # two rows always correlate perfectly
RUN = ("environment", "combination")


@dataclass(frozen=True)
class CorrelationTable:
    """Pearson coefficients [workloads, metrics] of each metric with the latency; `runs` [workloads] counts them."""

    pooled: pd.DataFrame
    averaged: pd.DataFrame
    runs: pd.Series

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; None where a coefficient is not defined."""
        def plain(table: pd.DataFrame) -> dict[str, dict[str, float | None]]:
            return {str(workload): {str(name): None if np.isnan(value) else float(value)
                                    for name, value in row.items()} for workload, row in table.iterrows()}

        return {"pooled": plain(self.pooled), "averaged": plain(self.averaged),
                "runs": {str(workload): int(count) for workload, count in self.runs.items()}}


def correlation_table(samples: Mapping[str, pd.DataFrame], metrics: Sequence[str],
                      target: str = "latency_ms") -> CorrelationTable:
    """Correlates each metric with the target, for each workload.

    Args:
        samples: workload -> its telemetry, in the schema's columns; one is asked for at a time.
        metrics: the numeric columns to correlate; one that is constant in a run has no coefficient there.
        target: the numeric column to correlate with.

    Raises:
        InputError: a column is missing.
    """
    pooled, averaged, runs = {}, {}, {}
    for workload in sorted(samples):
        rows = samples[workload]
        for name in (*RUN, *metrics, target):
            if name not in rows:
                raise InputError(f"telemetry: expected a column {name!r}, got none (correlation); "
                                 + nearest(name, map(str, rows.columns)))
        pooled[workload] = _coefficients(rows, metrics, target)
        within = np.array([_coefficients(run, metrics, target)
                           for _, run in rows.groupby(list(RUN), sort=False)])
        defined = ~np.isnan(within)
        count = defined.sum(axis=0)
        total = np.where(defined, within, 0.0).sum(axis=0)
        averaged[workload] = np.where(count > 0, total / np.maximum(count, 1), np.nan)
        runs[workload] = len(within)
    return CorrelationTable(
        pooled=pd.DataFrame.from_dict(pooled, orient="index", columns=list(metrics)),
        averaged=pd.DataFrame.from_dict(averaged, orient="index", columns=list(metrics)),
        runs=pd.Series(runs, dtype="int64"),
    )


def _coefficients(rows: pd.DataFrame, metrics: Sequence[str], target: str) -> NDArray[np.float64]:
    """Pearson coefficient of each metric with the target [metrics], over the rows where both are finite."""
    latency = rows[target].to_numpy(dtype=np.float64)
    return np.array([_pearson(rows[name].to_numpy(dtype=np.float64), latency) for name in metrics])


def _pearson(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    both = np.isfinite(x) & np.isfinite(y)
    x, y = x[both], y[both]
    if len(x) < FEWEST_ROWS or np.ptp(x) == 0.0 or np.ptp(y) == 0.0:
        return float("nan")
    x, y = x - x.mean(), y - y.mean()
    return float(np.clip((x @ y) / (np.linalg.norm(x) * np.linalg.norm(y)), -1.0, 1.0))
