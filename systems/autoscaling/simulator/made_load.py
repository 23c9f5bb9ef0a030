"""Load that comes with Assay: four workloads named after the recorded servers, three days of requests a minute each.

    python -m systems.autoscaling.simulator.made_load data/autoscaling/load.parquet

Made, not recorded: a daily wave of each workload, with other bursts, steps and drifts on each day (arrivals.py,
`made_traces`), at rates of 2 to 3 cores.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

from systems.autoscaling.simulator.arrivals import made_traces

MEAN_RPS = {"mysql": 4000.0, "nginx": 2500.0, "redis": 2000.0, "search": 3000.0}
DAYS, SEED = 3, 2026
DEPTH = (0.35, 0.6)  # of the daily wave
OWN = 0.5  # by which power a day's own shape counts beside the wave
START = pd.Timestamp("2026-03-02T00:00:00Z")


def made_load(seed: int = SEED) -> pd.DataFrame:
    """The table, workload by workload in order of time."""
    random = np.random.default_rng(seed)
    tables = []
    for number, (name, mean) in enumerate(MEAN_RPS.items()):
        days = made_traces(DAYS, seed + 1 + number)
        minute = np.arange(days.shape[1])
        wave = 1 + random.uniform(*DEPTH) * np.sin(2 * np.pi * (minute / len(minute) + random.uniform()))
        shape = (wave * days**OWN).ravel()
        tables.append(pd.DataFrame({
            "workload": name, "environment": "made", "combination": "unknown",
            "window_start": pd.date_range(START, periods=len(shape), freq="60s"), "window_s": 60.0,
            "rate_rps": np.round(mean * shape / shape.mean(), 3)}))
    return pd.concat(tables, ignore_index=True)


if __name__ == "__main__":
    made_load().to_parquet(Path(sys.argv[1]), index=False, compression="zstd")
