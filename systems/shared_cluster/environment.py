"""The shared cluster as a task file names it: randomised clusters, and the twin of a workload, one cluster."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from feature_store.schema import Column
from models.control.contract.controller import RuleFamily
from models.control.contract.setting import Setting, filled
from models.control.simulation.recorded_load import RecordedLoad, recorded_load
from systems.shared_cluster.functions import Clusters, draw_clusters
from systems.shared_cluster.guarantee import LIMITS
from systems.shared_cluster.rules import RULES
from systems.shared_cluster.simulator import FUTURE, SharedCluster

if TYPE_CHECKING:
    import pandas as pd

SETTINGS = (
    Setting("functions", 12.0, "1", 2.0, 1000.0, whole=True, meaning="that share the cluster"),
    Setting("cluster_cores", 48.0, "cores", 1.0, 64_000.0, meaning="that are to be shared"),
    Setting("busy", 0.45, "share", 0.05, 1.0, meaning="of them, that the mean load keeps busy"),
)


class SharedClusterSystem(SharedCluster):
    """Implements `ControlledSystem`."""

    columns: Mapping[str, Column] = {
        "rate_rps": Column("1/s", 0.0, None, "requests that arrive a second, at one function or at all")}
    settings: Sequence[Setting] = SETTINGS
    telemetry: Path | None = Path(__file__).resolve().parents[2] / "data" / "loads" / "shared_cluster.parquet"
    largest_reward = 1.0
    acting: str = "systems.shared_cluster.acting"
    rules: Mapping[str, RuleFamily] = RULES

    def twin(self, telemetry: "pd.DataFrame", settings: Mapping[str, float | str],
             limits: Mapping[str, tuple[float, float]]) -> "_OneCluster":
        """See `ControlledSystem.twin`: each function's load is the recorded one, from a moment of its own on, over its
        mean; functions, objectives and noise are those of randomised clusters.

        Raises:
            InputError: limits, which are the cluster's and not a workload's; too short a load; too few cores.
        """
        rate = np.clip(telemetry["rate_rps"].to_numpy(dtype=np.float64), 2.0**-6, 2.0**16)
        load = recorded_load(np.log(rate / rate.mean()), telemetry, "load")
        known = filled(settings, SETTINGS)
        functions, cores = LIMITS.of_workload(known, limits)
        return _OneCluster(functions, load, cores, float(known["busy"]))

    def guarantees(self, model: bytes, properties: Sequence[Mapping[str, Any]], settings: Mapping[str, float | str],
                   limits: Mapping[str, tuple[float, float]]) -> Mapping[str, Any]:
        """See guarantee.py."""
        return LIMITS.guarantees(properties, filled(settings, SETTINGS))


class _OneCluster(SharedCluster):
    """A cluster whose load was recorded."""

    def __init__(self, functions: int, load: RecordedLoad, cluster_cores: float, busy: float) -> None:
        super().__init__(functions)
        self._load = load  # logarithm, over its mean
        self._cores, self._busy = cluster_cores, busy

    def draw(self, split: str, count: int, steps: int, seed: int, scenario: str = "",
             applications: Sequence[int] | None = None) -> Clusters:
        """See `Environment`."""
        drawn = draw_clusters(split, count, self.agents, steps + 1 + FUTURE, seed, scenario, applications)
        recorded = self._load.replayed(split, np.random.default_rng([seed, 5]), count * self.agents,
                                       len(drawn.rate_rps), self.step_seconds)
        load = torch.tensor(np.exp(recorded), dtype=torch.float32)
        work_s = drawn.known.work_s[drawn.function]
        parts = (drawn.rate_rps * work_s).mean(dim=0).reshape(count, self.agents)
        mean_cores = self._busy * self._cores * parts / parts.sum(dim=1, keepdim=True)
        rate = (mean_cores.reshape(-1) * load / work_s).clamp(2.0**-6, 2.0**16)
        capacity = torch.full((count,), self._cores)
        return replace(drawn, rate_rps=rate, capacity=capacity, bandwidth=0.25 * capacity)


ENVIRONMENT = SharedClusterSystem()
