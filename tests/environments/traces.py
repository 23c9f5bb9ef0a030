"""Telemetry of the example environment."""

import numpy as np
import pandas as pd


def trace(rows: int = 400, seed: int = 0, workload: str = "shop") -> pd.DataFrame:
    """Requests a second, a row every ten seconds: a wave and noise."""
    random, time = np.random.default_rng(seed), np.arange(rows)
    rate = 20 * (1 + 0.5 * np.sin(2 * np.pi * time / 90)) * random.lognormal(0, 0.1, rows)
    return pd.DataFrame({"workload": workload, "window_s": 10.0, "rate_rps": rate, "window_start": pd.date_range(
        "2026-03-02", periods=rows, freq="10s", tz="UTC")})
