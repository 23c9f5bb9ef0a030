"""Load that comes with Assay: three made workloads, a day of requests a minute each.

    python -m models.environments.autoscaling.made_load data/autoscaling/load.parquet

Made, not recorded: daily waves with bursts, steps and drifts (arrivals.py, `made_traces`), at rates of 2 to 4 cores.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

from models.environments.autoscaling.arrivals import made_traces

MEAN_RPS = {"api": 900.0, "images": 60.0, "web": 350.0}
SEED = 20_26
START = pd.Timestamp("2026-03-02T00:00:00Z")


def made_load() -> pd.DataFrame:
    """The table, workload by workload in order of time."""
    shapes = made_traces(len(MEAN_RPS), SEED)
    return pd.concat([pd.DataFrame({
        "workload": name, "environment": "made", "combination": "unknown",
        "window_start": pd.date_range(START, periods=len(shape), freq="60s"), "window_s": 60.0,
        "rate_rps": np.round(mean * shape, 3)}) for (name, mean), shape in zip(MEAN_RPS.items(), shapes, strict=True)],
        ignore_index=True)


if __name__ == "__main__":
    made_load().to_parquet(Path(sys.argv[1]), index=False, compression="zstd")
