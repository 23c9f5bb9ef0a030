"""Pearson correlation of the metrics with the latency, per workload: which metrics are worth learning from.

Flow: the report shows the table, as a heat map; nothing downstream depends on it.

Source: vPALs, section "Performance Correlation Analysis", table 3 and figure 2, there over the runs; here over all rows
of a workload: within a run that holds its load steady a metric says little, however strongly it separates runs.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from feature_store.errors import InputError, nearest

FEWEST_ROWS = 3  # two rows always correlate perfectly


def correlation_table(samples: Mapping[str, pd.DataFrame], metrics: Sequence[str],
                      target: str = "latency_ms") -> dict[str, dict[str, float | None]]:
    """Correlates each metric with the target, for each workload.

    Args:
        samples: workload -> its telemetry, in the schema's columns; one is asked for at a time.
        metrics: the numeric columns to correlate.
        target: the numeric column to correlate with.

    Returns:
        workload -> metric -> coefficient; None where it is not defined, as of a constant metric.

    Raises:
        InputError: a column is missing.
    """
    found = {}
    for workload in sorted(samples):
        rows = samples[workload]
        for name in (*metrics, target):
            if name not in rows:
                raise InputError(f"telemetry: expected a column {name!r}, got none (correlation); "
                                 + nearest(name, map(str, rows.columns)))
        latency = rows[target].to_numpy(dtype=np.float64)
        found[workload] = {name: _pearson(rows[name].to_numpy(dtype=np.float64), latency) for name in metrics}
    return found


def _pearson(x: NDArray[np.float64], y: NDArray[np.float64]) -> float | None:
    """Over the rows where both are finite."""
    both = np.isfinite(x) & np.isfinite(y)
    x, y = x[both], y[both]
    if len(x) < FEWEST_ROWS or np.ptp(x) == 0.0 or np.ptp(y) == 0.0:
        return None
    x, y = x - x.mean(), y - y.mean()
    return float(np.clip((x @ y) / (np.linalg.norm(x) * np.linalg.norm(y)), -1.0, 1.0))
