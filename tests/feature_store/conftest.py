"""Synthetic telemetry for the tests of this room: one workload, one row a minute, uniform values."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from feature_store.schema import METRICS, TARGETS, Column, TelemetrySchema


@pytest.fixture(scope="session")
def schema() -> TelemetrySchema:
    """Two pressures, a quota and the latency; windows are kept whole."""
    return TelemetrySchema(
        workload="redis",
        features={"psi_io_full": METRICS["psi_io_full"], "cpu_time": METRICS["cpu_time"],
                  "cpu_quota_cores": Column("cores", 0.0, None, "quota")},
        target=dict(TARGETS),
        split_by=("environment", "window_start"),
        minimum_rows=50,
    )


@pytest.fixture(scope="session")
def telemetry() -> Callable[..., pd.DataFrame]:
    """telemetry(rows, workload): a frame that breaks no rule."""
    def make(rows: int = 120, workload: str = "redis") -> pd.DataFrame:
        generator = np.random.default_rng(0)
        return pd.DataFrame({
            "workload": workload,
            "environment": "base",
            "combination": [f"c{row // 20}" for row in range(rows)],
            "window_start": pd.date_range("2024-01-01", periods=rows, freq="60s", tz="UTC"),
            "window_s": 60.0,
            "psi_io_full": generator.random(rows),
            "cpu_time": generator.random(rows),
            "cpu_quota_cores": generator.choice([0.5, 1.0, 2.0], rows),
            "latency_ms": 1.0 + generator.random(rows),
        })

    return make
