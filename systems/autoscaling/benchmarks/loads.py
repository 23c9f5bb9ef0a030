"""The applications of the task under the loads of the benchmarks: `azure`, recorded ones, or `made`."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.data_folder import required
from systems.autoscaling.environment import ENVIRONMENT
from systems.autoscaling.simulator.arrivals import read_traces
from systems.autoscaling.simulator.simulator import Autoscaling


def under_load(load: str, folder: Path | None) -> Autoscaling:
    """The task's applications under a load. Raises InputError where the recorded ones are missing."""
    return Autoscaling(ENVIRONMENT.applications, series_of(load, folder))


def series_of(load: str, folder: Path | None) -> NDArray[np.float64] | None:
    """Series of a load; None: made ones, drawn anew in each episode."""
    if load == "made":
        return None
    return read_traces(required(folder) / "azure_functions" / "invocations_per_minute_1350.csv.gz")
