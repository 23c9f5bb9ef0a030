"""A made load as the telemetry of a workload: four hours, a row a second.

    python -m models.control.simulation.made_telemetry OUTPUT.parquet --workload shop --column rate_rps --mean 500
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from models.control.simulation.made_load import made_load

START = pd.Timestamp("2026-03-02T00:00:00Z")
ROWS, TIDES, BURSTS, BURST_STEPS = 14_400, 4.0, 0.004, 20.0


def made_telemetry(workload: str, column: str, mean: float, seed: int) -> pd.DataFrame:
    """column: what the load is in, and `mean` with it."""
    logarithm = made_load(np.random.default_rng(seed), ROWS, 1, np.array([ROWS / TIDES]), BURSTS, BURST_STEPS)[:, 0]
    load = np.exp(logarithm)
    return pd.DataFrame({"workload": workload, "window_start": pd.date_range(START, periods=ROWS, freq="1s"),
                         "window_s": 1.0, column: np.round(mean * load / load.mean(), 3)})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--workload", required=True)
    parser.add_argument("--column", required=True, help="that the system asks for")
    parser.add_argument("--mean", type=float, required=True, help="in the column's unit")
    parser.add_argument("--seed", type=int, default=0, help="default: 0")
    given = parser.parse_args()
    made_telemetry(given.workload, given.column, given.mean, given.seed).to_parquet(
        given.output, index=False, compression="zstd")
