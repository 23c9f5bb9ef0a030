"""Microservices as a task file names them: randomised applications, and the twin of a workload, one application."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from feature_store.schema import Column
from models.control.contract.controller import RuleFamily
from models.control.contract.setting import Setting, filled
from models.control.simulation.recorded_load import RecordedLoad, recorded_load
from systems.microservices.applications import Load
from systems.microservices.guarantee import LIMITS
from systems.microservices.rules import RULES
from systems.microservices.simulator import Microservices

if TYPE_CHECKING:
    import pandas as pd

SETTINGS = (
    Setting("services", 12.0, "1", 2.0, 100.0, whole=True, meaning="of the application"),
    Setting("node_cores", 48.0, "cores", 1.0, 6400.0, meaning="that its services share"),
    Setting("busy", 0.2, "share", 0.02, 1.0, meaning="of them, that the mean load keeps busy"),
)


class MicroservicesSystem(Microservices):
    """Implements `ControlledSystem`."""

    columns: Mapping[str, Column] = {
        "rate_rps": Column("1/s", 0.0, None, "requests that arrive a second, of all types")}
    settings: Sequence[Setting] = SETTINGS
    telemetry: Path | None = Path(__file__).resolve().parents[2] / "data" / "loads" / "microservices.parquet"
    largest_reward = 1.0
    acting: str = "systems.microservices.acting"
    rules: Mapping[str, RuleFamily] = RULES

    def twin(self, telemetry: "pd.DataFrame", settings: Mapping[str, float | str],
             limits: Mapping[str, tuple[float, float]]) -> "_OneApplication":
        """See `ControlledSystem.twin`: the load is the recorded one, over its mean; anomalies, objectives and noise are
        those of randomised applications.

        Raises:
            InputError: limits, which are the node's and not a workload's; too short a load; too few cores.
        """
        rate = np.clip(telemetry["rate_rps"].to_numpy(dtype=np.float64), 2.0**-6, 2.0**16)
        load = recorded_load(rate / rate.mean(), telemetry, "load")
        known = filled(settings, SETTINGS)
        services, cores = LIMITS.of_workload(known, limits)
        return _OneApplication(services, load, cores, float(known["busy"]))

    def guarantees(self, model: bytes, properties: Sequence[Mapping[str, Any]], settings: Mapping[str, float | str],
                   limits: Mapping[str, tuple[float, float]]) -> Mapping[str, Any]:
        """See guarantee.py."""
        return LIMITS.guarantees(properties, filled(settings, SETTINGS))


class _OneApplication(Microservices):
    """A node whose application's load was recorded."""

    def __init__(self, services: int, load: RecordedLoad, node_cores: float, busy: float) -> None:
        super().__init__(services)
        self._load = load  # over its mean
        self._cores, self._busy = node_cores, busy

    def _given(self, split: str, random: np.random.Generator, count: int, length: int) -> Load:
        """An episode is the recorded load from a moment of its own on."""
        load = self._load.replayed(split, random, count, length, self.step_seconds)
        return Load(np.full(count, self._cores), np.full(count, self._busy), load)


ENVIRONMENT = MicroservicesSystem()
