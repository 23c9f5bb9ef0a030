"""Telemetry of the example kind."""

import numpy as np
import pandas as pd


def table(rows: int = 200, seed: int = 0) -> pd.DataFrame:
    """What an operator would do: more cores the more the objective is missed, fewer slowly where it is met."""
    generator = np.random.default_rng(seed)
    ratio, use, limit = (generator.uniform(low, high, rows) for low, high in ((0, 3), (0, 1), (0.5, 8)))
    return pd.DataFrame({
        "workload": "shop", "environment": "table", "combination": "table",
        "window_start": pd.date_range("2026-01-05", periods=rows, freq="60s", tz="UTC"), "window_s": 60.0,
        "p99_over_slo": ratio, "utilization": use, "limit_cores": limit,
        "new_limit_cores": limit + np.where(ratio > 1, 1.5 * (ratio - 1), 0.4 * (ratio - 1)),
        "replica_change": np.round(4 * (use - 0.5))})
